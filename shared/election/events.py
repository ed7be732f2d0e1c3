"""What goes into the elector and what comes out: events, instructions, and the leader they speak of.

Each request carries a number and each answer repeats it; an answer with another number than the last request's is
late and is ignored. See ``elector.py`` for the machine and ``runtime/lease/leadership.py`` for who carries requests
out.
"""

from __future__ import annotations

from msgspec import Struct

from shared.ports import KeyValue


class LeaderKey(Struct, frozen=True):
    """Who leads, as read from the key: its value and its create_revision."""

    value: bytes
    term: int


# --- events -----------------------------------------------------------------------------------------------------


class Start(Struct, frozen=True):
    """The candidate begins."""


class StopElection(Struct, frozen=True):
    """Resign if leading, then end."""


class ElectionTick(Struct, frozen=True):
    """Time has reached ``wake_at``, or the service's own liveness changed."""

    main_alive: bool = True


class KeySeen(Struct, frozen=True):
    """The watch saw a change of the key."""

    kv: KeyValue
    deleted: bool = False


class LeaderEnded(Struct, frozen=True):
    """The process that leads with this term is no more, as the machine says on which it ran."""

    term: int


class Granted(Struct, frozen=True):
    """etcd granted a lease. ``sent_at``: seconds of our clock before the request left."""

    request: int
    lease_id: int
    ttl_s: float
    sent_at: float


class Claimed(Struct, frozen=True):
    """``revision``: of the transaction; if won, it is the key's create_revision."""

    request: int
    won: bool
    revision: int


class LeaderRead(Struct, frozen=True):
    """The key was read as of ``revision``; ``kv`` None: nobody leads."""

    request: int
    kv: KeyValue | None
    revision: int


class LeftoverRemoved(Struct, frozen=True):
    """``removed`` False: the key had changed meanwhile."""

    request: int
    removed: bool


class Renewed(Struct, frozen=True):
    """The renewal was answered; ``ttl_s`` 0: the lease was gone already."""

    request: int
    ttl_s: float
    sent_at: float


class Revoked(Struct, frozen=True):
    """The lease is gone, and the key with it."""

    request: int


class Failed(Struct, frozen=True):
    """The request was refused, or (``unknown``) may have had its effect."""

    request: int
    unknown: bool


Answer = Granted | Claimed | LeaderRead | LeftoverRemoved | Renewed | Revoked | Failed
Event = Start | StopElection | ElectionTick | KeySeen | LeaderEnded | Answer


# --- instructions -----------------------------------------------------------------------------------------------


class GrantLease(Struct, frozen=True):
    """Ask for a lease of so long."""

    request: int
    ttl_s: int


class ClaimKey(Struct, frozen=True):
    """If the key is absent, create it with ``value`` under the lease."""

    request: int
    lease_id: int
    value: bytes


class ReadLeader(Struct, frozen=True):
    """Read the key."""

    request: int


class RemoveLeftover(Struct, frozen=True):
    """If the key's create_revision still is ``term``, delete it."""

    request: int
    term: int


class Renew(Struct, frozen=True):
    """Renew the lease."""

    request: int
    lease_id: int


class Revoke(Struct, frozen=True):
    """Give the lease back: the key goes with it."""

    request: int
    lease_id: int


class Elected(Struct, frozen=True):
    """We lead with this term from now on."""

    term: int


class StopLeading(Struct, frozen=True):
    """Stop leading now; ``reason`` is one of a few constant words."""

    term: int
    reason: str


class LeaderChanged(Struct, frozen=True):
    """The leader as far as the key is known; None: nobody."""

    leader: LeaderKey | None


Request = GrantLease | ClaimKey | ReadLeader | RemoveLeftover | Renew | Revoke
Instruction = Request | Elected | StopLeading | LeaderChanged
