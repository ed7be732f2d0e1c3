"""SchedulingGates: a pod with gates is not tried at all (PreEnqueue)."""

from __future__ import annotations

from shared.model.pod import Pod
from shared.scheduling.feasibility import Rejection
from shared.scheduling.framework import Code

NAME = "SchedulingGates"


def gate_rejection(pod: Pod) -> Rejection | None:
    """Which gates the pod waits for; None when it may be queued (kube-scheduler ``plugins/schedulinggates``)."""
    if not pod.gates:
        return None
    return Rejection(NAME, Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{' '.join(pod.gates)}]",))
