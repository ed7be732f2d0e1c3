"""One mesh per cluster and scheduler name, as a pure decision: what a mesh does about the Lease that it finds there.

Why: two meshes with an etcd each do not see each other; both would place the same pods, evict for each other's plans
and count each other's pods late. The cluster itself is what they share, so a Lease in it (coordination.k8s.io/v1) says
whose scheduler name this is. The holder is the *mesh* (an id in its etcd), not a process: a successor within the mesh
has the same id, and goes on without waiting.

Time: a foreign Lease is over once it was seen unchanged for its own duration, on the observer's clock; clocks of two
hosts are never compared (as client-go's leaderelection). Safety does not rest on it: a Binding names the uid and
resourceVersion that were checked, so no pod is bound twice by two meshes either.

Not its job: I/O (``services/coordinator/io/cluster_lease.py``), taking a Lease from somebody who renews it.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

LONGEST_S = 3600
"""More than that is not waited for, whatever a Lease says."""


class HeldLease(Struct, frozen=True):
    """The Lease as read. ``version``: its resourceVersion; ``holder`` "": nobody. ``leader``: the holder's process."""

    holder: str
    duration_s: int
    version: str
    transitions: int = 0
    leader: str = ""


@dataclass(frozen=True, slots=True)
class WatchedLease:
    """A foreign Lease, and since when it has been seen unchanged."""

    held: HeldLease
    since: float


class CreateLease(Struct, frozen=True):
    """There is none: make it ours."""


class Keep(Struct, frozen=True):
    """It is ours: go on, and renew ``version``."""

    version: str
    transitions: int


class TakeLease(Struct, frozen=True):
    """Its holder is gone: make ``version`` ours."""

    version: str
    transitions: int
    before: str


class StayOut(Struct, frozen=True):
    """Somebody else holds it; it is over at ``until`` unless it is renewed."""

    held: HeldLease
    until: float


Decision = CreateLease | Keep | TakeLease | StayOut


def decide(
    mine: str, held: HeldLease | None, watched: WatchedLease | None, now: float
) -> tuple[Decision, WatchedLease | None]:
    """What mesh ``mine`` does about the Lease it read at ``now``, and what to remember until it reads it again."""
    if held is None:
        return CreateLease(), None
    if held.holder == mine:
        return Keep(held.version, held.transitions), None
    if not held.holder:
        return TakeLease(held.version, held.transitions + 1, ""), None
    # Of all of it, the resourceVersion too: a renewal that changes nothing else begins the wait anew all the same.
    if watched is None or watched.held != held:
        watched = WatchedLease(held, now)
    # A duration of 0 would hand a Lease over that is renewed; one of years would keep it from everybody for good.
    until = watched.since + min(max(held.duration_s, 1), LONGEST_S)
    if now >= until:
        return TakeLease(held.version, held.transitions + 1, held.holder), None
    return StayOut(held, until), watched
