"""Plans at the binder and placements not yet confirmed: sent until answered, kept until the watch tells.

    made --send--> SENT --answer--> (each placement: bound, given back or unresolved)
                    ^  |
                    |  +-- failed / no binder / another binder
                    +----- WAITING (retry_at) <--+

Each shard of nodes has a binder of its own, and each plan is one binder's; without a binder it waits for one. One that
names nodes of other shards first waits for what those lend (``borrowing.py``). A
plan is idempotent by (term, plan_id), so it is sent again, unchanged, to whoever leads the binders, until it is
answered. A unit that the binder still has on its way is asked for by another plan. A placement stays assumed until the
watch shows the pod bound or gone; one that nobody confirmed for ``confirm_after_s`` is looked up (reliability.md 3.7:
resolve, do not just drop).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from services.coordinator.binding.borrowing import Placing, PlanPart, parts_of, to_borrow
from services.coordinator.core.events import BinderChanged, PlanAnswered, PlanFailed
from services.coordinator.core.instructions import FetchPod, SendPlan
from services.coordinator.core.state import NEVER, CoordinatorState
from services.coordinator.status.reporter import StatusReporter
from shared.backoff import backoff_s
from shared.model.pod import Pod
from shared.scheduling.preemption.budgets import covers
from shared.scheduling.shards import ONLY
from shared.turns import Stop
from shared.wire.messages import (
    MAX_UNITS,
    VERSION,
    Eviction,
    Gang,
    Loan,
    Outcome,
    Placement,
    PlacementResult,
    Plan,
)

REFUSED_FOR_NOW = frozenset(
    {"not_leader", "not_ready", "wrong_shard", "overloaded", "unauthenticated", "forbidden"}
    | {"peer_unreachable", "peer_untrusted"}
)
"""Refusals that say nothing about the plan: it is sent again."""


FEW_UNITS = 12
"""With fewer units at the binder another plan may go there: batches are for when there is a queue."""

EVICTING_PLANS = 4
"""Plans of evictions for one reason that are open for a shard: the binder sends few victims at a time anyway, and a
plan holds a connection until its last one has its end."""


@dataclass(slots=True)
class PodOnItsWay:
    """A pod on its way to a node. ``since``: when it was planned or last looked up."""

    placement: Placement
    pod: Pod
    plan_id: int
    since: float
    answered: bool = False
    unresolved: bool = False
    asked: bool = False
    gang: Gang | None = None
    """With which others it stands or falls."""
    shard: str = ONLY
    """Whose binder commits it."""
    loan: Loan | None = None
    """What another shard's binder keeps for it."""


@dataclass(slots=True)
class OpenPlan:
    """A plan without an answer. ``tries``: sends since the binder changed."""

    plan: Plan
    shard: str = ONLY
    sends: int = 0
    tries: int = 0
    in_flight: int = 0
    retry_at: float | None = None
    opened_at: float = 0.0
    """When it was made, seconds of the clock."""
    tried: list[tuple[float, float, int]] = field(default_factory=list)
    """Per placement: when its pod was first seen, when taken off the queue, and which attempt it is, from 1."""
    again: bool = False
    """It only asks for the end of units that an earlier plan handed over."""
    lends_to: int = 0
    """The plan that it borrows for; 0: none."""
    borrows: dict[int, str] = field(default_factory=dict)
    """Plans that lend, and have not answered, by number: whom they ask. It is not sent before."""
    give_up_at: float = NEVER
    """Until then it waits for those."""

    @property
    def binds(self) -> bool:
        """Whether it hands over pods to bind: it has no evictions alone, lends nothing, asks for no earlier plan's."""
        return bool(self.plan.placements) and not self.again and not self.lends_to

    def waited_s(self) -> list[float]:
        """Per placement: for how long its pod had been pending when the plan was made, gates left out."""
        return [max(0.0, self.opened_at - first_seen) for first_seen, _, _ in self.tried]


@dataclass(slots=True)
class Ledger:
    """Open plans by plan_id, and placements by pod uid."""

    state: CoordinatorState
    reporter: StatusReporter
    binders: dict[str, BinderChanged] = field(default_factory=dict)
    """Who leads each shard's, by shard; it is not here, or has no URL, where nobody does."""
    plans: dict[int, OpenPlan] = field(default_factory=dict)
    placed: dict[str, PodOnItsWay] = field(default_factory=dict)
    _later: dict[str, str] = field(default_factory=dict)
    """Units whose end is to be asked for, and of whose binders: their shard."""
    _plan_ids: int = 0
    _swept_at: float = 0.0

    # --- plans --------------------------------------------------------------------------------------------------

    def open(self, placements: list[Placing], follows: int, *, gangs: Sequence[Gang] = ()) -> None:
        """A new plan for each shard, sent at once if its binder leads and nothing is to be borrowed. ``gangs``: which
        of the placements stand or fall together; each is of one group (``shards.py``)."""
        shards = self.state.shards
        if not shards.several:
            self._open(placements, follows, gangs, shards.names[0])
            return
        for part in parts_of(self.state, placements, gangs):
            self._open(part.each, follows, part.gangs, part.shard)

    def _open(
        self, placements: list[Placing], follows: int, gangs: Sequence[Gang], shard: str, again: bool = False
    ) -> None:
        state = self.state
        self._plan_ids += 1
        state.messages += 1
        placed = [placement for placement, _ in placements]
        plan = Plan(VERSION, state.messages, follows, state.term, self._plan_ids, placed, [], list(gangs), loans=[])
        tried = []
        gang_of = {unit: gang for gang in gangs for unit in gang.members}
        if not self.placed:
            self._swept_at = state.now
        state.agenda.ledger = min(state.agenda.ledger, self._swept_at + state.settings.sweep_every_s)
        for placement, pod in placements:
            uid = placement.uid
            gang = gang_of.get(placement.unit)
            loan = self.placed[uid].loan if again else None
            if loan is not None:
                plan.loans.append(loan)
            self.placed[uid] = PodOnItsWay(placement, pod, plan.plan_id, state.now, gang=gang, shard=shard, loan=loan)
            if pod.group:
                state.groups.send_away(uid)
            if uid in self.reporter.notices:
                self.reporter.placing(uid)
            entry = state.queue.entries.get(uid)
            seen = entry.first_seen + entry.held_s if entry else state.now  # as if it had come so much later
            tried.append((seen, entry.since, entry.attempts + 1) if entry else (state.now, state.now, 1))
        opened = self.plans[plan.plan_id] = OpenPlan(plan, shard, opened_at=state.now, tried=tried, again=again)
        state.stats.plans += 1
        state.stats.placements += len(placements)
        if state.shards.several and not again:
            self._borrow(opened)
        self._send(opened)

    def _borrow(self, opened: OpenPlan) -> None:
        """Ask the binders of other shards for what the plan needs of their nodes."""
        state = self.state
        for shard, wanted in to_borrow(state.shards, opened.shard, opened.plan.placements).items():
            self._plan_ids += 1
            state.messages += 1
            # a binder from before loans reads a gang that cannot reach its minimum, and commits none of it
            group = self.placed[wanted[0].uid].pod.group
            never = Gang(wanted[0].unit, group, [placement.unit for placement in wanted], len(wanted) + 1)
            plan = Plan(VERSION, state.messages, 0, state.term, self._plan_ids, wanted, gangs=[never], lend=True)
            lender = self.plans[plan.plan_id] = OpenPlan(
                plan, shard, opened_at=state.now, lends_to=opened.plan.plan_id
            )  # fmt: skip
            opened.borrows[plan.plan_id] = shard
            opened.give_up_at = state.now + state.settings.borrow_s
            state.agenda.ledger = min(state.agenda.ledger, opened.give_up_at)
            state.stats.plans += 1
            self._send(lender)

    def lent(self, plan: OpenPlan) -> OpenPlan | None:
        """The plan's lender has answered; the plan that it lends to, if it waits for no other."""
        opened = self.plans.get(plan.lends_to)
        if opened is None:
            return None
        opened.borrows.pop(plan.plan.plan_id, None)
        return None if opened.borrows else opened

    def borrowed(self, opened: OpenPlan, units: set[int], gangs: list[Gang]) -> None:
        """Send what is left of a plan that has waited for lenders, with what they lent."""
        plan, placed = opened.plan, self.placed
        each = [(one, tried) for one, tried in zip(plan.placements, opened.tried, strict=True) if one.unit in units]
        if not each:
            del self.plans[plan.plan_id]
            return
        opened.tried = [tried for _, tried in each]
        loans = [loan for one, _ in each if (loan := placed[one.uid].loan) is not None]
        opened.plan = msgspec.structs.replace(plan, placements=[one for one, _ in each], gangs=gangs, loans=loans)
        self._send(opened)

    def drop(self, opened: OpenPlan) -> None:
        """The plan was never sent, and is not to be; nor is anything lent to it."""
        for plan_id in (opened.plan.plan_id, *opened.borrows):
            self.plans.pop(plan_id, None)

    def ask_later(self, uid: str) -> None:
        """The binder has the unit still on its way: its end is to be asked for."""
        self._later[uid] = self.placed[uid].shard
        self.state.agenda.ledger = self.state.now

    def _ask_again(self) -> None:
        """Ask for the end of units on their way, by one plan at a time for all of them: some wait ten minutes for a
        volume, and a request each would take all the room and all the connections from those that wait for nothing."""
        asked = self._askable()
        parts: dict[str, PlanPart] = {}
        gangs: dict[int, Gang] = {}
        for uid in asked:
            del self._later[uid]
            placed, entry = self.placed.get(uid), self.state.queue.entries.get(uid)
            if placed is None or not placed.unresolved:
                continue
            placement = placed.placement
            if entry is not None:
                placement = msgspec.structs.replace(placement, resource_version=entry.pod.resource_version)
            parts.setdefault(placed.shard, PlanPart(placed.shard)).each.append((placement, placed.pod))
            if placed.gang is not None:  # a binder that knows nothing of it must not place its members one by one
                members = gangs[placed.gang.unit].members if placed.gang.unit in gangs else []
                gangs[placed.gang.unit] = msgspec.structs.replace(placed.gang, members=[*members, placement.unit])
        for shard, part in parts.items():  # whose binder has them, whatever their groups' homes are by now
            units = {placement.unit for placement, _ in part.each}
            own = [gang for gang in gangs.values() if gang.members[0] in units]
            self._open(part.each, 0, own, shard, again=True)

    def evict(self, evictions: list[Eviction]) -> None:
        """New plans of evictions alone for each shard, of as many as one may name, sent at once if its binder leads."""
        shards = self.state.shards
        parts: dict[str, list[Eviction]] = {}
        for eviction in evictions:
            told = msgspec.structs.replace(eviction, unprotected=self._unprotected(eviction.uid))
            parts.setdefault(shards.of(eviction.node), []).append(told)
        for shard, part in parts.items():
            for at in range(0, len(part), MAX_UNITS):
                self._evict(part[at : at + MAX_UNITS], shard)

    def may_evict(self, shard: str, reason: int) -> bool:
        """Whether more victims on nodes of the shard may be asked for, for that reason; where not, some have their end
        soon."""
        out = (plan.plan.evictions for plan in self.plans.values() if plan.shard == shard)
        return sum(1 for evictions in out if evictions and evictions[0].reason == reason) < EVICTING_PLANS

    def _unprotected(self, uid: str) -> bool:
        cluster = self.state.cluster
        pod = cluster.index.get(uid)
        return pod is not None and not any(covers(budget, pod) for budget in cluster.budgets)

    def _evict(self, evictions: list[Eviction], shard: str) -> None:
        state = self.state
        self._plan_ids += 1
        state.messages += 1
        plan = Plan(VERSION, state.messages, 0, state.term, self._plan_ids, [], evictions)
        self.plans[plan.plan_id] = OpenPlan(plan, shard)
        state.stats.plans += 1
        self._send(self.plans[plan.plan_id])

    def has_room(self) -> bool:
        """Whether another plan of placements may be opened (backpressure): while only a few units are at the binder, in
        however many plans, a lone pod waits for nobody. Evictions hold up nobody either, nor does a shard that nobody
        leads hold up the others."""
        plans, units, shards = 0, 0, len(self.state.shards.names)
        leaderless = self.leaderless() if shards > 1 else []
        some_led = 0 < len(leaderless) < shards
        for plan in self.plans.values():
            held_up = some_led and not {plan.shard, *plan.borrows.values()}.isdisjoint(leaderless)
            if plan.binds and not held_up:
                plans += 1
                units += len(plan.plan.placements)
        return plans < self.state.settings.plans_in_flight * shards or units < FEW_UNITS

    def crowded(self) -> bool:
        """Whether a binder is at work on more than a few units: what can wait leaves the API server to its Bindings."""
        at_work = (plan for plan in self.plans.values() if plan.in_flight and plan.binds)
        return sum(len(plan.plan.placements) for plan in at_work) >= FEW_UNITS

    def change_binder(self, event: BinderChanged) -> None:
        """Another leader of a shard's binders: every open plan of it goes there at once."""
        if event == self.binders.get(event.shard):
            return
        self.binders[event.shard] = event
        self.state.log("binder_changed", shard=event.shard, url=event.url, binder_term=event.term)
        for plan in self.plans.values():
            if plan.shard == event.shard:
                plan.tries = 0  # who is just elected may not listen yet: ask it often at first
                self._send(plan)

    def leaderless(self) -> list[str]:
        """Shards that no binder leads, as far as is known."""
        return [shard for shard in self.state.shards.names if not self._url(shard)]

    def is_led(self, shard: str) -> bool:
        """Whether a binder leads the shard, as far as is known."""
        return bool(self._url(shard))

    def _url(self, shard: str) -> str:
        binder = self.binders.get(shard)
        return binder.url if binder is not None else ""

    def answered(self, event: PlanAnswered) -> tuple[OpenPlan, list[PlacementResult]] | None:
        """The results of an open plan, one per placement; a placement the binder left out counts as unresolved."""
        open_plan = self.plans.pop(event.plan_id, None)
        if open_plan is None:
            return None
        if self._later:
            self.state.agenda.ledger = self.state.now
        given = {result.unit: result for result in event.result.results}
        unresolved = int(Outcome.UNRESOLVED)
        return open_plan, [
            given.get(p.unit) or PlacementResult(p.unit, unresolved, p.node) for p in open_plan.plan.placements
        ]

    def failed(self, event: PlanFailed) -> Plan | None:
        """The plan got no answer. Returned: it was refused for what it is, and had no effect; give it back."""
        open_plan = self.plans.get(event.plan_id)
        if open_plan is None:
            return None
        open_plan.in_flight = max(0, open_plan.in_flight - 1)
        settings, state = self.state.settings, self.state
        state.log("plan_failed", level="warning", plan_id=event.plan_id, code=event.code, sends=open_plan.sends)
        # I4: another coordinator leads, as that binder's etcd has it. Sent again, it can only be refused.
        if event.code == "stale_term":
            state.out.append(Stop("the binder has seen a higher coordinator term"))
            return None
        if event.refused and event.code not in REFUSED_FOR_NOW:
            del self.plans[event.plan_id]
            if self._later:
                state.agenda.ledger = state.now
            return open_plan.plan
        # a refusal is an answer though another send, to a binder that hangs, may still be out until its deadline
        if event.refused or not open_plan.in_flight:
            pause = backoff_s(open_plan.tries, first_s=settings.plan_retry_s, most_s=settings.plan_retry_max_s)
            open_plan.retry_at = state.now + max(pause, event.retry_after_s or 0.0)
            state.agenda.ledger = min(state.agenda.ledger, open_plan.retry_at)
        return None

    def _send(self, plan: OpenPlan) -> None:
        # Nothing of it may be committed before all lenders have answered: given up until then, it leaves no trace.
        if plan.borrows:
            return
        url = self._url(plan.shard)
        if not url:
            plan.retry_at = None  # sent when a binder leads
            return
        if plan.sends:
            self.state.stats.plans_resent += 1
        plan.sends += 1
        plan.tries += 1
        plan.in_flight += 1
        plan.retry_at = None
        self.state.out.append(SendPlan(url, plan.plan))

    # --- placements ---------------------------------------------------------------------------------------------

    def settle(self, uid: str) -> None:
        """The pod is bound, gone or given back."""
        placed = self.placed.pop(uid, None)
        if placed is None:
            return
        if placed.pod.group:
            self.state.groups.take_back(uid)
        if uid in self.reporter.notices:
            self.reporter.unplaced(uid)

    def step(self) -> list[OpenPlan]:
        """Look up placements that nobody confirmed for too long, unless their plan is still open; send again what is
        due; ask for the end of units on their way. Plans that have waited too long for lenders: give them up."""
        state = self.state
        state.agenda.ledger = NEVER
        if state.now >= self._swept_at + state.settings.sweep_every_s:
            self._swept_at = state.now
            for uid, placed in self.placed.items():
                late = state.now - placed.since > state.settings.confirm_after_s
                # Looked up, not dropped: a pod that is forgotten while its Binding is under way would be placed twice.
                if late and not placed.asked and placed.plan_id not in self.plans and uid not in self._later:
                    self.look_up(uid)
        for plan in self.plans.values():
            if plan.retry_at is not None and plan.retry_at <= state.now:
                self._send(plan)
        if self._later:
            self._ask_again()
        state.agenda.ledger = min(state.agenda.ledger, self.wake_at())
        return [plan for plan in self.plans.values() if plan.borrows and plan.give_up_at <= state.now]

    def look_up(self, uid: str) -> None:
        """Ask the API server what became of a placement."""
        placed = self.placed.get(uid)
        if placed is not None and not placed.asked:
            placed.asked = True
            self.state.stats.fetches += 1
            self.state.out.append(FetchPod(uid, placed.placement.namespace, placed.placement.name))

    def wake_at(self) -> float:
        """When a plan is due again, late confirmations are to be looked for, or the end of units is to be asked for."""
        times = [plan.retry_at for plan in self.plans.values() if plan.retry_at is not None]
        times += [plan.give_up_at for plan in self.plans.values() if plan.borrows]
        if self.placed:
            times.append(self._swept_at + self.state.settings.sweep_every_s)
        if self._later and self._askable():
            times.append(self.state.now)
        return min(times, default=NEVER)

    def _askable(self) -> list[str]:
        """Whose end can be asked for now: one such plan is open for each shard at a time."""
        asked = {plan.shard for plan in self.plans.values() if plan.again}
        if len(asked) == len(self.state.shards.names):
            return []
        return [uid for uid, shard in self._later.items() if shard not in asked][:MAX_UNITS]
