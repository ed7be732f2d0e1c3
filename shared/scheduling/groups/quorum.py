"""What keeps members of a group from being tried at all (PreEnqueue): no group, or fewer of them than its minimum.

Texts (``pod_groups.py``) and code are kube-scheduler's (1.36, plugin GangScheduling).
"""

from __future__ import annotations

from shared.model.pod import Pod
from shared.model.pod_group import PodGroup
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.pod_groups import TOO_FEW, missing

NAME = "GangScheduling"


def quorum_rejection(pod: Pod, group: PodGroup | None, members: int) -> Rejection | None:
    """Why a member is not queued; None when it may be. ``members``: pods of the group, bound ones included."""
    if not pod.group:
        return None
    if group is None:
        return Rejection(NAME, Code.UNRESOLVABLE, (missing(pod.group),))
    if group.gang and members < group.min_count:
        return Rejection(NAME, Code.UNRESOLVABLE, (TOO_FEW,))
    return None
