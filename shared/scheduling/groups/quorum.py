"""What keeps members of a group from being tried at all (PreEnqueue): no group, one that cannot be used, another
scheduler's pods in it, fewer members than its minimum, several queues, or more demanded than there are nodes for.

One rule for the coordinator (``pod_groups.py``) and for what is explained without one (``explain/groups_whatif.py``).
Texts and code are kube-scheduler's where it has them (1.36, plugin GangScheduling), its spelling included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.model.resources import at_least_text, at_most_text
from shared.model.units.pod_group import MAX_MEMBERS, PodGroup, group_name
from shared.model.units.queue import QUEUE_LABEL
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.reasons import GROUP_INVALID, GROUP_MISSING, INCOMPLETE, UNSCHEDULABLE

NAME = "GangScheduling"
TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"
MIXED = "all pods in a single pod group should have the same .spec.schedulerName set"


@dataclass(frozen=True, slots=True)
class Roll:
    """Who of a group is there. ``there``: members, those that are ``bound`` included; ``mixed``: of several schedulers;
    ``queues``: what those that wait name by their label, "" for none; ``ended``: how many that have run and are over
    stand for members that do not come any more."""

    there: int
    bound: int
    mixed: bool = False
    queues: Iterable[str] = ()
    ended: int = 0


def complete(group: PodGroup, bound: int, ended: int = 0) -> bool:
    """Whether its members go one by one: there is nothing that those that wait must reach, or choose, together."""
    return not (group.gang or group.topology) or bound >= (group.min_count - ended if group.gang else 1)


def why_not_queued(key: str, group: PodGroup | None, roll: Roll, totals: Mapping[str, int]) -> str:
    """The sentence for members of a group that must not be tried now; "" when they may. ``totals``: what all nodes have
    together, by resource."""
    if group is None:
        return f'waiting for pods\'s pod group "{group_name(key)}" to appear in scheduling queue'
    if group.problem:
        return group.problem
    if roll.mixed:
        return MIXED
    if complete(group, roll.bound, roll.ended):
        return ""
    if group.min_count > MAX_MEMBERS:
        return f"minCount is {group.min_count}; at most {MAX_MEMBERS} members are placed together: lower it"
    if roll.there + roll.ended < group.min_count:
        return TOO_FEW
    return _several_queues(group, roll.queues) or short_of(group, totals)


def quorum_rejection(key: str, group: PodGroup | None, roll: Roll, totals: Mapping[str, int]) -> Rejection | None:
    """The same as a rule says it."""
    why = why_not_queued(key, group, roll, totals)
    return Rejection(NAME, Code.UNRESOLVABLE, (why,)) if why else None


def reason_of(group: PodGroup | None, why: str, *, short_of_nodes: bool) -> str:
    """The word for what ``why_not_queued`` said. ``short_of_nodes``: it asks for more than all nodes have."""
    if group is None:
        return GROUP_MISSING
    if why == TOO_FEW:
        return INCOMPLETE
    return UNSCHEDULABLE if short_of_nodes else GROUP_INVALID


def _several_queues(group: PodGroup, named: Iterable[str]) -> str:
    """What members are told that are not all in one queue: a limit could not hold for them as a whole. "" where they
    are; those without a label are in their group's."""
    queues = sorted({name or group.labels.get(QUEUE_LABEL, "") for name in named})
    if len(queues) < 2:
        return ""
    names = ", ".join(name or "none" for name in queues[:4])
    return f"members name different queues ({names}); give all of them the same label {QUEUE_LABEL}, or the group alone"


def short_of(group: PodGroup, totals: Mapping[str, int]) -> str:
    """What the group names in minResources and all nodes together do not have; "" where they do."""
    for name, amount in group.min_resources:
        total = totals.get(name, 0)
        if total < amount:
            asked, has = at_least_text(name, amount), at_most_text(name, total)
            return f"spec.minResources[{name}]: {asked} is more than the cluster has, {has}; add nodes or ask for less"
    return ""
