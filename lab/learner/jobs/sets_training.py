"""Trains ``jobs-sets``: it imitates ``marginal``, then evolution strategies on what is reported, the mean completion
time, on two twins at once (``playgrounds``).

Why no actor-critic here: the network is asked once a decision, has a thousand weights, and a decision's worth shows
hours later in all jobs at once. Evolution strategies (Salimans et al. 2017) need no credit for single decisions: each
generation plays pairs of networks, theta + sigma e and theta - sigma e, on the same few workloads, and theta goes
along the e of those that did better, by rank. Common workloads and pairs take most of the noise away. Ranks are taken
on each twin by itself: one whose figures scatter more would else be the only one that is learned. The weights kept are
those with the best validation, the imitating ones included: the mean over both twins of what they reach beside what
``marginal`` does. A run is a function of its settings.

Scalars: ``validation/beside`` (``marginal`` has 1), and of each twin ``train/NAME`` (over the population) and
``validation/NAME``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from lab.algorithms.es import arrays_of, ascend, flat_of, gradient_of, population
from lab.learner.jobs.networks import SetNetwork
from lab.learner.jobs.playgrounds import Playground, mean
from lab.learner.marl.networks import Arrays
from lab.learner.training.runner import FIRST_TRAINING_SEED, TrainingReport, check_seed
from lab.workers import Workers
from shared.jobs.observation import JobsObservation
from shared.jobs.policies.goodput import Floats
from shared.jobs.policies.learned.sets import FEATURES, NAME, OFFSET_S, OUTPUTS, RESTARTS, Sets, features
from shared.jobs.policies.marginal import JobWorth, Marginal
from shared.policy.weights import Card, WeightsFile

EPISODES_OF_A_SEED = 100_000
ROUNDS = 55
MOST_JOBS = 128
"""Jobs of a decision that are imitated; later ones are left out."""


@dataclass(frozen=True, slots=True)
class SetsSettings:
    """One run."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    hidden: tuple[int, ...] = (16, 16)
    taught_updates: int = 800
    taught_rate: float = 5e-3
    pairs: int = 16
    """Of networks in a generation."""
    sigma: float = 0.06
    rate: float = 0.05
    """Of Adam, on the weights."""
    validate_every: int = 5

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the card."""
        return {"policy": NAME, **asdict(self), "hidden": list(self.hidden)}


class SetsRun:
    """One training run and all its state; its steps are generations."""

    unit = "generations"

    def __init__(
        self, settings: SetsSettings, playgrounds: Sequence[Playground], workers: Workers | None = None
    ) -> None:
        self.settings, self.playgrounds = settings, tuple(playgrounds)
        self._network = SetNetwork((len(FEATURES), *settings.hidden, OUTPUTS), seed=settings.seed)
        self._shapes = {name: array.shape for name, array in self._network.arrays().items()}
        self._rng = np.random.default_rng([settings.seed, 3])
        self._workers = workers or Workers()
        self.theta = flat_of(self._network.arrays())
        self._moments = np.zeros((2, len(self.theta)))
        self.rounds = 0
        self.best_score = self.warm_score = float("inf")
        """Beside ``marginal``: 0.9 is a tenth less, the mean over the playgrounds."""
        self.best: Arrays = self._network.arrays()
        self._marginal: tuple[float, ...] = ()
        """What it reaches in each playground on validation."""

    @property
    def done(self) -> int:
        """Generations so far."""
        return self.rounds

    @property
    def length(self) -> int:
        """How many there will be."""
        return self.settings.rounds

    @property
    def finished(self) -> bool:
        """Whether all are done."""
        return self.rounds >= self.settings.rounds

    def run(self) -> Iterator[TrainingReport]:
        """Generation by generation to the end; stop at any report and go on later."""
        if not self.rounds:
            self._imitate()
            self._marginal = self._reached(None)
            scalars = self._validate()
            self.warm_score = scalars["validation/beside"]
            yield TrainingReport(0, scalars, f"imitates at {self.warm_score:.3f} of marginal")
        while not self.finished:
            scalars = self._generation()
            self.rounds += 1
            if self.rounds % self.settings.validate_every and not self.finished:
                yield TrainingReport(self.rounds, scalars)
                continue
            scalars |= self._validate()
            yield TrainingReport(self.rounds, scalars, f"validation {scalars['validation/beside']:.4f} of marginal")

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights."""
        return weights_of(self.best, **card)

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {
            "theta": self.theta,
            "moments": self._moments,
            "rng": self._rng.bit_generator.state,
            "rounds": self.rounds,
            "best_score": self.best_score,
            "warm_score": self.warm_score,
            "best": dict(self.best),
            "marginal": list(self._marginal),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.theta, self._moments, self.rounds = state["theta"], state["moments"], state["rounds"]
        self._rng.bit_generator.state = state["rng"]
        self.best_score, self.warm_score, self.best = state["best_score"], state["warm_score"], state["best"]
        self._marginal = tuple(state["marginal"])

    def _imitate(self) -> None:
        """Least squares on what ``marginal`` says of each job of each decision, in logarithms."""
        s = self.settings
        noted = self._noted()
        inputs = np.zeros((len(noted), MOST_JOBS, len(FEATURES)), np.float32)
        wanted = np.zeros((len(noted), MOST_JOBS, OUTPUTS), np.float32)
        present = np.zeros((len(noted), MOST_JOBS), np.float32)
        for at, (rows, targets) in enumerate(noted):
            count = min(len(rows), MOST_JOBS)
            inputs[at, :count], wanted[at, :count], present[at, :count] = rows[:count], targets[:count], 1.0
        optimiser = torch.optim.Adam(self._network.parameters(), lr=s.taught_rate)
        for update in range(s.taught_updates):
            for group in optimiser.param_groups:
                group["lr"] = s.taught_rate * (1.0 - 0.9 * update / s.taught_updates)
            some = self._rng.integers(len(noted), size=min(64, len(noted)))
            shown = torch.from_numpy(present[some])
            error = self._network(torch.from_numpy(inputs[some]), shown) - torch.from_numpy(wanted[some])
            loss = (error.pow(2).sum(-1) * shown).sum() / shown.sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        self.theta = flat_of(self._network.arrays())

    def _noted(self) -> list[tuple[Floats, Floats]]:
        """What is imitated: as many decisions of each playground, drawn from those that there are."""
        first = self.settings.seed
        taught = [[(one, first + number) for number in range(one.taught)] for one in self.playgrounds]
        found = [[one for noted in self._workers.map(noted_by_marginal, orders) for one in noted] for orders in taught]
        least = min(map(len, found))
        return [one[at] for one in found for at in self._rng.choice(len(one), least, replace=False).tolist()]

    def _generation(self) -> dict[str, float]:
        s = self.settings
        noise = self._rng.standard_normal((s.pairs, len(self.theta)))
        networks = [arrays_of(one, self._shapes) for one in population(self.theta, noise, s.sigma)]
        # the longest first, so that no process waits for a last long one
        orders = [
            (network, one, s.seed * EPISODES_OF_A_SEED + self.rounds * one.workloads + number)
            for one in reversed(self.playgrounds)
            for network in networks
            for number in range(one.workloads)
        ]
        numbers = iter(self._workers.map(judge, orders))
        gradient, scalars = np.zeros(len(self.theta)), {}
        for one in reversed(self.playgrounds):
            reached = np.array([next(numbers) for _ in range(len(networks) * one.workloads)])
            reached = reached.reshape(s.pairs, 2, one.workloads)
            scalars[f"train/{one.name}"] = float(reached.mean())
            gradient += gradient_of(reached, noise, s.sigma)
        rate = s.rate * (1.0 - 0.9 * self.rounds / s.rounds)  # falling to a tenth
        self.theta = ascend(self.theta, self._moments, gradient, self.rounds + 1, rate)
        return scalars

    def _reached(self, arrays: Arrays | None) -> tuple[float, ...]:
        """The mean of each playground's validation; None: of ``marginal``."""
        orders = [(arrays, one, seed) for one in self.playgrounds for seed in one.validation]
        numbers = iter(self._workers.map(judge, orders))
        return tuple(mean([next(numbers) for _ in one.validation]) for one in self.playgrounds)

    def _validate(self) -> dict[str, float]:
        arrays = arrays_of(self.theta, self._shapes)
        reached = self._reached(arrays)
        beside = mean([own / other for own, other in zip(reached, self._marginal, strict=True)])
        if beside < self.best_score:
            self.best_score, self.best = beside, arrays
        by_name = zip(self.playgrounds, reached, strict=True)
        return {"validation/beside": beside} | {f"validation/{one.name}": number for one, number in by_name}


class _Noting(Marginal):
    """``marginal``, and what it said of the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Floats, Floats]] = []

    def worth(self, seen: JobsObservation, work_s: Floats, soonest_s: Floats) -> JobWorth:
        """As it is, noted down in logarithms; weights beside an hour's, as only their ratios count."""
        found = super().worth(seen, work_s, soonest_s)
        if len(work_s) and np.isfinite(work_s).all():
            parts = (found.weights / 3600.0**0.5, found.offsets_s / OFFSET_S, found.restarts / RESTARTS)
            self.noted.append((features(seen, work_s, soonest_s), np.log(np.stack(parts, axis=1))))
        return found


def noted_by_marginal(order: tuple[Playground, int]) -> list[tuple[Floats, Floats]]:
    """(features, outputs wanted) of every decision of ``marginal`` on a workload."""
    playground, seed = order
    policy = _Noting()
    playground.play(policy, seed)
    return policy.noted


def judge(order: tuple[Arrays | None, Playground, int]) -> float:
    """What a network (None: ``marginal``) reaches on one workload."""
    arrays, playground, seed = order
    return playground.number(Marginal() if arrays is None else Sets(weights_of(arrays)), seed)


def weights_of(arrays: Arrays, **card: Any) -> WeightsFile:
    """Weights with their card."""
    return WeightsFile(arrays, Card(policy=NAME, features=list(FEATURES), **{"version": 1, **card}))
