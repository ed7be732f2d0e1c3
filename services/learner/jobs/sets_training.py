"""Trains ``jobs-sets``: it imitates ``marginal``, then evolution strategies on what is reported, the mean completion
time.

Why no actor-critic here: the network is asked once a decision, has a thousand weights, and a decision's worth shows
hours later in all jobs at once. Evolution strategies (Salimans et al. 2017) need no credit for single decisions: each
generation plays pairs of networks, theta + sigma e and theta - sigma e, on the same few workloads, and theta goes
along the e of those that did better, by rank. Common workloads and pairs take most of the noise away. The weights kept
are those with the best validation (seeds 100-109), the imitating ones included. A run is a function of its settings.

Scalars: ``train/completion_h`` and ``train/spread_h`` (over the population), ``validation/completion_h``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.learner.jobs.networks import SetNetwork
from services.learner.marl.networks import Arrays
from services.learner.training.runner import FIRST_TRAINING_SEED, Report, check_seed
from shared.experiments.jobs.twin_a import TwinOrder, play_twin
from shared.jobs.observation import Observation
from shared.jobs.policies.goodput import Floats
from shared.jobs.policies.learned.sets import FEATURES, NAME, OFFSET_S, OUTPUTS, Sets, features
from shared.jobs.policies.marginal import Marginal
from shared.policy.weights import Card, WeightsFile
from shared.runtime.process.workers import Workers

VALIDATION_SEEDS = tuple(range(100, 110))
EPISODES_OF_A_SEED = 100_000
ROUNDS = 60
MOST_JOBS = 128
"""Jobs of a decision that are imitated; later ones are left out."""


@dataclass(frozen=True, slots=True)
class SetsSettings:
    """One run."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    hidden: tuple[int, ...] = (16, 16)
    taught_episodes: int = 12
    taught_updates: int = 600
    taught_rate: float = 5e-3
    pairs: int = 8
    """Of networks in a generation."""
    workloads: int = 3
    """That each of them plays."""
    sigma: float = 0.08
    rate: float = 0.06
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

    def __init__(self, settings: SetsSettings, workers: Workers | None = None) -> None:
        self.settings = settings
        self._network = SetNetwork((len(FEATURES), *settings.hidden, OUTPUTS), seed=settings.seed)
        self._shapes = {name: array.shape for name, array in self._network.arrays().items()}
        self._rng = np.random.default_rng([settings.seed, 3])
        self._workers = workers or Workers()
        self.theta = flat_of(self._network.arrays())
        self._moments = np.zeros((2, len(self.theta)))
        self.rounds = 0
        self.best_score = self.warm_score = float("inf")
        self.best: Arrays = self._network.arrays()

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

    def run(self) -> Iterator[Report]:
        """Generation by generation to the end; stop at any report and go on later."""
        if not self.rounds:
            self._imitate()
            self.warm_score = self._validate()
            yield Report(0, {"validation/completion_h": self.warm_score}, f"imitates at {self.warm_score:.3f} h")
        while not self.finished:
            scalars = self._generation()
            self.rounds += 1
            if self.rounds % self.settings.validate_every and not self.finished:
                yield Report(self.rounds, scalars)
                continue
            hours = self._validate()
            yield Report(self.rounds, scalars | {"validation/completion_h": hours}, f"validation {hours:.3f} h")

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
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.theta, self._moments, self.rounds = state["theta"], state["moments"], state["rounds"]
        self._rng.bit_generator.state = state["rng"]
        self.best_score, self.warm_score, self.best = state["best_score"], state["warm_score"], state["best"]

    def _imitate(self) -> None:
        """Least squares on what ``marginal`` says of each job of each decision, in logarithms."""
        s = self.settings
        noted = [one for number in range(s.taught_episodes) for one in noted_by_marginal(s.seed + number)]
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

    def _generation(self) -> dict[str, float]:
        s = self.settings
        first = s.seed * EPISODES_OF_A_SEED + self.rounds * s.workloads
        noise = self._rng.standard_normal((s.pairs, len(self.theta)))
        orders = [
            (arrays_of(self.theta + sign * s.sigma * one, self._shapes), first + number)
            for one in noise
            for sign in (1.0, -1.0)
            for number in range(s.workloads)
        ]
        hours = np.array(list(self._workers.map(judge, orders))).reshape(s.pairs, 2, s.workloads)
        # beside the population's mean on the same workload: a heavy workload is not to count more
        relative = (hours / hours.mean(axis=(0, 1), keepdims=True)).mean(axis=2)
        ranks = relative.ravel().argsort().argsort().reshape(relative.shape) / (relative.size - 1) - 0.5
        self._ascend(-((ranks[:, 0] - ranks[:, 1]) @ noise) / (2 * s.pairs * s.sigma))
        return {"train/completion_h": float(hours.mean()), "train/spread_h": float(hours.mean(axis=2).std())}

    def _ascend(self, gradient: NDArray[np.float64]) -> None:
        """Adam (Kingma and Ba 2015), its rate falling to a tenth."""
        step = self.rounds + 1
        self._moments[0] = 0.9 * self._moments[0] + 0.1 * gradient
        self._moments[1] = 0.99 * self._moments[1] + 0.01 * gradient**2
        mean, square = self._moments[0] / (1 - 0.9**step), self._moments[1] / (1 - 0.99**step)
        rate = self.settings.rate * (1.0 - 0.9 * self.rounds / self.settings.rounds)
        self.theta = self.theta + rate * mean / (np.sqrt(square) + 1e-8)

    def _validate(self) -> float:
        arrays = arrays_of(self.theta, self._shapes)
        score = float(np.mean(list(self._workers.map(judge, [(arrays, seed) for seed in VALIDATION_SEEDS]))))
        if score < self.best_score:
            self.best_score, self.best = score, arrays
        return score


class _Noting(Marginal):
    """``marginal``, and what it said of the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Floats, Floats]] = []

    def worth(self, seen: Observation, work_s: Floats) -> tuple[Floats, Floats]:
        """As it is, noted down in logarithms; weights beside the decision's mean, as only that counts."""
        weights, offsets = super().worth(seen, work_s)
        if np.isfinite(work_s).all():
            logs = np.stack((np.log(weights) - np.log(3600.0) / 2, np.log(offsets / OFFSET_S)), axis=1)
            self.noted.append((features(seen, work_s), logs))
        return weights, offsets


def noted_by_marginal(seed: int) -> list[tuple[Floats, Floats]]:
    """(features, outputs wanted) of every decision of ``marginal`` on a workload."""
    policy = _Noting()
    play_twin(TwinOrder(policy=policy, seed=seed))
    return policy.noted


def flat_of(arrays: Arrays) -> NDArray[np.float64]:
    """All weights in one row, by name."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)]).astype(float)


def arrays_of(theta: NDArray[np.float64], shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    """The other way."""
    found, at = {}, 0
    for name in sorted(shapes):
        size = int(np.prod(shapes[name]))
        found[name] = theta[at : at + size].reshape(shapes[name]).astype(np.float32)
        at += size
    return found


def judge(order: tuple[Arrays, int]) -> float:
    """Mean hours from submission to end on one workload."""
    arrays, seed = order
    return play_twin(TwinOrder(policy=Sets(weights_of(arrays)), seed=seed)).figures()["avg_jct_h"]


def weights_of(arrays: Arrays, **card: Any) -> WeightsFile:
    """Weights with their card."""
    return WeightsFile(arrays, Card(policy=NAME, features=list(FEATURES), **{"version": 1, **card}))
