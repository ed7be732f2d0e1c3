"""What goes into the elector and what comes out: events, instructions, and the leader they speak of.

Each request carries a number and each answer repeats it; an answer with another number than the last request's is
late and is ignored. See ``elector.py`` for the machine and ``runtime/lease/leadership.py`` for who carries requests
out.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.ports import KeyValue


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, as read from the key: its value and its create_revision."""

    value: bytes
    term: int


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    """Resign if leading, then end."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has reached ``wake_at``, or the service's own liveness changed."""

    main_alive: bool = True


@dataclass(frozen=True, slots=True)
class KeySeen:
    """The watch saw a change of the key."""

    kv: KeyValue
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class LeaderEnded:
    """The process that leads with this term is no more, as the machine says on which it ran."""

    term: int


@dataclass(frozen=True, slots=True)
class Granted:
    request: int
    lease_id: int
    ttl_s: float
    sent_at: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """``revision``: of the transaction; if won, it is the key's create_revision."""

    request: int
    won: bool
    revision: int


@dataclass(frozen=True, slots=True)
class LeaderRead:
    request: int
    kv: KeyValue | None
    revision: int


@dataclass(frozen=True, slots=True)
class LeftoverRemoved:
    """``removed`` False: the key had changed meanwhile."""

    request: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Renewed:
    request: int
    ttl_s: float
    sent_at: float


@dataclass(frozen=True, slots=True)
class Revoked:
    request: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The request was refused, or (``unknown``) may have had its effect."""

    request: int
    unknown: bool


Answer = Granted | Claimed | LeaderRead | LeftoverRemoved | Renewed | Revoked | Failed
Event = Start | Stop | Tick | KeySeen | LeaderEnded | Answer


# --- instructions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GrantLease:
    request: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Claim:
    """If the key is absent, create it with ``value`` under the lease."""

    request: int
    lease_id: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ReadLeader:
    request: int


@dataclass(frozen=True, slots=True)
class RemoveLeftover:
    """If the key's create_revision still is ``term``, delete it."""

    request: int
    term: int


@dataclass(frozen=True, slots=True)
class Renew:
    request: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class Revoke:
    request: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class Elected:
    term: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Stop leading now; ``reason`` is one of a few constant words."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader as far as the key is known; None: nobody."""

    leader: Leader | None


Request = GrantLease | Claim | ReadLeader | RemoveLeftover | Renew | Revoke
Instruction = Request | Elected | Lost | LeaderChanged
