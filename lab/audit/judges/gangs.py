"""The audit's rule for gangs (I5) and their topology, from the history of objects alone.

I5: of a gang none, or at least its minimum, stands. Bindings are single requests, so a gang that is being bound stands
in part for a moment: a bind that leaves it below its minimum begins that moment, and ``BINDING_S`` later it must be
over. A gang that had its minimum and lost members (finished, deleted, evicted) breaks no rule by that: nothing is bound
to it. Members that ran to their end within one incarnation count as standing, also where they are deleted then; not
those that were deleted first. An incarnation is over once nobody stands, unless fewer than the minimum have succeeded.

What excuses a gang that stays in part: somebody else broke it while it was being bound (a member or a node was deleted,
the minimum was raised, the group went), or the API server refuses the Bindings of the members that are missing, and
their conditions say so (SchedulerError). Then its members that run may stay, unless the group asks that they leave;
then they must be gone ``BINDING_S`` after the group's timeout.

Topology: a member is bound into the one domain where the other members stand. Labels may have changed only just.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from lab.audit.judges.groups import AuditedGroup
from lab.audit.ledger import ELIGIBILITY_GRACE_S as GRACE_S
from lab.audit.ledger import NodeBook
from lab.audit.pods import AuditedPod

BINDING_S = 30.0
"""Longest time for which a gang may stand in part while it is being bound; source: our own choice, three times the
goal for the recovery from a kill, since a kill in the middle of a gang is the longest there is."""
DECIDED_S = 0.5
"""So shortly before its first bind a gang may have been decided: a member or node that went since broke it; source: our
own choice, several times the time from a decision to its Binding on a loaded machine."""


@dataclass(slots=True)
class AuditedGang:
    """One group's members and what became of them. ``counted``: bound in this incarnation, and not deleted since but
    those that had succeeded (``ran``)."""

    group: AuditedGroup
    standing: dict[str, AuditedPod] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    pending: dict[str, bool] = field(default_factory=dict)
    """Members that wait, and whether their condition says that their Binding was refused."""
    whole: bool = False
    began_s: float | None = None
    """When the first member of this incarnation was bound."""
    opened_s: float | None = None
    """Since when it stands in part by a bind; None: it does not."""
    least: int = 1
    """The smallest minimum since then."""
    hurt_s: float | None = None
    """When somebody else broke it, since then or only just before."""
    left_s: float = float("-inf")
    """When a member went last."""
    reported: bool = False

    @property
    def in_part(self) -> bool:
        """Whether it is being bound and not there yet."""
        return self.opened_s is not None


class Gangs:
    """Feed what happens to pods, groups and nodes in order, and ``passed`` when time goes by; ask for figures at the
    end. ``note(check, text)`` is called for each violation."""

    def __init__(self, nodes: Mapping[str, NodeBook], note: Callable[[str, str], None]) -> None:
        self._nodes = nodes
        self._note = note
        self._gangs: dict[str, AuditedGang] = {}
        self._open: dict[str, AuditedGang] = {}
        self._due: list[tuple[float, str]] = []
        self._node_gone_s = self._now_s = float("-inf")
        self.whole: set[str] = set()
        """Gangs that had their minimum at some time."""
        self.broken: set[str] = set()
        """Gangs that stayed in part and were excused."""
        self.took_s: list[float] = []
        """Of each incarnation, from its first bind to the one that gave it its minimum."""

    def get(self, group: AuditedGroup) -> AuditedGang:
        """The gang of that group."""
        return self._gangs.setdefault(group.key, AuditedGang(group))

    def __iter__(self) -> Iterator[AuditedGang]:
        return iter(self._gangs.values())

    # --- what happens ---------------------------------------------------------------------------------------------

    def pod(self, before: AuditedPod | None, after: AuditedPod | None, *, bound: bool, time_s: float) -> None:
        """A member came (``before`` None), changed or is gone (``after`` None). ``bound``: by a bind, just now."""
        if (pod := after or before) is None or pod.group is None:
            return
        gang = self.get(pod.group)
        if after is None or after.finished:
            self._left(gang, pod, gone=after is None, time_s=time_s)
            return
        if bound and pod.mine:
            self._bound(gang, pod, time_s)
        elif after.node:
            gang.standing[pod.uid] = after
            gang.counted.add(pod.uid)
            gang.pending.pop(pod.uid, None)
            if not bound and before is None:
                self._settle(gang, time_s)
        else:
            gang.pending[pod.uid] = after.refused

    def group(self, group: AuditedGroup, time_s: float) -> None:
        """The group's object changed."""
        gang = self.get(group)
        if gang.opened_s is None:
            return
        if group.facts is None or group.facts.minimum > gang.least:
            self._hurt(gang, time_s)
        gang.least = min(gang.least, group.least(time_s))
        self._settle(gang, time_s)

    def node_gone(self, time_s: float) -> None:
        """A node was deleted: whatever was on its way there cannot arrive."""
        self._node_gone_s = time_s
        for gang in self._open.values():
            self._hurt(gang, time_s)

    def passed(self, time_s: float) -> None:
        """It is that late now."""
        self._now_s = time_s
        while self._due and self._due[0][0] <= time_s:
            gang = self._gangs[heappop(self._due)[1]]
            self._judge(gang, time_s)

    def end(self) -> None:
        """Nothing more will happen: what stands in part now stands in part."""
        for gang in list(self._open.values()):
            self._judge(gang, self._now_s, ends=True)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _bound(self, gang: AuditedGang, pod: AuditedPod, time_s: float) -> None:
        seen = gang.group.seen(time_s)
        if not any(seen):
            self._note("orphan", f"{pod.key} is bound, but its group {gang.group.key} does not exist")
        if not gang.standing and (gang.whole or not gang.counted):
            if len(gang.ran) >= gang.group.least(time_s):
                gang.ran = set()
            gang.counted, gang.whole, gang.began_s = set(gang.ran), False, None
        if gang.began_s is None:
            gang.began_s = time_s
        self._topology(gang, pod, time_s)
        gang.standing[pod.uid] = pod
        gang.counted.add(pod.uid)
        gang.pending.pop(pod.uid, None)
        if gang.opened_s is None:
            gang.opened_s, gang.hurt_s, gang.reported = time_s, None, False
            if time_s - max(gang.left_s, self._node_gone_s) <= DECIDED_S:
                gang.hurt_s = time_s
            gang.least = gang.group.least(time_s)
            self._open[gang.group.key] = gang
            self._judge_later(gang, time_s)
        gang.least = min(gang.least, gang.group.least(time_s))
        self._settle(gang, time_s)

    def _settle(self, gang: AuditedGang, time_s: float) -> None:
        """Close the moment where it is over."""
        if gang.opened_s is None:
            return
        if len(gang.counted) >= gang.least:
            if not gang.whole and gang.least > 1 and gang.began_s is not None:
                self.took_s.append(time_s - gang.began_s)
            gang.whole = True
            if gang.least > 1:
                self.whole.add(gang.group.key)
            self._close(gang)
        elif not gang.counted:
            self._close(gang)

    def _close(self, gang: AuditedGang) -> None:
        gang.opened_s = gang.hurt_s = None
        self._open.pop(gang.group.key, None)

    def _left(self, gang: AuditedGang, pod: AuditedPod, *, gone: bool, time_s: float) -> None:
        known = gang.standing.pop(pod.uid, None) is not None or pod.uid in gang.pending
        gang.pending.pop(pod.uid, None)
        if not gone:
            if pod.succeeded and not pod.terminating and pod.uid in gang.counted:
                gang.ran.add(pod.uid)
            return
        if pod.uid not in gang.ran:
            gang.counted.discard(pod.uid)
        gang.left_s = time_s
        if gang.in_part and known:
            self._hurt(gang, time_s)
        self._settle(gang, time_s)

    def _hurt(self, gang: AuditedGang, time_s: float) -> None:
        """Somebody else broke it while it was being bound: its time begins anew, once."""
        if gang.hurt_s is None:
            gang.hurt_s = time_s
            self._judge_later(gang, time_s)

    def _judge_later(self, gang: AuditedGang, time_s: float) -> None:
        heappush(self._due, (time_s + BINDING_S, gang.group.key))

    def _judge(self, gang: AuditedGang, time_s: float, *, ends: bool = False) -> None:
        """A gang in part whose time is up is broken with an excuse, or a violation, once. ``ends``: its time is up."""
        if gang.opened_s is None or gang.reported:
            return
        since_s, facts = max(gang.opened_s, gang.hurt_s or 0.0), gang.group.facts
        if time_s - since_s < BINDING_S and not ends:
            return
        refused = sum(gang.pending.values())
        if gang.hurt_s is None and len(gang.counted) + refused < gang.least:
            self._violated(gang, "nothing excuses it")
            return
        self.broken.add(gang.group.key)
        if facts is None or not facts.evicts:
            gang.reported = True
        elif time_s - since_s < facts.timeout_s + BINDING_S:
            heappush(self._due, (since_s + facts.timeout_s + BINDING_S, gang.group.key))
        else:
            self._violated(gang, "they did not leave, as the group asks when it is broken")

    def _violated(self, gang: AuditedGang, why: str) -> None:
        gang.reported = True
        self._note("partial", f"{gang.group.key}: {len(gang.counted)} of at least {gang.least} stay bound: {why}")

    def _topology(self, gang: AuditedGang, pod: AuditedPod, time_s: float) -> None:
        keys = {facts.topology for facts in gang.group.seen(time_s) if facts}
        if len(keys) != 1 or not (key := keys.pop()):
            return
        mine = self._domains(pod.node, key, time_s)
        if not mine - {""}:
            self._note("scattered", f"{pod.key} on {pod.node}, which has no label {key}")
            return
        others = [self._domains(one.node, key, time_s) for one in gang.standing.values() if not one.terminating]
        for there in others:
            if not mine & there:
                self._note("scattered", f"{pod.key} on {pod.node} is in {key} {max(mine)}, others in {max(there)}")
                return

    def _domains(self, node: str, key: str, time_s: float) -> set[str]:
        """The node's domain, and what it was where that changed only just."""
        book = self._nodes.get(node)
        if book is None:
            return {""}
        if book.facts is None and book.before is not None and time_s - book.changed_s > GRACE_S:
            return {str(book.before.labels.get(key) or "")}
        return {str(facts.labels.get(key) or "") for facts in book.seen(time_s)}
