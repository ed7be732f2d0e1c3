"""Trains the networks of a learned twin: an ensemble on recorded steps, each member on its own draw of the stretches.

Loss: cross entropy of the classes that came (``encoding.targets``), those of readings that were missing left out. A
tenth of the stretches is held out; the weights kept are of the epoch in which the ensemble's mean tells these best. A
run is a function of its settings and the series.

Scalars, an epoch each: ``train/loss`` and ``validation/loss`` (nats per class; the latter of the mean of the members).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.algorithms.descent import descend
from lab.learner.marl.networks import Arrays, LinearStack
from lab.learner.training.runner import FIRST_TRAINING_SEED, TrainingReport, check_seed
from lab.worlds.learned import encoding as code
from lab.worlds.learned.fitting import lesson_of
from lab.worlds.learned.model import LearnedTwin
from lab.worlds.learned.series import RecordedSeries
from lab.worlds.services.topology import ServiceGraph
from shared.errors import ConfigError

NAME = "services-twin"
EPOCHS = 10
FEWEST = 200
"""Recorded steps below which nothing is learned."""


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """One run. ``series``: sha256 of the file that it learns from."""

    seed: int = FIRST_TRAINING_SEED
    epochs: int = EPOCHS
    members: int = 5
    hidden: tuple[int, ...] = (128, 128, 128)
    batch_size: int = 128
    learning_rate: float = 2e-3
    final_learning_rate: float = 1e-4
    weight_decay: float = 1e-5
    held_out: float = 0.1
    series: str = ""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the header."""
        return {"policy": NAME, **asdict(self), "hidden": list(self.hidden)}


class TwinRun:
    """One training run and all its state; its steps are epochs."""

    unit = "epochs"

    def __init__(self, settings: TwinSettings, series: RecordedSeries, topology: ServiceGraph) -> None:
        if series.transitions < FEWEST:
            raise ConfigError(
                f"--series: {series.transitions} steps are too few to learn from; record at least {FEWEST}"
            )
        self.settings = settings
        self.lesson = lesson_of(series, topology, held_out=settings.held_out, seed=settings.seed)
        self._x = torch.from_numpy(self.lesson.inputs)
        self._y = torch.from_numpy(self.lesson.classes)
        self.networks = LinearStack(
            (self._x.shape[-1], *settings.hidden, code.OUTPUTS), copies=settings.members, seed=settings.seed
        )
        self._optimiser = torch.optim.AdamW(
            self.networks.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._rng = np.random.default_rng([settings.seed, 1])
        self._rows = self._drawn_stretches()
        self.done = 0
        self.best_loss = float("inf")
        self.best: Arrays = self.networks.arrays()

    @property
    def length(self) -> int:
        """How many epochs there will be."""
        return self.settings.epochs

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.done >= self.settings.epochs

    def run(self) -> Iterator[TrainingReport]:
        """Epoch by epoch to the end; stop at any report and go on later."""
        s = self.settings
        while not self.finished:
            share = self.done / s.epochs
            for group in self._optimiser.param_groups:
                group["lr"] = s.learning_rate * (s.final_learning_rate / s.learning_rate) ** share
            loss = self._epoch()
            held = self._judge()
            self.done += 1
            if held < self.best_loss:
                self.best_loss, self.best = held, self.networks.arrays()
            yield TrainingReport(
                self.done, {"train/loss": loss, "validation/loss": held}, f"held-out loss {held:.4f} nats per class"
            )

    def twin(self, trained: Mapping[str, Any]) -> LearnedTwin:
        """The twin with the best networks. ``trained``: what the header is to say of how it was made."""
        return self.lesson.twin(self.best, series_digest=self.settings.series, trained=trained)

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings and the series."""
        return {
            "networks": self.networks.state_dict(), "optimiser": self._optimiser.state_dict(),
            "rng": self._rng.bit_generator.state, "rows": self._rows, "done": self.done,
            "best_loss": self.best_loss, "best": dict(self.best),
        }  # fmt: skip

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.networks.load_state_dict(state["networks"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._rng.bit_generator.state = state["rng"]
        self._rows, self.done = state["rows"], state["done"]
        self.best_loss, self.best = state["best_loss"], state["best"]

    def _drawn_stretches(self) -> list[NDArray[np.int64]]:
        """For each member: the rows of as many stretches as there are, drawn with replacement."""
        rows = np.flatnonzero(~self.lesson.held_out)
        stretches = np.unique(self.lesson.recorded.stretch[rows])
        of = {int(one): rows[self.lesson.recorded.stretch[rows] == one] for one in stretches}
        return [
            np.concatenate([of[int(one)] for one in self._rng.choice(stretches, len(stretches))])
            for _ in range(self.settings.members)
        ]

    def _epoch(self) -> float:
        length = min(len(rows) for rows in self._rows)
        order = np.stack([self._rng.permutation(rows)[:length] for rows in self._rows], axis=1)
        losses = []
        for at in torch.split(torch.from_numpy(order), self.settings.batch_size):
            loss = -self._log_shares(self._x[at], self._y[at]).mean()
            descend(loss, self._optimiser, [self.networks.parameters()], 1.0, f"{NAME} seed {self.settings.seed}")
            losses.append(float(loss.detach()))
        return float(np.mean(losses))

    def _judge(self) -> float:
        rows = torch.from_numpy(np.flatnonzero(self.lesson.held_out))
        found = []
        with torch.no_grad():
            for at in torch.split(rows, 2048):
                wide = self._x[at][:, None].expand(-1, self.settings.members, -1, -1)
                classes = self._y[at][:, None].expand(-1, self.settings.members, -1, -1)
                told = self._log_shares(wide, classes, keep=True)
                mean = torch.logsumexp(told, dim=1) - float(np.log(self.settings.members))
                found.append(mean[self._y[at] >= 0])
        return -float(torch.cat(found).mean())

    def _log_shares(self, x: Tensor, classes: Tensor, *, keep: bool = False) -> Tensor:
        """Log probabilities of what came, [known classes], or with ``keep`` [batch, members, services, 8], 0 where
        unknown. ``x`` [batch, members, services, inputs], ``classes`` [batch, members, services, 8]."""
        logits = self.networks(x.transpose(1, 2)).transpose(1, 2)
        change, pending, levels = logits.split((code.CHANGES, code.PENDINGS, len(code.SIGNALS) * code.LEVELS), dim=-1)
        levels = levels.reshape(*levels.shape[:-1], len(code.SIGNALS), code.LEVELS)
        known = classes.clamp_min(0)
        told = torch.cat(
            [
                torch.log_softmax(change, dim=-1).gather(-1, known[..., :1]),
                torch.log_softmax(pending, dim=-1).gather(-1, known[..., 1:2]),
                torch.log_softmax(levels, dim=-1).gather(-1, known[..., 2:, None]).squeeze(-1),
            ],
            dim=-1,
        )
        return torch.where(classes >= 0, told, 0.0) if keep else told[classes >= 0]
