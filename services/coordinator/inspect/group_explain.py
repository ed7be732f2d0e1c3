"""Why a pod group is where it is: which member would go where if all were tried now, who fails, and what would help.

Pure: it reads the core and changes nothing; the trial is on a fork of the accounting (``groups/placing.py``). No
promise: what is free now may be taken a moment later. Costs as one attempt at the group, and one judgement per kind of
member that fails.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

from services.coordinator.core.core import Core
from services.coordinator.inspect.group_facts import find_group
from services.coordinator.inspect.pending import MOST_HELPS, HelpShown, judge_of
from services.coordinator.inspect.queue_facts import tree_of
from services.coordinator.inspect.units import PLACING, RUNNING, GroupFacts, in_order, phase_of, why
from shared.model.pod import Pod
from shared.model.pod_group import PodGroup, Source
from shared.scheduling.cycle.feasibility import failure_message
from shared.scheduling.explain.group_room import DomainFit, GroupVictims, domain_fits, group_victims
from shared.scheduling.groups.placing import Attempt, try_group

MEMBERS_SHOWN = 500


class MemberExplained(Struct, frozen=True, kw_only=True):
    """One member. ``node``: where it is, or would go if the group were tried now; ``message``: why no node takes it
    beside the others; ``plugins``: the rules that say so."""

    name: str
    uid: str
    state: str
    node: str
    plugins: list[str]
    message: str


class Failing(Struct, frozen=True, kw_only=True):
    """Members that fail alike: so many, one of them by name, why, and what would let one more in."""

    members: int
    first: str
    message: str
    helps: list[HelpShown]


class GroupExplained(Struct, frozen=True, kw_only=True):
    """``bound`` members stand, ``fits`` more would find a node now; both together against ``min_count``. ``reached``:
    the group would be placed if it were tried now; ``reordered``: only in another order of its members than
    kube-scheduler's. ``blocked``: the quota that holds it back. ``members``: those that fail first; 500 at most.
    ``domains``: of its topology label, with how many members each would take. ``preemption``: of a gang that does not
    fit, whom it would evict."""

    unit: str
    phase: str
    summary: str
    reason: str
    message: str
    queue: str
    blocked: str
    min_count: int
    bound: int
    pending: int
    fits: int
    reached: bool
    reordered: bool
    domain: str
    failing: list[Failing]
    members: list[MemberExplained]
    domains: list[DomainFit] = []
    preemption: GroupVictims | None = None


def explain_group(core: Core, namespace: str, name: str) -> GroupExplained | None:
    """The answer; None where there is no such group."""
    facts = find_group(core, namespace, name)
    if facts is None:
        return None
    members = core.state.groups.members.get(facts.key)
    pending = [pod for pod in members.pending.values() if pod.uid not in members.away] if members is not None else []
    pending.sort(key=lambda pod: (-pod.priority, pod.created, pod.name))
    bound = [pod for one in facts.members if (pod := core.state.cluster.index.get(one.uid)) is not None]
    group = facts.group or PodGroup(facts.key, Source(facts.source), facts.namespace, facts.name)
    attempt = try_group(core.state.cluster, core.state.feasibility, group, pending, bound)
    reason, message = why(facts)
    held = tree_of(core).held(facts.key)
    return GroupExplained(
        unit=f"{facts.namespace}/{facts.name}",
        phase=phase_of(facts),
        summary=_summary(facts, attempt, len(pending)),
        reason=reason,
        message=message,
        queue=facts.queue,
        blocked=held.text() if held is not None else "",
        min_count=facts.min_count,
        bound=facts.bound,
        pending=len(pending),
        fits=len(attempt.nodes),
        reached=attempt.reached,
        reordered=attempt.reordered,
        domain=attempt.domain or facts.domain,
        failing=_failing(core, pending, attempt),
        members=_members(facts, attempt),
        domains=domain_fits(core.state.cluster, core.state.feasibility, group, pending, bound),
        preemption=_preemption(core, group, attempt, pending, bound),
    )


def member_of(core: Core, pod: Pod) -> dict[str, object] | None:
    """What a member's own explanation says of its group; None of a pod in none."""
    key = core.state.groups.key_of.get(pod.uid, pod.group)
    _, _, title = key.partition(":")
    namespace, _, name = title.rpartition("/")
    facts = find_group(core, namespace, name) if key else None
    if facts is None or facts.key != key:
        return None
    reason, message = why(facts)
    return {
        "unit": title, "phase": phase_of(facts), "members": len(facts.members), "bound": facts.bound,
        "min_count": facts.min_count, "queue": facts.queue, "reason": reason, "message": message,
    }  # fmt: skip


def _preemption(
    core: Core, group: PodGroup, attempt: Attempt, pending: list[Pod], bound: list[Pod]
) -> GroupVictims | None:
    """Whom it would evict; None of a group that would be placed, or is not complete."""
    state = core.state
    if attempt.reached or not group.gang or len(bound) + len(pending) < group.min_count:
        return None
    return group_victims(
        state.cluster, state.feasibility, group, pending, bound, strict_budgets=state.settings.preemption_strict
    )


def _summary(facts: GroupFacts, attempt: Attempt, pending: int) -> str:
    """One sentence: what it does, or what keeps it."""
    bound, least = facts.bound, facts.min_count
    if phase_of(facts) == PLACING:
        return "its members are on their way"
    if phase_of(facts) == RUNNING and not pending:
        return f"{bound} members are bound, all there are"
    reason, message = why(facts)
    if facts.group is None or reason in ("Incomplete", "GroupInvalid"):
        return message
    would = bound + len(attempt.nodes)
    if not attempt.reached:
        placed = f"{bound} are bound, {len(attempt.nodes)} of {pending} that wait find a node"
        return f"{would} of at least {least} members fit now: {placed}"
    if len(attempt.nodes) < pending:
        left = pending - len(attempt.nodes)
        return f"its minimum of {least} is reached; {left} of {pending} members that wait find no node"
    return f"all {pending} members that wait would find a node now"


def _failing(core: Core, pending: list[Pod], attempt: Attempt) -> list[Failing]:
    """By kind of member: pods that ask for the same and are refused alike."""
    judge, kinds = judge_of(core), dict[Hashable, list[Pod]]()
    for pod in pending:
        if pod.uid in attempt.rejected:
            kinds.setdefault((pod.pod_class, pod.relations), []).append(pod)
    found = []
    for pods in kinds.values():
        judged = judge(pods[0], len(pods))
        helps = [
            HelpShown(kind=one.kind, target=one.target, text=one.text, lets_in=one.lets_in, of=len(pods))
            for one in judged.helps[:MOST_HELPS]
        ]
        said = failure_message(attempt.rejected[pods[0].uid])
        found.append(Failing(members=len(pods), first=pods[0].name, message=said, helps=helps))
    return sorted(found, key=lambda one: -one.members)


def _members(facts: GroupFacts, attempt: Attempt) -> list[MemberExplained]:
    found = []
    for one in in_order(facts.members):
        rejected = attempt.rejected.get(one.uid)
        found.append(
            MemberExplained(
                name=one.name, uid=one.uid, state=one.state, node=one.node or attempt.nodes.get(one.uid, ""),
                plugins=sorted(rejected.plugins) if rejected is not None else [],
                message=failure_message(rejected) if rejected is not None else "",
            )
        )  # fmt: skip
    found.sort(key=lambda one: not one.message)
    return found[:MEMBERS_SHOWN]
