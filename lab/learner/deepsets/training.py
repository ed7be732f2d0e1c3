"""Trains a Deep Sets policy on the twin: act, judge, store, learn, validate; resumable at any episode's start.

One run is a function of its settings: scenarios come from (seed, episode), exploration and replay from generators
that are saved with it. The weights kept are the best on the validation seeds (500-509), never on test seeds. Scalars:
``train/reward`` (mean published reward of the episode, exploration included), ``train/epsilon``, ``train/loss``
(Huber), ``train/q_mean`` (of the actions learned from), ``train/gradient_norm`` (before clipping) and
``validation/regret`` (to the oracle, greedy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.algorithms.descent import UpdateStats
from lab.algorithms.dqn import epsilon_greedy
from lab.environments.own_reward import OwnReward
from lab.environments.placement import PlacementEnv, Scenario
from lab.environments.placement_rewards import REWARDS, Reward, RewardWorth, place_and_judge
from lab.environments.placement_scenarios import (
    MOST_TRAINING_NODES,
    TRAINING_DECISIONS,
    moving_latency,
    replacing,
    training_scenario,
)
from lab.evaluation.deciders.placement_oracles import ORACLES
from lab.learner.deepsets.heads import learner_of
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.training.dqn_run import DqnRun, LinearSchedule
from lab.learner.training.replay import transition_fields
from lab.learner.training.runner import TrainingReport
from lab.worlds.placement.captured_cluster import CapturedCluster, DrawnEpisode
from lab.worlds.placement.captured_placement import COSTS, CapturedPlacement, costs_of, judged
from lab.worlds.placement.placement_rollout import policy_decider, roll_out
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES, node_features
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.weights import Card, WeightsFile, shipped

VALIDATION_SEEDS = range(500, 510)
ARRIVALS, VALIDATED, MOST_VALIDATED_NODES = 150, 10, 64
"""Of a validation on a captured cluster: pods that come in an episode, episodes, nodes."""
PACKING = ("ee", "el")
"""Learn from half-full starts too. ``lb`` brings any fill into balance by its own choices; with such starts it missed
the least loaded of 30 unlike nodes in 130 of 150 trials, without in 9."""
Arrays = dict[str, NDArray[np.float32]]


class PlacementRun:
    """What every run of ``ee``, ``lb`` or ``el`` has, whatever it learns by; its steps are placements."""

    unit = "placements"
    settings: DeepSetsSettings

    def __init__(
        self,
        settings: DeepSetsSettings,
        own: OwnReward | None,
        arrays: Arrays,
        cluster: CapturedCluster | None = None,
        first: Arrays | None = None,
    ) -> None:
        """``own``: the reward that ``settings`` names, where they name one. ``arrays``: the weights to begin with.
        ``cluster``: the captured one that is learned on, if any; ``first``: what has to be beaten there, None: the
        shipped weights."""
        self.settings = settings
        self.decisions = 0
        self.episode = 0
        self.best_regret = float("inf")
        self.best = arrays
        self._own = own
        self._reward: Reward = REWARDS[settings.policy] if own is None else own
        self.cluster = cluster
        self._first = first

    @property
    def done(self) -> int:
        """Placements so far."""
        return self.decisions

    @property
    def length(self) -> int:
        """Placements of the whole run."""
        return self.settings.decisions

    @property
    def finished(self) -> bool:
        """Whether all placements have been made."""
        return self.decisions >= self.settings.decisions

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best, Card(policy=self.settings.policy, features=list(FEATURES), **card))

    def report(self, before: int, scalars: dict[str, float], export: Callable[[], Arrays]) -> TrainingReport:
        """After the placements from ``before`` on; where a validation is due, the weights are kept if they are the best
        so far."""
        due = self.settings.validate_every
        if before // due == self.decisions // due and not self.finished:
            return TrainingReport(self.decisions, scalars)
        arrays = export()
        regret = self.validated(arrays)
        if regret < self.best_regret:
            self.best_regret, self.best = regret, arrays
        if self._own is not None:
            if math.isfinite(regret):
                scalars["validation/reward"] = -regret
            return TrainingReport(self.decisions, scalars, f"validation reward {-regret:.4f}")
        if self.cluster is not None:
            scalars["validation/cost"] = regret
            return TrainingReport(
                self.decisions, scalars, f"{COSTS[self.settings.policy]} on the days held back {regret:.4f}"
            )
        scalars["validation/regret"] = regret
        return TrainingReport(self.decisions, scalars, f"validation regret {regret:.4f}")

    def begin(self) -> TrainingReport | None:
        """On a captured cluster what has to be beaten is the best so far."""
        if self.cluster is None or self.decisions:
            return None
        self.best = first_of(self.settings, self._first)
        self.best_regret = self.validated(self.best)
        told = f"{COSTS[self.settings.policy]} on the days held back {self.best_regret:.4f} at first"
        return TrainingReport(0, {"validation/cost": self.best_regret}, told)

    def validated(self, arrays: Arrays) -> float:
        """What these weights are worth on what they do not learn from; lower is better."""
        if self.cluster is None:
            return validated(self.settings.policy, arrays, self._own)
        return float(np.mean(self.costs(arrays)))

    def costs(self, arrays: Arrays) -> list[float]:
        """Of these weights on the captured cluster, by episode of the days held back."""
        return costs_of(policy_of(self.settings.policy, arrays), self.settings.policy, self._held_back)

    @cached_property
    def _held_back(self) -> list[DrawnEpisode]:
        assert self.cluster is not None
        return self.cluster.validation(episodes=VALIDATED, arrivals=ARRIVALS, most_nodes=MOST_VALIDATED_NODES)

    def next_env(self) -> PlacementEnv | CapturedPlacement:
        """The episode that is learned from next."""
        number, self.episode = self.episode, self.episode + 1
        if self.cluster is None:
            return training_env(self.settings, 4, number)[1]
        rng = np.random.default_rng((self.settings.seed, 4, number))
        drawn = self.cluster.drawn(rng, arrivals=TRAINING_DECISIONS, most_nodes=MOST_TRAINING_NODES)
        return CapturedPlacement(drawn, int(rng.integers(2**31)))

    def place(self, env: PlacementEnv | CapturedPlacement, row: int) -> RewardWorth:
        """Place the pod, and what that was worth."""
        if self._own is not None:
            self._own.judged = self.decisions
        if isinstance(env, CapturedPlacement):
            worth = judged(self.settings.policy, env, row)
        else:
            _, worth = place_and_judge(env, row, self._reward)
        self.decisions += 1
        return worth


class DeepSetsRun(PlacementRun, DqnRun):
    """One run of deep Q-learning and all its state."""

    kept = ("decisions", "episode", "best_regret", "best")

    def __init__(
        self,
        settings: DeepSetsSettings,
        own: OwnReward | None = None,
        cluster: CapturedCluster | None = None,
        first: Arrays | None = None,
    ) -> None:
        """``own``: the reward that ``settings`` names, where they name one."""
        begin = first_of(settings, first) if settings.goes_on else None
        sizes = (FEATURE_COUNT, *settings.hidden)
        learner, network = learner_of(settings.head, sizes, settings.dqn, settings.seed, begin)
        observation = (MOST_TRAINING_NODES, FEATURE_COUNT)
        fields = transition_fields(observation, actions=MOST_TRAINING_NODES, members=MOST_TRAINING_NODES)
        PlacementRun.__init__(self, settings, own, network.export(), cluster, first)
        DqnRun.__init__(self, settings.seed, learner, fields, settings.replay_capacity)
        self._network = network
        self._epsilon = LinearSchedule(
            settings.epsilon_begin, settings.epsilon_end, 0, int(settings.decisions * settings.exploration_share)
        )
        self._rate = LinearSchedule(
            settings.dqn.learning_rate, settings.final_learning_rate, settings.learning_starts, settings.decisions
        )

    def run(self) -> Iterator[TrainingReport]:
        """Episode by episode to the end; stop at any report and go on later."""
        if (first := self.begin()) is not None:
            yield first
        while not self.finished:
            before = self.decisions
            reward, update = self._episode()
            scalars = {"train/reward": reward, "train/epsilon": self._epsilon(self.decisions)}
            if update is not None:
                scalars |= update.scalars()
            yield self.report(before, scalars, self._network.export)

    def _episode(self) -> tuple[float, UpdateStats | None]:
        settings = self.settings
        env = self.next_env()
        rewards: list[float] = []
        update: UpdateStats | None = None
        state, mask = observe(env)
        while mask.any():
            q = self.learner.q_values(state[None], mask[None])
            action = int(epsilon_greedy(q, mask[None], self._epsilon(self.decisions), self._rng)[0])
            worth = self.place(env, action)
            rewards.append(worth.reward)
            if env.finished:  # cut, not ended: what would have come next is not known
                break
            next_state, next_mask = observe(env)
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


def training_env(settings: DeepSetsSettings, stream: int, episode: int) -> tuple[np.random.Generator, PlacementEnv]:
    """An episode's scenario, and the generator that drew it; streams 4, 7 and 8: learning, imitation, calibration."""
    rng = np.random.default_rng((settings.seed, stream, episode))
    return rng, PlacementEnv(
        training_scenario(rng, latency=settings.policy == "el", filled=settings.policy in PACKING),
        int(rng.integers(2**31)),
    )


def validated(name: str, arrays: Arrays, own: OwnReward | None = None) -> float:
    """Mean regret of these weights on the validation seeds; of a reward of the user's own minus its mean."""
    policy = policy_of(name, arrays)
    return validation_regret(policy) if own is None else -validation_reward(policy, own)


def first_of(settings: DeepSetsSettings, first: Arrays | None) -> Arrays:
    """What a run on a captured cluster begins with and has to beat."""
    arrays = shipped(settings.policy).arrays if first is None else first
    return {name: np.array(array) for name, array in arrays.items()}


def policy_of(name: str, arrays: Arrays) -> DeepSetsPolicy:
    """The policy of exported arrays."""
    return DeepSetsPolicy(WeightsFile(arrays, Card(policy=name, version=1, features=[*FEATURES])))


def validation_regret(policy: DeepSetsPolicy) -> float:
    """1 - reward / oracle's reward, both means over 20 scenarios: ten of any kind, ten of the thesis' test 2, of
    which five begin with the pods there, on random nodes, for those that pack."""
    name = policy.name
    found = total = 0.0
    for scenario, seed, best in _validation(name):
        decider = policy_decider(policy, np.random.default_rng(seed))
        found += roll_out(scenario, seed, decider, REWARDS[name]).reward
        total += best
    return 1 - found / total


def validation_reward(policy: DeepSetsPolicy, own: OwnReward) -> float:
    """Mean of the user's own reward over the same scenarios, without placements for which the shipped one stood in;
    minus infinity where it had a value for fewer than half: one that fails just where a placement is bad would praise
    weights that make most of them bad."""
    found, judged, valued = [], 0, 0
    for scenario, seed, _ in _validation(policy.name):
        anew = own.anew()
        roll_out(scenario, seed, policy_decider(policy, np.random.default_rng(seed)), anew)
        judged, valued = judged + anew.judged, valued + anew.valued
        if anew.valued:
            found.append(anew.total / anew.valued)
    return float(np.mean(found)) if found and 2 * valued >= judged else -math.inf


@cache
def _validation(name: str) -> tuple[tuple[Scenario, int, float], ...]:
    """(scenario, seed, the oracle's reward) of every validation run."""
    found = []
    for seed in VALIDATION_SEEDS:
        nodes = (3, 12, 40)[seed % 3]
        thesis = moving_latency(nodes, 15 * nodes) if name == "el" else replacing(nodes, 15 * nodes)
        thesis = replace(thesis, filled=name in PACKING and seed % 2 == 1)
        drawn = training_scenario(np.random.default_rng(seed), latency=name == "el", filled=name in PACKING)
        for scenario in (drawn, thesis):
            best = roll_out(scenario, seed, ORACLES[name], REWARDS[name]).reward
            found.append((scenario, seed, best))
    return tuple(found)


def observe(env: PlacementEnv | CapturedPlacement) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """(features, feasibility), padded to ``MOST_TRAINING_NODES``; rows that are not feasible are zero."""
    state = np.zeros((MOST_TRAINING_NODES, FEATURE_COUNT), np.float32)
    mask = np.zeros(MOST_TRAINING_NODES, np.bool_)
    rows = env.rows()
    state[rows] = node_features(env.seen, env.pod_class, rows)
    mask[rows] = True
    return state, mask
