"""Trains ``karma``: MAPPO with masks, one actor and one critic shared by all services (Yu et al., NeurIPS 2022).

A round is some episodes by the policy of the moment, then some epochs of clipped updates. The critic sees a service's
features and the mean over its graph. It begins by imitating the rule by demand on ``taught_episodes`` episodes, which
count among the episodes. The weights kept are those with the best validation on the mixed scenario (seeds 100-109),
never judged on test seeds. A run is a function of its settings, however many workers play.

Scalars: ``train/reward`` (mean per decision), ``train/entropy``, ``train/clipped`` (share of updates that were),
``train/value_loss``, ``validation/score`` (success + half of latency compliance, percent, less replica hours),
``validation/success``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.learner.autoscaling.rollout import Prices, Rollout, play
from services.learner.marl.networks import Arrays, LinearStack
from services.learner.training.runner import FIRST_TRAINING_SEED, Report, check_seed
from shared.autoscaling.networks.features import FEATURES, STEPS
from shared.autoscaling.networks.karma import NAME, KarmaPolicy
from shared.autoscaling.roles.organisation import Organisation, organisation_of
from shared.errors import ConclaveError, ConfigError
from shared.experiments.autoscaling.episode import Setup
from shared.experiments.autoscaling.episode import play as judge
from shared.policy.weights import Card, WeightsFile
from shared.runtime.process.workers import Workers
from shared.twin.services.scenarios import intensity_of
from shared.twin.services.topology import default_topology

VALIDATION_SEEDS = tuple(range(100, 110))
EPISODES_OF_A_SEED = 100_000
SCENARIOS = ("mixed", "mixed", "mixed", "mixed", "ddos", "failures", "pressure", "bottleneck")
ROUNDS = 30
HOUR_PRICE = 1.0
"""Points of the validation score that a replica hour costs: a few per cent of an episode's five are worth a tenth of a
point of success."""


@dataclass(frozen=True, slots=True)
class KarmaSettings:
    """One run."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    episodes_per_round: int = 16
    taught_episodes: int = 32
    taught_epochs: int = 30
    epochs: int = 4
    batch_size: int = 1440
    learning_rate: float = 5e-4
    final_learning_rate: float = 5e-5
    clip: float = 0.2
    entropy: float = 0.003
    discount: float = 0.95
    trace: float = 0.9
    """Lambda of generalised advantage estimation."""
    value_weight: float = 0.5
    max_gradient: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    validate_every: int = 5
    strength: float = 0.8
    """Of the mixed scenario, in training (from half to one and a half times) and validation: near the frozen one, and
    not it, so that a run means the same after another calibration."""
    binding: str = "hard"
    """hard, soft, or none: no roles."""
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.rounds < 1 or self.episodes > EPISODES_OF_A_SEED:
            raise ConfigError(f"--steps: {self.rounds} rounds are out of range; give 1 or more, and fewer than 6000")

    @property
    def episodes(self) -> int:
        """How many there are in all."""
        return self.taught_episodes + self.rounds * self.episodes_per_round

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the card."""
        return {"policy": NAME, **asdict(self), "hidden": list(self.hidden)}


class TrainingDiverged(ConclaveError):
    """A loss is no number any more."""

    code = "training_diverged"


class KarmaRun:
    """One training run and all its state; its steps are rounds."""

    unit = "rounds"

    def __init__(self, settings: KarmaSettings, workers: Workers | None = None) -> None:
        self.settings = settings
        inputs = len(FEATURES)
        self.actor = LinearStack((inputs, *settings.hidden, len(STEPS)), seed=settings.seed)
        self.critic = LinearStack((2 * inputs, *settings.hidden, 1), seed=settings.seed + 1)
        self._optimiser = torch.optim.Adam(
            [*self.actor.parameters(), *self.critic.parameters()], lr=settings.learning_rate, eps=1e-5
        )
        self._rng = np.random.default_rng([settings.seed, 1])
        self._workers = workers or Workers()
        self.rounds = 0
        self.best_score = float("-inf")
        self.best: Arrays = self.actor.arrays()
        self.best_figures: dict[str, float] = {}
        self.organisation = organisation_of(settings.binding)

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
        return self.rounds >= self.settings.rounds

    def run(self) -> Iterator[Report]:
        """Round by round to the end; stop at any report and go on later."""
        s = self.settings
        if not self.rounds:
            self._imitate()
        while not self.finished:
            played = self._play(s.taught_episodes + self.rounds * s.episodes_per_round, s.episodes_per_round)
            share = self.rounds / s.rounds
            for group in self._optimiser.param_groups:
                group["lr"] = s.learning_rate + share * (s.final_learning_rate - s.learning_rate)
            scalars = {"train/reward": float(np.mean([one.rewards.mean() for one in played])), **self._learn(played)}
            self.rounds += 1
            if self.rounds % s.validate_every and not self.finished:
                yield Report(self.rounds, scalars)
                continue
            figures = self._validate()
            scalars |= {f"validation/{name}": value for name, value in figures.items()}
            yield Report(self.rounds, scalars, f"validation score {figures['score']:.2f}, {figures['success']:.1f} %")

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best, Card(policy=NAME, features=list(FEATURES), **card))

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "rng": self._rng.bit_generator.state,
            "rounds": self.rounds,
            "best_score": self.best_score,
            "best": dict(self.best),
            "best_figures": dict(self.best_figures),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = state["rng"]
        self.rounds, self.best_score = state["rounds"], state["best_score"]
        self.best, self.best_figures = state["best"], state["best_figures"]

    def _play(self, first: int, count: int, *, taught: bool = False) -> list[Rollout]:
        params = None if taught else self.actor.arrays()
        jobs = [
            (self._setup(number), self.settings.seed * EPISODES_OF_A_SEED + number, params, self.organisation,
             self.settings.prices)
            for number in range(first, first + count)
        ]  # fmt: skip
        return list(self._workers.map(_play_one, jobs))

    def _setup(self, number: int) -> Setup:
        """What episode ``number`` plays: mostly mixed, from half to one and a half times its strength."""
        rng = np.random.default_rng([self.settings.seed, 2, number])
        scenario = SCENARIOS[int(rng.integers(len(SCENARIOS)))]
        whole = self.settings.strength if scenario == "mixed" else intensity_of(scenario)
        intensity = whole * float(rng.uniform(0.5, 1.5))
        return Setup(default_topology(), scenario, max(intensity, 1.0) if scenario == "ddos" else intensity)

    def _imitate(self) -> None:
        s = self.settings
        played = self._play(0, s.taught_episodes, taught=True)
        rows, masks, taught = (_flat([getattr(one, name) for one in played]) for name in ("rows", "masks", "taught"))
        for _ in range(s.taught_epochs):
            for at in self._batches(len(rows)):
                logits = self.actor(rows[at]).masked_fill(~masks[at], -1e9)
                self._descend(torch.nn.functional.cross_entropy(logits, taught[at]))

    def _learn(self, played: list[Rollout]) -> dict[str, float]:
        s = self.settings
        values = [self._values(one.rows) for one in played]
        pairs = [
            _advantages(one.rewards, value, s.discount, s.trace) for one, value in zip(played, values, strict=True)
        ]
        rows, masks, taken, log_p = (
            _flat([getattr(one, name) for one in played]) for name in ("rows", "masks", "taken", "log_p")
        )
        both = _flat([_with_mean(one.rows) for one in played])
        returns = _flat([(advantage + value).astype(np.float32) for (advantage, value) in pairs])
        advantage = _flat([advantage.astype(np.float32) for (advantage, _) in pairs])
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        log_p = log_p.float()
        told: list[tuple[float, float, float]] = []
        for _ in range(s.epochs):
            for at in self._batches(len(rows)):
                logits = self.actor(rows[at]).masked_fill(~masks[at], -1e9)
                log_all = torch.log_softmax(logits, dim=-1)
                new = log_all.gather(1, taken[at, None]).squeeze(1)
                ratio = torch.exp(new - log_p[at])
                clipped = ratio.clamp(1 - s.clip, 1 + s.clip)
                gain = torch.minimum(ratio * advantage[at], clipped * advantage[at]).mean()
                entropy = -(log_all.exp() * log_all.clamp_min(-50.0)).sum(-1).mean()
                value_loss = (self.critic(both[at]).squeeze(-1) - returns[at]).pow(2).mean()
                self._descend(s.value_weight * value_loss - gain - s.entropy * entropy)
                told.append(
                    (float(entropy.detach()), float((ratio != clipped).float().mean()), float(value_loss.detach()))
                )
        means = np.mean(told, axis=0).tolist()
        return dict(zip(("train/entropy", "train/clipped", "train/value_loss"), means, strict=True))

    def _values(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        with torch.no_grad():
            found: NDArray[np.float64] = self.critic(torch.from_numpy(_with_mean(rows))).squeeze(-1).double().numpy()
        return found

    def _batches(self, length: int) -> list[Tensor]:
        order = torch.from_numpy(self._rng.permutation(length))
        return list(torch.split(order, self.settings.batch_size))

    def _descend(self, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            raise TrainingDiverged(f"{NAME} seed {self.settings.seed}: the loss is {float(loss)}; lower the rate")
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for network in (self.actor, self.critic):
            torch.nn.utils.clip_grad_norm_(network.parameters(), self.settings.max_gradient)
        self._optimiser.step()

    def _validate(self) -> dict[str, float]:
        """The best step each time, on the mixed scenario; keeps the weights when they are the best so far."""
        arrays = self.actor.arrays()
        jobs = [(arrays, self.organisation, self.settings.strength, seed) for seed in VALIDATION_SEEDS]
        found = list(self._workers.map(_judge_one, jobs))
        figures = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        score = figures["success"] + 0.5 * figures["latency_compliance"] - HOUR_PRICE * figures["replica_hours"]
        if score > self.best_score:
            self.best_score, self.best, self.best_figures = score, dict(arrays), figures
        return {"score": score, **{name: figures[name] for name in ("success", "latency_compliance", "replica_hours")}}


def _play_one(job: tuple[Setup, int, Arrays | None, Organisation, Prices]) -> Rollout:
    return play(*job)


def _judge_one(job: tuple[Arrays, Organisation, float, int]) -> dict[str, float]:
    arrays, organisation, strength, seed = job
    weights = WeightsFile(arrays, Card(policy=NAME, version=1, features=list(FEATURES)))
    policy = KarmaPolicy(weights=weights, organisation=organisation)
    return judge(Setup(default_topology(), "mixed", strength), policy, seed).figures


def _advantages(
    rewards: NDArray[np.float64], values: NDArray[np.float64], discount: float, trace: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(generalised advantages, values), both [decisions, services]. An episode is cut, not over: what would have come
    after its last decision is valued as that one's state."""
    following = np.concatenate((values[1:], values[-1:]))
    errors = rewards + discount * following - values
    found = np.zeros_like(rewards)
    running = np.zeros(rewards.shape[1])
    for at in range(len(rewards) - 1, -1, -1):
        running = errors[at] + discount * trace * running
        found[at] = running
    return found, values


def _with_mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    mean = np.broadcast_to(rows.mean(axis=1, keepdims=True), rows.shape)
    return np.concatenate((rows, mean), axis=2, dtype=np.float32)


def _flat(parts: list[NDArray[Any]]) -> Tensor:
    """[all decisions of all services of all episodes, ...]."""
    return torch.from_numpy(np.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts]))
