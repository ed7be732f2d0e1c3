r"""One object in the core: where its decision is, and what is remembered between decisions. Pure data.

    IDLE --due--> READING --nothing to record--> IDLE
                     \--decided--> COMMITTING --nothing to write, refused, unknown--> IDLE
                                       \--committed--> WRITING --answered--> IDLE

A move that the table does not have raises ``InvalidTransition``. A late answer (of an earlier number) is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from services.autoscaler.core.instructions import ScaleTo, SetBounds
from shared.autoscaling.guard import AutoscalingGuard
from shared.autoscaling.observation import Policy
from shared.autoscaling.safety.drift import Drift
from shared.autoscaling.safety.foreign import Earlier, Expected, Foreign
from shared.autoscaling.safety.scene import ReplicaChange
from shared.errors import InvalidTransition
from shared.model.controllers.autoscaler import Autoscaler, Go


class ScalerStage(Enum):
    """Where an object's decision is."""

    IDLE = "idle"
    READING = "reading"
    COMMITTING = "committing"
    WRITING = "writing"


TRANSITIONS = frozenset(
    (
        (ScalerStage.IDLE, ScalerStage.READING), (ScalerStage.READING, ScalerStage.IDLE), (ScalerStage.READING,
        ScalerStage.COMMITTING),
        (ScalerStage.COMMITTING, ScalerStage.IDLE), (ScalerStage.COMMITTING, ScalerStage.WRITING),
        (ScalerStage.WRITING, ScalerStage.IDLE),
    )
)  # fmt: skip

EVENTS_AT_ONCE = 25.0
"""Kubernetes events of one object that may follow each other at once."""
STORY = 12
"""Moves that an object remembers, for the error of an impossible one."""


@dataclass(slots=True)
class WatchedScaler:
    """One object."""

    scaler: Autoscaler
    due_at: float
    stage: ScalerStage = ScalerStage.IDLE
    number: int = 0
    """Of the round that goes on, or of the last one."""
    read_generation: int = 0
    policy: Policy | None = None
    rule: Policy | None = None
    guard: AutoscalingGuard | None = None
    """Around ``policy``; None where there is none."""
    rule_guard: AutoscalingGuard | None = None
    policy_problem: str = ""
    """Why the named policy cannot be had. Under the kill switch nobody needs it."""
    rule_problem: str = ""
    """Why HPA's rule cannot be had; nothing is decided without it."""
    weights: str = ""
    """Digest of the named policy's weights when it was last to be had, in this term or an earlier one."""
    drift: Drift = field(default_factory=Drift)
    design_due: str = ""
    """What was unlike the policy's training, since the go that counts; "": nothing."""
    design_go: Go = field(default_factory=Go)
    """The go that ``design_due`` is about."""
    shown: dict[str, int] = field(default_factory=dict)
    """Replicas at the last reading."""
    changes: dict[str, list[ReplicaChange]] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    """What each target may show without anybody else having written it; no entry: nothing of ours was written."""
    unsure: dict[str, int] = field(default_factory=dict)
    """Rises whose write may or may not have happened: what was to be."""
    owed: dict[str, int] = field(default_factory=dict)
    """Of these, what the decision under way takes up; it is unsure again where that is not written."""
    foreign: dict[str, Foreign] = field(default_factory=dict)
    earlier: dict[str, Earlier] = field(default_factory=dict)
    """What somebody else wrote of a service under this go."""
    wrote: dict[str, int] = field(default_factory=dict)
    """Replicas that were written since the last decision, which its policy is told of."""
    unknown_at: dict[str, float] = field(default_factory=dict)
    """By service, when its cpu last said nothing of what a replica could answer."""
    unwritten: dict[str, str] = field(default_factory=dict)
    """By service, why the API server refused the last write of it."""
    selectors: dict[str, str] = field(default_factory=dict)
    """By what is scaled, the selector of its pods."""
    troubles: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    """What is wrong or held: (Normal or Warning, in words) by reason, service and what else tells two apart."""
    announced: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Of these, which events have told, and when each was last wrong."""
    events_left: float = EVENTS_AT_ONCE
    events_at: float = float("-inf")
    """So many events may follow at once, as of then."""
    bounded: set[str] = field(default_factory=set)
    """Services whose HPA has both bounds from us: another maximum there is somebody else's."""
    trusted: Go = field(default_factory=Go)
    """The operator's word that all of this was on."""
    inherited: bool = False
    """What an earlier leader recorded has been taken over."""
    writes: tuple[ScaleTo | SetBounds, ...] = ()
    recorded: object = None
    """What was last recorded, as far as it tells two decisions apart; and when."""
    recorded_at: float = float("-inf")
    history: list[dict[str, object]] = field(default_factory=list)
    """The last notable decisions, newest first, as the status shows them."""
    status: dict[str, object] = field(default_factory=dict)
    telling: bool = False
    told_at: float = float("-inf")
    story: list[str] = field(default_factory=list)

    def move(self, to: ScalerStage, cause: str) -> None:
        """Go to another stage. ``InvalidTransition``: the table has no such move."""
        if (self.stage, to) not in TRANSITIONS:
            raise InvalidTransition(self.scaler.uid, self.stage.value, to.value, cause, self.story)
        self.story.append(f"{self.number}: {self.stage.value} -> {to.value} on {cause}")
        del self.story[:-STORY]
        self.stage = to

    def validate(self) -> list[str]:
        """What must hold between two turns, a line each."""
        key, found = self.scaler.key, []
        if self.writes and self.stage not in (ScalerStage.COMMITTING, ScalerStage.WRITING):
            found.append(f"writes: {key} has writes and is {self.stage.value}")
        names = {target.name for target in self.scaler.targets}
        for write in self.writes:
            theirs = self.foreign.get(write.service)
            if theirs is not None and (write.replicas if isinstance(write, ScaleTo) else write.minimum) < theirs.value:
                found.append(f"foreign: {key} lowers {write.service} below {theirs.value}, which somebody else set")
            if write.service not in names and self.read_generation == self.scaler.generation:
                found.append(f"writes: {key} writes {write.service}, which it does not name")
        if self.unsure.keys() - self.expected.keys():
            found.append(f"unsure: {key} waits for a write that nothing is expected of")
        return found
