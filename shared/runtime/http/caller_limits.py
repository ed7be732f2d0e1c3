"""What one caller may have of a route: requests at once and requests per second.

Why: a bound on the whole route keeps the process alive, but one caller could fill it and shut the others out. Callers
are told apart by certificate name and address; those remembered are bounded, the ones heard of last stay.

Refuses to do: knowing who a caller is (``shared.runtime.http.listener`` does), waiting: one too many is told so at
once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLERS = 4096


@dataclass(frozen=True, slots=True)
class CallerLimit:
    """``in_flight`` requests at once; ``per_s`` a second after ``burst`` at once."""

    in_flight: int
    per_s: float
    burst: int


@dataclass(slots=True)
class _Place:
    tokens: float
    at: float
    in_flight: int = 0


class Callers:
    """One route's callers. ``now`` gives monotonic seconds."""

    def __init__(self, limit: CallerLimit, *, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._now = now
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def enter(self, who: str) -> bool:
        """Whether a request of ``who`` may run now; if so, ``leave`` must follow."""
        limit, now = self._limit, self._now()
        place = self._places.get(who)
        if place is None:
            place = self._places[who] = _Place(float(limit.burst), now)
            self._forget()
        self._places.move_to_end(who)
        place.tokens = min(float(limit.burst), place.tokens + (now - place.at) * limit.per_s)
        place.at = now
        if place.tokens < 1.0 or place.in_flight >= limit.in_flight:
            return False
        place.tokens -= 1.0
        place.in_flight += 1
        return True

    def leave(self, who: str) -> None:
        """A request of ``who`` has ended."""
        place = self._places.get(who)
        if place is not None:
            place.in_flight = max(0, place.in_flight - 1)

    def _forget(self) -> None:
        while len(self._places) > MOST_CALLERS:
            oldest = next(iter(self._places))
            if self._places[oldest].in_flight:
                return  # as many callers at once as are remembered: the route's own bound is far below that
            del self._places[oldest]
