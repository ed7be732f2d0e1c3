"""What was decided lately: for each pod placed, the nodes that were looked at, their scores, and by which policy.

A bounded ring in memory for ``conclave explain``; a new leader begins with an empty one. It refuses to be a record:
which policy placed a pod stays in the pod's annotation, who bound it in the API server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

LIMIT = 4096
"""Pods remembered; about half a KiB each."""


class Considered(Struct, frozen=True, gc=False):
    """One node that an agent answered with. ``accepted`` False: the policy advised against it."""

    node: str
    score: float
    accepted: bool


class PastDecision(Struct, frozen=True):
    """One placement. ``considered``: the chosen node, then the next-best ones in the order of choice. ``at``: seconds
    of the clock."""

    at: float
    unit: int
    node: str
    policy: str
    policy_version: int
    considered: tuple[Considered, ...]


class Recent:
    """The last decisions by pod uid; a pod decided again has its newest one only."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._of: OrderedDict[str, PastDecision] = OrderedDict()

    def remember(self, uid: str, decision: PastDecision) -> None:
        """The newest decision for a pod; the oldest of all is forgotten when there are too many."""
        self._of[uid] = decision
        self._of.move_to_end(uid)
        if len(self._of) > self._limit:
            self._of.popitem(last=False)

    def of(self, uid: str) -> PastDecision | None:
        """What was decided for a pod last, if that is remembered."""
        return self._of.get(uid)

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)
