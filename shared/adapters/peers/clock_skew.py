"""How far the clocks of others are from ours, read from the ``Date`` header of answers that come anyway.

Why: nothing here decides by wall clocks (leases count on our own monotonic one), but certificates are judged by them:
with a clock that is wrong a good certificate "is not yet valid". So the difference is told, not used.

A header has whole seconds and is as old as the answer's way, so only a difference of seconds means anything.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from email.utils import parsedate_to_datetime

LOOK_EVERY_S = 60.0
"""One header per peer and minute is read: clocks drift slowly, and parsing costs 10 us."""

MOST_PEERS = 4096
TOLERATED_S = 5.0


class ClockSkew:
    """Differences by peer in seconds, positive where the other's clock is ahead. ``wall``: seconds since the epoch."""

    def __init__(
        self, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._seen: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def see(self, peer: str, date: str) -> None:
        """An answer of ``peer`` said ``date`` (RFC 9110); what cannot be read says nothing."""
        now = self._monotonic()
        last = self._seen.get(peer)
        if last is not None and now - last[0] < LOOK_EVERY_S:
            return
        try:
            told_s = parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError, OverflowError):
            return
        self._seen[peer] = (now, told_s - self._wall())
        self._seen.move_to_end(peer)
        if len(self._seen) > MOST_PEERS:
            self._seen.popitem(last=False)

    def worst(self) -> tuple[str, float] | None:
        """The peer whose clock is furthest from ours, if by more than ``TOLERATED_S``."""
        now = self._monotonic()
        recent = {peer: skew for peer, (at, skew) in self._seen.items() if now - at < 3 * LOOK_EVERY_S}
        if not recent:
            return None
        peer = max(recent, key=lambda name: abs(recent[name]))
        return (peer, recent[peer]) if abs(recent[peer]) > TOLERATED_S else None
