"""Victims on their way to the API server: so many at a time, each plan's in turn, each victim once.

Why: a preemption for a group, or a queue that takes back what it lent, may name a thousand victims; sent at once they
would hold up every Binding and every read. Those that are not sent yet when their plan is answered are sent all the
same (the answer says UNKNOWN, and a plan that asks for them again waits for the same end, or hears of it if that came
in between), unless the plan's coordinator leads no more.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from services.binder.core.instructions import Evict
from services.binder.core.plans import ENDS_KEPT, PlanKey, Plans
from services.binder.core.state import BinderState
from shared.wire.messages import Eviction, EvictionOutcome, EvictionResult


class EvictionQueue:
    """Asks victims to leave, in one term: which wait, and how many requests are in flight."""

    def __init__(self, state: BinderState, plans: Plans) -> None:
        self.in_flight = 0
        self._state = state
        self._plans = plans
        self.waiting: OrderedDict[PlanKey, deque[Eviction]] = OrderedDict()
        """Those that are not sent yet."""
        self._asked_by: dict[tuple[int, str], list[PlanKey]] = {}
        self._unheard: OrderedDict[tuple[int, str], EvictionResult] = OrderedDict()
        """Of those that began to leave while no open plan asked for them."""

    def add(self, plan: PlanKey, evictions: Iterable[Eviction]) -> None:
        """A plan's victims."""
        fresh: deque[Eviction] = deque()
        for eviction in evictions:
            if (end := self._unheard.pop((plan[0], eviction.uid), None)) is not None:
                self._plans.evicted(plan, end)
                continue
            asked_by = self._asked_by.setdefault((plan[0], eviction.uid), [])
            if not asked_by:
                fresh.append(eviction)
            asked_by.append(plan)
        if fresh:
            self.waiting[plan] = fresh

    def answered(self, plan: PlanKey, result: EvictionResult) -> None:
        """One has its end: every plan that waits for it hears of it, or else the next that asks for it."""
        self.in_flight -= 1
        heard = [self._plans.evicted(asked, result) for asked in self._asked_by.pop((plan[0], result.uid), ())]
        if result.outcome == EvictionOutcome.EVICTED and not any(heard):
            self._unheard[plan[0], result.uid] = result
            while len(self._unheard) > ENDS_KEPT:
                self._unheard.popitem(last=False)

    def drop_older(self, term: int) -> None:
        """What an older coordinator wanted, and was not asked for yet, is not asked for any more."""
        for plan in [plan for plan in self.waiting if plan[0] < term]:
            for eviction in self.waiting.pop(plan):
                del self._asked_by[plan[0], eviction.uid]

    def step(self) -> None:
        """Ask for as many as there is room for."""
        while self.waiting and self.in_flight < self._state.settings.max_evictions:
            # From the front, and back to the end below: a thousand victims of one plan must not stand before another's.
            plan, waiting = self.waiting.popitem(last=False)
            eviction = waiting.popleft()
            if (account := self._state.cache.accounts.get(eviction.uid)) is not None:
                self._state.leavers.leaves(eviction.uid, account.node_name, self._state.now)
            self._state.emit(Evict(plan, eviction))
            self.in_flight += 1
            if waiting:
                self.waiting[plan] = waiting
