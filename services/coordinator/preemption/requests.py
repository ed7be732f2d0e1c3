"""Victims that are to be asked to leave, in line for the few plans that may be out: of each shard and reason apart.

    added --last in line--> waits --a plan has room--> sent --answered: it has its end
                              ^--first in line--answered: the binder has it in a line of its own--|

Those in the binder's line are asked for again before anybody else is: so that line is never longer than the plans that
may be out, and the end of each is heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.state import CoordinatorState
from shared.wire.messages import Eviction

EVICTIONS_PER_PLAN = 256
"""A plan is answered once all that it asks for has its end: one that names thousands would tell late of the first."""

STUCK_S = 60.0
"""A binder that has victims in its line, and nobody's end to tell for so long, is not waited for."""


class Requests:
    """Those of one term."""

    def __init__(self, state: CoordinatorState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger
        self._lines: dict[tuple[str, int], deque[Eviction]] = {}
        """By shard and reason: a slow binder, or a limit that fell, holds up no other victims."""
        self._again: list[Eviction] = []
        self._stuck: dict[str, tuple[float, float]] = {}
        """By shard: since when its binder has told nobody's end, and when it was asked last."""

    def add(self, eviction: Eviction) -> None:
        """One more, behind those that wait."""
        self._line(eviction).append(eviction)

    def again(self, eviction: Eviction) -> bool:
        """The binder has it in its line: it is asked for again, next. False: that line is stuck."""
        shard, now = self._state.shards.of(eviction.node), self._state.now
        since, last = self._stuck.get(shard, (now, now))
        if now >= last + STUCK_S:
            since = now  # nobody asked meanwhile
        self._stuck[shard] = since, now
        if now >= since + STUCK_S:
            return False
        self._again.append(eviction)
        return True

    def ended(self, eviction: Eviction) -> None:
        """The binder told the end of one."""
        self._stuck.pop(self._state.shards.of(eviction.node), None)

    def has(self, shard: str, reason: int) -> bool:
        """Whether somebody stands in that line, or is to be asked for again."""
        return bool(self._again) or (shard, reason) in self._lines

    def send(self, addressed: Callable[[Eviction], Eviction | None]) -> None:
        """As many as the plans that may be out now can name: the more that wait, the more are in each. ``addressed``:
        the request as it is to be made now, None: not any more."""
        for eviction in reversed(self._again):
            self._line(eviction).appendleft(eviction)
        self._again.clear()
        for key, line in list(self._lines.items()):
            while line and self._ledger.may_evict(*key):
                some = [line.popleft() for _ in range(min(len(line), EVICTIONS_PER_PLAN))]
                if wanted := [request for eviction in some if (request := addressed(eviction)) is not None]:
                    self._ledger.evict(wanted)
            if not line:
                del self._lines[key]

    def _line(self, eviction: Eviction) -> deque[Eviction]:
        return self._lines.setdefault((self._state.shards.of(eviction.node), eviction.reason), deque())
