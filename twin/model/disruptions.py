"""How many disruptions a PodDisruptionBudget allows, as the twin's disruption controller counts them.

Pure: API JSON in, JSON out. Source: ``pkg/controller/disruption/disruption.go`` of Kubernetes 1.36
(getExpectedPodCount, buildDisruptedPodMap, countHealthyPods, updatePdbStatus, failSafe).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twin.model.replicas import controller_of, is_ready, seconds_of, with_condition

Json = dict[str, Any]
ScaleOf = Callable[[Json, Json], tuple[str, int]]
"""The uid of whatever scales a pod (a Deployment, not its ReplicaSets) and how many pods it wants, by the pod and the
reference to its controller; ``UncountedPod``: nobody can say."""

DELETION_TIMEOUT_S = 120.0
"""So long an eviction that was granted counts although the pod still stands."""


_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


class UncountedPod(Exception):
    """A budget in parts of a whole covers a pod whose controller tells no scale."""


def budget_status(
    budget: Json, pods: Sequence[Json], scale_of: ScaleOf, now: str, now_s: float
) -> tuple[Json, float | None]:
    """The status over the pods that the budget covers, and in how many seconds an eviction that was granted, and not
    carried out, is forgotten; None: none is."""
    old = budget.get("status") or {}
    try:
        expected, desired = _expected(budget["spec"], pods, scale_of)
    except UncountedPod as error:
        unknown = {**dict.fromkeys(_COUNTS, 0), **old, "disruptionsAllowed": 0}
        return _status(unknown, old.get("observedGeneration", 0), "SyncFailed", str(error), now), None
    disrupted, again_s = _disrupted(old.get("disruptedPods") or {}, pods, now_s)
    healthy = sum(_is_healthy(pod, disrupted) for pod in pods)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    counts = {
        "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
    }  # fmt: skip
    kept = {key: value for key, value in old.items() if key != "disruptedPods"}
    status = {**kept, **counts, **({"disruptedPods": disrupted} if disrupted else {})}
    reason = "SufficientPods" if allowed else "InsufficientPods"
    return _status(status, budget["metadata"]["generation"], reason, "", now), again_s


def _status(status: Json, generation: int, reason: str, message: str, now: str) -> Json:
    condition = {
        "type": "DisruptionAllowed", "status": str(reason == "SufficientPods"), "observedGeneration": generation,
        "reason": reason, "message": message,
    }  # fmt: skip
    conditions = with_condition(status.get("conditions") or (), condition, now)
    return {**status, **({"observedGeneration": generation} if generation else {}), "conditions": conditions}


def _expected(spec: Json, pods: Sequence[Json], scale_of: ScaleOf) -> tuple[int, int]:
    """How many pods there should be, and how many of them are to be healthy."""
    least, most_away = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most_away is not None:
        expected = _scales(pods, scale_of)
        return expected, max(0, expected - _of(most_away, expected))
    if isinstance(least, str):
        expected = _scales(pods, scale_of)
        return expected, _of(least, expected)
    return (len(pods), least) if least is not None else (0, 0)


def _of(value: int | str, whole: int) -> int:
    """A number, or its part of the whole, rounded up."""
    return value if isinstance(value, int) else -(-int(value[:-1]) * whole // 100)


def _scales(pods: Sequence[Json], scale_of: ScaleOf) -> int:
    """What the pods' controllers want together, those that scale several owners of pods once; pods without one count
    nothing."""
    owners = {owner["uid"]: (pod, owner) for pod in pods if (owner := controller_of(pod)) is not None}
    return sum(dict(scale_of(pod, owner) for pod, owner in owners.values()).values())


def _disrupted(granted: Json, pods: Sequence[Json], now_s: float) -> tuple[Json, float | None]:
    """The evictions that were granted and are not seen yet, and when the first of them is forgotten."""
    kept, waits = {}, list[float]()
    for pod in pods:
        name = pod["metadata"]["name"]
        if name not in granted or pod["metadata"].get("deletionTimestamp"):
            continue
        left = seconds_of(granted[name]) + DELETION_TIMEOUT_S - now_s
        if left > 0:
            kept[name] = granted[name]
            waits.append(left)
    return kept, min(waits, default=None)


def _is_healthy(pod: Json, disrupted: Json) -> bool:
    meta = pod["metadata"]
    return not meta.get("deletionTimestamp") and meta["name"] not in disrupted and is_ready(pod)
