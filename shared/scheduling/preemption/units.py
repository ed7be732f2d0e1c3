"""What leaves together when room is made: one pod, or every member of a group that is preempted whole.

A member's priority is its group's, where that says one; a pod of its own priority above the preemptor's is never taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shared.model.pod import Pod
from shared.model.units.pod_group import PodGroup
from shared.scheduling.preemption.loss import works_since
from shared.scheduling.state.cluster_state import ClusterState

NOT_STARTED = "~"
"""Sorts after every start time: kube-scheduler takes "now" for a pod that has not started."""


@dataclass(frozen=True, slots=True, eq=False)
class VictimUnit:
    """``pods``, the most important first; ``whole``: all members of a group, which leave together or not at all;
    ``spared``: a member that its offline gang can do without."""

    pods: tuple[Pod, ...]
    priority: int
    whole: bool = False
    spared: bool = False

    @property
    def importance(self) -> tuple[int, bool, bool, str]:
        """Sorts most important first: by priority, groups before single pods and those before members that are spared,
        then by who has worked longest."""
        return -self.priority, not self.whole, self.spared, self.started

    @property
    def started(self) -> str:
        """Since when the first of them works: since its start, as kube-scheduler has it, but of an offline pod since it
        saved its work."""
        pods = self.pods
        first = works_since(pods[0]) or NOT_STARTED
        return first if len(pods) == 1 else min(works_since(pod) or NOT_STARTED for pod in pods)


def victim_unit(
    cluster: ClusterState, pod: Pod, below: int, may_evict: Callable[[Pod], bool], spare: int | None = None
) -> VictimUnit | None:
    """What has to leave for ``pod``, which stands, to leave for a preemptor of priority ``below``; None: it stays.
    ``spare``: how many members its gang can do without, where it goes whole else; None: no matter."""
    group = cluster.pod_groups.get(pod.group) if pod.group else None
    pods: tuple[Pod, ...] = (pod,)
    whole = group is not None and (group.whole or (spare is not None and spare <= 0))
    if whole:
        fellows = (cluster.index.get(uid) for uid in cluster.members.get(pod.group, ()))
        pods = tuple(sorted((one for one in fellows if one is not None), key=importance)) or pods
    priority = max(one.priority for one in pods)
    if group is not None and group.priority is not None:
        priority = max(priority, group.priority - _lowered(pod))
    if priority >= below or not all(may_evict(one) for one in pods):
        return None
    return VictimUnit(pods, priority, whole, spare is not None and spare > 0)


def _lowered(pod: Pod) -> bool:
    return pod.offline is not None and pod.offline.lowered


def victim_units(
    cluster: ClusterState,
    pods: Iterable[Pod],
    below: int,
    may_evict: Callable[[Pod], bool],
    spares: Callable[[Pod], int | None] = lambda _: None,
) -> list[VictimUnit]:
    """What may leave of these pods for a preemptor of priority ``below``, each once. ``spares``: how many members the
    pod's gang can do without, where it goes whole else; where more of them stand among ``pods``, it goes whole."""
    units, seen, members = [], set[str](), Counter[str]()
    pods = list(pods)
    for pod in pods:
        if pod.group:
            members[pod.group] += 1
    for pod in pods:
        if pod.uid in seen or pod.priority >= below:
            continue
        if not pod.group:  # as nearly all are
            if may_evict(pod):
                units.append(VictimUnit((pod,), pod.priority))
            continue
        spare = spares(pod)
        if spare is not None and spare < members[pod.group]:
            spare = 0
        unit = victim_unit(cluster, pod, below, may_evict, spare)
        if unit is not None:
            units.append(unit)
            seen.update(one.uid for one in unit.pods)
    return units


def preempting_priority(group: PodGroup, members: Iterable[Pod]) -> int:
    """The priority at which a group preempts: its own, or that of its least important member."""
    if group.priority is None:
        return min((pod.priority for pod in members), default=0)
    return group.priority - any(_lowered(pod) for pod in members)


def importance(pod: Pod) -> tuple[int, str]:
    """Sorts pods most important first: by priority, then by who has worked longest without saving."""
    return -pod.priority, works_since(pod) or NOT_STARTED
