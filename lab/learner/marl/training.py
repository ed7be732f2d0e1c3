"""Trains the thesis' scheduler: rounds of episodes and gradient steps, judged on validation seeds; resumable.

One run is a function of its settings: episodes come from (seed, number), exploration and replay from generators that
are saved with it, and the number of worker processes changes nothing. The weights kept are the best on the validation
seeds (500-509), never on test seeds. Scalars: ``train/imbalance`` and ``train/reward`` (of the round's episodes,
exploration included), ``train/epsilon``, ``train/loss`` (Huber), ``train/q_mean`` (of the actions learned from),
``train/gradient_norm`` (before clipping) and ``validation/imbalance`` (greedy, both workloads).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from lab.algorithms.descent import UpdateStats
from lab.algorithms.dqn import DqnLearner
from lab.environments.thesis import ThesisSettings
from lab.learner.marl.learner import AgentsLearner, QuantileAgentsLearner
from lab.learner.marl.networks import AgentsNetwork, Arrays, ClassStacks, LinearStack, SingleNetwork
from lab.learner.marl.rollout import EpisodeTask, PlayedTransitions, merged, play
from lab.learner.marl.settings import EPISODES_OF_A_SEED, MarlSettings
from lab.learner.training.dqn_run import DqnRun, LinearSchedule
from lab.learner.training.replay import Batch, Field, transition_fields
from lab.learner.training.runner import TrainingReport
from lab.workers import Workers
from lab.worlds.placement.captured_cluster import CapturedCluster
from shared.policy.marl.class_networks import SHARED, joined, split
from shared.policy.marl.features import FEATURES
from shared.policy.marl.single_dqn import feature_names
from shared.policy.weights import Card, ClassNetworks, WeightsFile, shipped

VALIDATION_SEEDS = range(500, 510)
WORKLOADS = ("uniform", "random")
ARRIVALS = 100
"""Of an episode on a captured cluster, beside what stood when it begins."""
MOST_NODES, MOST_VALIDATED_NODES, VALIDATED = 16, 64, 10
"""Of a captured cluster, nodes in an episode of training and of validation; episodes of a validation."""
LEAST_OF_CLASS = 2_000
"""Transitions of its nodes, one a decision for each, that a class needs for a network of its own: twenty episodes in
which it has one node. Nodes of a class with fewer are judged by the shared network."""


class MarlRun(DqnRun):
    """One training run and all its state; its steps are rounds. ``workers`` play its episodes."""

    kept = ("rounds", "best_imbalance", "stale", "best", "averaged")
    unit = "rounds"

    def __init__(
        self,
        settings: MarlSettings,
        workers: Workers | None = None,
        cluster: CapturedCluster | None = None,
        first: Arrays | None = None,
    ) -> None:
        """``cluster``: go on there, from ``first``, None: the shipped weights."""
        self.settings = settings
        self.features = feature_names(settings.nodes) if settings.kind == "single" else list(FEATURES)
        if cluster is not None and first is None:
            first = dict(shipped(settings.policy).arrays)
        learner, self._stack = _networks(settings, len(self.features), first)
        rows = () if settings.kind == "single" else (settings.nodes,)
        columns = len(self.features) + (settings.classes is not None)
        fields = transition_fields((*rows, columns), actions=settings.nodes)
        fields["r_t"] = Field(rows)
        super().__init__(settings.seed, learner, fields, settings.replay_capacity)
        self._workers = workers or Workers()
        self.ground = Ground(settings, cluster)
        self.rounds = 0
        self.best_imbalance = float("inf")
        self.stale = 0
        """Validations since the best one."""
        self.averaged: Arrays = self._stack.arrays()
        self.best: Arrays = self.averaged
        explored = max(1, int(settings.rounds * settings.exploration_share))
        self._epsilon = LinearSchedule(settings.epsilon_begin, settings.epsilon_end, 0, explored)
        self._rate = LinearSchedule(settings.dqn.learning_rate, settings.final_learning_rate, 0, settings.rounds)

    @property
    def done(self) -> int:
        """Rounds so far."""
        return self.rounds

    @property
    def length(self) -> int:
        """The most rounds there will be."""
        return self.settings.rounds

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or nothing has got better for long enough."""
        return self.rounds >= self.settings.rounds or self.stale >= self.settings.patience

    def run(self) -> Iterator[TrainingReport]:
        """Round by round to the end; stop at any report and go on later."""
        begun = bool(np.isfinite(self.best_imbalance))  # stopped at its first report, and going on
        if self.ground.cluster is not None and not self.rounds and not self.finished and not begun:
            yield self._begin()
        while not self.finished:
            epsilon = self._epsilon(self.rounds)
            played = self._play(self.ground.episodes(self.rounds, epsilon, self._rng), self._stack.arrays())
            self.replay.add_many(merged(played))
            update = self._learn()
            self.rounds += 1
            scalars = {
                "train/imbalance": float(np.mean([p.imbalance for p in played])),
                "train/reward": float(np.mean([p.mean_reward for p in played])),
                "train/epsilon": epsilon,
                **update.scalars(),
            }
            if self.rounds % self.settings.validate_every and not self.finished:
                yield TrainingReport(self.rounds, scalars)
                continue
            imbalance = self._validate()
            scalars["validation/imbalance"] = imbalance
            yield TrainingReport(self.rounds, scalars, f"validation imbalance {imbalance:.5f}")

    def _begin(self) -> TrainingReport:
        """What has to be beaten, on the days held back: what it begins with is the best so far."""
        imbalance = self._validate()
        return TrainingReport(0, {"validation/imbalance": imbalance}, f"validation imbalance {imbalance:.5f} at first")

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        classes = _classes_of(self.settings, self.best)
        networks = msgspec.UNSET if classes is None else classes
        return WeightsFile(
            self.best, Card(policy=self.settings.policy, features=self.features, networks=networks, **card)
        )

    def seen_by_class(self) -> dict[str, int]:
        """By value of the label: of how many transitions its nodes' network has learned."""
        classes = self.settings.classes
        if classes is None:
            return {}
        numbers = self.replay.held("s_tm1")[..., -1].astype(np.int64).ravel()
        counts = np.bincount(numbers, minlength=len(classes.values) + 1)
        return {value: int(counts[number]) for value, number in classes.values.items()}

    def judged(self) -> Arrays:
        """The averaged weights: the shared network, and those of classes that have seen enough."""
        classes = self.settings.classes
        if classes is None:
            return self.averaged
        enough = {classes.values[value] for value, count in self.seen_by_class().items() if count >= LEAST_OF_CLASS}
        return joined({n: own for n, own in split(self.averaged).items() if n == SHARED or n in enough})

    def _play(self, episodes: list[EpisodeTask], params: Arrays) -> list[PlayedTransitions]:
        return list(self._workers.map(play_one, [(episode, params) for episode in episodes]))

    def _learn(self) -> UpdateStats:
        s = self.settings
        self.learner.learning_rate = self._rate(self.rounds)
        keep = np.float32(s.averaging) if self.rounds else np.float32(0)
        for _ in range(s.updates_per_round):
            batch = self.replay.sample(s.dqn.batch_size)
            update = self.learner.update(batch if s.classes is None else _for_shared_too(batch))
            for name, array in self._stack.arrays().items():
                self.averaged[name] = keep * self.averaged[name] + (1 - keep) * array
        return update

    def _validate(self) -> float:
        """Mean imbalance of the averaged weights, greedy; keeps them when they are the best so far."""
        arrays = self.judged()
        imbalance = self.ground.imbalance(arrays, self._workers)
        self.stale += 1
        if imbalance < self.best_imbalance:
            self.stale = 0
            self.best_imbalance, self.best = imbalance, dict(arrays)
        return imbalance


@dataclass(frozen=True)
class Ground:
    """What episodes are played on. ``cluster`` None: the thesis' experiment."""

    settings: MarlSettings
    cluster: CapturedCluster | None = None

    def episodes(self, rounds: int, epsilon: float, rng: np.random.Generator) -> list[EpisodeTask]:
        """The episodes of the round after ``rounds``."""
        s = self.settings
        first = s.seed * EPISODES_OF_A_SEED + rounds * s.episodes_per_round
        return [self._episode(first + number, epsilon, rng) for number in range(s.episodes_per_round)]

    def _episode(self, seed: int, epsilon: float, rng: np.random.Generator) -> EpisodeTask:
        s = self.settings
        workload = WORKLOADS[int(rng.integers(len(WORKLOADS)))]
        settings = ThesisSettings(
            nodes=s.nodes, lag_s=float(rng.choice(s.lags_s)), noise=float(rng.choice(s.noises)), readings=True
        )
        metrics = bool(rng.random() >= s.blind_share)
        drawn = None
        if self.cluster is not None:
            drawn = self.cluster.drawn(np.random.default_rng((seed, 9)), arrivals=ARRIVALS, most_nodes=s.nodes)
        return EpisodeTask(
            seed=seed, kind=s.kind, reward=s.reward, workload=workload, settings=settings, metrics=metrics,
            epsilon=epsilon, discount=s.discount, drawn=drawn, classes=s.classes,
        )  # fmt: skip

    def imbalance(self, arrays: Arrays, workers: Workers, seeds: Sequence[int] | None = None) -> float:
        """Mean of these weights, greedy: on both workloads of ``seeds`` (None: those of validation), or on the days
        held back."""
        return float(np.mean(self.imbalances(arrays, workers, seeds)))

    def imbalances(self, arrays: Arrays, workers: Workers, seeds: Sequence[int] | None = None) -> list[float]:
        """By episode."""
        classes = _classes_of(self.settings, arrays)  # those of others, of one network, may be judged here too
        episodes = self._held_back if self.cluster is not None else self._seeded(seeds)
        jobs = [(replace(episode, classes=classes), arrays) for episode in episodes]
        return [played.imbalance for played in workers.map(play_one, jobs)]

    def _seeded(self, seeds: Sequence[int] | None) -> list[EpisodeTask]:
        s = self.settings
        return [
            EpisodeTask(seed, s.kind, s.reward, workload, ThesisSettings(nodes=s.nodes, readings=True))
            for seed in (VALIDATION_SEEDS if seeds is None else seeds)
            for workload in WORKLOADS
        ]

    @cached_property
    def _held_back(self) -> list[EpisodeTask]:
        assert self.cluster is not None
        drawn = self.cluster.validation(episodes=VALIDATED, arrivals=ARRIVALS, most_nodes=MOST_VALIDATED_NODES)
        return [EpisodeTask(number, drawn=one) for number, one in enumerate(drawn)]


def _classes_of(settings: MarlSettings, arrays: Arrays) -> ClassNetworks | None:
    """Those of the settings that have a network among these."""
    classes, there = settings.classes, split(arrays)
    if classes is None or len(there) == 1:
        return None
    return ClassNetworks(classes.label, {value: n for value, n in classes.values.items() if n in there})


def _for_shared_too(batch: Batch) -> Batch:
    """Each transition once more, as one of nodes of no class: the shared network learns from all, so that it has seen
    the cluster when it judges a node of a class that was not there."""
    twice = {name: np.concatenate((array, array)) for name, array in batch.items()}
    for name in ("s_tm1", "s_t"):
        twice[name][len(batch[name]) :, ..., -1] = SHARED
    return twice


def _networks(
    settings: MarlSettings, inputs: int, begin: Arrays | None
) -> tuple[DqnLearner, LinearStack | ClassStacks]:
    if settings.kind == "single":
        single = SingleNetwork((inputs, *settings.hidden, settings.nodes), seed=settings.seed)
        return DqnLearner(single, settings.dqn), single.stack
    copies = settings.nodes if settings.kind == "per-node" else None
    mixed = settings.nodes if settings.agents.mixing == "monotonic" else None
    quantiles = settings.algorithm == "distributional"
    agents = AgentsNetwork(
        (inputs, *settings.hidden, 2), nodes=copies, mixed=mixed, seed=settings.seed, quantiles=quantiles,
        classes=len(settings.values),
    )  # fmt: skip
    if begin is not None:
        agents.stack.load(begin)
    dqn = replace(settings.dqn, double=settings.algorithm != "dqn") if settings.algorithm else settings.dqn
    if quantiles:
        return QuantileAgentsLearner(agents, dqn, settings.agents), agents.stack
    return AgentsLearner(agents, dqn, settings.agents), agents.stack


def play_one(job: tuple[EpisodeTask, Arrays]) -> PlayedTransitions:
    """One episode by these weights, wherever a worker is."""
    return play(*job)
