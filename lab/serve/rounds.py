"""When the learner that learns on a captured cluster trains and offers what it learned: a pure state machine. Events
in, instructions out.

    RESTING --the active policy is ours--> TRAINING --better by the margin, and the way is free--> OFFERING
       ^                                      |  |                                                    |
       +---- no better, or diverged ----------+  +-- better, and somebody's candidate is rolled out   |
       +------------------------------------------------- kept for later ---<-------------------------+

A round goes on from the best weights so far, so learning goes on while a candidate waits for its promotion; what is
better than that candidate by the margin once more takes its place, as long as it is in shadow. Live decisions never
explore: all exploring is the twin's, and what comes out decides in shadow until somebody, or the roll-out, promotes it.
A candidate that the roll-out withdrew, or that decided and was taken back, was worse where it counts: what was learned
since is let go, rounds begin again from the active weights, and what is offered next over the same active weights must
be better than what was taken back.

Which candidates are a learner's, the pointer and its history tell (``proposed_by``), and not this process's memory: one
that was started again knows them, learns on from the one that waits, and has what it does not know the gain of judged.

No torch, no I/O, no clock here: the shell has them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lab.serve.core import HistoryRead, LearnerPointerSeen
from lab.serve.publishing import proposed
from shared.decide.stages import Stage
from shared.policy.rollout.rollout import HISTORY_LIMIT
from shared.wire.records import PolicyPointer, PolicyRef

MOST_JUDGED = 8
"""Of what was taken back over one policy, those that still count: as many as etcd keeps the weights of."""


MOST_REMEMBERED = 4 * MOST_JUDGED
"""Gains, more than there are to be beaten at a time."""


class RoundsPhase(StrEnum):
    """What is being done."""

    RESTING = "resting"
    TRAINING = "training"
    OFFERING = "offering"


@dataclass(frozen=True, slots=True)
class RoundLearned:
    """A round is over. ``gain``: how much better than ``base`` the best weights so far are, a share of its cost on the
    days held back; ``judged``: likewise, of what was to be judged. ``problem``: why there is none. ``begun``: whether
    it was learned at all; else it comes again."""

    gain: float = 0.0
    problem: str = ""
    begun: bool = True
    judged: Mapping[PolicyRef, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offered:
    """The best weights are a candidate in shadow, as ``ref``. ``problem``: why not; why that is not known, with a
    ``ref``."""

    ref: PolicyRef | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """Learn: where ``anew`` from ``first``, or from ``base`` where there is none or it is worse, else on from the best
    so far. ``judge``: tell the gains of these too. Answer with ``RoundLearned``."""

    base: PolicyRef
    number: int
    anew: bool
    first: PolicyRef | None = None
    judge: tuple[PolicyRef, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferWeights:
    """Write the best weights as a candidate in shadow, where there is none but ``instead_of``, a learner's that they
    were compared with; answer with ``Offered``."""

    base: PolicyRef
    version: int
    gain: float
    instead_of: PolicyRef | None = None


Event = LearnerPointerSeen | HistoryRead | RoundLearned | Offered
Instruction = Round | OfferWeights


@dataclass(slots=True)
class RoundsCore:
    """``handle`` is the only method that changes anything."""

    policy: str
    margin: float
    """Share of the cost by which weights must be better before they are offered."""
    phase: RoundsPhase = RoundsPhase.RESTING
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
    _last: PolicyPointer | None = None
    """As the history, or since then the pointer, showed it last."""
    _ours: deque[PolicyRef] = field(default_factory=lambda: deque(maxlen=HISTORY_LIMIT))
    """What learners have proposed, as far as a history goes."""
    _taken_back: deque[tuple[PolicyRef, PolicyRef]] = field(default_factory=lambda: deque(maxlen=HISTORY_LIMIT))
    """(over which policy, which of them)."""
    _gains: dict[PolicyRef, float] = field(default_factory=dict)
    """Over this base, of what was offered and has to be beaten."""
    _unknown: dict[PolicyRef, float] = field(default_factory=dict)
    """Of offers without an answer: the pointer will show whether they were written."""
    _refused: bool = False
    """The last offer was refused: another round comes first."""

    def handle(self, events: Iterable[Event]) -> list[Instruction]:
        """Take in all that came and say what follows."""
        for event in events:
            self._take(event)
        return self._next()

    def _take(self, event: Event) -> None:
        match event:
            case LearnerPointerSeen():
                self._seen(event.pointer)
            case HistoryRead():
                for pointer in event.pointers:
                    self._follow(pointer)
            case RoundLearned():
                self._learned(event)
            case Offered():
                self._answered(event)

    def _next(self) -> list[Instruction]:
        base = self._base
        if self.phase is not RoundsPhase.RESTING or base is None:
            return []
        bar = max(self._gains.values(), default=0.0)
        judge = self._to_judge(base)
        better = not judge and self.last_gain > bar and self.last_gain >= bar + self.margin
        if better and not self._refused and self._free():
            self.phase = RoundsPhase.OFFERING
            self.newest += 1
            return [OfferWeights(base, self.newest, self.last_gain, self._own())]
        self.phase, self._refused = RoundsPhase.TRAINING, False
        self.rounds += 1
        own = self._own()
        first = own if self._anew and own in judge else None
        self._round, self._anew = Round(base, self.rounds, self._anew, first, judge), False
        return [self._round]

    def _own(self) -> PolicyRef | None:
        return None if self.pointer is None else proposed(self.pointer, self.policy)

    def _to_judge(self, base: PolicyRef) -> tuple[PolicyRef, ...]:
        """What has to be beaten, and is of before this process, or was never seen as written."""
        own = self._own()
        wanted = [*self._back(base), *([own] if own is not None else [])]
        return tuple(ref for ref in dict.fromkeys(wanted) if ref not in self._gains)

    def _back(self, base: PolicyRef) -> list[PolicyRef]:
        """What was taken back over this policy, those that still count."""
        return list(dict.fromkeys(ref for over, ref in reversed(self._taken_back) if over == base))[:MOST_JUDGED]

    def _free(self) -> bool:
        """Whether nobody else's candidate is in the way, and ours decides for no pod yet."""
        pointer = self.pointer
        if pointer is None or pointer.candidate is None:
            return pointer is not None
        return self._own() is not None and pointer.stage == Stage.SHADOW

    def _learned(self, event: RoundLearned) -> None:
        if self.phase is not RoundsPhase.TRAINING:
            return
        self.phase = RoundsPhase.RESTING
        if self._round is not None and self._round.base == self._base:
            _remember(self._gains, event.judged)
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
        if self.phase is not RoundsPhase.OFFERING:
            return
        self.phase = RoundsPhase.RESTING
        if event.problem:
            self.outcomes["refused" if event.ref is None else "unknown"] += 1
            self._refused = True
            if event.ref is not None and not self._anew:
                _remember(self._unknown, {event.ref: self.last_gain})
            return
        assert event.ref is not None
        self.outcomes["offered"] += 1
        if not self._anew:  # else of a base that no longer decides, or of a candidate that went
            _remember(self._gains, {event.ref: self.last_gain})

    def _seen(self, pointer: PolicyPointer | None) -> None:
        self.pointer = pointer
        if pointer is None:
            self._begin_on(None)
            return
        back, own = self._follow(pointer), self._own()
        if pointer.active != self._base:
            self._begin_on(pointer.active if pointer.active.name == self.policy else None)
        elif back:  # worse where it counts
            self._anew, self.last_gain = True, 0.0
        elif own is not None and own in self._unknown:
            _remember(self._gains, {own: self._unknown.pop(own)})
        elif pointer.candidate is not None and own is None:  # somebody's is tried first, in place of ours if there was
            counting = self._back(pointer.active)
            self._gains = {ref: gain for ref, gain in self._gains.items() if ref in counting}

    def _follow(self, pointer: PolicyPointer) -> bool:
        """One change of the pointer, of now or of history; whether one of ours was taken back by it."""
        before, self._last = self._last, pointer
        refs = (pointer.active, pointer.previous, pointer.candidate)
        self.newest = max([self.newest, *(ref.version for ref in refs if ref is not None and ref.name == self.policy)])
        if (own := proposed(pointer, self.policy)) is not None and own not in self._ours:
            self._ours.append(own)
        gone = None if before is None else _gone(before, pointer)
        if gone is None or gone not in self._ours:
            return False
        self._taken_back.append((pointer.active, gone))
        return True

    def _begin_on(self, base: PolicyRef | None) -> None:
        if base != self._base:
            self._base, self._anew, self.last_gain = base, True, 0.0
            self._gains, self._unknown = {}, {}


def _remember(gains: dict[PolicyRef, float], more: Mapping[PolicyRef, float]) -> None:
    """The last few stay: what is needed and was forgotten is judged again."""
    gains |= more
    while len(gains) > MOST_REMEMBERED:
        del gains[next(iter(gains))]


def _gone(before: PolicyPointer, now: PolicyPointer) -> PolicyRef | None:
    """What was withdrawn, or decided and was taken back, between two pointers: the policy before it decides now."""
    if before.active == now.active:
        return before.candidate if now.candidate is None else None
    return before.active if before.previous == now.active else None
