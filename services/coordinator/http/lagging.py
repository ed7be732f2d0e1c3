"""Reads yield to scheduling: while the leader's event loop runs late and stays late, no new answer is made for them.

A timer measures how late the loop runs it. One late turn is none of our business; late all the time for ``INTERVAL_S``
means that work piles up faster than it is done (CoDel, RFC 8289: the minimum over an interval, not the mean), and each
read would wait for seconds behind it. Told 429 at once, callers wait outside. It never refuses a change: a pause is
wanted most when there is too much to do. The timer runs only while somebody asks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

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
