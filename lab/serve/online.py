"""Training while running: a policy's own weights go on learning from what the agents live through. torch lives here.

Each agent's Q-network has two actions for its own node, so one transition is one row: Q(s, a) towards
r + discount * max Q(s', .), as ``dqn.py`` does it. The weights come from and go to ``policy/weights.py``; what is
exported must give in numpy what torch gives, within 1e-5, or it is not handed out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import torch

from lab.algorithms.dqn import DqnLearner, DqnLearnerSettings
from lab.learner.marl.networks import SingleNetwork
from lab.learner.training.replay import ReplayBuffer, transition_fields
from shared.errors import ConfigError
from shared.policy.networks import layer_count, mlp
from shared.policy.weights import Card, WeightsFile
from shared.wire.messages import Transition

DISCOUNT = 0.97
"""Where neither a setting nor a card says."""
EQUAL = 1e-5
"""How far numpy may be from torch, relative to the largest Q-value where that is above 1."""


def refuse_classes(base: WeightsFile) -> None:
    """What is lived is not told by class of node: going on from weights with networks of classes would drop these.
    Raises ``ConfigError``."""
    if base.card.networks is not msgspec.UNSET:
        raise ConfigError(
            f"weights of {base.title}: nodes of each {base.card.networks.label} have a network of their own, which are"
            " learned by 'conclave train --cluster --per' alone; activate others, or stop the learner"
        )


class OnlineTrainer:
    """A replay buffer and a learner that starts from given weights. ``ConfigError``: weights of another kind.
    ``discount`` None: that by which the weights it begins with were trained, as their card says.

    ``add`` may be called while ``train`` runs in another thread: each keeps the buffer to itself for one call, which is
    microseconds.
    """

    def __init__(
        self, *, features: int, capacity: int, learning_rate: float, discount: float | None, seed: int
    ) -> None:
        self.features = features
        self._discount = discount
        self._settings = DqnLearnerSettings(learning_rate=learning_rate)
        self._seed = seed
        self.replay = ReplayBuffer(transition_fields((features,)), capacity=capacity, rng=np.random.default_rng(seed))
        self._alone = Lock()

    def add(self, transitions: Sequence[Transition]) -> int:
        """Keep the transitions that fit the network; how many did. The others are of another policy or version."""
        fitting = [t for t in transitions if len(t.s_tm1) == self.features and len(t.s_t) == self.features]
        if fitting:
            batch: Mapping[str, Any] = {
                "s_tm1": np.array([t.s_tm1 for t in fitting], np.float32),
                "a_tm1": np.array([t.a_tm1 for t in fitting], np.int64),
                "r_t": np.array([t.r_t for t in fitting], np.float32),
                "discount_t": np.ones(len(fitting), np.float32),
                "s_t": np.array([t.s_t for t in fitting], np.float32),
            }
            with self._alone:
                self.replay.add_many(batch)
        return len(fitting)

    def train(self, base: WeightsFile, *, updates: int, version: int, data: str) -> tuple[WeightsFile, list[float]]:
        """New weights from ``base`` after so many gradient steps on the buffer, and their losses.

        Raises ``ConfigError``: ``base`` is no MLP of these features, or more than one; ``TrainingDiverged``.
        """
        refuse_classes(base)
        torch.set_num_threads(1)
        layers = layer_count(base.arrays)
        sizes = [base.arrays[f"l{index}.w"].shape[0] for index in range(layers)]
        if not layers or sizes[0] != self.features:
            raise ConfigError(
                f"weights of {base.title}: no network of {self.features} features; begin with weights that this release"
                " has trained"
            )
        sizes.append(base.arrays[f"l{layers - 1}.w"].shape[1])
        network = SingleNetwork(sizes)
        network.stack.load(base.arrays)
        learner = DqnLearner(network, self._settings)
        discount = np.float32(self.discount_of(base))
        losses = []
        for _ in range(updates):
            batch = self._sample(self._settings.batch_size)
            losses.append(learner.update({**batch, "discount_t": discount * batch["discount_t"]}).loss)
        trained = {
            **base.card.trained,
            "online": {"from": base.sha256, "updates": updates, "transitions": self.replay.size, "data": data},
        }
        card = Card(
            policy=base.card.policy, version=version, features=base.card.features, trained=trained,
            limits=base.card.limits,
        )  # fmt: skip
        file = WeightsFile(network.stack.arrays(), card)
        self._check_equal(network, file, layers)
        return file, losses

    def discount_of(self, base: WeightsFile) -> float:
        """Of the next state's value, for who goes on from ``base``: what its outputs mean depends on it."""
        if self._discount is not None:
            return self._discount
        settings = base.card.trained.get("settings")
        told = settings.get("discount") if isinstance(settings, dict) else None
        return float(told) if isinstance(told, int | float) and 0 <= told <= 1 else DISCOUNT

    def _sample(self, size: int) -> Mapping[str, Any]:
        with self._alone:
            return self.replay.sample(size)

    def _check_equal(self, network: SingleNetwork, file: WeightsFile, layers: int) -> None:
        sample = self._sample(64)["s_tm1"]
        with torch.no_grad():
            expected = network(torch.from_numpy(sample)).numpy()
        found = mlp(file.arrays, sample, layers)
        allowed = EQUAL * max(1.0, float(np.abs(expected).max()))
        if not np.abs(found - expected).max() <= allowed:
            raise ConfigError(f"weights of {file.title}: numpy and torch differ by more than {allowed:g}; not exported")
