"""The audit's rules for evictions by a scheduler: nobody for nobody, groups that leave whole, each victim once.

A victim is a pod that a scheduler marked before it asked it to leave: condition DisruptionTarget, reason
PreemptionByScheduler. Somebody of higher priority must have gained by it: a pod that was nominated to the victim's
node, or is bound there later; or one that waited then and that the mark names (its uid in brackets at the end), since
it may be bound elsewhere, or gone, before its status says anything. Of a group that leaves whole it is enough that one
member made room. A pod may also be evicted for other reasons, which are told by the objects: its own broken gang asks
that its members leave, its queue lives on borrowed room, or a node lends less than offline pods hold (``excuse``). The
priority of a member is its group's where that has one; of one priority an online pod may evict an offline one.

One gang is broken before a second: where a gang preempts, no two others are broken of which either alone would have
made the same room, node by node. That is judged of gangs without members to spare, and of pods that amounts describe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations

from lab.audit.judges.gangs import Gangs
from lab.audit.judges.groups import AuditedGroup
from lab.audit.pods import AuditedPod

PREEMPTED = "PreemptionByScheduler"
FOREVER = float("inf")
TOGETHER_S = 15.0
"""Within so long the members of a group that leaves whole are all asked to leave; source: our own choice, half of the
time that a gang may take to be bound."""


@dataclass(slots=True)
class EvictedPod:
    """A pod that was evicted. ``excused``: the objects tell another reason; ``named``: its mark names a rival."""

    pod: AuditedPod
    time_s: float
    order: int
    excused: bool
    named: bool


@dataclass(slots=True)
class _Hit:
    """A gang of which members were evicted, since when. ``exact``: it stood with its minimum, and not one more."""

    group: AuditedGroup
    since_s: float
    exact: bool
    victims: list[EvictedPod] = field(default_factory=list)


@dataclass(slots=True)
class _Leaving:
    """A group that is leaving whole: since when, and who of it stood then."""

    since_s: float
    members: dict[str, AuditedPod]


class EvictionsAudit:
    """Feed pods in order; ``end`` judges. ``excuse(pod)``: whether its queue explains that it was evicted."""

    def __init__(self, gangs: Gangs, note: Callable[[str, str], None], excuse: Callable[[AuditedPod], bool]) -> None:
        self._gangs = gangs
        self._note = note
        self._excuse = excuse
        self._victims: dict[str, EvictedPod] = {}
        self._rivals: defaultdict[str, dict[str, _Rival]] = defaultdict(dict)
        """By node and uid."""
        self._hits: dict[str, _Hit] = {}
        """By group."""
        self.budgets = False
        """There are disruption budgets, which say who leaves rather than another."""
        self._marked_again: set[str] = set()
        self._leaving: dict[str, _Leaving] = {}
        self._order = 0
        self._waiting: dict[str, AuditedPod] = {}
        """Who is bound nowhere and may preempt, by uid."""

    def pod(self, before: AuditedPod | None, after: AuditedPod | None, time_s: float) -> None:
        """A pod came, changed or is gone."""
        self._order += 1
        pod = after or before
        if pod is None:
            return
        if after is None or after.finished or after.node or after.never_preempts:
            self._waiting.pop(pod.uid, None)
        else:
            self._waiting[pod.uid] = after
        if after is None or after.finished:
            self._gone(pod)
            if before is not None and before.nominated and not (before.node or before.never_preempts):
                self._rivals[before.nominated][before.uid] = _Rival(rank(before), self._order, _of_gang(before))
            return
        self._note_rival(before, after)
        if after.evicted is None or after.evicted[0] != PREEMPTED or not after.node:
            return
        marked = before is None or _why(before) != _why(after)
        if after.uid not in self._victims:
            gang = after.group is not None and after.group.facts is not None and after.group.facts.evicts
            victim = EvictedPod(after, time_s, self._order, gang or self._excuse(after), self._names_rival(after))
            self._hit(victim)
            self._victims[after.uid] = victim
            self._leave_whole(after, time_s)
        elif marked and before is not None and before.terminating:
            again = _why(after) == _why(self._victims[after.uid].pod) and before.evicted is not None
            if again and after.uid not in self._marked_again:  # an eviction puts its own reason there: ours comes back
                self._marked_again.add(after.uid)
                return
            self._note("evicted", f"{after.key} is evicted once more while it is leaving")

    def _note_rival(self, before: AuditedPod | None, after: AuditedPod) -> None:
        """Remember where it is to go, and where it went."""
        if after.never_preempts:
            return
        mine, gang = rank(after), _of_gang(after)
        if before is not None and before.nominated not in ("", after.nominated) and not before.node:
            self._rivals[before.nominated][after.uid] = _Rival(mine, self._order, gang)
        if after.node and (before is None or before.node != after.node):
            self._rivals[after.node][after.uid] = _Rival(mine, self._order, gang)
        elif after.nominated and not after.node:
            self._rivals[after.nominated][after.uid] = _Rival(mine, FOREVER, gang)

    def _names_rival(self, victim: AuditedPod) -> bool:
        """Whether the mark names somebody of higher priority, who waits."""
        rival = self._waiting.get(preemptor_named(victim.evicted[1] if victim.evicted is not None else ""))
        return rival is not None and rank(rival) > rank(victim)

    # --- one gang before a second ---------------------------------------------------------------------------------

    def _hit(self, victim: EvictedPod) -> None:
        group = victim.pod.group
        if group is None or group.facts is None or group.facts.minimum < 2 or group.facts.whole or victim.excused:
            return
        hit = self._hits.get(group.key)
        if hit is None:
            exact = len(self._left(group)) == group.facts.minimum
            hit = self._hits[group.key] = _Hit(group, victim.time_s, exact)
        hit.victims.append(victim)

    def _left(self, group: AuditedGroup) -> list[AuditedPod]:
        """Members that stand, and were not asked to leave."""
        standing = self._gangs.get(group).standing.values()
        return [pod for pod in standing if not pod.terminating and pod.uid not in self._victims]

    def _judge_hits(self, time_s: float) -> None:
        """Of the gangs hit together, whose time is up: was one broken for nothing?"""
        if not any(time_s - hit.since_s > TOGETHER_S for hit in self._hits.values()):
            return
        hits, self._hits = self._hits, {}
        for one, other in combinations(hits.values(), 2):
            if not self.budgets and one.exact and other.exact and self._spares(one, other) and self._spares(other, one):
                keys = f"{one.group.key} and {other.group.key}"
                self._note("second", f"{keys} are both broken, where one of them would have made the same room")

    def _spares(self, hit: _Hit, other: _Hit) -> bool:
        """Whether members of ``other`` that stay could have left in the place of every victim of ``hit``."""
        rest = self._left(other.group)
        for victim in hit.victims:
            rivals = [rival for rival in self._rivals.get(victim.pod.node, {}).values() if _gains(rival, victim)]
            if not rivals or not all(rival.gang for rival in rivals) or not victim.pod.plain:
                return False
            found = next((pod for pod in rest if _as_large(pod, victim.pod)), None)
            if found is None:
                return False
            rest.remove(found)
        return True

    # --- a group that leaves whole --------------------------------------------------------------------------------

    def _leave_whole(self, pod: AuditedPod, time_s: float) -> None:
        group = pod.group
        if group is None or not all(facts is not None and facts.whole for facts in group.seen(time_s)):
            return
        leaving = self._leaving.get(group.key)
        if leaving is None:
            self._leaving[group.key] = leaving = _Leaving(time_s, dict(self._gangs.get(group).standing))
        leaving.members.pop(pod.uid, None)

    def _gone(self, pod: AuditedPod) -> None:
        if pod.group is None or (leaving := self._leaving.get(pod.group.key)) is None:
            return
        leaving.members.pop(pod.uid, None)
        if not leaving.members:
            del self._leaving[pod.group.key]

    def passed(self, time_s: float) -> None:
        """It is that late now."""
        self._judge_hits(time_s)
        late = [key for key, one in self._leaving.items() if time_s - one.since_s > TOGETHER_S]
        for key in late:
            left = sorted(one.key for one in self._leaving.pop(key).members.values() if not one.terminating)
            if left:
                self._note("half", f"{key}: a member was evicted, and {left[0]} of the same group stays ({len(left)})")

    def end(self) -> None:
        """Nothing more will happen: whoever gains by an eviction has gained."""
        self.passed(float("inf"))
        groups_that_gave: set[str] = set()
        unjust: list[EvictedPod] = []
        for victim in self._victims.values():
            group = victim.pod.group
            rivals = self._rivals.get(victim.pod.node, {}).items()
            if not (victim.excused or victim.named) and not any(self._gained(victim, rivals)):
                unjust.append(victim)
            elif group is not None and group.facts is not None and group.facts.whole:
                groups_that_gave.add(group.key)
        for victim in unjust:
            if victim.pod.group is None or victim.pod.group.key not in groups_that_gave:
                told = f"{victim.pod.key} (priority {priority(victim.pod)}) on {victim.pod.node}"
                self._note("evicted", f"{told} is evicted for nobody of higher priority")

    @staticmethod
    def _gained(victim: EvictedPod, rivals: Iterable[tuple[str, _Rival]]) -> Iterable[bool]:
        return (uid != victim.pod.uid and _gains(rival, victim) for uid, rival in rivals)


@dataclass(frozen=True, slots=True)
class _Rival:
    """Who went to a node, or was to go there, and until when it waited for that (in entries). ``gang``: with others,
    and its amounts alone say where it may go."""

    rank: tuple[int, bool]
    until: float
    gang: bool


def preemptor_named(message: str) -> str:
    """The uid at the end of what a mark says, "" where it names none."""
    return message.rpartition(" (")[2].removesuffix(")") if message.endswith(")") else ""


def _why(pod: AuditedPod) -> tuple[str, str] | None:
    """As its mark has it, for whomever: he that is told last may be another."""
    reason, message = pod.evicted or ("", "")
    return (reason, message.removesuffix(f" ({preemptor_named(message)})")) if pod.evicted is not None else None


def _gains(rival: _Rival, victim: EvictedPod) -> bool:
    return rival.rank > rank(victim.pod) and rival.until > victim.order


def _of_gang(pod: AuditedPod) -> bool:
    facts = pod.group.facts if pod.group is not None else None
    return pod.plain and facts is not None and facts.minimum > 1


def _as_large(pod: AuditedPod, victim: AuditedPod) -> bool:
    """Whether its leaving would have made the same room on the same node, and nobody more important had left."""
    if pod.node != victim.node or not pod.plain or priority(pod) > priority(victim):
        return False
    amounts = pod.amounts
    return all(amounts.get(name, 0) >= amount for name, amount in victim.requests)


def rank(pod: AuditedPod) -> tuple[int, bool]:
    """Of one priority online pods go before offline ones, where the scheduler is told so."""
    return priority(pod), not pod.offline


def priority(pod: AuditedPod) -> int:
    """A member's is its group's, where that has one."""
    facts = pod.group.facts if pod.group is not None else None
    return facts.priority if facts is not None and facts.priority is not None else pod.priority
