"""How often and how much at once: token buckets per caller, and bounds over all of them.

A leader has pods to place; a script in a loop must not take its time. Reading and changing have buckets of their own,
and what takes the leader long costs more than one token.
Pure: ``now`` is an argument. It refuses to remember more than ``MOST_CALLERS``, and of places who has none.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

MOST_CALLERS = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """``per_s`` requests a second, ``burst`` of them at once."""

    per_s: float
    burst: float


READS = Rate(200, 400)
WRITES = Rate(10, 20)
MAX_IN_FLIGHT, IN_FLIGHT_OF_ONE = 64, 48
MAX_STREAMS, STREAMS_OF_ONE = 16, 12
"""At once, and of one caller: whoever fills its own part shuts out nobody else's pause, look or dump."""


@dataclass(slots=True)
class Buckets:
    """One bucket per caller. Defends the leader's time, not fairness: a caller that is pushed out begins anew."""

    rate: Rate
    _of: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, caller: str, now: float, cost: float = 1.0) -> float:
        """0.0 when a request that costs so many tokens may pass; otherwise seconds until one may."""
        tokens, at = self._of.get(caller, (self.rate.burst, now))
        tokens = min(self.rate.burst, tokens + (now - at) * self.rate.per_s)
        passes = tokens >= cost
        self._of[caller] = (tokens - cost if passes else tokens, now)
        self._of.move_to_end(caller)
        if len(self._of) > MOST_CALLERS:
            self._of.popitem(last=False)
        return 0.0 if passes else (cost - tokens) / self.rate.per_s


@dataclass(slots=True)
class Places:
    """Counts what is under way. ``limit`` in all, ``of_one`` caller: one more is told 429."""

    limit: int
    of_one: int
    _of: Counter[str] = field(default_factory=Counter)

    @property
    def taken(self) -> int:
        """How many of them are."""
        return self._of.total()

    def enter(self, caller: str) -> bool:
        """Whether there was a place for ``caller``; if so, ``leave`` must follow."""
        if self._of[caller] >= self.of_one or self.taken >= self.limit:
            return False
        self._of[caller] += 1
        return True

    def leave(self, caller: str) -> None:
        """Give the place back."""
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]
