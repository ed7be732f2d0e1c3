"""When the learner trains, asks the gate and publishes: a pure state machine. Events in, instructions out.

    COLLECTING --enough new transitions, no candidate on its way--> TRAINING --> GATING --passed--> PUBLISHING
        ^                                                              |            |                    |
        +---------------- diverged, refused, failed, or published <---+------------+--------------------+

One thing at a time: what is trained on, gated and published is one set of weights. While a candidate of anybody is in
the pointer nothing is published over it, so nothing is trained for nothing either. Whatever fails, the learner goes on
from the active weights with the next transitions; the mesh never waits for it.

No torch, no I/O, no clock here: the shell has them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from shared.wire.records import PolicyPointer, PolicyRef


class LearnerPhase(StrEnum):
    """What is being done."""

    COLLECTING = "collecting"
    TRAINING = "training"
    GATING = "gating"
    PUBLISHING = "publishing"


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransitionsTaken:
    """``count`` transitions are in the replay buffer."""

    count: int


@dataclass(frozen=True, slots=True)
class LearnerPointerSeen:
    """The policy pointer; None: there is none (yet)."""

    pointer: PolicyPointer | None


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """What the pointer was before this learner started: no version in it is given to other weights."""

    pointers: tuple[PolicyPointer, ...]


@dataclass(frozen=True, slots=True)
class Trained:
    """New weights are there. ``problem``: why not."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The twin's judgement: relative difference to the active policy, above 0 is better. ``problem``: why there is
    none."""

    gain: float
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """The pointer names the new weights as a candidate in shadow. ``problem``: why not."""

    problem: str = ""


Event = TransitionsTaken | LearnerPointerSeen | HistoryRead | Trained | GateVerdict | Published


# --- instructions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Train:
    """Go on from the weights of ``base`` and train; answer with ``Trained``."""

    base: PolicyRef
    version: int


@dataclass(frozen=True, slots=True)
class GateWeights:
    """Compare the new weights with ``base`` on the twin; answer with ``GateVerdict``."""

    base: PolicyRef


@dataclass(frozen=True, slots=True)
class Publish:
    """Write weights and pointer; answer with ``Published``."""

    version: int
    gain: float


Instruction = Train | GateWeights | Publish


@dataclass(slots=True)
class LearnerCore:
    """``handle`` is the only method that changes anything."""

    policy: str
    min_transitions: int
    gate_margin: float
    phase: LearnerPhase = LearnerPhase.COLLECTING
    pointer: PolicyPointer | None = None
    fresh: int = 0
    """Transitions since the last training began."""
    newest: int = 0
    """Highest version of the policy that was ever seen or published."""
    outcomes: Counter[str] = field(default_factory=Counter)
    last_gain: float = 0.0

    def handle(self, event: Event) -> list[Instruction]:
        """Take in one event and say what follows."""
        match event:
            case TransitionsTaken():
                self.fresh += event.count
            case LearnerPointerSeen():
                self._seen(event.pointer)
            case HistoryRead():
                for pointer in event.pointers:
                    self._number(pointer)
            case Trained():
                return self._trained(event)
            case GateVerdict():
                return self._gated(event)
            case Published():
                if not event.problem:
                    self.pointer = None  # it has changed: nothing is begun before it is seen
                self._end("published" if not event.problem else "unpublished")
        return self._begin()

    @property
    def base(self) -> PolicyRef | None:
        """The weights to go on from: the active ones, where they are this policy's."""
        pointer = self.pointer
        return pointer.active if pointer is not None and pointer.active.name == self.policy else None

    def _begin(self) -> list[Instruction]:
        base, pointer = self.base, self.pointer
        if self.phase is not LearnerPhase.COLLECTING or self.fresh < self.min_transitions:
            return []
        if base is None or pointer is None or pointer.candidate is not None:
            return []
        self.phase, self.fresh = LearnerPhase.TRAINING, 0
        return [Train(base, self.newest + 1)]

    def _trained(self, event: Trained) -> list[Instruction]:
        if self.phase is not LearnerPhase.TRAINING:
            return []
        base = self.base
        if event.problem or base is None:
            self._end("diverged" if event.problem else "outdated")
            return []
        self.phase = LearnerPhase.GATING
        return [GateWeights(base)]

    def _gated(self, event: GateVerdict) -> list[Instruction]:
        if self.phase is not LearnerPhase.GATING:
            return []
        self.last_gain = event.gain
        if event.problem or not event.gain >= -self.gate_margin:
            self._end("gate failed" if event.problem else "refused by the gate")
            return []
        self.phase = LearnerPhase.PUBLISHING
        self.newest += 1
        return [Publish(self.newest, event.gain)]

    def _seen(self, pointer: PolicyPointer | None) -> None:
        self.pointer = pointer
        if pointer is not None:
            self._number(pointer)

    def _number(self, pointer: PolicyPointer) -> None:
        refs = (pointer.active, pointer.previous, pointer.candidate)
        versions = [ref.version for ref in refs if ref is not None and ref.name == self.policy]
        self.newest = max([self.newest, *versions])

    def _end(self, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self.phase = LearnerPhase.COLLECTING
