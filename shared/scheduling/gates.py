"""What keeps a pod from being tried at all (PreEnqueue): scheduling gates, and demands that nobody here can honour."""

from __future__ import annotations

from shared.model.pod import Pod
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.reasons import NOT_SUPPORTED, SCHEDULER_ERROR

NAME = "SchedulingGates"
UNSUPPORTED = "ConclaveUnsupported"


def entry_rejection(pod: Pod) -> Rejection | None:
    """Why the pod is not queued; None when it may be. Gates speak first: a pod that has them is the API server's."""
    return gate_rejection(pod) or unsupported_rejection(pod)


def gate_rejection(pod: Pod) -> Rejection | None:
    """Which gates the pod waits for; None when there are none (kube-scheduler ``plugins/schedulinggates``)."""
    if not pod.gates:
        return None
    return Rejection(NAME, Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{' '.join(pod.gates)}]",))


def unsupported_rejection(pod: Pod) -> Rejection | None:
    """What the pod demands of its place that Conclave does not look at: placed all the same, it might run where it
    must not. None when there is nothing."""
    if not pod.unsupported:
        return None
    return Rejection(UNSUPPORTED, Code.UNRESOLVABLE, (unsupported_text(pod),))


def why_untried(pod: Pod) -> tuple[str, str]:
    """(reason of its condition, sentence) of a pending pod that is never tried: unreadable, or not supported."""
    if pod.invalid:
        return SCHEDULER_ERROR, f"pod cannot be scheduled as it is written: {pod.invalid}"
    return NOT_SUPPORTED, unsupported_text(pod)


def unsupported_text(pod: Pod) -> str:
    """The sentence for people: the fields, and what to do."""
    return (
        f"Conclave does not support {pod.unsupported} and leaves the pod pending; create it without, or with "
        "schedulerName default-scheduler"
    )
