"""How fast a job runs, learned from the samples per second that it reports, where there is no profile. Pure.

    log(samples/s) = a + b log(workers) + c log(batch / own batch) + d log(nodes) + noise

Bayesian linear regression with known noise (Bishop, Pattern Recognition and Machine Learning, 2006, section 3.3): the
prior says what most jobs do (80 % of linear scaling, more samples per second at larger batches, less over nodes), each
way of running that was seen moves it, and the posterior's variance says how sure it is. One wrong report does not count
for much: the median of the last few of each way of running is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import exp, inf, log
from statistics import median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.jobs.observation import Speed

Floats = NDArray[np.float64]

PRIOR_MEAN = (0.0, 0.8, 0.3, -0.1)
PRIOR_SD = (20.0, 0.2, 0.2, 0.1)
"""Of a, b, c and d. ``a`` may be anything: it is the job's own speed."""
NOISE_SD = 0.1
"""Of the logarithm of one way of running: reports of a job scatter by some 10 %."""
NEWS = 0.05
"""A way's median must move by so much, relatively, before the speed is learned anew: policies keep tables per speed."""
MOST_LOG = 50.0
"""Of a speed that is predicted, either way: reports of 1e-300 and 1e9 samples per second are both accepted, and what
follows from them for 64 workers is no number any more."""
KEPT, WAYS = 5, 64
"""Reports kept of each way of running, and ways kept, the newest."""


class Way(Struct, frozen=True, gc=False):
    """A way of running."""

    workers: int
    nodes: int
    batch: int


class LearnedSpeed:
    """``Speed`` by the regression. It does not change: whoever learns makes a new one."""

    def __init__(self, seen: Sequence[tuple[Way, float]], own_batch: int) -> None:
        """``seen``: samples per second above 0 by way, one at least. ``ValueError``: there is none."""
        if not seen:
            raise ValueError("a speed is learned from one report at least")
        self.own_batch = max(1, own_batch)
        rows = np.array([self._row(way.workers, way.nodes, way.batch) for way, _ in seen])
        target = np.array([log(speed) for _, speed in seen])
        prior = np.diag(1.0 / np.square(PRIOR_SD))
        self._covariance: Floats = np.linalg.inv(prior + rows.T @ rows / NOISE_SD**2)
        self._mean: Floats = self._covariance @ (prior @ np.array(PRIOR_MEAN) + rows.T @ target / NOISE_SD**2)

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:  # noqa: ARG002
        """The median of the prediction. Types of GPUs are not told apart."""
        workers, nodes = sum(placement), sum(count > 0 for count in placement)
        if workers <= 0:
            return 0.0
        return exp(min(MOST_LOG, max(-MOST_LOG, float(self._row(workers, nodes, batch) @ self._mean))))

    def efficiency(self, batch: int, progress: float) -> float:  # noqa: ARG002
        """Nobody reports what a sample is worth at a larger batch, so it is taken for as much less as there are more:
        no policy is led to larger batches by what nobody has measured."""
        return min(1.0, self.own_batch / max(1, batch))

    def uncertainty(self, placement: tuple[int, ...], batch: int) -> float:
        """Standard deviation of the logarithm of ``samples_per_s``."""
        row = self._row(sum(placement), sum(count > 0 for count in placement), batch)
        return float(np.sqrt(row @ self._covariance @ row))

    def spread(self, placement: tuple[int, ...], batch: int) -> float:
        """Standard deviation of the logarithm of how many times faster it is so than with one worker at its own batch:
        0.1 is about 10 %."""
        row = self._row(sum(placement), sum(count > 0 for count in placement), batch) - self._row(1, 1, self.own_batch)
        return float(np.sqrt(row @ self._covariance @ row))

    def _row(self, workers: int, nodes: int, batch: int) -> Floats:
        return np.array([1.0, log(max(1, workers)), log(max(1, batch) / self.own_batch), log(max(1, nodes))])


class Reports:
    """What one job reported of its speed, by way of running; ``speed`` is what follows from it."""

    def __init__(self) -> None:
        self._seen: dict[Way, deque[float]] = {}
        self._used: dict[Way, float] = {}
        """What the speed was learned from."""
        self._speed: LearnedSpeed | None = None

    def add(self, way: Way, samples_per_s: float) -> None:
        """One report. What is not above 0 says nothing of how fast it runs."""
        if way.workers <= 0 or not 0.0 < samples_per_s < inf:
            return
        kept = self._seen.pop(way, None) or deque(maxlen=KEPT)
        kept.append(samples_per_s)
        self._seen[way] = kept  # the newest last
        while len(self._seen) > WAYS:
            del self._seen[next(iter(self._seen))]
        used = self._used.get(way)
        if used is None or abs(log(median(kept) / used)) > NEWS:
            self._speed = None

    def speed(self, own_batch: int) -> LearnedSpeed | None:
        """None: it has never reported one."""
        if not self._seen:
            return None
        if self._speed is None or self._speed.own_batch != max(1, own_batch):
            self._used = {way: median(kept) for way, kept in self._seen.items()}
            self._speed = LearnedSpeed(list(self._used.items()), own_batch)
        return self._speed


def spread_of(speed: Speed, placement: tuple[int, ...], batch: int) -> float:
    """How unsure a speed is, 0.0 where it is measured."""
    return speed.spread(placement, batch) if isinstance(speed, LearnedSpeed) else 0.0
