"""Goodput (Pollux, OSDI 2021, section 3): samples per second times what a sample is worth, at the best allowed batch.

Tables are kept per speed, since asking for thousands of figures each round would be slow: a ``Speed`` is taken not to
change, so one that learns hands out a new object. A placement is told by (nodes, workers), spread evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from shared.jobs.observation import JobObservation, JobsObservation, Speed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BATCHES = 32
"""Batches that are tried, equally far apart in their logarithm."""
MOST_KEPT = 4096
"""Tables; a live cluster's speeds are new objects again and again."""
PROGRESS_STEPS = 256
"""Efficiency is asked for at so many points of a job's progress."""


@dataclass(frozen=True, slots=True)
class Goodputs:
    """``rate``: the best goodput, samples at the job's own batch per second; 0.0: it cannot run so. ``batch`` gives it.

    Both by [nodes, workers], or by [size] in tables of some sizes.
    """

    rate: Floats
    batch: Ints


def even(nodes: int, workers: int) -> tuple[int, ...]:
    """Workers spread evenly over nodes."""
    each, rest = divmod(workers, nodes)
    return (each + 1,) * rest + (each,) * (nodes - rest)


def batches_of(job: JobObservation) -> tuple[int, ...]:
    """The batches that a policy may give the job, in rising order."""
    return (job.batch,) if job.batch_range is None else _between(*job.batch_range)


@lru_cache(maxsize=256)
def _between(low: int, high: int) -> tuple[int, ...]:
    steps = min(BATCHES, max(ceil(8 * log(high / low)), 1) + 1) if high > low else 1
    return tuple(sorted({round(batch) for batch in np.geomspace(low, high, steps).tolist()}))


class GoodputTables:
    """Tables of goodput for the jobs of one policy: of every (nodes, workers), or of some sizes alone, packed.

    All pairs are many on a large cluster: who places packed asks for sizes.
    """

    def __init__(self, seen: JobsObservation, sizes: Sequence[int] | None = None) -> None:
        self.per_node = max((node.gpus for node in seen.nodes), default=1)
        self.nodes = len(seen.nodes)
        self.workers = sum(node.gpus for node in seen.nodes)
        self.sizes = None if sizes is None else tuple(sizes)
        self._rates: dict[tuple[int, tuple[int, ...], str], tuple[Speed, Floats]] = {}
        self._best: dict[tuple[int, tuple[int, ...], str, int], tuple[Speed, Goodputs]] = {}

    def fits(self, seen: JobsObservation) -> bool:
        """Whether these tables are of a cluster of this shape."""
        shape = (max((node.gpus for node in seen.nodes), default=1), len(seen.nodes))
        return shape == (self.per_node, self.nodes)

    def of(self, job: JobObservation, gpu_type: str = "", progress: float | None = None) -> Goodputs | None:
        """The job's table at its present progress, or at another; None: nothing is known of its speed."""
        if job.speed is None:
            return None
        batches = batches_of(job)
        step = round((progress if progress is not None else job.progress or 0.0) * PROGRESS_STEPS)
        key = (id(job.speed), batches, gpu_type, step)
        if key not in self._best:
            if len(self._best) >= MOST_KEPT:
                self._best.clear()
                self._rates.clear()
            worth = np.array([job.speed.efficiency(batch, step / PROGRESS_STEPS) for batch in batches])
            rates = self._of_speed(job.speed, batches, gpu_type) * worth
            best = rates.argmax(axis=-1)
            rate = np.take_along_axis(rates, best[..., None], axis=-1)[..., 0]
            self._best[key] = (job.speed, Goodputs(rate, np.array(batches)[best]))
        return self._best[key][1]

    def _of_speed(self, speed: Speed, batches: tuple[int, ...], gpu_type: str) -> Floats:
        """float64 [nodes + 1, workers + 1, batches] or [sizes, batches]: samples per second."""
        key = (id(speed), batches, gpu_type)
        if key not in self._rates and self.sizes is not None:
            packed = [(min(-(-size // self.per_node), self.nodes), size) for size in self.sizes]
            rows = np.zeros((len(packed), len(batches)))
            for at, (nodes, size) in enumerate(packed):
                if size:
                    placement = even(nodes, size)
                    rows[at] = [speed.samples_per_s(placement, batch, gpu_type) for batch in batches]
            self._rates[key] = (speed, rows)
        elif key not in self._rates:
            rates = np.zeros((self.nodes + 1, self.workers + 1, len(batches)))
            for nodes in range(1, self.nodes + 1):
                for workers in range(nodes, min(nodes * self.per_node, self.workers) + 1):
                    placement = even(nodes, workers)
                    rates[nodes, workers] = [speed.samples_per_s(placement, batch, gpu_type) for batch in batches]
            self._rates[key] = (speed, rates)
        return self._rates[key][1]


def best_batch(table: Goodputs, placement: dict[str, int]) -> int:
    """The batch for a placement, by its shape, in a table of all pairs."""
    return int(table.batch[len(placement), sum(placement.values())])
