"""A job's speed as a policy sees it: the tables themselves, or the tables with an error that stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lab.worlds.training.models import TrainingModel


def of_model(model: str, gpu_type: str) -> str:
    """The key of one model's speed on a GPU type, among those of all models."""
    return f"{model}@{gpu_type}"


def type_factor(factors: Mapping[str, float], model: str, gpu_type: str) -> float:
    """How fast the model is on a GPU of this type beside the measured one: its own factor, the type's, or the same."""
    return factors.get(of_model(model, gpu_type), factors.get(gpu_type, 1.0))


@dataclass(frozen=True)
class MeasuredSpeed:
    """``shared.jobs.observation.Speed`` of one model for jobs of one batch. One object serves all of these jobs."""

    model: TrainingModel
    own_batch: int
    gpu_types: Mapping[str, float] = field(default_factory=dict)
    _found: dict[tuple[tuple[int, ...], int, str], float] = field(default_factory=dict, compare=False)

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        """Samples per second; 0.0: not measured so."""
        if self.model.served is not None:
            workers = sum(placement)
            return self.served(workers, self.model.served.usual(workers), batch)
        key = (placement, batch, gpu_type)
        if key not in self._found:
            dealt = self.model.deal(sum(placement), batch)
            step_s = self.model.step_s(placement, dealt)
            factor = type_factor(self.gpu_types, self.model.name, gpu_type)
            self._found[key] = factor * dealt.batch / step_s if step_s else 0.0
        return self._found[key]

    def served(self, workers: int, servers: int, batch: int) -> float:
        """Samples per second of a model with parameter servers; 0.0: it cannot run so, or has none."""
        step_s = self.model.served.step_s(workers, servers) if self.model.served is not None else None
        return batch / step_s if step_s else 0.0

    def efficiency(self, batch: int, progress: float) -> float:
        """Of one sample, beside one at the job's own batch; ``progress`` is the share of the work that is done."""
        convergence = self.model.convergence
        at = progress * convergence.total
        return convergence.efficiency(batch, at) / convergence.efficiency(self.own_batch, at)


@dataclass(frozen=True)
class MistakenSpeed:
    """Another speed, off by a factor that depends on the placement alone: what a fit from few reports is like.

    The factor is uniform in [1 - error, 1 + error], drawn from ``seed`` and the placement, hence the same each time.
    """

    true: MeasuredSpeed
    error: float
    seed: int
    _factors: dict[tuple[int, ...], float] = field(default_factory=dict, compare=False)

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        """Samples per second, mistaken."""
        if self.true.model.served is not None:
            workers = sum(placement)
            return self.served(workers, self.true.model.served.usual(workers), batch)
        return self.true.samples_per_s(placement, batch, gpu_type) * self._factor(placement)

    def served(self, workers: int, servers: int, batch: int) -> float:
        """Likewise, by workers and servers."""
        return self.true.served(workers, servers, batch) * self._factor((workers, servers))

    def efficiency(self, batch: int, progress: float) -> float:
        """As it is."""
        return self.true.efficiency(batch, progress)

    def _factor(self, shape: tuple[int, ...]) -> float:
        if shape not in self._factors:
            drawn = np.random.default_rng([self.seed, len(shape), *shape]).uniform(-1.0, 1.0)
            self._factors[shape] = 1.0 + self.error * float(drawn)
        return self._factors[shape]
