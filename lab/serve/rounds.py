"""When the learner that learns on a captured cluster trains and offers what it learned: a pure state machine. Events
in, instructions out.

    RESTING --the active policy is ours--> TRAINING --better by the margin, and the way is free--> OFFERING
       ^                                      |  |                                                    |
       +---- no better, or diverged ----------+  +-- better, and somebody's candidate is rolled out   |
       +------------------------------------------------- kept for later ---<-------------------------+

A round goes on from the best weights so far, so learning goes on while a candidate waits for its promotion; what is
better than that candidate by the margin once more takes its place, as long as it is in shadow. Live decisions never
explore: all exploring is the twin's, and what comes out decides in shadow until somebody, or the roll-out, promotes it.
A candidate that the roll-out withdrew was worse where it counts: what was learned since is let go, rounds begin
again from the active weights, and what is offered next over the same active weights must be better than what was
withdrawn. A candidate of whose writing no answer came is ours once it is seen.

No torch, no I/O, no clock here: the shell has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from lab.serve.core import HistoryRead, PointerSeen
from shared.decide.stages import Stage
from shared.wire.records import PolicyPointer, PolicyRef


class Phase(StrEnum):
    """What is being done."""

    RESTING = "resting"
    TRAINING = "training"
    OFFERING = "offering"


@dataclass(frozen=True, slots=True)
class Learned:
    """A round is over. ``gain``: how much better than ``base`` the best weights so far are, a share of its cost on the
    days held back. ``problem``: why there is none. ``begun``: whether it was learned at all; else it comes again."""

    gain: float = 0.0
    problem: str = ""
    begun: bool = True


@dataclass(frozen=True, slots=True)
class Offered:
    """The best weights are a candidate in shadow, as ``ref``. ``problem``: why not; why that is not known, with a
    ``ref``."""

    ref: PolicyRef | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """Learn: from ``base`` where ``anew``, else on from the best so far. Answer with ``Learned``."""

    base: PolicyRef
    number: int
    anew: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """Write the best weights as a candidate in shadow, where there is none but one of ``ours``; answer with
    ``Offered``."""

    base: PolicyRef
    version: int
    gain: float
    ours: frozenset[PolicyRef] = frozenset()


Event = PointerSeen | HistoryRead | Learned | Offered
Instruction = Round | Offer


@dataclass(slots=True)
class RoundsCore:
    """``handle`` is the only method that changes anything."""

    policy: str
    margin: float
    """Share of the cost by which weights must be better before they are offered."""
    phase: Phase = Phase.RESTING
    pointer: PolicyPointer | None = None
    rounds: int = 0
    newest: int = 0
    """Highest version of the policy that was ever seen or offered."""
    last_gain: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    _base: PolicyRef | None = None
    """What decides, where it is this policy: gains are over it."""
    _anew: bool = True
    _round: Round | None = None
    """The one that is being learned."""
    _offers: dict[PolicyRef, float] = field(default_factory=dict)
    """Written last, with its gain; more where it is not known which of them was."""
    _withdrawn: float = 0.0
    """The greatest gain over this base of what was withdrawn."""
    _mine: PolicyRef | None = None
    """Our candidate, once it was seen in the pointer."""
    _offered_gain: float = 0.0
    _refused: bool = False
    """The last offer was refused: another round comes first."""

    def handle(self, events: Iterable[Event]) -> list[Instruction]:
        """Take in all that came and say what follows."""
        for event in events:
            self._take(event)
        return self._next()

    def _take(self, event: Event) -> None:
        match event:
            case PointerSeen():
                self._seen(event.pointer)
            case HistoryRead():
                for pointer in event.pointers:
                    self._number(pointer)
            case Learned():
                self._learned(event)
            case Offered():
                self._answered(event)

    def _next(self) -> list[Instruction]:
        base = self._base
        if self.phase is not Phase.RESTING or base is None:
            return []
        bar = max(self._offered_gain, self._withdrawn)
        better = self.last_gain > bar and self.last_gain >= bar + self.margin
        if better and not self._refused and self._free():
            self.phase = Phase.OFFERING
            self.newest += 1
            ours = frozenset(self._offers) | ({self._mine} if self._mine is not None else set())
            return [Offer(base, self.newest, self.last_gain, ours)]
        self.phase, self._refused = Phase.TRAINING, False
        self.rounds += 1
        self._round, self._anew = Round(base, self.rounds, self._anew), False
        return [self._round]

    def _free(self) -> bool:
        """Whether nobody else's candidate is in the way, and ours decides for no pod yet."""
        pointer = self.pointer
        if pointer is None or pointer.candidate is None:
            return pointer is not None
        return pointer.candidate == self._mine and pointer.stage == Stage.SHADOW

    def _learned(self, event: Learned) -> None:
        if self.phase is not Phase.TRAINING:
            return
        self.phase = Phase.RESTING
        if self._anew:  # the pointer has changed meanwhile: it was learned from what no longer counts
            self.outcomes["outdated"] += 1
        elif not event.begun:
            self.outcomes["failed"] += 1
            self._anew = self._round is not None and self._round.anew
        elif event.problem:  # our candidate is what it was
            self.outcomes["diverged"] += 1
            self._anew, self.last_gain = True, 0.0
        else:
            self.outcomes["better" if event.gain > self.last_gain else "no better"] += 1
            self.last_gain = event.gain

    def _answered(self, event: Offered) -> None:
        if self.phase is not Phase.OFFERING:
            return
        self.phase = Phase.RESTING
        if event.problem:
            self.outcomes["refused" if event.ref is None else "unknown"] += 1
            self._refused = True
            if event.ref is not None and not self._anew:
                self._offers[event.ref] = self.last_gain  # the pointer will show whether it was written
            return
        assert event.ref is not None
        self.outcomes["offered"] += 1
        if self._anew:
            return  # of a base that no longer decides; the pointer was swapped all the same, or will show it withdrawn
        self._offers, self._offered_gain = {event.ref: self.last_gain}, self.last_gain
        if self.pointer is not None and self.pointer.candidate == event.ref:
            self._mine = event.ref

    def _seen(self, pointer: PolicyPointer | None) -> None:
        self.pointer = pointer
        active = pointer.active if pointer is not None and pointer.active.name == self.policy else None
        candidate = pointer.candidate if pointer is not None else None
        if pointer is not None:
            self._number(pointer)
        if active != self._base:
            self._base, self._withdrawn = active, 0.0
            self._begin_anew()
        elif candidate is not None and candidate in self._offers:
            self._mine, self._offered_gain = candidate, self._offers[candidate]
        elif self._mine is not None and candidate != self._mine:  # the same may be old news of what we have replaced
            if candidate is None:  # ours was withdrawn: worse where it counts
                self._withdrawn = max(self._withdrawn, self._offered_gain)
                self._begin_anew()
            else:  # somebody's own is tried first
                self._mine, self._offered_gain, self._offers = None, 0.0, {}

    def _begin_anew(self) -> None:
        self._anew, self._mine, self._offers = True, None, {}
        self.last_gain = self._offered_gain = 0.0

    def _number(self, pointer: PolicyPointer) -> None:
        refs = (pointer.active, pointer.previous, pointer.candidate)
        self.newest = max([self.newest, *(ref.version for ref in refs if ref is not None and ref.name == self.policy)])
