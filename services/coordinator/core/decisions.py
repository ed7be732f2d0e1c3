"""What was decided lately: for each pod placed, the nodes that were looked at, their scores, and by which policy.

A bounded ring in memory for ``conclave explain`` and for whoever watches decisions; a new leader begins with an empty
one. It is no record: which policy placed a pod stays in the pod's annotation, who bound it in the API server.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

LIMIT = 4096
"""Pods remembered; about half a KiB each."""

FEED_LIMIT = 1024
"""Decisions that wait for one reader; older ones are dropped and counted."""


class Considered(Struct, frozen=True, gc=False):
    """One node that an agent answered with. ``accepted`` False: the policy advised against it."""

    node: str
    score: float
    accepted: bool


class PastDecision(Struct, frozen=True, gc=False):
    """One placement. ``considered``: the chosen node, then the next-best ones in the order of choice. ``at``: seconds
    of the clock. ``attempt``: its number, from 1."""

    at: float
    unit: int
    node: str
    policy: str
    policy_version: int
    considered: tuple[Considered, ...]
    uid: str = ""
    namespace: str = ""
    name: str = ""
    attempt: int = 1
    number: int = 0
    """Its place in its term, from 1."""


class Feed:
    """Decisions for one reader since its ``subscribe``. ``wake`` is called after each; it must not block or raise."""

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self._waiting: deque[PastDecision] = deque()
        self._limit = limit
        self._wake = wake
        self._dropped = 0

    def put(self, decision: PastDecision) -> None:
        """One more; the oldest that waits goes where there is no room."""
        if len(self._waiting) >= self._limit:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(decision)
        self._wake()

    def take(self) -> tuple[list[PastDecision], int]:
        """(what waits, oldest first; how many were dropped before those), once."""
        taken, dropped = list(self._waiting), self._dropped
        self._waiting.clear()
        self._dropped = 0
        return taken, dropped


class Recent:
    """The last decisions by pod uid; a pod decided again has its newest one only."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._of: OrderedDict[str, PastDecision] = OrderedDict()
        self._named: dict[str, str] = {}
        self.count = 0
        """Decisions remembered so far, those forgotten included: the number of the newest."""
        self._feeds: list[Feed] = []

    def remember(self, uid: str, decision: PastDecision) -> None:
        """The newest decision for a pod; the oldest of all is forgotten when there are too many."""
        self.count += 1
        decision = replace(decision, number=self.count)
        self._of[uid] = decision
        self._of.move_to_end(uid)
        self._named[f"{decision.namespace}/{decision.name}"] = uid
        if len(self._of) > self._limit:
            old, forgotten = self._of.popitem(last=False)
            if self._named.get(key := f"{forgotten.namespace}/{forgotten.name}") == old:
                del self._named[key]
        for feed in self._feeds:
            feed.put(decision)

    def of(self, uid: str) -> PastDecision | None:
        """What was decided for a pod last, if that is remembered."""
        return self._of.get(uid)

    def named(self, pod: str) -> PastDecision | None:
        """The last decision for a pod called ``namespace/name``, if that is remembered."""
        return self._of.get(self._named.get(pod, ""))

    def after(self, number: int) -> tuple[list[PastDecision], int]:
        """(the decisions after that number, oldest first; how many more there were that are not remembered)."""
        found = list(takewhile(lambda decision: decision.number > number, reversed(self._of.values())))
        return found[::-1], max(0, self.count - number - len(found))

    def newest(self, limit: int) -> list[PastDecision]:
        """The last ``limit`` decisions, newest first."""
        return list(islice(reversed(self._of.values()), limit))

    def subscribe(self, wake: Callable[[], None], *, limit: int = FEED_LIMIT) -> Feed:
        """A reader of all decisions from now on, until ``unsubscribe``."""
        feed = Feed(limit, wake)
        self._feeds.append(feed)
        return feed

    def unsubscribe(self, feed: Feed) -> None:
        """The reader is gone; one that is not there is fine."""
        if feed in self._feeds:
            self._feeds.remove(feed)

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)
