"""Where a pod group that waits has room, and whom preemption would evict for it: as things stand, for people.

The same trial as the coordinator's (``groups/placing.py``) and the same choice of victims (``groups/preemption.py``);
nothing is changed, and nothing is promised.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from shared.model.pod import Pod
from shared.model.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.groups.crew import Crew
from shared.scheduling.groups.placing import runs
from shared.scheduling.groups.preemption import GroupPreemption, search_group
from shared.scheduling.groups.topology import domains
from shared.scheduling.groups.trial import Trial
from shared.scheduling.state.cluster_state import ClusterState

VICTIMS_SHOWN, DOMAINS_SHOWN, NAMED = 20, 8, 3
DOMAINS_TRIED = 64

MOST_WORK = 500_000
"""Nodes looked at for the question whom to evict: some tens of milliseconds."""


class DomainFit(Struct, frozen=True):
    """A topology domain, and how many members it would take."""

    value: str
    members: int


class GroupVictims(Struct, frozen=True):
    """What preemption would do. ``helps`` False: ``summary`` says why not. ``count`` pods would leave, the most
    important first; ``violations`` of their budgets would be broken, and ``broken``: gangs fall below their minimum."""

    helps: bool
    summary: str
    victims: list[str] = []
    count: int = 0
    violations: int = 0
    broken: list[str] = []


def domain_fits(
    state: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    pending: Sequence[Pod],
    bound: Sequence[Pod] = (),
) -> list[DomainFit]:
    """How many of the pending members each domain would take, that which takes most first; none without a topology."""
    if group.topology is None or not pending:
        return []
    accounts = state.cache.accounts
    offered = domains(state, group.topology.key, [accounts[p.uid].node_name for p in bound if p.uid in accounts])
    crew = Crew(state, pending)
    base, found = Trial.of(crew, feasibility), list[DomainFit]()
    for at, value in enumerate(offered.values[:DOMAINS_TRIED]):
        trial = base.fork()
        for template, pods in runs(pending, crew):
            trial.place(template, pods, offered.mask(at))
        found.append(DomainFit(value, len(trial.nodes)))
    return sorted(found, key=lambda one: (-one.members, one.value))[:DOMAINS_SHOWN]


def group_victims(
    state: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    pending: Sequence[Pod],
    bound: Sequence[Pod] = (),
    *,
    strict_budgets: bool = False,
) -> GroupVictims:
    """Whom preemption would evict so that a gang, which does not fit, reaches its minimum."""
    search, left = search_group(state, feasibility, group, pending, bound, strict=strict_budgets), MOST_WORK
    while left > 0:
        try:
            left -= next(search)
        except StopIteration as end:
            found: GroupPreemption = end.value
            break
    else:
        return GroupVictims(False, "not searched to the end: too many pods could leave")
    if found.reason:
        return GroupVictims(False, found.reason)
    names = [pod.key for pod in found.victims[:VICTIMS_SHOWN]]
    more = f" and {len(found.victims) - NAMED} more" if len(found.victims) > NAMED else ""
    summary = f"would evict {', '.join(names[:NAMED])}{more}"
    return GroupVictims(True, summary, names, len(found.victims), len(found.violating), list(found.broken))
