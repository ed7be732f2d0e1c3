"""Victims on their way to the API server: so many at a time, each plan's in turn.

Why: a preemption for a group, or a queue that takes back what it lent, may name a thousand victims; sent at once they
would hold up every Binding and every read. Those that are not sent yet when their plan is answered are sent all the
same (the answer says UNKNOWN, the watch tells), unless the plan's coordinator leads no more.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

from services.binder.core.instructions import Evict
from services.binder.core.state import State
from shared.wire.messages import Eviction


class Evictions:
    """Evictions of one term that wait, and how many are in flight."""

    def __init__(self, state: State) -> None:
        self.in_flight = 0
        self._state = state
        self._waiting: OrderedDict[tuple[int, int], deque[Eviction]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, plan: tuple[int, int], evictions: Iterable[Eviction]) -> None:
        """A plan's victims; ``plan``: (coordinator's term, plan_id)."""
        waiting = deque(evictions)
        if waiting:
            self._waiting[plan] = waiting

    def answered(self) -> None:
        """One has its end."""
        self.in_flight -= 1

    def drop_older(self, term: int) -> None:
        """What an older coordinator wanted, and was not asked for yet, is not asked for any more."""
        for plan in [plan for plan in self._waiting if plan[0] < term]:
            del self._waiting[plan]

    def step(self) -> None:
        """Ask for as many as there is room for."""
        while self._waiting and self.in_flight < self._state.settings.max_evictions:
            plan, waiting = self._waiting.popitem(last=False)
            self._state.emit(Evict(plan, waiting.popleft()))
            self.in_flight += 1
            if waiting:
                self._waiting[plan] = waiting
