"""How punctual the leader's loop is: its longest turn lately, the share of time it works, how long events wait for it.

    events come --> inbox --waited_s--> turn (took_s) --> next turn          a beat that is due --late_s--> runs

A turn is what one batch of events takes. What else holds the loop up (an answer of the admin API) shows as a beat that
runs late, and counts as a turn. One slot a second is kept for a minute, so both the cost and the memory are fixed.
Pure: times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

WINDOW_S = 60.0
BUSY_S = 10.0
"""Over which the share of time spent in turns is told."""


@dataclass(slots=True)
class PulseSlot:
    """One second. ``turn_s``: the longest turn that ended in it; ``longest_s``: that, or a beat that was later;
    ``took_s``: all of its turns; ``events``: the most that one turn took in."""

    second: int
    turn_s: float = 0.0
    longest_s: float = 0.0
    took_s: float = 0.0
    waited_s: float = 0.0
    events: int = 0


class Pulse:
    """Of one term."""

    def __init__(self) -> None:
        self._slots: deque[PulseSlot] = deque()

    def turned(self, now: float, *, took_s: float, waited_s: float, events: int) -> None:
        """A turn ended at ``now``; the first of its ``events`` had waited ``waited_s`` for it."""
        slot = self._slot(now)
        slot.turn_s = max(slot.turn_s, took_s)
        slot.longest_s = max(slot.longest_s, took_s)
        slot.took_s += took_s
        slot.waited_s = max(slot.waited_s, waited_s)
        slot.events = max(slot.events, events)

    def beat(self, now: float, *, late_s: float) -> None:
        """A timer ran at ``now``, so much too late: something held the loop up."""
        slot = self._slot(now)
        slot.longest_s = max(slot.longest_s, late_s)

    def longest_s(self, now: float, *, over_s: float = WINDOW_S) -> float:
        """The longest time in which the loop did nothing else."""
        return max((slot.longest_s for slot in self._since(now - over_s)), default=0.0)

    def longest_turn_s(self, now: float) -> float:
        """The longest turn; what else held the loop up is left out."""
        return max((slot.turn_s for slot in self._since(now - WINDOW_S)), default=0.0)

    def waited_s(self, now: float, *, over_s: float = WINDOW_S) -> float:
        """The longest that an event waited until it was taken in."""
        return max((slot.waited_s for slot in self._since(now - over_s)), default=0.0)

    def events(self, now: float, *, over_s: float = WINDOW_S) -> int:
        """The most events that waited for one turn."""
        return max((slot.events for slot in self._since(now - over_s)), default=0)

    def busy_share(self, now: float, *, over_s: float = BUSY_S) -> float:
        """Time spent in turns, as a share of all."""
        return min(1.0, sum(slot.took_s for slot in self._since(now - over_s)) / over_s)

    def _slot(self, now: float) -> PulseSlot:
        slots, second = self._slots, int(now)
        if not slots or slots[-1].second < second:
            slots.append(PulseSlot(second))
            while slots[0].second < second - WINDOW_S:
                slots.popleft()
        return slots[-1]

    def _since(self, begin: float) -> Iterator[PulseSlot]:
        return (slot for slot in self._slots if slot.second >= begin)
