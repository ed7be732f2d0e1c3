"""Trains ``dqn``: one Q-network for a whole graph, by deep Q-learning with masks (``training.dqn``).

A round is some episodes in which it explores less and less, then a gradient step for every ``decisions_per_update``
decisions. Episodes, reward and validation are those of ``karma`` (``episodes``). A run is a function of its settings.

Scalars: ``train/reward`` (mean per decision), ``train/epsilon``, ``train/loss``, ``train/q_mean``, and validation's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.algorithms.dqn import DqnLearner, DqnLearnerSettings, epsilon_greedy
from lab.autoscaling.episode import Setup, World
from lab.learner.autoscaling.episodes import (
    EPISODES_OF_A_SEED,
    STRENGTH,
    Arrays,
    Best,
    Prices,
    default_world,
    team_reward,
    training_setup,
)
from lab.learner.autoscaling.rounds import RoundsRun, check_rounds
from lab.learner.marl.networks import SingleNetwork
from lab.learner.training.dqn_run import DqnRun, DqnRunSettings, LinearSchedule
from lab.learner.training.replay import transition_fields
from lab.workers import Workers
from shared.autoscaling.networks.dqn import AGENTS, NAME
from shared.autoscaling.networks.features import STEPS
from shared.autoscaling.networks.raw import READINGS, RawEyes
from shared.policy.networks import layer_count, mlp
from shared.policy.weights import Card, WeightsFile

ROUNDS = 16
EXPLORE_STREAM = 32


@dataclass(frozen=True, slots=True)
class ScalerDqnSettings(DqnRunSettings):
    """One run."""

    rounds: int = ROUNDS
    episodes_per_round: int = 16
    hidden: tuple[int, ...] = (64, 64)
    discount: float = 0.95
    epsilon_end: float = 0.05
    explore_share: float = 0.6
    """Of the rounds, until ``epsilon_end`` is reached."""
    decisions_per_update: int = 8
    capacity: int = 60_000
    validate_every: int = 4
    strength: float = STRENGTH
    seconds: int = 600
    """Of an episode of training."""
    prices: Prices = field(default_factory=Prices)
    learner: DqnLearnerSettings = field(default_factory=lambda: DqnLearnerSettings(batch_size=128, target_period=200))

    def __post_init__(self) -> None:
        DqnRunSettings.__post_init__(self)
        check_rounds(self.rounds, self.episodes)

    @property
    def episodes(self) -> int:
        """How many there are in all."""
        return self.rounds * self.episodes_per_round


@dataclass(frozen=True, slots=True)
class DqnEpisode:
    """An episode: ``rows`` [decisions + 1, inputs], ``masks`` [decisions + 1, actions], the rest [decisions]."""

    rows: NDArray[np.float32]
    masks: NDArray[np.bool_]
    taken: NDArray[np.int64]
    rewards: NDArray[np.float32]


class ScalerDqnRun(RoundsRun, DqnRun):
    """One training run and all its state."""

    settings: ScalerDqnSettings
    kept = ("rounds",)

    def __init__(self, settings: ScalerDqnSettings, workers: Workers | None = None) -> None:
        self.settings = settings
        self.world = default_world()
        services = len(self.world.topology.services)
        inputs, actions = services * len(READINGS), services * len(STEPS)
        network = SingleNetwork((inputs, *settings.hidden, actions), seed=settings.seed)
        learner = DqnLearner(network, settings.learner)
        learner.name = NAME
        DqnRun.__init__(self, settings.seed, learner, transition_fields((inputs,), actions=actions), settings.capacity)
        self._network = network
        self.workers = workers or Workers()
        last = max(round(settings.explore_share * settings.rounds), 1)
        self._epsilon = LinearSchedule(1.0, settings.epsilon_end, 0, last)
        self.best = Best(arrays=network.stack.arrays())

    def play_and_learn(self) -> dict[str, float]:
        """Episodes that explore, then a gradient step for so many of their decisions."""
        s = self.settings
        epsilon, arrays = self._epsilon(self.rounds), self._network.stack.arrays()
        first = self.rounds * s.episodes_per_round
        world = replace(self.world, seconds=s.seconds)
        jobs = [
            (training_setup(s.seed, number, s.strength, world), s.seed * EPISODES_OF_A_SEED + number, arrays,
             epsilon, s.prices)
            for number in range(first, first + s.episodes_per_round)
        ]  # fmt: skip
        played = list(self.workers.map(_explore_one, jobs))
        for one in played:
            self._keep(one)
        told = [
            self.learner.update(self.replay.sample(s.learner.batch_size))
            for _ in range(sum(len(one.taken) for one in played) // s.decisions_per_update)
        ]
        return {
            "train/reward": float(np.mean([one.rewards.mean() for one in played])),
            "train/epsilon": epsilon,
            "train/loss": float(np.mean([one.loss for one in told])) if told else 0.0,
            "train/q_mean": float(np.mean([one.q_mean for one in told])) if told else 0.0,
        }

    def judged(self) -> WeightsFile:
        """The network of the moment."""
        return WeightsFile(self._network.stack.arrays(), Card(policy=NAME, version=1))

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best.arrays, Card(policy=NAME, features=list(READINGS), **card))

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {**super().get_state(), "best": self.best.get_state()}

    def set_state(self, state: Any) -> None:
        """Continue from ``get_state``'s answer."""
        super().set_state(state)
        self.best.set_state(state["best"])

    def _keep(self, one: DqnEpisode) -> None:
        """Into the replay buffer. An episode is cut, not over, so its last decision is discounted like all others."""
        self.replay.add_many(
            {
                "s_tm1": one.rows[:-1],
                "a_tm1": one.taken,
                "r_t": one.rewards,
                "discount_t": np.full(len(one.taken), self.settings.discount, np.float32),
                "s_t": one.rows[1:],
                "mask_tm1": one.masks[:-1],
                "mask_t": one.masks[1:],
            }
        )


def explore(setup: Setup, seed: int, params: Arrays, epsilon: float, prices: Prices) -> DqnEpisode:
    """Play the episode of ``seed``, with probability ``epsilon`` by an allowed action at random."""
    world, eyes = setup.world(seed), RawEyes()
    rng = np.random.default_rng([seed, EXPLORE_STREAM])
    layers, services = layer_count(params), len(setup.topology.services)
    rows_all, masks_all, taken_all, rewards_all = [], [], [], []
    while not world.over:
        row, mask = _joined(eyes, world)
        taken = epsilon_greedy(mlp(params, row, layers), mask, epsilon, rng)
        steps = AGENTS.steps(taken, services)
        world.apply(eyes.wanted(steps))
        first = world.now_s
        world.run(setup.decide_s)
        changed = sum(abs(STEPS[at]) for at in steps.tolist()) / services
        rows_all.append(row[0])
        masks_all.append(mask[0])
        taken_all.append(int(taken[0]))
        rewards_all.append(team_reward(world.seconds, first, prices) - prices.change * changed)
    row, mask = _joined(eyes, world)
    return DqnEpisode(
        np.array([*rows_all, row[0]], np.float32), np.array([*masks_all, mask[0]]), np.array(taken_all, np.int64),
        np.array(rewards_all, np.float32),
    )  # fmt: skip


def _joined(eyes: RawEyes, world: World) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    rows, masks = eyes.look(world.observe())
    return AGENTS.joined(rows), AGENTS.joined(masks)


def _explore_one(job: tuple[Setup, int, Arrays, float, Prices]) -> DqnEpisode:
    return explore(*job)
