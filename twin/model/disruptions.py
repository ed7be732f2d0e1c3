"""How many disruptions a PodDisruptionBudget allows, as the twin's disruption controller counts them.

Pure: API JSON in, JSON out. Source: ``pkg/controller/disruption/disruption.go`` of Kubernetes 1.36
(getExpectedPodCount, buildDisruptedPodMap, countHealthyPods, updatePdbStatus, failSafe).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class CoveredPods:
    """The pods that a budget covers, counted one by one as they change."""

    def __init__(self, pods: Iterable[Json] = ()) -> None:
        self._owner: dict[str, str] = {}
        """Of each pod by name the uid of its controller, "" of none."""
        self.staying: set[str] = set()
        """Names of those that are not being deleted."""
        self.healthy: set[str] = set()
        """Those of them that are Ready."""
        self.by_owner: dict[str, dict[str, Json]] = {}
        """By the uid of their controller its pods, by name."""
        for pod in pods:
            self.put(pod)

    def __len__(self) -> int:
        return len(self._owner)

    def put(self, pod: Json) -> None:
        """It came, or changed."""
        name = pod["metadata"]["name"]
        self.drop(name)
        owner = controller_of(pod)
        self._owner[name] = uid = owner["uid"] if owner is not None else ""
        if uid:
            self.by_owner.setdefault(uid, {})[name] = pod
        if not pod["metadata"].get("deletionTimestamp"):
            self.staying.add(name)
            if is_ready(pod):
                self.healthy.add(name)

    def drop(self, name: str) -> bool:
        """It is not covered any more; False: it was not."""
        uid = self._owner.pop(name, None)
        if uid:
            del self.by_owner[uid][name]
            if not self.by_owner[uid]:
                del self.by_owner[uid]
        self.staying.discard(name)
        self.healthy.discard(name)
        return uid is not None


def budget_status(
    budget: Json, pods: CoveredPods, scale_of: ScaleOf, now: str, now_s: float
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
    healthy = len(pods.healthy) - len(pods.healthy & disrupted.keys())
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


def _expected(spec: Json, pods: CoveredPods, scale_of: ScaleOf) -> tuple[int, int]:
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


def _scales(pods: CoveredPods, scale_of: ScaleOf) -> int:
    """What the pods' controllers want together, those that scale several owners of pods once; pods without one count
    nothing."""
    some = (next(iter(its.values())) for its in pods.by_owner.values())
    return sum(dict(scale_of(pod, owner) for pod in some if (owner := controller_of(pod)) is not None).values())


def _disrupted(granted: Json, pods: CoveredPods, now_s: float) -> tuple[Json, float | None]:
    """The evictions that were granted and are not seen yet, and when the first of them is forgotten."""
    kept, waits = {}, list[float]()
    for name in (one for one in granted if one in pods.staying):
        left = seconds_of(granted[name]) + DELETION_TIMEOUT_S - now_s
        if left > 0:
            kept[name] = granted[name]
            waits.append(left)
    return kept, min(waits, default=None)
