"""The autoscaler's HTTP face: who leads, what is decided for whom, and figures. Read-only."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from services.autoscaler.core.events import KINDS
from services.autoscaler.core.state import ScalerStats
from services.autoscaler.core.telling import DESIGN_DUE
from services.autoscaler.shell import ScalerShell
from shared.autoscaling.safety.chain import SAFEGUARDS
from shared.model.controllers.autoscaler import ScalerMode
from shared.runtime.http.peers import FiguresRoute
from shared.runtime.leading import Face
from shared.runtime.lease.leadership import leadership_figures
from shared.runtime.observe.metrics import Metrics

STALE_AFTER = 3
"""Decisions left out in a row after which an object counts as undecided."""


class ScalerAdmin(Face[ScalerShell]):
    """Routes and figures of this process; its term's parts are the shell."""

    def routes(self) -> tuple[FiguresRoute, ...]:
        """``GET /v1/status``, ``GET /v1/autoscalers``."""
        return (FiguresRoute("/v1/status", self.status), FiguresRoute("/v1/autoscalers", self.autoscalers))

    def register(self, metrics: Metrics) -> None:
        """Show the figures at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("autoscaler", self.stats)
        metrics.leader("autoscaler", lambda: self.term > 0)
        objects = metrics.gauge("autoscalers", "ResilientAutoscaler objects by mode", ["mode"])
        for mode in ScalerMode:
            objects.labels(mode.value).set_function(partial(self._in_mode, mode))
        for condition in ("Ready", "Acting", "MetricsGood", "ForeignWriter", "PolicySound", DESIGN_DUE):
            name = {
                "MetricsGood": "metrics_good", "ForeignWriter": "foreign_writer", "PolicySound": "policy_sound",
                DESIGN_DUE: "design_due",
            }  # fmt: skip
            metrics.gauge_of(
                f"autoscalers_{name.get(condition, condition.lower())}",
                f"ResilientAutoscaler objects whose condition {condition} is True",
                partial(self._with_condition, condition),
            )
        silent = metrics.gauge(
            "autoscaler_watch_silent_seconds",
            "How long the watch of a kind has said nothing; 180: it is broken",
            ["kind"],
        )
        for kind in KINDS:
            silent.labels(kind).set_function(partial(self._silent_s, kind))
        changed = metrics.gauge(
            "autoscaler_safeguards", "Numbers that each safeguard changed in this term", ["safeguard"]
        )
        names = [name for name, _ in SAFEGUARDS if name != "rates"] + ["rate-up", "rate-down"]
        for safeguard in names:
            changed.labels(safeguard).set_function(partial(self._changed_by, safeguard))
        for field in dataclasses.fields(ScalerStats):
            if field.name != "safeguards":
                metrics.counter_of(
                    f"autoscaler_{field.name}_total",
                    f"{field.name.replace('_', ' ').capitalize()} in this term",
                    partial(self._count, field.name),
                )

    def status(self) -> dict[str, Any]:
        """Who leads, and whether everything has been listed."""
        answer = leadership_figures(self.service_id, self.leadership)
        if self.parts is not None:
            core = self.parts.core
            answer |= {"ready": core.ready, "objects": len(core.state.objects)}
        return answer

    def autoscalers(self) -> dict[str, Any]:
        """Every object's status as this leader would write it, and where its decision is."""
        if self.parts is None:
            return {"leading": False, "items": []}
        objects = self.parts.core.state.objects
        return {
            "leading": True,
            "items": [
                {"object": key, "stage": one.stage.value, "status": one.status} for key, one in sorted(objects.items())
            ],
        }

    def stats(self) -> dict[str, Any]:
        """Counters of the term."""
        figures = self.figures()
        return figures | dataclasses.asdict(self.parts.core.state.stats) if self.parts is not None else figures

    def _count(self, name: str) -> float:
        return float(getattr(self.parts.core.state.stats, name)) if self.parts is not None else 0.0

    def _silent_s(self, kind: str) -> float:
        return self.parts.silences().get(kind, 0.0) if self.parts is not None else 0.0

    def _changed_by(self, safeguard: str) -> float:
        return float(self.parts.core.state.stats.safeguards.get(safeguard, 0)) if self.parts is not None else 0.0

    def _in_mode(self, mode: ScalerMode) -> float:
        if self.parts is None:
            return 0.0
        return float(sum(1 for one in self.parts.core.state.objects.values() if one.scaler.mode is mode))

    def _with_condition(self, condition: str) -> float:
        if self.parts is None:
            return 0.0
        return float(
            sum(
                True
                for one in self.parts.core.state.objects.values()
                if any(
                    told["type"] == condition and told["status"] == "True"
                    for told in one.status.get("conditions", ())  # type: ignore[attr-defined]
                )
            )
        )
