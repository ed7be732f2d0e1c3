"""How often and how much at once: token buckets per caller, and bounds over all of them.

A leader has pods to place; a script in a loop must not take its time. Reading and changing have buckets of their own,
and what takes the leader long costs more than one token.
Pure: ``now`` is an argument. It refuses to remember more than ``MOST_CALLERS``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

MOST_CALLERS = 1024


@dataclass(frozen=True, slots=True)
class Rate:
    """``per_s`` requests a second, ``burst`` of them at once."""

    per_s: float
    burst: float


READS = Rate(200, 400)
WRITES = Rate(10, 20)
MAX_IN_FLIGHT = 64
MAX_STREAMS = 16


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
    """Counts what is under way. ``limit``: one more is told 429."""

    limit: int
    taken: int = 0

    def enter(self) -> bool:
        """Whether there was a place; the one who got it must ``leave``."""
        if self.taken >= self.limit:
            return False
        self.taken += 1
        return True

    def leave(self) -> None:
        """Give the place back."""
        self.taken -= 1
