"""Lets ``jobs-dl2`` imitate what a live cluster decided about its TrainingJobs (``shared.jobs.history``).

There is no twin of that cluster to play in, so this is imitation alone: cross-entropy over the increments of each
decision, given to the smallest share first. The last fifth of the decisions is held back to judge by. Scalars:
``train/loss``, ``validation/agreement``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.algorithms.ppo import FORBIDDEN
from lab.learner.jobs.dl2_training import weights_of
from lab.learner.jobs.networks import JobsNetwork
from lab.learner.training.runner import TrainingReport, check_seed
from shared.errors import ConfigError
from shared.jobs.history import DecidedJobs
from shared.jobs.policies.learned.dl2 import NAME, OUTPUTS
from shared.jobs.policies.learned.increments import KINDS, OF_JOB, Increments, TeacherSteps, steps_of
from shared.policy.weights import WeightsFile

HELD_BACK = 5
"""One part of so many, the last one."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """One run on a file's decisions."""

    seed: int
    source: str
    decisions: int
    updates: int = 1000
    hidden: tuple[int, ...] = (64, 64)
    batch_size: int = 256
    rate: float = 3e-3

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the card."""
        return {"policy": NAME, **asdict(self), "hidden": list(self.hidden)}


@dataclass(frozen=True, slots=True)
class Increment:
    """One inference: inputs [jobs, inputs], mask [actions], and the action that the cluster's decision takes."""

    inputs: np.ndarray[Any, np.dtype[np.float32]]
    mask: np.ndarray[Any, np.dtype[np.bool_]]
    action: int


def increments_of(history: Sequence[DecidedJobs], types: Sequence[str]) -> list[Increment]:
    """Every decision, increment by increment."""
    found: list[Increment] = []
    for one in history:
        seen = one.observation()
        increments = Increments([seen], window=len(seen.jobs), types=types)
        lesson = TeacherSteps(seen, steps_of(seen, one.decision()), len(seen.jobs))
        while increments.active[0]:
            mask = increments.mask()[0]
            action = lesson.next(increments, 0, mask)
            found.append(Increment(increments.inputs()[0], mask, action))
            increments.give(np.array([action]))
    return found


class HistoryRun:
    """One run; its steps are updates."""

    unit = "updates"

    def __init__(self, settings: HistorySettings, history: Sequence[DecidedJobs]) -> None:
        """``ConfigError``: there are too few decisions to hold any back."""
        if len(history) < HELD_BACK:
            raise ConfigError(
                f"--warm-up: {settings.source}: {len(history)} decisions; record at least {HELD_BACK}, so that the "
                "last of them can judge"
            )
        self.settings = settings
        self.types = tuple(sorted({job.model for one in history for job in one.jobs if job.model}))
        split = len(history) - len(history) // HELD_BACK
        self._learned, self._held = (increments_of(part, self.types) for part in (history[:split], history[split:]))
        inputs = len(self.types) + len(OF_JOB)
        self.actor = JobsNetwork((inputs, *settings.hidden, OUTPUTS), seed=settings.seed)
        self.done = 0
        self.agreement = 0.0

    @property
    def length(self) -> int:
        """How many updates there will be."""
        return self.settings.updates

    @property
    def finished(self) -> bool:
        """Whether all are done."""
        return self.done >= self.settings.updates

    def run(self) -> Iterator[TrainingReport]:
        """To the end."""
        s = self.settings
        rng = np.random.default_rng([s.seed, 1])
        optimiser = torch.optim.Adam(self.actor.parameters(), lr=s.rate)
        for update in range(s.updates):
            for group in optimiser.param_groups:
                group["lr"] = s.rate * (1.0 - 0.9 * update / s.updates)
            some = [self._learned[at] for at in rng.integers(len(self._learned), size=s.batch_size)]
            logits, actions = self._answers(some)
            loss = torch.nn.functional.cross_entropy(logits, actions)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        self.done = s.updates
        self.agreement = self._agreement()
        told = f"{self.agreement:.1%} of the increments held back"
        yield TrainingReport(
            self.done, {"train/loss": float(loss.detach()), "validation/agreement": self.agreement}, f"agrees in {told}"
        )

    def weights(self, **card: Any) -> WeightsFile:
        """The weights."""
        return weights_of(self.actor.arrays(), self.types, **card)

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings and the history."""
        return {"actor": self.actor.state_dict(), "done": self.done, "agreement": self.agreement}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.actor.load_state_dict(state["actor"])
        self.done, self.agreement = state["done"], state["agreement"]

    def _agreement(self) -> float:
        """Share of the increments held back for which the best action is the cluster's, or one for a job that looks
        the same."""
        with torch.no_grad():
            logits, actions = self._answers(self._held)
            best = logits.max(dim=1).values
            return float((logits.gather(1, actions[:, None])[:, 0] >= best - 1e-6).float().mean())

    def _answers(self, some: Sequence[Increment]) -> tuple[Tensor, Tensor]:
        """(logits [n, actions], the cluster's actions [n]), as wide as the widest."""
        most = max(len(one.inputs) for one in some)
        inputs = np.zeros((len(some), most, len(self.types) + len(OF_JOB)), np.float32)
        masks = np.zeros((len(some), KINDS * most + 1), bool)
        actions = np.zeros(len(some), int)
        for at, one in enumerate(some):
            inputs[at, : len(one.inputs)] = one.inputs
            masks[at, : len(one.mask) - 1], masks[at, -1] = one.mask[:-1], True
            actions[at] = one.action if one.action < len(one.mask) - 1 else KINDS * most
        logits = self.actor(torch.from_numpy(inputs)).masked_fill(~torch.from_numpy(masks), FORBIDDEN)
        return logits, torch.from_numpy(actions)
