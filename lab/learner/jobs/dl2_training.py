"""Trains ``jobs-dl2`` as DL2 is trained (Peng et al., TPDS 2021, section 4), with what makes that sound.

It first imitates a scheduler by cross-entropy over its increments, in the order in which the scheduler gives them; then
an actor and a critic learn from rounds of their own. What is paid is the jobs' time (``rollout``). The critic sees the
state alone, so no action that a mask forbids enters the bootstrap, and probabilities are over allowed actions both when
acting and when learning. Samples are replayed; their age is corrected by the clipped ratio of probabilities (PPO's),
and mended poor states count by the probability with which they were really taken. The weights kept are those with the
best validation (seeds 100-109), the imitating ones included. A run is a function of its settings.

Scalars: ``train/completion_h``, ``train/entropy``, ``train/value_error`` (of a job's time, squared),
``validation/completion_h``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.algorithms.descent import descend
from lab.algorithms.ppo import FORBIDDEN, entropy_of, masked, normalised, surrogate, taken
from lab.jobs.twin_a import GAP_S, JOBS, NODES
from lab.jobs.twin_a import KINDS as MODELS
from lab.learner.jobs.networks import JobsCritic, JobsNetwork
from lab.learner.jobs.rollout import Credit, JobsRollout, Plays, play
from lab.learner.jobs.teachers import Teacher
from lab.learner.marl.networks import Arrays
from lab.learner.training.runner import FIRST_TRAINING_SEED, TrainingReport, check_seed
from lab.workers import Workers
from shared.jobs.policies.learned.dl2 import NAME, OUTPUTS, features_of
from shared.jobs.policies.learned.increments import OF_JOB
from shared.policy.weights import Card, WeightsFile

VALIDATION_SEEDS = tuple(range(100, 110))
EPISODES_OF_A_SEED = 100_000
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Dl2Settings:
    """One run. The three switches are DL2's ablations."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    teacher: str = "optimus"
    critic: bool = True
    explores: bool = True
    replay: bool = True
    credit: Credit = field(default_factory=Credit)
    nodes: int = 12
    jobs: int = 30
    """What is learned in: a quarter of Twin A, as busy as the whole. Inputs are relative, so what is learned there is
    judged, and holds, on the whole one, at a quarter of the inferences over a quarter of the jobs."""
    compute: float = 1.0
    """Time of a GPU for the same work, beside Twin A's."""
    window: int = 30
    """Jobs that are learned from. The policy itself sees all."""
    hidden: tuple[int, ...] = (64, 64)
    taught_episodes: int = 32
    corrected: int = 1
    """Times that the network acts in half of the rounds and the teacher says what it would do (DAgger)."""
    taught_updates: int = 800
    taught_kept: float = 0.5
    softened: float = 1.5
    """What logits are divided by after imitation: the best action stays the best, others are tried."""
    episodes_per_round: int = 32
    kept: float = 0.2
    """Of the inferences of a round."""
    updates: int = 60
    batch_size: int = 1024
    buffer: int = 16_384
    learning_rate: float = 3e-4
    taught_rate: float = 3e-3
    clip: float = 0.2
    entropy: float = 0.001
    explore: float = 0.4
    max_gradient: float = 0.5
    validate_every: int = 5

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the card."""
        return {"policy": NAME, **asdict(self), "hidden": list(self.hidden), "credit": asdict(self.credit)}


@dataclass(slots=True)
class Samples:
    """Inferences to learn from: inputs [n, jobs, inputs], masks [n, actions], returns [n, jobs], the others [n]; see
    ``JobsRollout``."""

    inputs: Tensor
    masks: Tensor
    actions: Tensor
    log_p: Tensor
    returns: Tensor
    advantages: Tensor

    def joined(self, newer: Samples, most: int) -> Samples:
        """These and newer ones, the newest ``most``."""
        pairs = ((getattr(self, name), getattr(newer, name)) for name in Samples.__slots__)
        return Samples(*(torch.cat(pair)[-most:] for pair in pairs))


class Dl2Run:
    """One training run and all its state; its steps are rounds."""

    unit = "rounds"

    def __init__(self, settings: Dl2Settings, teacher: Teacher, workers: Workers | None = None) -> None:
        self.settings, self._teacher = settings, teacher
        self.types = tuple(MODELS)
        inputs = len(self.types) + len(OF_JOB)
        self.actor = JobsNetwork((inputs, *settings.hidden, OUTPUTS), seed=settings.seed)
        self.critic = JobsCritic((inputs, *settings.hidden, 1), seed=settings.seed + 1)
        self._optimiser = torch.optim.Adam(self.actor.parameters(), lr=settings.learning_rate, eps=1e-5)
        self._critics = torch.optim.Adam(self.critic.parameters(), lr=settings.taught_rate, eps=1e-5)
        self._rng = np.random.default_rng([settings.seed, 1])
        self._workers = workers or Workers()
        self._buffer: Samples | None = None
        self.rounds = 0
        self.imitated = False
        self.best_score = float("inf")
        self.best: Arrays = self.actor.arrays()
        self.warm: Arrays = self.best
        self.warm_score = float("inf")

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

    def run(self) -> Iterator[TrainingReport]:
        """Round by round to the end; stop at any report and go on later."""
        s = self.settings
        if not self.imitated:
            self._imitate()
            self.imitated = True
            self.warm, self.warm_score = self.actor.arrays(), self.validate()
            yield TrainingReport(
                0, {"validation/completion_h": self.warm_score}, f"imitates at {self.warm_score:.3f} h"
            )
        while not self.finished:
            first = s.taught_episodes * (1 + s.corrected) + self.rounds * s.episodes_per_round
            seeds = self._seeds(first, s.episodes_per_round)
            plays = self.plays(seeds=seeds, explore=s.explore * s.explores, kept=s.kept)
            played = self._play(plays, self.actor.arrays(), self.critic.arrays() if s.critic else None)
            scalars = {
                "train/completion_h": float(np.mean([hours for one in played for hours in one.completion_h])),
                **self._learn(played),
            }
            self.rounds += 1
            if self.rounds % s.validate_every and not self.finished:
                yield TrainingReport(self.rounds, scalars)
                continue
            hours = self.validate()
            yield TrainingReport(self.rounds, scalars | {"validation/completion_h": hours}, f"validation {hours:.3f} h")

    def weights(self, *, warm: bool = False, **card: Any) -> WeightsFile:
        """The best validated weights, or those that imitate alone."""
        return weights_of(self.warm if warm else self.best, self.types, **card)

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings. The buffer is not kept: a run that goes on fills it anew."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "critics": self._critics.state_dict(),
            "rng": self._rng.bit_generator.state,
            "rounds": self.rounds,
            "imitated": self.imitated,
            "best_score": self.best_score,
            "best": dict(self.best),
            "warm": dict(self.warm),
            "warm_score": self.warm_score,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._critics.load_state_dict(state["critics"])
        self._rng.bit_generator.state = state["rng"]
        self.imitated = state["imitated"]
        self.rounds, self.best_score, self.best = state["rounds"], state["best_score"], state["best"]
        self.warm, self.warm_score = state["warm"], state["warm_score"]

    def _seeds(self, first: int, count: int) -> tuple[int, ...]:
        return tuple(self.settings.seed * EPISODES_OF_A_SEED + number for number in range(first, first + count))

    def plays(self, **given: Any) -> Plays:
        """Runs in the small twin, as the settings say, and what is given."""
        s = self.settings
        twin = {"jobs": s.jobs, "nodes": s.nodes, "gap_s": GAP_S * NODES / s.nodes, "window": s.window}
        return Plays(**{"types": self.types, "credit": s.credit, "compute": s.compute, **twin, **given})

    def judged(self, **given: Any) -> Plays:
        """The validation workloads, on the whole of Twin A."""
        return Plays(
            seeds=VALIDATION_SEEDS, types=self.types, compute=self.settings.compute, window=JOBS, kept=0.0, **given
        )

    def _play(self, plays: Plays, actor: Arrays | None = None, critic: Arrays | None = None) -> list[JobsRollout]:
        """The seeds in two parts, whichever processes there are: the same draws on any machine."""
        half = (len(plays.seeds) + 1) // 2
        parts = [part for part in (plays.seeds[:half], plays.seeds[half:]) if part]
        return list(self._workers.map(_play_one, [(replace(plays, seeds=part), actor, critic) for part in parts]))

    def _imitate(self) -> None:
        s, teacher = self.settings, self._teacher
        optimiser = torch.optim.Adam(self.actor.parameters(), lr=s.taught_rate)
        seeds = teacher.seeds or self._seeds(0, s.taught_episodes)
        plays = self.plays(seeds=seeds, teacher=teacher.of, kept=s.taught_kept)
        samples = _samples(self._play(plays))
        self._follow(samples, optimiser)
        for number in range(s.corrected if teacher.live else 0):
            seeds = self._seeds(s.taught_episodes * (number + 1), s.taught_episodes)
            plays = self.plays(seeds=seeds, teacher=teacher.of, kept=s.taught_kept, followed=0.5)
            samples = samples.joined(_samples(self._play(plays, self.actor.arrays())), 10**9)
            self._follow(samples, optimiser)
        for group in self._critics.param_groups:
            group["lr"] = s.learning_rate
        self.actor.soften(s.softened)

    def _follow(self, samples: Samples, optimiser: torch.optim.Optimizer) -> None:
        """More probability to the teacher's next increment. The critic learns the teacher's returns beside."""
        s = self.settings
        for update in range(s.taught_updates):
            for group in (*optimiser.param_groups, *self._critics.param_groups):
                group["lr"] = s.taught_rate * (1.0 - 0.9 * update / s.taught_updates)
            at = torch.from_numpy(self._rng.integers(len(samples.actions), size=s.batch_size // 4))
            inputs = samples.inputs[at].float()
            logits = self.actor(inputs).masked_fill(~samples.masks[at], FORBIDDEN)
            self._descend(torch.nn.functional.cross_entropy(logits, samples.actions[at]), optimiser)
            if s.critic:
                self._descend(self._error(inputs, samples.returns[at]), self._critics)

    def _learn(self, played: list[JobsRollout]) -> dict[str, float]:
        s = self.settings
        fresh = _samples(played)
        self._buffer = fresh if self._buffer is None or not s.replay else self._buffer.joined(fresh, s.buffer)
        samples, told = self._buffer, []
        for _ in range(s.updates):
            at = torch.from_numpy(self._rng.integers(len(samples.actions), size=s.batch_size))
            inputs = samples.inputs[at].float()
            log_all = masked(self.actor(inputs), samples.masks[at])
            aged = (taken(log_all, samples.actions[at]) - samples.log_p[at]).clamp(-10.0, 10.0)
            gain, _ = surrogate(aged, normalised(samples.advantages[at]), s.clip)
            entropy = entropy_of(log_all)
            self._descend(-gain - s.entropy * entropy, self._optimiser)
            error = self._error(inputs, samples.returns[at])
            if s.critic:
                self._descend(error, self._critics)
            told.append((float(entropy.detach()), float(error.detach())))
        return dict(zip(("train/entropy", "train/value_error"), np.mean(told, axis=0).tolist(), strict=True))

    def _error(self, inputs: Tensor, returns: Tensor) -> Tensor:
        """Of the critic, squared, the mean over jobs that are there."""
        here = (inputs[..., -1] > 0).float()
        error: Tensor = ((self.critic(inputs) - returns).pow(2) * here).sum() / here.sum()
        return error

    def _descend(self, loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
        parts = [group["params"] for group in optimiser.param_groups]
        descend(loss, optimiser, parts, self.settings.max_gradient, f"{NAME} seed {self.settings.seed}")

    def validate(self) -> float:
        """Mean hours by the best actions; keeps the weights when they are the best so far."""
        arrays = self.actor.arrays()
        score = float(
            np.mean([hours for one in self._play(self.judged(best=True), arrays) for hours in one.completion_h])
        )
        if score < self.best_score:
            self.best_score, self.best = score, dict(arrays)
        return score


def weights_of(arrays: Arrays, types: tuple[str, ...], **card: Any) -> WeightsFile:
    """Weights with their card."""
    return WeightsFile(arrays, Card(policy=NAME, features=features_of(list(types)), **{"version": 1, **card}))


def _samples(played: list[JobsRollout]) -> Samples:
    return Samples(
        *(torch.from_numpy(np.concatenate([getattr(one, name) for one in played])) for name in Samples.__slots__)
    )


def _play_one(job: tuple[Plays, Arrays | None, Arrays | None]) -> JobsRollout:
    return play(*job)
