"""What runs of proximal policy optimisation have in common: networks, one optimiser, one generator, and their state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.algorithms.descent import descend
from lab.learner.autoscaling.rounds import RoundSettings, RoundsRun


class ScalingPpoSettings(RoundSettings, Protocol):
    """What such a run asks of its settings."""

    @property
    def seed(self) -> int: ...

    @property
    def episodes_per_round(self) -> int: ...

    @property
    def taught_episodes(self) -> int:
        """Those before the first round."""

    @property
    def learning_rate(self) -> float: ...

    @property
    def final_learning_rate(self) -> float: ...

    @property
    def max_gradient(self) -> float: ...


class Rewarded(Protocol):
    """An episode that was played. ``rewards``: [decisions, agents]."""

    @property
    def rewards(self) -> NDArray[np.float64]: ...


Episode = TypeVar("Episode", bound=Rewarded)


class ScalingPpoRun(RoundsRun, Generic[Episode]):
    """A run of rounds. ``networks``: what one optimiser moves, by the names in a checkpoint; ``name``: in messages."""

    settings: ScalingPpoSettings

    def __init__(self, name: str, seed: int, networks: Mapping[str, nn.Module], learning_rate: float) -> None:
        self._name, self._networks = f"{name} seed {seed}", networks
        parameters = [one for network in networks.values() for one in network.parameters()]
        self._optimiser = torch.optim.Adam(parameters, lr=learning_rate, eps=1e-5)
        self._rng = np.random.default_rng([seed, 1])

    @abstractmethod
    def play(self, first: int, count: int, *, taught: bool = False) -> list[Episode]:
        """The training episodes from ``first`` on, by the policy of the moment or by who is imitated."""

    @abstractmethod
    def learn(self, played: list[Episode]) -> dict[str, float]:
        """Updates from a round's episodes; its scalars by name."""

    def play_and_learn(self) -> dict[str, float]:
        """Episodes by the policy of the moment, then updates, at a learning rate that falls along a straight line."""
        s = self.settings
        played = self.play(s.taught_episodes + self.rounds * s.episodes_per_round, s.episodes_per_round)
        share = self.rounds / self.length
        for group in self._optimiser.param_groups:
            group["lr"] = s.learning_rate + share * (s.final_learning_rate - s.learning_rate)
        return {"train/reward": float(np.mean([one.rewards.mean() for one in played])), **self.learn(played)}

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {
            **{name: network.state_dict() for name, network in self._networks.items()},
            "optimiser": self._optimiser.state_dict(),
            "rng": self._rng.bit_generator.state,
            "rounds": self.rounds,
            "best": self.best.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        for name, network in self._networks.items():
            network.load_state_dict(state[name])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = state["rng"]
        self.rounds = state["rounds"]
        self.best.set_state(state["best"])

    def batches(self, length: int, size: int) -> Sequence[Tensor]:
        """All numbers below ``length`` in random order, ``size`` at a time."""
        return torch.split(torch.from_numpy(self._rng.permutation(length)), size)

    def descend(self, loss: Tensor) -> float:
        """One gradient step; each network's gradient is cut by itself. Raises ``TrainingDiverged``."""
        parts = [network.parameters() for network in self._networks.values()]
        return descend(loss, self._optimiser, parts, self.settings.max_gradient, self._name)
