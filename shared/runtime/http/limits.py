"""How often and how much at once: token buckets and places per caller, and a look at whether the loop is late.

Why: a bound on a whole route keeps the process alive, but one caller could fill it and shut the others out. Callers
that are remembered are bounded; one that is pushed out begins anew. One too many is told so at once, nobody waits.

Reads of the admin API yield to scheduling: while the leader's event loop runs late and stays late, they get the last
copies, and new answers only in a tenth of its time. A timer measures how late the loop runs it. One late turn is none
of our business; late all the time for ``INTERVAL_S`` means that work piles up faster than it is done (CoDel, RFC 8289:
the minimum over an interval, not the mean), and each read would wait for seconds behind it. The timer runs only while
somebody asks.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from msgspec import Struct

MOST_CALLERS = 4096


class Rate(Struct, frozen=True):
    """``per_s`` requests a second, ``burst`` of them at once."""

    per_s: float
    burst: float


READS = Rate(200, 400)
WRITES = Rate(10, 20)
READS_WHILE_LATE = Rate(100, 200)
"""Of all callers together. A token is about a millisecond of the loop (``Route.cost``): a tenth of a second each."""

MAX_IN_FLIGHT, IN_FLIGHT_OF_ONE = 64, 48
MAX_STREAMS, STREAMS_OF_ONE = 16, 12
"""Of the admin API at once, and of one caller: whoever fills its own part shuts out nobody else's pause or look."""


@dataclass(slots=True)
class Buckets:
    """One bucket of tokens per caller."""

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
class RequestLimit:
    """Counts what is under way. ``limit`` in all, ``of_one`` caller: one more is told 429."""

    limit: int
    of_one: int
    _of: Counter[str] = field(default_factory=Counter)
    taken: int = 0
    """How many of them are."""

    def enter(self, caller: str) -> bool:
        """Whether there was a place for ``caller``; if so, ``leave`` must follow."""
        if self._of[caller] >= self.of_one or self.taken >= self.limit:
            return False
        self._of[caller] += 1
        self.taken += 1
        return True

    def leave(self, caller: str) -> None:
        """Give the place back."""
        self.taken -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


TARGET_S = 0.25
"""Later than this is too late."""

INTERVAL_S = 1.0
BEAT_S = 0.05
IDLE_S = 5.0
"""Without a request for so long the timer stops."""


@dataclass(slots=True)
class Lag:
    """The rule, without a clock."""

    late_since: float | None = None

    def ran(self, due: float, now: float) -> None:
        """The timer that was due at ``due`` ran at ``now``."""
        if now - due < TARGET_S:
            self.late_since = None
        elif self.late_since is None:
            self.late_since = due

    def lasts(self, now: float) -> bool:
        """Whether every turn of the last ``INTERVAL_S`` was late."""
        return self.late_since is not None and now - self.late_since >= INTERVAL_S


class LoopLag:
    """Of the running event loop."""

    def __init__(self) -> None:
        self.lag = Lag()
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = 0.0

    def asked(self) -> bool:
        """Somebody asks; whether the loop has been late for too long."""
        loop = asyncio.get_running_loop()
        self._asked_at = now = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(BEAT_S, self._beat)
        return self.lag.lasts(now)

    def stop(self) -> None:
        """No more measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.lag = Lag()

    def _beat(self) -> None:
        assert self._timer is not None
        loop = asyncio.get_running_loop()
        now = loop.time()
        self.lag.ran(self._timer.when(), now)
        if now - self._asked_at > IDLE_S:
            self.stop()
        else:
            self._timer = loop.call_later(BEAT_S, self._beat)
