"""The binder's HTTP face: plans for the leader, figures for operators.

A standby refuses plans with 421 ``not_leader``: who leads is in etcd, and whoever asks here has old news. Read-only
otherwise; ``/v1/stats`` and ``/metrics`` come with ``shared.runtime.http.peers``. It shows no pod's spec and no
label.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from prometheus_client import Histogram

from services.binder.core.state import BinderStats
from services.binder.metrics import DeviceMetrics
from services.binder.shell import BinderShell
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import FiguresRoute, PeerRoute
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.leading import Face
from shared.runtime.lease.leadership import leadership_figures
from shared.runtime.observe.metrics import Metrics
from shared.wire.codec import MAX_BODY_BYTES, decode, encode
from shared.wire.messages import Plan, PlanResult

COORDINATOR = frozenset({"coordinator"})


class BinderAdmin(Face[BinderShell]):
    """Routes and figures of this process; its term's parts are the shell."""

    def __init__(self, service_id: str, shard: str, profile: str = "conclave") -> None:
        super().__init__(service_id)
        self.profile = profile
        self.shard = shard
        self.bind_seconds: Histogram | None = None
        self.device_metrics: DeviceMetrics | None = None

    def routes(self) -> tuple[PeerRoute | FiguresRoute, ...]:
        """``POST /v1/plans``, for coordinators only; ``GET /v1/status``."""
        return (
            PeerRoute("/v1/plans", self.plans, roles=COORDINATOR, max_body_bytes=MAX_BODY_BYTES),
            FiguresRoute("/v1/status", self.status),
        )

    async def plans(self, body: bytes, caller: Caller) -> bytes:  # noqa: ARG002
        """Plan to PlanResult. Refused: ``WireError`` (400), and as ``submit``."""
        return encode(await self.submit(decode(body, Plan)))

    async def submit(self, plan: Plan) -> PlanResult:
        """The plan's results. Refused: ``not_leader``, ``stale_term``, ``overloaded``.

        One that comes during the takeover waits for its end. Outcome unknown (503): ``not_ready`` where too much waits
        already, or it was told again (had no effect); ``leadership_lost``.
        """
        if self.parts is None:
            raise RequestRefused("another binder leads this shard", code="not_leader")
        return await self.parts.submit(plan)

    def register(self, metrics: Metrics) -> None:
        """Show the figures at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("binder", self.stats)
        self.bind_seconds = metrics.histogram("bind_duration_seconds", "One Binding call, by result", ["result"])
        self.device_metrics = DeviceMetrics(metrics, profile=self.profile)
        metrics.leader("binder", lambda: self.term > 0)
        metrics.gauge_of("units_in_transit", "Units between plan and Binding", lambda: float(self._in_transit()))
        for field in dataclasses.fields(BinderStats):
            metrics.gauge_of(
                f"binder_{field.name}",
                f"{field.name.replace('_', ' ').capitalize()} in this term",
                lambda name=field.name: float(self._count(name)),  # type: ignore[misc]  # bound per gauge
            )

    def status(self) -> dict[str, Any]:
        """Who leads the shard, and how far the takeover is."""
        answer = leadership_figures(self.service_id, self.leadership) | {"shard": self.shard}
        if self.parts is not None:
            core = self.parts.core
            answer |= {
                "accepting": core.takeover.accepting,
                "missing": core.takeover.missing,
                "shards": list(core.state.shards.names),
                "loans": len(core.loans),
                "in_transit": len(core.state.in_flight),
                "nodes": len(core.state.cache.table.row_of),
                "accounts": len(core.state.cache.accounts),
            }
        return answer

    def stats(self) -> dict[str, Any]:
        """Counters of the term."""
        figures = self.figures()
        if self.parts is not None:
            core = self.parts.core
            figures |= dataclasses.asdict(core.stats)
            figures["in_transit"] = len(core.state.in_flight)
            figures["bindings_in_flight"] = core.cycle.line.in_flight
            figures["coordinator_term"] = core.coordinator_term
        return figures

    def _count(self, name: str) -> int:
        return int(getattr(self.parts.core.stats, name)) if self.parts is not None else 0

    def _in_transit(self) -> int:
        return len(self.parts.core.state.in_flight) if self.parts is not None else 0
