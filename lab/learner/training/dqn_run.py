"""What every run of deep Q-learning has: settings that refuse test seeds, schedules, and a state to go on from."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from lab.algorithms.dqn import DqnLearner
from lab.learner.training.replay import Field, ReplayBuffer
from lab.learner.training.runner import check_seed
from shared.errors import ConfigError

LATER = ("warm_up", "reward", "head", "ppo", "algorithm", "cluster", "per", "values")
"""Settings that runs did not always have: left out where they are off, so that checkpoints and cards stay as they
were."""


@dataclass(frozen=True, slots=True)
class DqnRunSettings:
    """What a run of any policy is set to, with ``warm_up`` in the policy's own: "" or what is imitated first."""

    policy: str
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values: what a checkpoint's digest is taken of."""
        return {name: value for name, value in asdict(self).items() if value or name not in LATER}


@dataclass(frozen=True, slots=True)
class LinearSchedule:
    """``begin`` up to ``begin_step``, then a straight line to ``end`` at ``end_step``, then ``end``.

    A function of the step alone, so a resumed run continues the same curve. Raises ``ConfigError`` when ``end_step`` is
    not after ``begin_step``.
    """

    begin: float
    end: float
    begin_step: int
    end_step: int

    def __post_init__(self) -> None:
        if self.end_step <= self.begin_step:
            raise ConfigError(
                f"schedule.end_step: {self.end_step} is not after begin_step {self.begin_step}; make it greater"
            )

    def __call__(self, step: int) -> float:
        """The value at ``step``."""
        done = (step - self.begin_step) / (self.end_step - self.begin_step)
        return self.begin + (self.end - self.begin) * min(1.0, max(0.0, done))


class DqnRun:
    """A learner, a replay buffer and the generator that explores; ``kept`` names what else a checkpoint holds."""

    kept: ClassVar[tuple[str, ...]]

    def __init__(self, seed: int, learner: DqnLearner, fields: Mapping[str, Field], capacity: int) -> None:
        self.learner = learner
        self.replay = ReplayBuffer(fields, capacity=capacity, rng=np.random.default_rng((seed, 2)))
        self._rng = np.random.default_rng((seed, 3))

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {
            "learner": self.learner.get_state(),
            "replay": self.replay.get_state(),
            "rng": self._rng.bit_generator.state,
            **{name: copy.copy(getattr(self, name)) for name in self.kept},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.learner.set_state(state["learner"])
        self.replay.set_state(state["replay"])
        self._rng.bit_generator.state = state["rng"]
        for name in self.kept:
            setattr(self, name, copy.copy(state[name]))
