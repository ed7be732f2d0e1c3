"""What the status of each LatencyTarget should say: who reaches it, how far away it is, whose limits are broken. Pure.

    objects as the watch shows them, what nodes measured, broken limits --wanted--> status, when it is worth a write

A condition that changes is written at the next look, one object at most once in ``AGAIN_S``; figures and messages that
waver at most once in ``FIGURES_S``. A new leader knows nothing yet: what the one before it wrote stands for
``SETTLE_S``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from msgspec import Struct

from services.coordinator.usage.latency_limits import BrokenLimit, unheeded
from services.coordinator.usage.measured import NEVER_S, MeasuredNode
from shared.errors import ObjectError
from shared.kube.nodes.latency_targets import LatencyTargetObject, latency_target_from_api
from shared.kube.objects import ObjectMeta
from shared.kube.resources import DeletedObject, Upserted
from shared.wire.readings import MAX_TARGETS

AGAIN_S, FIGURES_S = 5.0, 30.0
SETTLE_S = 60.0
"""In that time all agents have told a new leader what they measure, of up to 6,000 (``desk.MESSAGES_PER_S``)."""
NAMED = 5
"""Nodes, or pods, that a message names."""


@dataclass(slots=True)
class _Known:
    """One object: ``problem`` why it cannot be used, "" where it can; ``status`` as it stands."""

    meta: ObjectMeta
    problem: str
    status: Mapping[str, Any]
    tried_s: float = NEVER_S
    """When a write of it was asked for last."""
    told: bool = False
    """It stands in its status how it fares, of the spec that it has."""

    def as_told(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The same fields as they stand; the API server leaves out those that are None."""
        return {field: self.status.get(field) for field in wanted}


class TellTarget(Struct, frozen=True):
    """A write: ``status`` replaces what the object has."""

    name: str
    uid: str
    status: dict[str, Any]


@dataclass(slots=True)
class TargetStatuses:
    """One term's. ``saw`` takes batches of the watch; ``due`` what is to be written now."""

    _known: dict[str, _Known] = field(default_factory=dict)
    _began_s: float | None = None
    """When it was first asked what is due."""

    def saw(self, batch: Sequence[Any]) -> None:
        """Objects as the watch shows them, those that cannot be used too: they are told why."""
        for event in batch:
            if isinstance(event, Upserted):
                item: LatencyTargetObject = event.object
                before = self._known.get(item.metadata.name)
                status = item.status if isinstance(item.status, dict) else {}
                known = _Known(item.metadata, _problem(item), status)
                known.told = bool(_conditions(status)) and status.get("observedGeneration") == item.metadata.generation
                if before is not None and before.meta.uid == item.metadata.uid:
                    known.tried_s = before.tried_s
                self._known[item.metadata.name] = known
            elif isinstance(event, DeletedObject):
                self._known.pop(event.object.metadata.name, None)

    def due(
        self,
        nodes: Mapping[str, MeasuredNode],
        broken: Iterable[BrokenLimit],
        tried: Collection[str],
        now_s: float,
        now: str,
    ) -> list[TellTarget]:
        """What to write at ``now_s`` of a clock that never goes back, ``now`` as RFC 3339. ``tried``: the targets that
        agents are told of."""
        began_s = self._began_s = now_s if self._began_s is None else self._began_s
        if not self._known:
            return []
        mine: dict[str, list[BrokenLimit]] = {}
        for one in broken:
            mine.setdefault(one.target, []).append(one)
        found = []
        sensing = {name: node for name, node in nodes.items() if node.told_s != NEVER_S}
        for name, known in self._known.items():
            if now_s - began_s < SETTLE_S and known.told and known.tried_s == NEVER_S:
                continue
            problem = known.problem or ("" if name in tried else f"only {MAX_TARGETS} targets are tried")
            wanted = _status(name, known, problem, sensing, mine.get(name, ()), now)
            new = _conditions(wanted) != _conditions(known.status)
            if (new or wanted != known.as_told(wanted)) and now_s - known.tried_s >= (AGAIN_S if new else FIGURES_S):
                known.tried_s = now_s
                found.append(TellTarget(name, known.meta.uid, wanted))
        return found


def _problem(item: LatencyTargetObject) -> str:
    try:
        latency_target_from_api(item)
    except ObjectError as error:
        return str(error)
    return ""


def _conditions(status: Mapping[str, Any]) -> dict[str, tuple[Any, Any, Any]]:
    """What of conditions is worth a write: type, status, reason, and of which generation."""
    listed = status.get("conditions")
    return {
        str(one.get("type")): (one.get("status"), one.get("reason"), one.get("observedGeneration"))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    }


def _status(
    name: str,
    known: _Known,
    problem: str,
    nodes: Mapping[str, MeasuredNode],
    broken: Sequence[BrokenLimit],
    now: str,
) -> dict[str, Any]:
    told = {} if problem else {node: one.latencies[name] for node, one in nodes.items() if name in one.latencies}
    medians = sorted(middle for middle, _ in told.values())
    silent = sorted(node for node in nodes if node not in told)
    conditions = [
        ("Accepted", "False" if problem else "True", "InvalidSpec" if problem else "Valid", problem),
        ("Reachable", *_reachable(problem, len(told), silent)),
        ("LimitsKept", *_kept(broken)),
    ]
    return {
        "observedGeneration": known.meta.generation or 0,
        "nodesMeasuring": len(told),
        "nodesWithSensors": len(nodes),
        "medianMilliseconds": _ms(median(medians)) if medians else None,
        "leastMilliseconds": _ms(medians[0]) if medians else None,
        "mostMilliseconds": _ms(medians[-1]) if medians else None,
        "spreadMilliseconds": _ms(median(spread for _, spread in told.values())) if told else None,
        "podsBeyondHardLimit": len(broken),
        "conditions": [_condition(known, *condition, now) for condition in conditions],
    }


def _condition(known: _Known, kind: str, status: str, reason: str, message: str, now: str) -> dict[str, Any]:
    listed = known.status.get("conditions")
    before = next(
        (
            one
            for one in (listed if isinstance(listed, list) else ())
            if isinstance(one, dict) and one.get("type") == kind
        ),
        {},
    )
    same = before.get("status") == status and isinstance(before.get("lastTransitionTime"), str)
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": before["lastTransitionTime"] if same else now,
        "observedGeneration": known.meta.generation or 0,
    }  # fmt: skip


def _reachable(problem: str, told: int, silent: Sequence[str]) -> tuple[str, str, str]:
    """(status, reason, message). One node that measures it is enough to place by."""
    total = told + len(silent)
    if problem:
        return "Unknown", "NotTried", "it cannot be used, so nobody tries it"
    if not total:
        return "Unknown", "NoSensors", "no sensor, and no agent on its node, has told anything yet"
    if not told:
        return "False", "NobodyMeasures", f"none of {total} nodes knows its latency: {_named(silent)}"
    if silent:
        return "True", "MeasuredBySome", f"{told} of {total} nodes know their latency; not {_named(silent)}"
    return "True", "MeasuredByAll", f"all {total} nodes know their latency"


def _kept(broken: Sequence[BrokenLimit]) -> tuple[str, str, str]:
    if not broken:
        return "True", "NoneBroken", "no pod is known to be beyond its hard limit"
    pods = sorted(f"{one.pod} on {one.node}" for one in broken)
    ignoring = sorted({one.ignored_by for one in broken} - {""})
    told = "".join(f"; {unheeded(policy)}" for policy in ignoring[:NAMED])
    return "False", "LimitBroken", f"beyond the hard limit: {_named(pods)}{told}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _ms(micros: float) -> float:
    """Three digits at most, so that a median that wavers changes nothing."""
    return float(f"{micros / 1000:.3g}")
