"""Trains a Deep Sets policy on the twin: act, judge, store, learn, validate; resumable at any episode's start.

One run is a function of its settings: scenarios come from (seed, episode), exploration and replay from generators
that are saved with it. The weights kept are the best on the validation seeds (500-509), never on test seeds. It does
no file I/O but through ``checkpoint``, and shows nothing: the caller gets a ``Report`` after each episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.learner.deepsets.network import DeepSetsQ
from services.learner.deepsets.settings import DeepSetsSettings
from services.learner.training.dqn import DqnLearner, UpdateStats, epsilon_greedy
from services.learner.training.replay import ReplayBuffer, transition_fields
from services.learner.training.schedules import LinearSchedule
from shared.experiments.environments.placement import PlacementEnv, Scenario
from shared.experiments.environments.placement_rewards import REWARDS, place_and_judge
from shared.experiments.environments.placement_scenarios import (
    MOST_TRAINING_NODES,
    moving_latency,
    replacing,
    training_scenario,
)
from shared.experiments.evaluation.deciders.placement_oracles import ORACLES
from shared.experiments.evaluation.worlds.placement_rollout import policy_decider, roll_out
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES, node_features
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.weights import Card, WeightsFile

VALIDATION_SEEDS = range(500, 510)
Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Report:
    """After an episode: placements so far, mean reward of the episode, the last gradient step, and the validation
    regret to the oracle if one was due."""

    decisions: int
    reward: float
    epsilon: float
    update: UpdateStats | None
    regret: float | None


class DeepSetsRun:
    """One training run and all its state."""

    def __init__(self, settings: DeepSetsSettings) -> None:
        self.settings = settings
        network = DeepSetsQ((FEATURE_COUNT, *settings.hidden, 1), seed=settings.seed)
        self.learner = DqnLearner(network, settings.dqn)
        observation = (MOST_TRAINING_NODES, FEATURE_COUNT)
        self.replay = ReplayBuffer(
            transition_fields(observation, actions=MOST_TRAINING_NODES, members=MOST_TRAINING_NODES),
            capacity=settings.replay_capacity,
            rng=np.random.default_rng((settings.seed, 2)),
        )
        self.decisions = 0
        self.episode = 0
        self.best_regret = float("inf")
        self.best: Arrays = network.export()
        self._network = network
        self._rng = np.random.default_rng((settings.seed, 3))
        self._reward = REWARDS[settings.policy]
        self._epsilon = LinearSchedule(
            settings.epsilon_begin, settings.epsilon_end, 0, int(settings.decisions * settings.exploration_share)
        )
        self._rate = LinearSchedule(
            settings.dqn.learning_rate, settings.final_learning_rate, settings.learning_starts, settings.decisions
        )

    @property
    def finished(self) -> bool:
        """Whether all placements have been made."""
        return self.decisions >= self.settings.decisions

    def run(self) -> Iterator[Report]:
        """Episode by episode to the end; stop at any report and go on later."""
        while not self.finished:
            before = self.decisions
            reward, update = self._episode()
            due = self.settings.validate_every
            regret = self._validate() if before // due != self.decisions // due or self.finished else None
            yield Report(self.decisions, reward, self._epsilon(self.decisions), update, regret)

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best, Card(policy=self.settings.policy, features=list(FEATURES), **card))

    def _episode(self) -> tuple[float, UpdateStats | None]:
        settings = self.settings
        rng = np.random.default_rng((settings.seed, 4, self.episode))
        env = PlacementEnv(training_scenario(rng, latency=settings.policy == "el"), int(rng.integers(2**31)))
        self.episode += 1
        rewards: list[float] = []
        update: UpdateStats | None = None
        state, mask = _observe(env)
        while mask.any():
            q = self.learner.q_values(state[None], mask[None])
            action = int(epsilon_greedy(q, mask[None], self._epsilon(self.decisions), self._rng)[0])
            _, worth = place_and_judge(env, action, self._reward)
            rewards.append(worth.reward)
            self.decisions += 1
            if env.finished:  # cut, not ended: what would have come next is not known
                break
            next_state, next_mask = _observe(env)
            self.replay.add(
                {
                    "s_tm1": state, "a_tm1": action, "r_t": worth.reward * settings.reward_scale,
                    "discount_t": 0.0 if worth.terminated else settings.discount, "s_t": next_state,
                    "mask_tm1": mask, "mask_t": next_mask, "present_tm1": mask, "present_t": next_mask,
                }
            )  # fmt: skip
            state, mask = next_state, next_mask
            if self.decisions > settings.learning_starts and self.decisions % settings.train_every == 0:
                self.learner.learning_rate = self._rate(self.decisions)
                update = self.learner.update(self.replay.sample(settings.dqn.batch_size))
        return float(np.mean(rewards)) if rewards else 0.0, update

    def _validate(self) -> float:
        """Mean regret to the oracle on the validation seeds; keeps the weights when they are the best so far."""
        arrays = self._network.export()
        policy = DeepSetsPolicy(WeightsFile(arrays, Card(policy=self.settings.policy, version=1, features=[*FEATURES])))
        regret = validation_regret(policy)
        if regret < self.best_regret:
            self.best_regret, self.best = regret, arrays
        return regret

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {
            "learner": self.learner.get_state(),
            "replay": self.replay.get_state(),
            "rng": self._rng.bit_generator.state,
            "decisions": self.decisions,
            "episode": self.episode,
            "best_regret": self.best_regret,
            "best": self.best,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.learner.set_state(state["learner"])
        self.replay.set_state(state["replay"])
        self._rng.bit_generator.state = state["rng"]
        self.decisions, self.episode = state["decisions"], state["episode"]
        self.best_regret, self.best = state["best_regret"], state["best"]


def validation_regret(policy: DeepSetsPolicy) -> float:
    """1 - reward / oracle's reward, both means over 20 scenarios: ten of any kind, ten of the thesis' test 2."""
    name = policy.name
    found = total = 0.0
    for scenario, seed, best in _validation(name):
        decider = policy_decider(policy, np.random.default_rng(seed))
        found += roll_out(scenario, seed, decider, REWARDS[name]).reward
        total += best
    return 1 - found / total


@cache
def _validation(name: str) -> tuple[tuple[Scenario, int, float], ...]:
    """(scenario, seed, the oracle's reward) of every validation run."""
    found = []
    for seed in VALIDATION_SEEDS:
        nodes = (3, 12, 40)[seed % 3]
        thesis = moving_latency(nodes, 15 * nodes) if name == "el" else replacing(nodes, 15 * nodes)
        drawn = training_scenario(np.random.default_rng(seed), latency=name == "el")
        for scenario in (drawn, thesis):
            best = roll_out(scenario, seed, ORACLES[name], REWARDS[name]).reward
            found.append((scenario, seed, best))
    return tuple(found)


def _observe(env: PlacementEnv) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """(features, feasibility), padded to ``MOST_TRAINING_NODES``; rows that are not feasible are zero."""
    state = np.zeros((MOST_TRAINING_NODES, FEATURE_COUNT), np.float32)
    mask = np.zeros(MOST_TRAINING_NODES, np.bool_)
    rows = env.rows()
    state[rows] = node_features(env.seen, env.pod_class, rows)
    mask[rows] = True
    return state, mask
