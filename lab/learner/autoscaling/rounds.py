"""A training run of an autoscaling policy, round by round: play and learn, now and then validate, keep the best."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from lab.autoscaling.episode import Setup
from lab.learner.autoscaling.episodes import EPISODES_OF_A_SEED, Best, validation_setup
from lab.learner.training.runner import TrainingReport
from lab.workers import Workers
from shared.errors import ConfigError
from shared.policy.weights import WeightsFile


class RoundSettings(Protocol):
    """What a run of rounds asks of its settings."""

    @property
    def rounds(self) -> int: ...

    @property
    def validate_every(self) -> int:
        """Rounds from one validation to the next; the last round is always validated."""

    @property
    def strength(self) -> float:
        """Of the mixed scenario (``episodes``)."""


def check_rounds(rounds: int, episodes: int) -> None:
    """Raises ``ConfigError`` for fewer than one round, or more episodes than a seed has."""
    if rounds < 1 or episodes > EPISODES_OF_A_SEED:
        raise ConfigError(f"--steps: {rounds} rounds are out of range; give 1 or more, and fewer than 6000")


class RoundsRun(ABC):
    """One training run and all its state; its steps are rounds. A run sets what is declared here, and says what a
    round does; ``world``: what it is validated in."""

    unit = "rounds"
    settings: RoundSettings
    world: Setup
    best: Best
    workers: Workers
    rounds = 0
    """So far."""

    @property
    def done(self) -> int:
        """Rounds so far."""
        return self.rounds

    @property
    def length(self) -> int:
        """How many there will be."""
        return self.settings.rounds

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.rounds >= self.length

    def run(self) -> Iterator[TrainingReport]:
        """Round by round to the end; stop at any report and go on later."""
        s = self.settings
        if not self.rounds:
            self.begin()
        while not self.finished:
            scalars = self.play_and_learn()
            self.rounds += 1
            if self.rounds % s.validate_every and not self.finished:
                yield TrainingReport(self.rounds, scalars)
                continue
            figures = self.best.judge(self.judged(), validation_setup(s.strength, self.world), self.workers)
            scalars |= {f"validation/{name}": value for name, value in figures.items()}
            yield TrainingReport(
                self.rounds, scalars, f"validation score {figures['score']:.2f}, {figures['success']:.1f} %"
            )

    def begin(self) -> None:  # noqa: B027  most runs begin with nothing
        """What comes before the first round."""

    @abstractmethod
    def play_and_learn(self) -> dict[str, float]:
        """The next round; its scalars by name."""

    @abstractmethod
    def judged(self) -> WeightsFile:
        """The weights of the moment, as a policy that validation can play."""
