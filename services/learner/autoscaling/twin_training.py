"""Trains the networks of a learned twin: an ensemble on recorded steps, each member on a draw of the stretches of its own.

Loss: cross entropy of the classes that came (``encoding.targets``), those of readings that were missing left out. A
tenth of the stretches is held out; the weights kept are those of the epoch in which the ensemble's mean tells these best.
A run is a function of its settings and the series.

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

from services.learner.marl.networks import Arrays, LinearStack
from services.learner.training.runner import FIRST_TRAINING_SEED, Report, check_seed
from shared.errors import ConclaveError, ConfigError
from shared.model.resources import CPU
from shared.twin.learned import encoding as code
from shared.twin.learned.encoding import Levels, Transitions, Units, targets, transitions
from shared.twin.learned.model import Header, LearnedTwin, table
from shared.twin.learned.series import Series
from shared.twin.services.topology import Topology, pod_class_of

NAME = "services-twin"
EPOCHS = 24
FEWEST = 200
"""Recorded steps below which nothing is learned."""


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """One run. ``series``: sha256 of the file that it learns from."""

    seed: int = FIRST_TRAINING_SEED
    epochs: int = EPOCHS
    members: int = 5
    hidden: tuple[int, ...] = (128, 128, 128)
    batch_size: int = 256
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    weight_decay: float = 1e-5
    held_out: float = 0.1
    series: str = ""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the header."""
        return {"policy": NAME, **asdict(self), "hidden": list(self.hidden)}


class TrainingDiverged(ConclaveError):
    """A loss is no number any more."""

    code = "training_diverged"


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a run learns from: the steps, the networks' inputs on no scale yet, the classes that came."""

    recorded: Transitions
    levels: Levels
    inputs: code.Floats
    classes: code.Ints
    held_out: NDArray[np.bool_]


class TwinRun:
    """One training run and all its state; its steps are epochs."""

    unit = "epochs"

    def __init__(self, settings: TwinSettings, series: Series, topology: Topology) -> None:
        if series.transitions < FEWEST:
            raise ConfigError(
                f"--series: {series.transitions} steps are too few to learn from; record at least {FEWEST}"
            )
        self.settings, self._series, self._topology = settings, series, topology
        self._units = units_of(series, topology)
        self._entries = tuple(name for name in series.services if name in topology.entries)
        self._most = np.array([topology.bounds(name).maximum for name in series.services])
        positions = [series.services.index(name) for name in self._entries]
        recorded = transitions(series.episodes, self._units, series.scenarios, positions)
        self._lesson = self._prepared(recorded)
        seen = self._lesson.inputs[~self._lesson.held_out]
        self._shift, self._scale = seen.mean(axis=0), np.maximum(seen.std(axis=0), 0.05)
        self._x = torch.from_numpy(((self._lesson.inputs - self._shift) / self._scale).astype(np.float32))
        self._y = torch.from_numpy(self._lesson.classes)
        outputs = len(series.services) * code.OUTPUTS
        self.networks = LinearStack(
            (self._x.shape[1], *settings.hidden, outputs), copies=settings.members, seed=settings.seed
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

    def run(self) -> Iterator[Report]:
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
            yield Report(
                self.done, {"train/loss": loss, "validation/loss": held}, f"held-out loss {held:.4f} nats per class"
            )

    def twin(self, trained: Mapping[str, Any]) -> LearnedTwin:
        """The twin with the best networks. ``trained``: what the header is to say of how it was made."""
        series, lesson = self._series, self._lesson
        begin = [episode for episode in series.episodes]
        signals = np.concatenate([self._units.signals(one.measures[:1]) for one in begin])
        ages = np.concatenate([one.age_s.ravel() for one in begin])
        header = Header(
            graph=self._topology.name,
            services=series.services,
            entries=self._entries,
            scenarios=series.scenarios,
            step_s=series.step_s,
            latency_s=self._units.latency_s,
            members=self.settings.members,
            layers=len(self.settings.hidden) + 1,
            missing={name: _missing(series, name) for name in series.scenarios},
            age_s=float(np.nanmean(ages)) if np.isfinite(ages).any() else 0.0,
            series=self.settings.series,
            trained=dict(trained),
        )
        arrays = {
            "usual": self._units.arrivals, "cores": self._units.cores, "most": self._most,
            "edges": lesson.levels.edges, "values": lesson.levels.values, "shift": self._shift, "scale": self._scale,
            **table(lesson.recorded),
            "start_counts": np.concatenate([one.counts[:1] for one in begin]).astype(np.int32),
            "start_signals": signals.astype(np.float32),
            "start_scenario": np.array([series.scenarios.index(one.scenario) for one in begin], np.int32),
            **self.best,
        }  # fmt: skip
        return LearnedTwin(header, arrays)

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

    def _prepared(self, recorded: Transitions) -> Lesson:
        stretches = np.unique(recorded.stretch)
        count = max(round(self.settings.held_out * len(stretches)), 1)
        chosen = np.random.default_rng([self.settings.seed, 3]).permutation(stretches)[:count]
        held_out = np.isin(recorded.stretch, chosen)
        if held_out.all():  # one stretch alone: its end
            held_out = np.arange(len(recorded.stretch)) >= (1.0 - self.settings.held_out) * len(recorded.stretch)
        levels = Levels.of(recorded.signals[~held_out])
        seen = code.inputs(
            recorded.state, recorded.replicas, recorded.loads, recorded.scenario, len(self._series.scenarios), self._most
        )
        classes = targets(recorded.state, recorded.replicas, recorded.counts, recorded.signals, levels)
        return Lesson(recorded, levels, seen, classes, held_out)

    def _drawn_stretches(self) -> list[NDArray[np.int64]]:
        """For each member: the rows of as many stretches as there are, drawn with replacement."""
        rows = np.flatnonzero(~self._lesson.held_out)
        stretches = np.unique(self._lesson.recorded.stretch[rows])
        of = {int(one): rows[self._lesson.recorded.stretch[rows] == one] for one in stretches}
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
            if not bool(torch.isfinite(loss)):
                raise TrainingDiverged(f"{NAME} seed {self.settings.seed}: the loss is {float(loss)}; lower the rate")
            self._optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.networks.parameters(), 1.0)
            self._optimiser.step()
            losses.append(float(loss.detach()))
        return float(np.mean(losses))

    def _judge(self) -> float:
        rows = torch.from_numpy(np.flatnonzero(self._lesson.held_out))
        found = []
        with torch.no_grad():
            for at in torch.split(rows, 2048):
                wide = self._x[at][:, None].expand(-1, self.settings.members, -1)
                classes = self._y[at][:, None].expand(-1, self.settings.members, -1, -1)
                told = self._log_shares(wide, classes, keep=True)
                mean = torch.logsumexp(told, dim=1) - float(np.log(self.settings.members))
                found.append(mean[self._y[at] >= 0])
        return -float(torch.cat(found).mean())

    def _log_shares(self, x: Tensor, classes: Tensor, *, keep: bool = False) -> Tensor:
        """Log probabilities of what came, [known classes], or with ``keep`` [batch, members, services, 8], 0 where
        unknown. ``x`` [batch, members, inputs], ``classes`` [batch, members, services, 8]."""
        services = len(self._series.services)
        logits = self.networks(x).reshape(*x.shape[:2], services, code.OUTPUTS)
        change = logits[..., : code.CHANGES]
        pending = logits[..., code.CHANGES : code.CHANGES + code.PENDINGS]
        levels = logits[..., code.CHANGES + code.PENDINGS :].reshape(
            *logits.shape[:-1], len(code.SIGNALS), code.LEVELS
        )
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


def units_of(series: Series, topology: Topology) -> Units:
    """What is usual in the series. ``ConfigError``: a service of which nothing was ever read."""
    arrivals = np.stack([one.measures[:, :, 0].sum(axis=0, where=np.isfinite(one.measures[:, :, 0])) for one in series.episodes])
    known = np.stack([np.isfinite(one.measures[:, :, 0]).sum(axis=0) for one in series.episodes])
    mean = arrivals.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    silent = [name for name, value in zip(series.services, mean, strict=True) if value <= 0]
    if silent:
        raise ConfigError(f"--series: service {silent[0]!r} has no arrivals above 0; record them, or leave the service out")
    cores = [requested_cores(topology, name) for name in series.services]
    return Units(mean, topology.objectives.latency_s, np.array(cores))


def requested_cores(topology: Topology, name: str) -> float:
    """Of one pod; 1 where it requests none."""
    return dict(pod_class_of(topology.services[name]).requests).get(CPU, 1000) / 1000


def _missing(series: Series, scenario: str) -> float:
    """Share of readings that are missing after the first moments, where there was a ready pod."""
    lost = total = 0
    for one in series.episodes:
        if one.scenario == scenario:
            ready = one.counts[3:, :, code.READY] > 0
            lost += int((np.isnan(one.measures[3:, :, 0]) & ready).sum())
            total += int(ready.sum())
    return lost / max(total, 1)
