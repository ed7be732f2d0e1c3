"""Why a pod group is where it is, from everything a leader knows: its object, its members, its queue, and what would
become of it if all that wait were tried now (``shared/scheduling/explain/group_answer.py``).

Pure: it reads the core and changes nothing. No promise: what is free now may be taken a moment later.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.coordinator.core.core import Core
from services.coordinator.inspect.group_facts import find_group
from services.coordinator.inspect.pending import remedy_of_limit
from services.coordinator.inspect.queue_facts import tree_of
from services.coordinator.inspect.units import GroupFacts, phase_of, why
from services.coordinator.preemption.groups import preemptor_of
from shared.model.pod import Pod
from shared.scheduling.explain.group_answer import GroupAnswer
from shared.scheduling.explain.group_answer import explain_group as answer_of
from shared.scheduling.explain.preemption import VictimRules
from shared.scheduling.groups.phase import PLACING
from shared.scheduling.reasons import GROUP_INVALID


class GroupExplained(Struct, frozen=True, kw_only=True):
    """``reason``, ``message``: why it waits, as its members were told; ``blocked``: the quota that holds it back;
    ``now``: what an attempt would give as things stand; None where the group has no object."""

    unit: str
    phase: str
    summary: str
    reason: str
    message: str
    queue: str
    blocked: str
    now: GroupAnswer | None


def explain_group(core: Core, namespace: str, name: str) -> GroupExplained | None:
    """The answer; None where there is no such group."""
    facts = find_group(core, namespace, name)
    if facts is None:
        return None
    now, held, (reason, message) = _now(core, facts), tree_of(core).held(facts.key), why(facts)
    phase = phase_of(facts)
    if now is not None and held is not None:
        now = after_its_queue(now, remedy_of_limit(held))
    if now is None or reason == GROUP_INVALID:
        summary = message
    else:
        summary = "its members are on their way" if phase == PLACING else now.summary
    return GroupExplained(
        unit=f"{facts.namespace}/{facts.name}", phase=phase, summary=summary, reason=reason, message=message,
        queue=facts.queue, blocked=held.text() if held is not None else "", now=now,
    )  # fmt: skip


def after_its_queue(now: GroupAnswer, remedy: str) -> GroupAnswer:
    """The answer about a group that its queue holds back: no node lets it in, and nobody is evicted for it, before that
    is settled."""
    change = f"its queue first: {remedy}" + (f"; and then: {now.change}" if now.lacking and now.change else "")
    failed = tuple(replace(one, change="") for one in now.failed)
    return replace(now, change=change, preemption=None, failed=failed, helps=())


def member_of(core: Core, pod: Pod) -> dict[str, Any] | None:
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
        "gang": facts.group is not None and facts.group.gang, "min_count": facts.min_count,
        "queue": facts.queue, "reason": reason, "message": message,
    }  # fmt: skip


def _now(core: Core, facts: GroupFacts) -> GroupAnswer | None:
    """All that wait, tried in thought in the order in which they are; those on their way count as placed."""
    state, group = core.state, facts.group
    if group is None:
        return None
    members = state.groups.members.get(facts.key)
    waiting = [pod for pod in members.pending.values() if pod.uid not in members.away] if members is not None else []
    arrivals = {pod.uid: entry.arrival for pod in waiting if (entry := state.queue.entries.get(pod.uid)) is not None}
    waiting.sort(key=lambda pod: (-pod.priority, arrivals.get(pod.uid, 0)))
    there = {one.uid for one in facts.members} - {pod.uid for pod in waiting}
    bound = [pod for uid in there if (pod := state.cluster.index.get(uid)) is not None]
    first = preemptor_of(waiting) if waiting else None
    rules = VictimRules(
        state.settings.preemption_strict,
        lambda other: first is not None and core.protected.would_evict(first, other),
    )
    found = answer_of(state.cluster, state.feasibility, group, waiting, bound, rules=rules)
    return msgspec.convert(found, GroupAnswer)
