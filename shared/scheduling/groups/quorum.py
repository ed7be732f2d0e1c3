"""What keeps members of a group from being tried at all (PreEnqueue): no group, or fewer of them than its minimum.

Texts and code are kube-scheduler's (1.36, plugin GangScheduling), its spelling included.
"""

from __future__ import annotations

from shared.model.pod import Pod
from shared.model.pod_group import PodGroup, group_name
from shared.scheduling.framework import Code, Rejection

NAME = "GangScheduling"
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"


def no_group(name: str) -> str:
    """The sentence for a member whose group does not exist."""
    return f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'


def quorum_rejection(pod: Pod, group: PodGroup | None, members: int) -> Rejection | None:
    """Why a member is not queued; None when it may be. ``members``: pods of the group, bound ones included."""
    if not pod.group:
        return None
    if group is None:
        return Rejection(NAME, Code.UNRESOLVABLE, (no_group(group_name(pod.group)),))
    if group.gang and members < group.min_count:
        return Rejection(NAME, Code.UNRESOLVABLE, (TOO_FEW,))
    return None
