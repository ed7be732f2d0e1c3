"""Who had to leave for whom lately: a bounded memory for explanations and for whoever watches evictions.

A victim is told as a victim and not as a pod that never was, and a pod placed by preemption tells whom it cost.
By the victim's uid, since a controller makes a new pod of the same name; by name for who asks about one that is gone.
A new leader begins with an empty one.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct
from msgspec.structs import replace

LIMIT = 4096
"""Victims remembered; about a third of a KiB each."""

ASKED, EVICTED, REFUSED, GONE, UNKNOWN = "asked", "evicted", "refused", "gone", "unknown"
"""What became of the request: sent, granted, refused by the API server, the pod had left by itself, nobody knows."""


class PastEviction(Struct, frozen=True, gc=False):
    """One pod that was asked to leave. ``at``: when, seconds of the clock; ``by_*``: the pod it left for, ``by_uid`` ""
    where it was for none; ``workload``: of an offline pod that gave way, what it was a copy of."""

    at: float
    uid: str
    namespace: str
    name: str
    priority: int
    node: str
    by_uid: str
    by_pod: str
    by_priority: int
    outcome: str = ASKED
    workload: str = ""

    @property
    def pod(self) -> str:
        """``namespace/name`` of the victim."""
        return f"{self.namespace}/{self.name}"


class LastEvictions:
    """The last evictions."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._of: OrderedDict[str, PastEviction] = OrderedDict()
        self._by: dict[str, dict[str, None]] = {}
        self._named: dict[str, str] = {}
        self._copies: dict[str, str] = {}

    def asked(self, eviction: PastEviction) -> None:
        """One more; the oldest of all is forgotten when there are too many. Asked again it is the same, later."""
        self._forget(eviction.uid)
        self._of[eviction.uid] = eviction
        self._by.setdefault(eviction.by_uid, {})[eviction.uid] = None
        self._named[eviction.pod] = eviction.uid
        if eviction.workload:
            self._copies[eviction.workload] = eviction.uid
        while len(self._of) > self._limit:
            self._forget(next(iter(self._of)))

    def became(self, uid: str, outcome: str) -> PastEviction | None:
        """What the binder says of it; None where it is not remembered."""
        known = self._of.get(uid)
        if known is not None:
            known = self._of[uid] = replace(known, outcome=outcome)
        return known

    def of(self, uid: str) -> PastEviction | None:
        """The pod as a victim, unless it was let stay."""
        known = self._of.get(uid)
        return None if known is None or known.outcome == REFUSED else known

    def outcome(self, uid: str) -> str:
        """What became of the request last; "" where it is not remembered."""
        known = self._of.get(uid)
        return known.outcome if known is not None else ""

    def named(self, pod: str) -> PastEviction | None:
        """The last victim called ``namespace/name``, unless it was let stay."""
        return self.of(self._named.get(pod, ""))

    def copy_of(self, workload: str) -> PastEviction | None:
        """The last of a workload's pods that gave way, in whose place its controller makes others."""
        return self.of(self._copies.get(workload, ""))

    def by(self, uid: str) -> list[PastEviction]:
        """Who was asked to leave for this pod, oldest first."""
        return [self._of[victim] for victim in self._by.get(uid, ())]

    def __len__(self) -> int:
        return len(self._of)

    def _forget(self, uid: str) -> None:
        known = self._of.pop(uid, None)
        if known is None:
            return
        victims = self._by[known.by_uid]
        del victims[uid]
        if not victims:
            del self._by[known.by_uid]
        if self._named.get(known.pod) == uid:
            del self._named[known.pod]
        if self._copies.get(known.workload) == uid:
            del self._copies[known.workload]
