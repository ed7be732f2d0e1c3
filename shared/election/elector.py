"""Leadership as a pure state machine: ``step(state, event, now) -> (state, instructions)``.

Why: who leads is the one question where a wrong answer is not a delay but two binders at work. Here it is decided
without a socket, a clock or a thread, so every interleaving can be tested. ``runtime/lease/leadership.py`` does the
I/O: it carries out instructions and hands every answer back as an event.

::

              Start              no key                Granted            won
    NEW ───────────> READING ─────────────> GRANTING ──────────> CLAIMING ────────> LEADING
                     │  ^  ^  another's key    ^  ^                 │ lost, unknown     │ validity over,
                     │  │  └───────────────┐   │  │ removed         │                   │ TTL 0, deposed
                     │  │            poll  │   │  │                 v                   v
                     │  └─────────── FOLLOWING ┘  │   revoked     LEAVING <─────────────┘
                     │  its process   │  key gone │  <──────────  (back to READING)
                     │  has ended     v           │
                     └──────> CLEARING ───────────┘
                      own leftover; where others  Stop in any phase: (STOPPING: revoke) ──> STOPPED
                      stand by, they go first

Invariants:

I1. At most one elector in the cluster has ``now < valid_until``, while clock rates keep the bound of ``LeaseSettings``
    no identity is given to two live processes, and nobody is told that a live one has ended: then its successor leads
    while it has not heard of it yet, and the term fences it.
I2. ``valid_until`` counts from before the request was sent, never from its answer.
I3. ``term`` is the create_revision of the key this elector itself created; terms only grow.
I4. ``Elected`` and ``StopLeading`` alternate, ``Elected`` first; after ``StopElection`` there is no ``Elected``.
I5. At most one request is in flight; answers to any other are ignored.
I6. A holder whose service does not tick (``main_alive`` False) neither renews nor campaigns.
I7. A foreign identity's key is removed only on the word that its process has ended (``LeaderEnded``), an own leftover
    when we have just started; both in a transaction that compares its create_revision.

Not its job: renewing for somebody who hangs, resuming a term once lost, guessing after an unknown outcome (it reads).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from shared.election.events import (
    Claimed,
    ClaimKey,
    Elected,
    ElectionTick,
    Event,
    Failed,
    Granted,
    GrantLease,
    Instruction,
    KeySeen,
    LeaderChanged,
    LeaderEnded,
    LeaderKey,
    LeaderRead,
    LeftoverRemoved,
    ReadLeader,
    RemoveLeftover,
    Renew,
    Renewed,
    Request,
    Revoke,
    Revoked,
    Start,
    StopElection,
    StopLeading,
)
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord, decode_record
from shared.ports import KeyValue

MOST_YIELD_S = 5.0
"""Whoever stands by and lives has claimed a vacant key by then. Some that are listed died with our predecessor."""


class ElectorPhase(enum.Enum):
    """Where the candidate is; see the diagram of the module."""

    NEW = "new"
    READING = "reading"
    FOLLOWING = "following"
    CLEARING = "clearing"
    GRANTING = "granting"
    CLAIMING = "claiming"
    LEADING = "leading"
    LEAVING = "leaving"
    STOPPING = "stopping"
    STOPPED = "stopped"


HOLDS_NO_LEASE = frozenset({ElectorPhase.NEW, ElectorPhase.FOLLOWING, ElectorPhase.CLEARING, ElectorPhase.GRANTING})
WAITS_FOR_AN_ANSWER = frozenset({ElectorPhase.CLEARING, ElectorPhase.GRANTING, ElectorPhase.CLAIMING})


@dataclass(frozen=True, slots=True)
class ElectorState:
    """All that the elector knows between two steps."""

    phase: ElectorPhase = ElectorPhase.NEW
    request: int = 0
    """Number of the last request."""
    in_flight: bool = False
    wake_at: float = math.inf
    """When the next ``ElectionTick`` is due."""
    lease_id: int = 0
    sent_at: float = -math.inf
    """When the lease was last granted or asked to be renewed."""
    valid_until: float = -math.inf
    """Leading is allowed before this instant; ``-inf`` unless leading (or about to claim)."""
    term: int = 0
    """Our own term; 0 unless leading."""
    leader: LeaderKey | None = None
    seen_revision: int = 0
    """Nothing older about the key is believed."""
    main_alive: bool = True
    may_clear_restarted: bool = True
    """A predecessor of ours may be cleared away only when we have just started: two processes that were wrongly given
    one identity would otherwise depose each other for ever."""
    ended_term: int = 0
    """Of the last leader whose process is said to have ended."""
    yields_until: float = -math.inf
    """The key that we have cleared away is left to those who stand by until then."""

    def is_valid(self, now: float) -> bool:
        """Whether leading is allowed at ``now``."""
        return self.phase is ElectorPhase.LEADING and now < self.valid_until

    def validate(self) -> Iterator[str]:
        """What is broken between two steps, the invariant's name first; nothing while all is well."""
        leads, ended = self.phase is ElectorPhase.LEADING, self.phase in {ElectorPhase.NEW, ElectorPhase.STOPPED}
        if leads != (self.term > 0):
            yield f"elector-term: {self.phase.value} with term {self.term}"
        if leads and (not self.lease_id or math.isinf(self.valid_until)):
            yield "elector-lease: leading without a lease or an end of it"
        if self.phase in HOLDS_NO_LEASE and self.lease_id:
            yield f"elector-lease: {self.phase.value} with lease {self.lease_id}"
        if math.isfinite(self.valid_until) and self.phase not in {
            ElectorPhase.CLAIMING,
            ElectorPhase.READING,
            ElectorPhase.LEADING,
        }:
            yield f"elector-validity: {self.phase.value} is valid until {self.valid_until}"
        if not (ended or self.in_flight or math.isfinite(self.wake_at)):
            yield f"elector-goes-on: {self.phase.value} waits for no answer and for no time"
        if self.phase in WAITS_FOR_AN_ANSWER and not self.in_flight:
            yield f"elector-goes-on: {self.phase.value} without a request"


Step = tuple[ElectorState, list[Instruction]]


@dataclass(frozen=True, slots=True)
class Elector:
    """The rules, for one candidate.

    ``yields``: others stand by for the key, and know by now what the leader knew. So who was restarted in its place
    clears its leftover and lets one of them lead: it would have to learn everything first."""

    settings: LeaseSettings
    record: LeaderRecord
    yields: bool = False
    value: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.record.encode())

    def step(self, state: ElectorState, event: Event, now: float) -> Step:
        """The only way to change the state. Never raises for any order of events."""
        if state.phase is ElectorPhase.STOPPED:
            return state, []
        match event:
            case Start():
                return self._read(state) if state.phase is ElectorPhase.NEW else (state, [])
            case StopElection():
                return self._stop(state)
            case ElectionTick():
                return self._tick(replace(state, main_alive=event.main_alive), now)
            case KeySeen():
                return self._key_seen(state, event, now)
            case LeaderEnded():
                return self._leader_ended(state, event)
        # I5: an answer may come long after it was given up, say to a claim under a lease that we have revoked since.
        if event.request != state.request or not state.in_flight:
            return state, []
        asking, state = state, replace(state, in_flight=False)
        match event:
            case Failed():
                return self._failed(state, event, now)
            case LeaderRead() if state.phase is ElectorPhase.READING:
                return self._leader_read(state, event, now)
            case LeftoverRemoved() if state.phase is ElectorPhase.CLEARING:
                state = replace(state, may_clear_restarted=False)
                return self._read(state) if not event.removed else self._campaign(state, now)
            case Granted() if state.phase is ElectorPhase.GRANTING:
                valid_until = self.settings.valid_until(sent_at=event.sent_at, ttl_s=event.ttl_s)
                state = replace(state, lease_id=event.lease_id, sent_at=event.sent_at, valid_until=valid_until)
                return self._ask(
                    state, ElectorPhase.CLAIMING, lambda request: ClaimKey(request, event.lease_id, self.value)
                )
            case Claimed() if state.phase is ElectorPhase.CLAIMING:
                return self._lead(state, event.revision, now) if event.won else self._leave(state)
            case Renewed() if state.phase is ElectorPhase.LEADING:
                return self._renewed(state, event)
            case Revoked() if state.phase in {ElectorPhase.LEAVING, ElectorPhase.STOPPING}:
                return self._revoked(state)
        return asking, []  # an answer to something else: what was asked is still open

    # --- time -----------------------------------------------------------------------------------------------------

    def _tick(self, state: ElectorState, now: float) -> Step:
        if state.phase is ElectorPhase.LEADING:
            # Before all else: who was paused wakes up here, and another may lead by now (I1); to renew is too late.
            if now >= state.valid_until:
                return self._lose(state, "validity_over")
            due = now >= state.sent_at + self.settings.renew_every_s and now >= state.wake_at
            if due and state.main_alive and not state.in_flight:
                state, out = self._ask(state, ElectorPhase.LEADING, lambda request: Renew(request, state.lease_id))
                # I2: the clock is read before the request leaves. Counted from the answer, two could be valid at once.
                return replace(state, sent_at=now, wake_at=state.valid_until), out
            # I6: neither renewed nor given up: a service that ticks again in time goes on, one that hangs runs out.
            if due and not state.main_alive:
                return replace(state, wake_at=min(now + self.settings.retry_s, state.valid_until)), []
            return state, []
        if state.in_flight or now < state.wake_at:
            return state, []
        if state.phase in {ElectorPhase.LEAVING, ElectorPhase.STOPPING}:
            return self._ask(state, state.phase, lambda request: Revoke(request, state.lease_id))
        return self._read(state)

    def _renewed(self, state: ElectorState, event: Renewed) -> Step:
        if event.ttl_s <= 0:
            # The lease is gone, its key with it: there is nothing to revoke.
            return self._lose(replace(state, lease_id=0), "lease_expired")
        valid_until = max(state.valid_until, self.settings.valid_until(sent_at=event.sent_at, ttl_s=event.ttl_s))
        wake_at = min(event.sent_at + self.settings.renew_every_s, valid_until)
        return replace(state, valid_until=valid_until, sent_at=event.sent_at, wake_at=wake_at), []

    def _failed(self, state: ElectorState, event: Failed, now: float) -> Step:
        retry_at = now + self.settings.retry_s
        match state.phase:
            case ElectorPhase.LEADING:
                # Refused or unknown, validity stays as it is: it counts from renewals that were answered alone (I2).
                # As if sent earlier: the next attempt is due at retry_at, not a whole renew_every_s after this one.
                sent_at = min(state.sent_at, retry_at - self.settings.renew_every_s)
                return replace(state, sent_at=sent_at, wake_at=min(retry_at, state.valid_until)), []
            # It may have won: only a read of the key tells, and until then its lease is kept.
            case ElectorPhase.CLAIMING if event.unknown:
                return self._read(state)
            case ElectorPhase.CLAIMING:
                return self._leave(state)
            case ElectorPhase.LEAVING if not event.unknown:
                return self._revoked(state)
            # No second try: the process ends, and a lease that could not be revoked ends by itself.
            case ElectorPhase.STOPPING:
                return replace(state, phase=ElectorPhase.STOPPED, wake_at=math.inf), []
            case ElectorPhase.LEAVING:
                return replace(state, wake_at=retry_at), []
            case ElectorPhase.CLEARING if not event.unknown:
                state = replace(state, ended_term=0)  # we may not: the lease decides
        return replace(state, phase=ElectorPhase.READING, wake_at=retry_at), []

    # --- the key ----------------------------------------------------------------------------------------------------

    def _leader_read(self, state: ElectorState, event: LeaderRead, now: float) -> Step:
        if event.revision < state.seen_revision:
            # The watch was faster than this answer; what it says is old.
            return self._read(state)
        state = replace(state, seen_revision=event.revision)
        kv = event.kv
        if kv is not None and state.lease_id and kv.lease_id == state.lease_id:
            # The claim whose outcome was unknown has won.
            return self._lead(state, kv.create_revision, now)
        if state.lease_id:
            # It has not, but it may still arrive: without its lease it will be refused.
            return self._leave(state)
        state, out = self._note_leader(state, LeaderKey(kv.value, kv.create_revision) if kv is not None else None)
        if kv is None:
            state, more = self._campaign(replace(state, may_clear_restarted=False), now)
        elif self._is_own(kv, state):
            # a lease's time is what those who stand by would have waited without us
            yields_until = now + min(self.settings.lease_ttl_s, MOST_YIELD_S) if self.yields else -math.inf
            state, more = self._clear(replace(state, yields_until=yields_until), kv.create_revision)
        elif kv.create_revision == state.ended_term:
            state, more = self._clear(state, kv.create_revision)
        else:
            wake_at = now + self.settings.observe_every_s
            state = replace(state, phase=ElectorPhase.FOLLOWING, wake_at=wake_at, may_clear_restarted=False)
            more = []
        return state, [*out, *more]

    def _is_own(self, kv: KeyValue, state: ElectorState) -> bool:
        record = decode_record(kv.value)
        if record is None or record.identity != self.record.identity:
            return False
        return record.incarnation == self.record.incarnation or state.may_clear_restarted

    def _key_seen(self, state: ElectorState, event: KeySeen, now: float) -> Step:
        # <=: our own creation is the term itself, and what a read has shown is old; neither may depose us (I8).
        if event.kv.mod_revision <= state.seen_revision:
            return state, []
        state = replace(state, seen_revision=event.kv.mod_revision)
        leader = None if event.deleted else LeaderKey(event.kv.value, event.kv.create_revision)
        state, out = self._note_leader(state, leader)
        if state.phase is ElectorPhase.LEADING and (leader is None or leader.term != state.term):
            state, more = self._lose(state, "deposed")
            return state, [*out, *more]
        if state.phase is ElectorPhase.FOLLOWING and leader is None:
            state, more = self._campaign(state, now)
            return state, [*out, *more]
        return state, out

    def _leader_ended(self, state: ElectorState, event: LeaderEnded) -> Step:
        """Its lease need not be waited for. Who is wrong about it has deposed a leader, whose writes are refused. It is
        said once: where we do something else now, or etcd does not answer, the next read of the key acts on it."""
        state = replace(state, ended_term=event.term)
        if state.phase is not ElectorPhase.FOLLOWING or state.leader is None or state.leader.term != event.term:
            return state, []
        return self._clear(state, event.term)

    def _note_leader(self, state: ElectorState, leader: LeaderKey | None) -> Step:
        if leader == state.leader:
            return state, []
        if leader is not None:
            state = replace(state, yields_until=-math.inf)  # somebody came: the next vacancy is anybody's
        return replace(state, leader=leader), [LeaderChanged(leader)]

    # --- moves ------------------------------------------------------------------------------------------------------

    def _ask(self, state: ElectorState, phase: ElectorPhase, make: Callable[[int], Request]) -> Step:
        request = state.request + 1
        state = replace(state, phase=phase, request=request, in_flight=True, wake_at=math.inf)
        return state, [make(request)]

    def _clear(self, state: ElectorState, term: int) -> Step:
        return self._ask(state, ElectorPhase.CLEARING, lambda request: RemoveLeftover(request, term))

    def _read(self, state: ElectorState) -> Step:
        return self._ask(state, ElectorPhase.READING, ReadLeader)

    def _campaign(self, state: ElectorState, now: float) -> Step:
        if now < state.yields_until:
            return replace(state, phase=ElectorPhase.FOLLOWING, wake_at=state.yields_until), []
        if not state.main_alive:
            return replace(state, phase=ElectorPhase.FOLLOWING, wake_at=now + self.settings.retry_s), []
        ttl_s = self.settings.lease_ttl_s
        return self._ask(state, ElectorPhase.GRANTING, lambda request: GrantLease(request, ttl_s))

    def _lead(self, state: ElectorState, term: int, now: float) -> Step:
        if now >= state.valid_until:
            return self._leave(state)
        wake_at = min(state.sent_at + self.settings.renew_every_s, state.valid_until)
        seen = max(state.seen_revision, term)
        state = replace(state, phase=ElectorPhase.LEADING, term=term, wake_at=wake_at, seen_revision=seen)
        state, out = self._note_leader(state, LeaderKey(self.value, term))
        return state, [Elected(term), *out]

    def _lose(self, state: ElectorState, reason: str) -> Step:
        lost = StopLeading(state.term, reason)
        # First lost, then the revoke (ADR 0002, 6): once the key is gone a successor leads, and we must have stopped.
        state, out = self._leave(replace(state, term=0))
        return state, [lost, *out]

    def _leave(self, state: ElectorState) -> Step:
        state = replace(state, valid_until=-math.inf, sent_at=-math.inf)
        if not state.lease_id:
            return self._read(state)
        return self._ask(state, ElectorPhase.LEAVING, lambda request: Revoke(request, state.lease_id))

    def _revoked(self, state: ElectorState) -> Step:
        if state.phase is ElectorPhase.STOPPING:
            return replace(state, phase=ElectorPhase.STOPPED, lease_id=0, wake_at=math.inf), []
        return self._read(replace(state, lease_id=0))

    def _stop(self, state: ElectorState) -> Step:
        out: list[Instruction] = [StopLeading(state.term, "resigned")] if state.phase is ElectorPhase.LEADING else []
        state = replace(state, term=0, valid_until=-math.inf)
        if not state.lease_id or state.phase is ElectorPhase.STOPPING:
            return replace(state, phase=ElectorPhase.STOPPED, in_flight=False, wake_at=math.inf), out
        state, more = self._ask(state, ElectorPhase.STOPPING, lambda request: Revoke(request, state.lease_id))
        return state, [*out, *more]
