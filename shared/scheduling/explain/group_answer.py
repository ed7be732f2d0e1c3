"""Why a pod group waits: which member failed where, beside those that fit, and what would have to change.

The same trial as a coordinator's (``groups/placing.py``) and the same choice of victims (``groups/preemption.py``), on
the cluster as it stands; nothing is changed, and nothing is promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from shared.model.pod import Pod
from shared.model.resources import at_least_text
from shared.model.units.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import FeasibilityCache, failure_message
from shared.scheduling.explain.group_helps import MIN_COUNT, GroupHelp, GroupQuestion, Lacking, group_helps
from shared.scheduling.explain.preemption import PLAIN, VictimRules
from shared.scheduling.explain.words import CHANGES
from shared.scheduling.groups.placing import Attempt, explore, runs
from shared.scheduling.groups.preemption import search_group
from shared.scheduling.groups.steps import GroupPreemption
from shared.scheduling.groups.topology import domains
from shared.scheduling.groups.trial import Trial
from shared.scheduling.groups.tried_members import TriedMembers
from shared.scheduling.state.cluster_state import ClusterState

KINDS_SHOWN, MEMBERS_SHOWN, NODES_SHOWN, VICTIMS_SHOWN, DOMAINS_SHOWN = 8, 8, 3, 20, 8
DOMAINS_TRIED = 64

HELPS_SHOWN = 4

WORK_OF_PREEMPTION = 1_000_000
"""Nodes looked at for the question whom to evict: some tens of milliseconds."""


class NearNode(Struct, frozen=True):
    """A node that only amounts keep from one more member; ``lacks``: how much of what, as people write it."""

    node: str
    lacks: dict[str, str]


class FailedMembers(Struct, frozen=True):
    """Members that are judged alike and fit nowhere beside the others: ``count`` of them, the first by name. ``why``
    counts nodes by reason; ``change``: what would help them; ``nearest``: where the least is lacking, of nodes that are
    large enough."""

    pods: tuple[str, ...]
    count: int
    why: str
    plugins: tuple[str, ...]
    nearest: tuple[NearNode, ...]
    change: str


class DomainFit(Struct, frozen=True):
    """A topology domain, and how many members it would take."""

    value: str
    members: int


class GroupVictims(Struct, frozen=True):
    """What preemption would do: ``helps`` or ``summary`` says why not. ``broken``: gangs that fall below their minimum;
    ``violations``: victims whose budget is broken."""

    helps: bool
    summary: str
    victims: tuple[str, ...] = ()
    count: int = 0
    violations: int = 0
    broken: tuple[str, ...] = ()


class GroupAnswer(Struct, frozen=True):
    """``reached``: the minimum would be reached as things stand, ``placed`` of ``pending`` members beside those
    ``bound``; ``lacking``: places that are missing. ``reordered``: only in another order than the members' own.
    ``domains``: those of the topology label ``topology``, that which takes most first; ``helps``: what would let in
    members that lack, each tried and counted, ``change``: the same in one sentence."""

    group: str
    gang: bool
    min_count: int
    bound: int
    pending: int
    placed: int
    lacking: int
    reached: bool
    reordered: bool
    topology: str
    domain: str
    summary: str
    change: str
    failed: tuple[FailedMembers, ...] = ()
    domains: tuple[DomainFit, ...] = ()
    preemption: GroupVictims | None = None
    helps: tuple[GroupHelp, ...] = ()


def explain_group(
    state: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    pending: Sequence[Pod],
    bound: Sequence[Pod] = (),
    *,
    rules: VictimRules = PLAIN,
) -> dict[str, Any]:
    """The answer, as JSON. ``pending`` in the order in which members are tried; ``bound``: also those on their way."""
    attempt, trial = explore(state, feasibility, group, pending, bound)
    minimum = group.min_count if group.gang else 1
    lacking = max(0, minimum - len(bound) - len(attempt.nodes))
    asked = GroupQuestion(state, feasibility, group, attempt, trial, pending, bound)
    kinds = _kinds(trial, attempt, pending)
    failed = tuple(_failed(asked, one, lacking) for one in kinds)
    preemption = None
    if lacking and group.gang and kinds:
        preemption = _victims(state, feasibility, group, pending, bound, rules)
    unlabelled = _unlabelled(state, group)
    helps = _helps(asked, kinds, lacking, minimum) if lacking and not unlabelled else ()
    change = unlabelled or _change(asked, failed, helps, lacking)
    answer = GroupAnswer(
        group.title, group.gang, minimum, len(bound), len(pending), len(attempt.nodes), lacking, attempt.reached,
        attempt.reordered, group.topology.key if group.topology is not None else "", attempt.domain,
        _summary(group, attempt, pending, bound, minimum), change, failed,
        _domains(state, feasibility, group, pending, bound), preemption, helps,
    )  # fmt: skip
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return found


def _kinds(trial: Trial, attempt: Attempt, pending: Sequence[Pod]) -> list[Lacking]:
    """Members that fit nowhere, those together that are judged alike."""
    alike: dict[int, list[Pod]] = {}
    for pod in pending:
        if pod.uid in attempt.rejected:
            alike.setdefault(id(attempt.rejected[pod.uid]), []).append(pod)
    return [
        Lacking(trial.tried.template_of[pods[0].uid], pods, attempt.rejected[pods[0].uid])
        for pods in list(alike.values())[:KINDS_SHOWN]
    ]


def _failed(asked: GroupQuestion, one: Lacking, lacking: int) -> FailedMembers:
    near: tuple[NearNode, ...] = ()
    if not one.diagnosis.prefiltered:
        near = tuple(
            NearNode(node, {name: at_least_text(name, amount) for name, amount in lacks.items()})
            for node, lacks in asked.trial.nearest(one.template, NODES_SHOWN, asked.allowed)
        )
    helps = group_helps(asked, [one], min(lacking or len(one.pods), len(one.pods)))
    return FailedMembers(
        tuple(pod.key for pod in one.pods[:MEMBERS_SHOWN]),
        len(one.pods),
        failure_message(one.diagnosis),
        tuple(sorted(one.diagnosis.plugins)),
        near,
        _text(helps) or _untried(one),
    )


def _untried(one: Lacking) -> str:
    """What would help by the rules alone, where no change that could be tried lets anybody in."""
    known = [CHANGES[plugin] for plugin in sorted(one.diagnosis.plugins) if plugin in CHANGES]
    if known:
        return "; or ".join(known)
    return f"no single change lets a member in: nodes are refused by {' and '.join(sorted(one.diagnosis.plugins))}"


def _text(helps: Sequence[GroupHelp]) -> str:
    return "; or ".join(
        one.text + (f" (lets in {one.lets_in} of {one.of} that lack)" if one.lets_in < one.of else "")
        for one in helps[:HELPS_SHOWN]
    )


def _unlabelled(state: ClusterState, group: PodGroup) -> str:
    """What would help a group that must be in one domain of a label which no node has; "" for others."""
    if group.topology is None or not group.topology.required or domains(state, group.topology.key, []).values:
        return ""
    return f"no node has the label {group.topology.key}: label nodes with it, or name another for the group's topology"


def _helps(asked: GroupQuestion, kinds: Sequence[Lacking], lacking: int, minimum: int) -> tuple[GroupHelp, ...]:
    """What would let in the members that lack; a smaller minimum, which lets in those that fit, comes last."""
    rejected = sum(len(one.pods) for one in kinds)
    helps = group_helps(asked, kinds, min(lacking, rejected)) if rejected else ()
    if minimum > lacking and asked.group.gang and len(asked.pending) + len(asked.bound) >= minimum:
        text = f"lower minCount to {minimum - lacking}"
        return *helps[: HELPS_SHOWN - 1], GroupHelp(MIN_COUNT, text, lacking, lacking)
    return helps


def _change(
    asked: GroupQuestion,
    failed: Sequence[FailedMembers],
    helps: Sequence[GroupHelp],
    lacking: int,
) -> str:
    """What would help the group."""
    if not lacking:
        return ""
    missing = max(0, asked.group.min_count - len(asked.pending) - len(asked.bound)) if asked.group.gang else 0
    created = f"create the {missing} member(s) that are missing" if missing else ""
    return "; and ".join(filter(None, (created, _text(helps)))) or (failed[0].change if failed else created)


def _summary(group: PodGroup, attempt: Attempt, pending: Sequence[Pod], bound: Sequence[Pod], minimum: int) -> str:
    there = len(bound) + len(pending)
    if there < minimum:
        return f"{there} of at least {minimum} members exist: the group is not tried before"
    where = f" within {group.topology.key}={attempt.domain}" if group.topology is not None and attempt.domain else ""
    fit = f"{len(attempt.nodes)} of {len(pending)} waiting members fit together{where}"
    if bound:
        fit += f", {len(bound)} run"
    if attempt.reached:
        return f"{fit}: the minimum of {minimum} is reached" + (" in another order" if attempt.reordered else "")
    return f"{fit}: {minimum} are needed, so none is placed"


def _domains(
    state: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    pending: Sequence[Pod],
    bound: Sequence[Pod],
) -> tuple[DomainFit, ...]:
    """How many members each domain would take that takes any, by trying each of the first that could be asked about
    alone."""
    if group.topology is None or not pending:
        return ()
    accounts = state.cache.accounts
    offered = domains(state, group.topology.key, [accounts[pod.uid].node_name for pod in bound if pod.uid in accounts])
    tried = TriedMembers(state, pending)
    base, found = Trial.of(tried, feasibility), list[DomainFit]()
    for at, value in enumerate(offered.values[:DOMAINS_TRIED]):
        trial = base.fork()
        for template, pods in runs(pending, tried):
            trial.place(template, pods, offered.mask(at))
        found.append(DomainFit(value, len(trial.nodes)))
    taking = [one for one in found if one.members]
    return tuple(sorted(taking, key=lambda one: (-one.members, one.value))[:DOMAINS_SHOWN])


def _victims(
    state: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    pending: Sequence[Pod],
    bound: Sequence[Pod],
    rules: VictimRules,
) -> GroupVictims:
    strict, may_evict = rules.strict_budgets, rules.may_evict
    search = search_group(state, feasibility, group, pending, bound, strict=strict, may_evict=may_evict)
    left = WORK_OF_PREEMPTION
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
    names = tuple(pod.key for pod in found.victims[:VICTIMS_SHOWN])
    more = f" and {len(found.victims) - 3} more" if len(found.victims) > 3 else ""
    return GroupVictims(
        True, f"evict {', '.join(names[:3])}{more}", names, len(found.victims), len(found.violating), found.broken
    )
