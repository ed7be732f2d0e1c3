"""Settings of the learner service. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from shared.policy.registry import LEARNED
from shared.runtime.process.process import ProcessSettings

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class LearnerSettings(ProcessSettings):
    """What the learner is told beside what every service is."""

    policy: str = "marl-dqn"
    """Which policy it trains; an unknown name is refused at start with those there are."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 1000
    """Of the samples drawn from the replay buffer."""
    capacity: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 20_000
    """Transitions kept; the oldest go."""
    min_transitions: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 1_000
    """New transitions before it trains (again)."""
    updates: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 300
    """Gradient steps each time."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1e-4
    """Adam's step size; small, since it goes on from weights that are good already."""
    discount: Share | None = None
    """Of the next state's value; empty: as the active weights were trained, by their card."""
    gate_seeds: str = "500-503"
    """Validation seeds on which a candidate is compared with the active policy on the twin before it is published."""
    gate_margin: Share = 0.02
    """A candidate worse on the twin by more than this share is not published."""
    capture: Path | None = None
    """A capture whose cluster is learned on, in rounds, in place of what agents live through; empty: that."""
    round_steps: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Length of a round on a captured cluster, in the steps of 'conclave train'; 0: as short as is worth it."""
    round_every_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0
    """From the beginning of a round to that of the next, at least."""
    round_margin: Share = 0.01
    """Share of its cost on the days held back by which what was learned is better, before it is tried in shadow."""
    state_dir: Path | None = None
    """Where TensorBoard logs and refused weights go; empty: nowhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.policy not in LEARNED:
            raise ValueError(f"policy: {self.policy!r} is not learned; choose one of {', '.join(sorted(LEARNED))}")
