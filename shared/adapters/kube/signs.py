"""Which watches of a client are known to be alive: when each owes its next sign of life, and which did not give it.

    open --head--> proven --bytes, the end when it is due--> proven ...
                      \\--neither came--> blind: told, left, opened anew; the others that are as silent are doubted too

A balancer, a NAT or a server that lost its power leave a connection that is open, acknowledged and silent, and so is
the healthy one of a quiet kind. HTTP/1.1 has no ping, a request on another connection proves that other one, and the
bookmarks of a real server come once a minute. What a server does owe to each stream is its end, after the seconds that
were asked for (``timeoutSeconds``): they are few, so the end is the proof, and the connection that gave it is used
again. Each flow can be lost alone, so each has to prove itself: a watch is one small request in some 25 s, which lists
nothing. A server that is strained (429, an answer that takes long) is asked for long streams instead, since one that is
open costs it nothing.

Pure: times are seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import structlog

log = structlog.get_logger()

LENGTH_S = 27
"""Of a stream at most: with ``GRACE_S`` a blind one is found within 30 s, however many there are."""

GRACE_S = 2.5
"""How late a sign may be: the server's timers and ours, a slow way."""

LONG_S = (290, 590)
"""Length of streams from a strained server (client-go: 5 to 10 minutes)."""

STRAINED_S = 300.0
"""For so long after its last trouble a server counts as strained."""

SLOW_HEAD_S = 3.0
"""An answer to the opening of a watch that took longer is a strained server's."""

LOST_S = 15.0
"""A watch that could not be opened for so long is told as lost, a shorter gap is a restart's."""

TOLD_S = 60.0
"""How long a watch that was blind is told of afterwards."""

DOUBTED_S = 3.0
"""When one watch was blind, those that were silent for so long are opened anew at once: few faults hit one alone."""


MOST_NAMED = 5


@dataclass(slots=True, eq=False)
class Sign:
    """One watch. ``proven_at``: when the server last gave a sign of it; ``due_at``: when the next one is due, None
    while no stream is open; ``leave`` ends the open stream; ``paused``: its kind is listed first."""

    plural: str
    proven_at: float
    due_at: float | None = None
    leave: Callable[[], None] | None = None
    streams: int = 0
    paused: bool = False


class LostWatch(NamedTuple):
    """A watch without a sign of life for ``silent_s``: now, or (``over``) until lately."""

    plural: str
    silent_s: float
    over: bool


@dataclass(slots=True)
class WatchSigns:
    """Of one client. ``rng`` spreads the ends of streams, of this client and of many."""

    rng: Random = field(default_factory=Random)
    most_s: int = LENGTH_S
    grace_s: float = GRACE_S
    silence_s: float = 90.0
    """In a long stream bookmarks are the signs: one a minute from a real server."""
    blind: int = 0
    """Streams that did not give the sign that was due."""
    _signs: list[Sign] = field(default_factory=list)
    _past: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Until when a watch was blind, and for how long."""
    _strained_until: float = float("-inf")

    def begin(self, plural: str, now: float) -> Sign:
        """A watch of this kind begins, or goes on after its list was made anew."""
        for sign in self._signs:
            if sign.plural == plural and sign.paused:
                sign.paused = False
                return sign
        sign = Sign(plural, now)
        self._signs.append(sign)
        return sign

    def pause(self, sign: Sign) -> None:
        """The watch has to list first: until it goes on nothing is heard of the kind."""
        sign.streams, sign.paused = 0, True

    def unserved(self, plural: str) -> None:
        """The server lists no such kind, or not to us: that is an answer, so a watch that lists is not silent."""
        self._signs = [sign for sign in self._signs if not (sign.paused and sign.plural == plural)]

    def end(self, sign: Sign) -> None:
        """Nobody wants it any more."""
        self._signs.remove(sign)

    def length_s(self, sign: Sign, now: float) -> int:
        """The ``timeoutSeconds`` of the stream that is about to be opened."""
        if now < self._strained_until:
            return self.rng.randint(*LONG_S)
        # the first one of each is cut short by chance, so that those which began together do not end together
        share = 1.0 - 0.15 * self.rng.random() if sign.streams else 0.3 + 0.7 * self.rng.random()
        return max(1, round(self.most_s * share))

    def opened(self, sign: Sign, now: float, *, length_s: int, took_s: float, leave: Callable[[], None]) -> None:
        """The server has answered 200, after ``took_s``."""
        if took_s > SLOW_HEAD_S:
            self.strained(now)
        sign.streams += 1
        sign.proven_at, sign.leave = now, leave
        sign.due_at = now + min(length_s, self.silence_s) + self.grace_s

    def heard(self, sign: Sign, now: float) -> None:
        """Bytes came. The end stays due when it was, unless that is past: who keeps sending is alive."""
        sign.proven_at = now
        if sign.due_at is not None:
            sign.due_at = max(sign.due_at, now + self.grace_s)

    def bookmarked(self, sign: Sign, now: float, *, length_s: int) -> None:
        """In a long stream the next bookmark is due, as long after this one."""
        if sign.due_at is not None and length_s > self.silence_s:
            sign.due_at = now + self.silence_s + self.grace_s

    def left(self, sign: Sign) -> None:
        """The stream is over, however it ended."""
        sign.due_at = sign.leave = None

    def ended(self, sign: Sign, now: float) -> None:
        """The server has ended it, as it should."""
        sign.proven_at = now

    def missed(self, sign: Sign, now: float) -> None:
        """What was due did not come. Others that are as silent are left, and opened anew by whoever reads them."""
        self.blind += 1
        silent_s = now - sign.proven_at
        self._past[sign.plural] = now, silent_s
        doubted = [
            other
            for other in self._signs
            if other is not sign and other.leave is not None and now - other.proven_at >= DOUBTED_S
        ]
        log.warning(
            "watch_blind", resource=sign.plural, silent_s=round(silent_s, 1),
            doubted=sorted(other.plural for other in doubted),
        )  # fmt: skip
        for other in doubted:
            self._past[other.plural] = now, now - other.proven_at
            if other.leave is not None:
                other.leave()

    def strained(self, now: float) -> None:
        """The server asks to be asked less."""
        self._strained_until = now + STRAINED_S

    def silent_s(self, now: float) -> float:
        """The longest time for which a watch has given no sign of life; 0.0 without a watch."""
        return max((now - sign.proven_at for sign in self._signs), default=0.0)

    def lost(self, now: float) -> list[LostWatch]:
        """Watches that hear nothing though they should, and those of the last minute; the longest first."""
        found = {
            sign.plural: LostWatch(sign.plural, now - sign.proven_at, over=False)
            for sign in self._signs
            if sign.leave is None and now - sign.proven_at > LOST_S
        }
        self._past = {plural: past for plural, past in self._past.items() if now - past[0] < TOLD_S}
        for plural, (_, silent_s) in self._past.items():
            found.setdefault(plural, LostWatch(plural, silent_s, over=True))
        return sorted(found.values(), key=lambda one: (-one.silent_s, one.plural))


def told(lost: list[LostWatch]) -> str:
    """What is wrong with the watches, in a line that does not change with every look; "" where all is well."""
    now = [one.plural for one in lost if not one.over]
    if now:
        return (
            f"nothing is heard of {_named(now)} from the API server: its answers do not come through; look at the way "
            "to it"
        )
    if lost:
        return (
            f"the watch of {_named([one.plural for one in lost])} gave no sign of life when one was due, and was "
            "opened again: something on the way loses connections without ending them (a balancer, a NAT)"
        )
    return ""


def _named(plurals: list[str]) -> str:
    names = sorted(plurals)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
