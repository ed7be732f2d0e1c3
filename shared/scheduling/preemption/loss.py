"""What work is lost when an offline pod is evicted, for comparing one with another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from shared.model.pod import Pod
from shared.model.resources import PODS


def started_at(pod: Pod) -> float | None:
    """Seconds since 1970; None: it has not started, or nobody can say when."""
    try:
        return datetime.fromisoformat(pod.start_time).timestamp() if pod.start_time else None
    except (ValueError, OverflowError):
        return None


def lost_s(pod: Pod, now: float) -> float:
    """For how long it has worked without saving, and what beginning anew costs. ``now``: seconds since 1970. One that
    has not started loses nothing; what is of the future, where clocks are apart, was just now."""
    started = started_at(pod)
    if started is None:
        return 0.0
    terms = pod.offline
    if terms is None:
        return max(0.0, now - started)
    unsaved_s = max(0.0, now - max(started, terms.saved))
    if terms.saves_every_s is not None:
        unsaved_s = min(unsaved_s, terms.saves_every_s)
    return unsaved_s + terms.restart_s


def share(pod: Pod, totals: Mapping[str, int]) -> float:
    """The largest part of any resource of the cluster that it holds, by which its seconds count."""
    parts = (amount / totals[name] for name, amount in pod.pod_class.requests if totals.get(name, 0) > 0)
    return max(parts, default=0.0) or 1.0 / max(1, totals.get(PODS, 1))


def protected_s(pod: Pod, now: float, min_runtime_s: float) -> float:
    """For how long yet it does not give way; 0.0: it may. ``min_runtime_s``: the setting, which the pod's own word
    replaces. One that has not started has nothing to lose."""
    own = pod.offline.min_runtime_s if pod.offline is not None else None
    least_s = min_runtime_s if own is None else own
    started = started_at(pod) if least_s else None
    return 0.0 if started is None else min(least_s, max(0.0, started + least_s - now))


def works_since(pod: Pod) -> str:
    """As ``Pod.start_time``, but from when its work is not saved: who has worked longer has more to lose."""
    terms = pod.offline
    if terms is None or not (terms.saved or terms.restart_s) or (started := started_at(pod)) is None:
        return pod.start_time
    since = max(0.0, max(started, terms.saved) - terms.restart_s)
    return datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
