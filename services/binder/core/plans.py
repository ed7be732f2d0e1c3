"""Plans that wait for their results: answered when all placements are settled, or after a bounded time.

A plan is idempotent by (coordinator's term, plan_id): told again while it is open, both requests get the one answer;
told again later, the remembered one (I9). Several plans may wait for the same unit, since a new coordinator plans pods
anew that the old one had planned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.binder.core.instructions import PlanAnswer, Refuse
from services.binder.core.state import NEVER, BinderState
from shared.wire.messages import (
    VERSION,
    EvictionOutcome,
    EvictionResult,
    Loan,
    Outcome,
    Placement,
    PlacementResult,
    Plan,
    PlanResult,
)

REMEMBERED = 256
"""Answered plans that are told again; more than a coordinator ever has open."""

ENDS_KEPT = 8192
"""Units given back, or victims that left, while no plan waited for them; more than are on their way for longer than an
answer takes."""

REASON_CHARS = 1024

PlanKey = tuple[int, int]


def size_of(plan: Plan) -> int:
    """In units: what it places, and whom it evicts."""
    return max(1, len(plan.placements) + len(plan.evictions))


@dataclass(slots=True)
class UnansweredPlan:
    """A plan without an answer. ``key``: the coordinator's term and the plan's number in it; ``results`` by unit;
    ``waiting``: uid to placement."""

    key: PlanKey
    plan: Plan
    arrived: float
    requests: list[int]
    results: dict[int, PlacementResult] = field(default_factory=dict)
    loans: list[Loan] = field(default_factory=list)
    waiting: dict[str, Placement] = field(default_factory=dict)
    evicting: dict[str, EvictionResult | None] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether every placement and every eviction has its end."""
        return not self.waiting and all(self.evicting.values())


class Plans:
    """Keeps the open and the lately answered plans of one term."""

    def __init__(self, state: BinderState) -> None:
        self.ends: OrderedDict[tuple[int, int], tuple[Outcome, str, str]] = OrderedDict()
        """As what units were given back before their plan asked: outcome, node, reason."""
        self.lent: dict[str, Loan] = {}
        """What units that end LENT were lent as, by uid, until their plans have heard of it."""
        self._state = state
        self._open: dict[PlanKey, UnansweredPlan] = {}
        self._answered: OrderedDict[PlanKey, tuple[PlanResult, float]] = OrderedDict()
        self._by_uid: dict[str, list[PlanKey]] = {}
        self._message_id = 0
        self._early: dict[PlanKey, tuple[int, Plan]] = {}
        """Plans that came during the takeover, each with the last request for it."""

    def __len__(self) -> int:
        return len(self._open)

    def keep(self, request: int, plan: Plan, missing: Collection[str]) -> None:
        """A plan that came before plans are accepted: it is taken up then, so that nobody has to ask again and again.
        An earlier request for it was given up by whoever asks again; what is too much is refused."""
        key = (plan.term, plan.plan_id)
        earlier = self._early.pop(key, None)
        held = sum(size_of(one) for _, one in self._early.values())
        message = f"taking over: waiting for {', '.join(missing)}"
        # I10: what is kept is bounded as what is on its way; the coordinator sends it again.
        refused = request if held + size_of(plan) > self._state.settings.max_units else None
        if refused is None:
            self._early[key] = (request, plan)
        for late in (earlier[0] if earlier is not None else None, refused):
            if late is not None:
                self._state.emit(Refuse(late, "not_ready", message, 503))

    def kept(self) -> list[tuple[int, Plan]]:
        """The plans that came during the takeover, once, in the order in which they were asked for."""
        early, self._early = self._early, {}
        return list(early.values())

    def open(self, request: int, plan: Plan) -> UnansweredPlan | None:
        """A plan to be worked on; None when it is known and its request is, or will be, answered from that."""
        key = (plan.term, plan.plan_id)
        known = self._open.get(key)
        if known is not None:
            self._state.stats.plans_repeated += 1
            known.requests.append(request)
            return None
        remembered = self._answered.get(key)
        if remembered is not None:
            self._state.stats.plans_repeated += 1
            self._answer(request, *remembered)
            return None
        self._state.stats.plans += 1
        self._state.stats.placements += len(plan.placements)
        state = self._state
        opened = self._open[key] = UnansweredPlan(key, plan, state.now, [request])
        state.agenda.plans = min(state.agenda.plans, state.now + state.settings.answer_after_s)
        opened.evicting = dict.fromkeys(eviction.uid for eviction in plan.evictions)
        for placement in plan.placements:
            opened.waiting[placement.uid] = placement
            self._by_uid.setdefault(placement.uid, []).append(key)
        return opened

    def settle(
        self, uid: str, outcome: Outcome, *, node: str = "", reason: str = "", bind_us: int = 0, conflicts: int = 0
    ) -> None:
        """A unit's end, to every plan that waits for it."""
        for key in self._by_uid.pop(uid, ()):
            opened = self._open.get(key)
            placement = opened.waiting.pop(uid, None) if opened is not None else None
            if opened is None or placement is None:
                continue
            ended = outcome
            if outcome is Outcome.LENT:
                ended = self._lend(opened, placement)
            opened.results[placement.unit] = PlacementResult(
                placement.unit, int(ended), node, reason[:REASON_CHARS], bind_us, conflicts,
                max(1, round((self._state.now - opened.arrived) * 1e6)),
            )  # fmt: skip
            if opened.done:
                self._close(opened)

    def _lend(self, opened: UnansweredPlan, placement: Placement) -> Outcome:
        """What a plan hears of a unit that was lent: one that does not lend, or elsewhere, may try again."""
        loan = self.lent[placement.uid]
        if not opened.plan.lend or loan.node not in (placement.node, *placement.alternatives):
            return Outcome.CONFLICT
        opened.loans.append(loan)
        return Outcome.LENT

    def keep_end(self, unit: tuple[int, int], outcome: Outcome, node: str, reason: str) -> None:
        """A unit (coordinator's term and number) was given back, and no plan waits for it: the next one hears of it.

        A number is of one attempt. To place the pod anew under it would be an attempt that nobody made, and for a
        member of a gang one without the others.
        """
        self.ends[unit] = (outcome, node, reason)
        while len(self.ends) > ENDS_KEPT:
            self.ends.popitem(last=False)

    def evicted(self, key: PlanKey, result: EvictionResult) -> bool:
        """What became of a victim; False: the plan was answered meanwhile, and does not hear of it."""
        opened = self._open.get(key)
        if opened is not None and result.uid in opened.evicting:
            opened.evicting[result.uid] = result
            if opened.done:
                self._close(opened)
            return True
        return False

    def refuse_stale(self, term: int) -> None:
        """A higher coordinator's term has been seen: open plans of lower ones are refused."""
        for key, opened in list(self._open.items()):
            if key[0] < term:
                self.refuse(opened, "stale_term", f"term {key[0]} is over; {term} has been seen", 409)

    def refuse(self, opened: UnansweredPlan, code: str, message: str, status: int) -> None:
        """Refuse a plan as a whole. What was committed of it goes on."""
        del self._open[opened.key]
        for uid in opened.waiting:
            self._forget(uid, opened.key)
        for request in opened.requests:
            self._state.emit(Refuse(request, code, message, status))

    def waiting_for(self, uid: str) -> list[UnansweredPlan]:
        """Open plans that wait for a unit."""
        return [self._open[key] for key in self._by_uid.get(uid, ()) if key in self._open]

    def step(self) -> None:
        """Answer what is due: UNRESOLVED for units still on their way, which the watch will tell; of victims, which are
        not all asked yet, that they wait."""
        due = self._state.now - self._state.settings.answer_after_s
        for opened in [opened for opened in self._open.values() if opened.arrived <= due]:
            for uid, placement in opened.waiting.items():
                binding = self._state.in_flight.get(uid)
                self._state.stats.unresolved += 1
                node, bind_us = (binding.node, binding.bind_us) if binding is not None else (placement.node, 0)
                opened.results[placement.unit] = PlacementResult(
                    placement.unit, int(Outcome.UNRESOLVED), node, bind_us=bind_us
                )
                self._forget(uid, opened.key)
            opened.waiting.clear()
            for uid, result in opened.evicting.items():
                # `waits`: they are in line. Taken for unknown, they would be asked for again, and others beside them.
                opened.evicting[uid] = result or EvictionResult(
                    uid, EvictionOutcome.UNKNOWN, "no answer yet", waits=True
                )
            self._close(opened)
        self._state.agenda.plans = self.wake_at()

    def wake_at(self) -> float:
        """When the oldest open plan is due."""
        oldest = next(iter(self._open.values()), None)
        return NEVER if oldest is None else oldest.arrived + self._state.settings.answer_after_s

    def validate(self) -> Iterator[str]:
        """Open plans that wait for nothing, or for units that are not on their way, or that are answered too late."""
        at = self._state.agenda.plans
        if at > self.wake_at():
            yield f"agenda: the oldest plan is to be answered at {self.wake_at():.3f}, and is looked at at {at:.3f}"
        coming = {*(arrival.placement.uid for arrival in self._state.arriving), *self._state.inherited}
        for key, opened in self._open.items():
            if opened.done and (opened.results or opened.evicting):
                yield f"plan-open: plan {key} has all its results and is open"
            for uid in opened.waiting:
                if uid not in self._state.in_flight and uid not in coming:
                    yield f"plan-units: plan {key} waits for {uid}, which is not on its way"
                if key not in self._by_uid.get(uid, ()):
                    yield f"plan-units: {uid} would not tell plan {key} its end"
        for uid, keys in self._by_uid.items():
            for key in keys:
                if key not in self._open or uid not in self._open[key].waiting:
                    yield f"plan-units: {uid} would tell its end to plan {key}, which does not wait for it"

    def _close(self, opened: UnansweredPlan) -> None:
        del self._open[opened.key]
        plan = opened.plan
        results = [opened.results[placement.unit] for placement in plan.placements]
        evictions = [result for result in opened.evicting.values() if result is not None]
        said = PlanResult(VERSION, 0, plan.message_id, plan.term, plan.plan_id, results, 0, evictions, opened.loans)
        self._answered[opened.key] = said, opened.arrived  # not the plan: hundreds of those would be the most we hold
        while len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)
        for request in opened.requests:
            self._answer(request, said, opened.arrived)

    def _answer(self, request: int, said: PlanResult, arrived: float) -> None:
        self._message_id += 1
        elapsed_us = max(0, round((self._state.now - arrived) * 1e6))
        self._state.emit(PlanAnswer(request, replace(said, message_id=self._message_id, elapsed_us=elapsed_us)))

    def _forget(self, uid: str, key: PlanKey) -> None:
        waiting = self._by_uid.get(uid)
        if waiting is not None:
            if key in waiting:
                waiting.remove(key)
            if not waiting:
                del self._by_uid[uid]
