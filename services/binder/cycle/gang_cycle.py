"""The way of a gang: when all its members are judged, committed as one, let go, or given back. Pure.

Why apart from ``binding_cycle.py``: each member goes through that as a lone pod does; this file holds the places where
they wait for each other (``core/gangs.py`` has the diagram). A gang with news of a member is looked at once before
the turn ends, so a turn costs what its news cost, and each decision rests on all that is known.

Before the commit nothing is in etcd: too few that fit, and all are given back at once. After it, no Binding is sent
before the minimum could be bound now (nodes as they were checked, volumes bound), and the first goes alone
(``line.py``). A member that is refused for good ends alone where the others suffice, once its claims of devices are
given back, and is taken out of the intent, so that it can be planned anew; where they do not suffice and nobody is
bound, it waits for the others, and all end by one transaction: at every revision of etcd the gang has no member
committed, or its minimum (I5).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from services.binder.core.gangs import GANG_TRANSITIONS, GangStage, InFlightGang
from services.binder.core.in_flight import BindingStage, InFlightBinding
from services.binder.core.loans import lenders_of
from services.binder.core.state import BinderState
from services.binder.cycle.binding_cycle import BindingCycle
from services.binder.cycle.check import surely_fit
from services.binder.cycle.commit import Committer
from shared.errors import NAMESPACE_ENDS, InvalidTransition
from shared.wire.messages import Outcome, Placement, Plan
from shared.wire.records import Intent, gang_key, gang_part

MANY = 64
"""Members that are looked at by columns; of fewer each is looked at by itself, which is cheaper then."""


class GangCycle:
    """Carries each gang in flight from its plan to its end."""

    def __init__(self, state: BinderState, committer: Committer, cycle: BindingCycle) -> None:
        self._state = state
        self._committer = committer
        self._cycle = cycle

    # --- plans --------------------------------------------------------------------------------------------------

    @staticmethod
    def malformed(plan: Plan) -> str:
        """What is wrong with the plan's gangs; "" where nothing is."""
        units = {placement.unit for placement in plan.placements}
        seen: set[int] = set()
        for gang in plan.gangs:
            if not gang.group:
                return f"gang {gang.unit} names no group"
            for unit in gang.members:
                if unit not in units:
                    return f"gang {gang.unit} names unit {unit}, which has no placement in the plan"
                if unit in seen:
                    return f"unit {unit} is named by gangs twice"
                seen.add(unit)
        if len({gang.unit for gang in plan.gangs}) < len(plan.gangs):
            return "two gangs have one number"
        return ""

    def open(self, plan: Plan) -> Iterable[tuple[Placement, str]]:
        """Placements in the order in which they are checked, each with its gang's key; gangs by preference."""
        by_unit = {placement.unit: placement for placement in plan.placements}
        order: list[tuple[Placement, str]] = []
        for gang in plan.gangs:
            key = gang_key(plan.term, gang.unit)
            members = [by_unit.pop(unit) for unit in gang.members]
            order += [(placement, key) for placement in members]
            if key in self._state.gangs:
                continue  # told under another plan_id: it is on its way
            self._state.stats.gangs += 1
            first = members[0]
            policy = f"{first.policy}@{first.policy_version}" if first.policy else ""
            self._state.gangs[key] = InFlightGang(
                key, gang.group, gang.unit, plan.term, plan.plan_id, policy, gang.min_count, coming=len(members)
            )
            self._state.touch(key)
        return [(placement, "") for placement in by_unit.values()] + order

    # --- etcd ---------------------------------------------------------------------------------------------------

    def written(self, key: str, intent: Intent) -> None:
        """A value of a gang's intent is in etcd: a link, the head, or what was rewritten."""
        part = gang_part(key)
        gang = self._state.gangs.get(part[0]) if part is not None else None
        if gang is None or gang.over:
            return
        self._state.touch(gang.key)
        if key not in gang.unwritten:
            for pod in intent.pods:
                member = gang.members.get(pod.uid)
                if member is not None and member.stage is BindingStage.RENEWING and member.rv == pod.rv:
                    self._cycle.to_binding(member)
            return
        gang.unwritten.discard(key)
        # The head last: links alone mean nothing, but a head whose links are missing can be read by no successor.
        if gang.unwritten == {gang.key}:
            self._commit_head(gang)
        elif not gang.unwritten:
            self._state.stats.gangs_committed += 1
            self._move(gang, GangStage.COMMITTED)
            for member in list(gang.members.values()):
                self._cycle.to_binding(member)

    def arrived(self, key: str, plan_id: int) -> InFlightGang | None:
        """A placement is taken up: the gang that it is a member of, if that is on its way still."""
        gang = self._state.gangs.get(key)
        if gang is not None and gang.coming and gang.plan_id == plan_id:
            gang.coming -= 1
            if not gang.coming:
                self._state.touch(key)
        return gang

    def drop(self, gang: InFlightGang, reason: str) -> None:
        """The gang cannot be committed: its members are given back."""
        self._give_back(gang, reason)

    def drop_older(self, term: int, reason: str) -> None:
        """Gangs of an older coordinator whose head was not sent yet are given back."""
        for gang in list(self._state.gangs.values()):
            uncommitted = gang.stage in (GangStage.GATHERING, GangStage.COMMITTING)
            # A head that was sent may be in etcd: there the compare of the coordinator's term says whether it is.
            if uncommitted and gang.coordinator_term < term and not self._committer.tried(gang.key):
                self._give_back(gang, reason)

    # --- decisions ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look at every gang with news."""
        touched = self._state.touched
        while touched:
            key = next(iter(touched))
            del touched[key]
            gang = self._state.gangs.get(key)
            if gang is not None and not gang.arriving:
                self._review(gang)

    def go_on(self) -> None:
        """A new turn: give back more of what is given back, or find out about more."""
        unfinished, self._state.unfinished = self._state.unfinished, {}
        for key in unfinished:
            self._state.touch(key)

    def _review(self, gang: InFlightGang) -> None:
        if not gang.members and not gang.coming:
            self._end(gang)
        elif gang.over:
            self._end_some(gang)
        elif gang.stage in (GangStage.GATHERING, GangStage.COMMITTING):
            if gang.short:
                self._state.stats.gangs_refused += 1
                self._give_back(gang, gang.told())
            elif gang.stage is GangStage.GATHERING and not self._awaits(gang):
                self._commit(gang)
        # Once somebody is bound, the rest goes on: what becomes of a broken gang is the coordinator's (ADR 0021).
        elif gang.short and not gang.bound:
            self._fail(gang)
        else:
            self._rewrite(gang)
            if gang.stage is GangStage.FAILING or (gang.stage is GangStage.COMMITTED and self._enough(gang)):
                self._go(gang)

    @staticmethod
    def _awaits(gang: InFlightGang) -> bool:
        return gang.coming > 0 or any(member.stage is BindingStage.AWAITED for member in gang.members.values())

    def _commit(self, gang: InFlightGang) -> None:
        """All are judged, and enough fit: what it takes in etcd, links first."""
        # The intent says what is lacking beyond those bound before it: whoever inherits it counts only its own.
        gang.min_count = max(0, gang.min_count - gang.bound)
        gang.bound = 0
        gang.divide(self._committer.size)
        self._move(gang, GangStage.COMMITTING)
        links = list(enumerate(gang.keys))[1:]
        for number, key in links:
            self._committer.put(key, gang.intent(number, self._state.term, self._state.shard))
        if not links:
            self._commit_head(gang)

    def _commit_head(self, gang: InFlightGang) -> None:
        """The value that decides for all of it; it rests on whatever was lent for any member."""
        lenders = lenders_of(gang.members.values())
        self._committer.put(gang.key, gang.intent(0, self._state.term, self._state.shard), lenders)

    def _enough(self, gang: InFlightGang) -> bool:
        """Whether the minimum could be bound now; once somebody is bound, everybody goes on."""
        idle = [member for member in gang.members.values() if self._idle(member)]
        sure = surely_fit(self._state, idle) if len(idle) >= MANY else set()
        ready = len(sure) + sum([self._cycle.may_go(member) for member in idle if member.uid not in sure])
        return gang.bound > 0 or ready >= gang.min_count

    def _go(self, gang: InFlightGang) -> None:
        self._move(gang, GangStage.BINDING)
        for member in list(gang.members.values()):
            given_up = member.withdrawing if member.stage is BindingStage.COMMITTED else None
            if given_up is not None and self._cycle.claims.left_by((member,)):
                self._cycle.end(member, given_up, node=member.node, reason=member.reason)
            elif self._idle(member):
                self._cycle.queue(member)

    def _idle(self, member: InFlightBinding) -> bool:
        return (
            member.stage is BindingStage.COMMITTED
            and member.withdrawing is None
            and member.uid not in self._state.paused
        )

    def _fail(self, gang: InFlightGang) -> None:
        """The minimum cannot be met and nobody is bound: find out about those that may be, then give all back."""
        if gang.stage is not GangStage.FAILING:
            self._move(gang, GangStage.FAILING)
            self._cycle.line.forget(gang.key)
        reason = gang.told()
        unclear = list(gang.unclear())
        # Found out about before anybody is given back: a Binding that beats its mark lets the others go (I5).
        for member in [member for member in unclear if member.stage is BindingStage.COMMITTED]:
            if self._state.left <= 0:
                self._state.unfinished[gang.key] = None
                break
            self._state.left -= 1
            self._cycle.mark(member, reason)
        self._rewrite(gang)
        if not unclear and self._cycle.claims.left_by(gang.members.values()):
            self._state.stats.gangs_withdrawn += 1
            level = "info" if NAMESPACE_ENDS in reason else "warning"
            self._state.log("gang_withdrawn", level=level, group=gang.group, gang=gang.key, reason=reason)
            self._give_back(gang, reason)

    def _give_back(self, gang: InFlightGang, reason: str) -> None:
        """Everybody ends, each with its own reason where it has one; who comes later finds no gang.

        Its intent goes first: nobody is told, and may be planned anew, whom it names after the next transaction.
        """
        gang.coming, gang.over = 0, gang.over or reason
        self._clear(gang)
        self._end_some(gang)

    def _end_some(self, gang: InFlightGang) -> None:
        """As many members as the turn has time for."""
        for member in list(islice(gang.members.values(), self._state.left)):
            self._state.left -= 1
            if member.withdrawing is not None:
                self._cycle.end(member, member.withdrawing, node=member.node, reason=member.reason)
            else:
                self._cycle.end(member, Outcome.CONFLICT, reason=gang.over)
        if gang.members:
            self._state.unfinished[gang.key] = None
        else:
            self._state.touch(gang.key)

    def _rewrite(self, gang: InFlightGang) -> None:
        """What etcd does not show as it is, is put again, each value once."""
        keys = gang.keys
        for number in sorted(gang.changed):
            self._committer.renew(keys[number], gang.intent(number, self._state.term, self._state.shard))
        gang.changed.clear()

    def _end(self, gang: InFlightGang) -> None:
        """All members are settled: its intent goes, the head first, since links alone mean nothing."""
        self._move(gang, GangStage.ENDED)
        if not gang.over:
            self._clear(gang)
        self._cycle.line.forget(gang.key)
        del self._state.gangs[gang.key]

    def _clear(self, gang: InFlightGang) -> None:
        # Backwards, each to the front: the head is deleted with the first of them.
        for key in reversed(gang.keys):
            self._committer.clear(key, self._state.now, first=True)

    def _move(self, gang: InFlightGang, to: GangStage) -> None:
        story, key = self._state.story, gang.key
        if to not in GANG_TRANSITIONS[gang.stage]:
            raise InvalidTransition(key, gang.stage.value, to.value, self._state.cause.__name__, story.lines(key))
        story.add(key, "{} -> {} on {}: {} bound, {} on their way", gang.stage, to, self._state.cause, gang.bound,
                  len(gang.members))  # fmt: skip
        gang.stage = to
