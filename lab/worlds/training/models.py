"""One kind of training job: its step times, its convergence, and how a global batch is dealt to workers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from lab.worlds.training.convergence import Convergence
from lab.worlds.training.servers import ServerTimes
from lab.worlds.training.step_times import Placement, StepTimes

ROUNDING = 1e-8
"""Of quotients of whole numbers, before they are rounded up."""


class DealtBatch(NamedTuple):
    """How a global batch is run: ``local`` samples per worker and pass, ``passes`` of them before each update."""

    local: int
    passes: int
    batch: int
    """What comes of it: workers · local · passes. May differ a little from what was asked."""


@dataclass(frozen=True)
class TrainingModel:
    """What is known of one model. Batches are samples."""

    name: str
    times: StepTimes
    convergence: Convergence
    local_range: tuple[int, int]
    """Samples that one GPU takes at a time."""
    alone: bool = False
    """It gains nothing from a second worker: no policy is to grow it."""
    adapted_batch: int | None = None
    """The one batch it is given where policies choose batches; None: they choose."""
    served: ServerTimes | None = None
    """Of a model with parameter servers: its step times, in place of ``times``."""

    @property
    def batch_range(self) -> tuple[int, int]:
        """Global batches with measured convergence."""
        return self.convergence.batches[0], self.convergence.batches[-1]

    def most_workers(self, batch: int) -> int:
        """Workers among whom a global batch can be divided."""
        if self.served is not None:
            return min(self.served.most_workers, batch)
        return 1 if self.alone else max(batch // self.local_range[0], 1)

    def deal(self, workers: int, batch: int) -> DealtBatch:
        """A global batch on so many workers; passes are accumulated where one does not fit a GPU.

        One worker at more than the initial batch takes two passes at least: the gradient's noise cannot be estimated
        from one, and the learning rate follows it (Pollux, section 4.1). With parameter servers the batch is cut as it
        comes, whole in the end.
        """
        if self.served is not None:
            return DealtBatch(max(batch // workers, 1), 1, batch)
        share = ceil(batch / workers - ROUNDING)
        passes = ceil(share / self.local_range[1] - ROUNDING)
        if workers == 1 and batch > self.batch_range[0]:
            passes = max(passes, 2)
        local = ceil(share / passes - ROUNDING)
        local = min(local, self.batch_range[1] // (workers * passes))
        return DealtBatch(local, passes, workers * local * passes)

    def step_s(self, placement: Placement, dealt: DealtBatch, servers: int = 0) -> float | None:
        """Seconds of one update; None: not measured. Only the last pass of an update synchronises.

        ``servers``: of a model with parameter servers, how many.
        """
        if self.served is not None:
            return self.served.step_s(sum(placement), servers)
        if dealt.local < 1:
            return None
        found = self.times.at(placement, dealt.local)
        if found is None:
            return None
        step_s, sync_s = found
        return step_s + (dealt.passes - 1) * max(step_s - sync_s, 0.0)
