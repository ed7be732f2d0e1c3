"""``jobs-sets``: ours by learning: what a second's less waiting of a job counts, by a network over the set of jobs.

``marginal`` deals GPUs by ``weight / (T + offset)`` of each job, with a formula of four numbers for these and for what
a restart counts. Here a network of Deep Sets layers (Zaheer et al., NeurIPS 2017, section 3.1) says the three, job by
job, seeing the job and the mean of all:

    y_i = x_i W + mean(x) G + b

Reordering the jobs reorders the answers and changes nothing else; any number of jobs, GPU types and nodes is the same
network, asked once a decision. How many workers and servers a job gets, of which type and where, follows as there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.jobs.observation import JobsObservation
from shared.jobs.policies.goodput import Floats
from shared.jobs.policies.marginal import JobWorth, Marginal
from shared.policy.networks import deep_sets_shapes, layer_count
from shared.policy.weights import WeightsFile, shipped_beside

NAME = "jobs-sets"
FEATURES = ("work", "soonest", "age", "attained", "progress", "runs", "restart", "crowd")
"""Of a job: log of its work left in hours on one GPU, and of the hours it would take with all that it could use;
log(1 + hours since it came), log(1 + GPU-hours it had), progress, whether it runs, log(1 + seconds of a restart), and
log of jobs beside GPUs, the same for all. All logarithms over 3."""
OUTPUTS = 3
"""Logarithms: of the weight, of the offset beside ``OFFSET_S``, of the restarts that one is counted as beside
``RESTARTS``."""
OFFSET_S, RESTARTS = 300.0, 8.0
MOST = 8.0
"""Outputs are kept within plus and minus so much: e^8 is 3,000 times."""
HOUR_S = 3600.0
Arrays = Mapping[str, NDArray[np.float32]]


def shapes_of(hidden: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The arrays of a network with these hidden layers."""
    return deep_sets_shapes([len(FEATURES), *hidden, OUTPUTS])


def features(seen: JobsObservation, work_s: Floats, soonest_s: Floats) -> Floats:
    """float64 [jobs, len(FEATURES)]: see there. ``work_s``, ``soonest_s``: float64 [jobs], seconds, finite."""
    gpus = max(sum(node.gpus for node in seen.nodes), 1)
    crowd = np.log(max(len(seen.jobs), 1) / gpus) / 3.0
    jobs = seen.jobs
    age_h = np.maximum(seen.now - np.array([job.submitted for job in jobs]), 0.0) / HOUR_S  # clocks differ
    columns = (
        np.log(np.maximum(work_s, 1.0) / HOUR_S) / 3.0,
        np.log(np.maximum(soonest_s, 1.0) / HOUR_S) / 3.0,
        np.log1p(age_h) / 3.0,
        np.log1p(np.array([job.attained_s for job in jobs]) / HOUR_S) / 3.0,
        np.array([job.progress or 0.0 for job in jobs]),
        np.array([float(job.workers > 0) for job in jobs]),
        np.log1p(np.array([job.restart_s for job in jobs])) / 3.0,
        np.full(len(jobs), crowd),
    )
    return np.stack(columns, axis=1)


def answer(arrays: Arrays, x: Floats, layers: int) -> Floats:
    """float64 [jobs, OUTPUTS] of ``features``."""
    for at in range(layers):
        pooled = x.mean(axis=0, keepdims=True)
        x = x @ arrays[f"l{at}.w"] + pooled @ arrays[f"l{at}.g"] + arrays[f"l{at}.b"]
        if at < layers - 1:
            x = np.maximum(x, 0.0)
    return np.clip(x, -MOST, MOST)


class Sets(Marginal):
    """See the module. ``weights`` None: those that are shipped. ``ConfigError``: weights of another shape."""

    name = NAME

    def __init__(self, weights: WeightsFile | None = None) -> None:
        super().__init__()
        file = weights if weights is not None else shipped_beside(__file__, NAME)
        self._arrays, self._layers = file.arrays, layer_count(file.arrays)
        hidden = tuple(file.arrays[f"l{at}.w"].shape[1] for at in range(self._layers - 1))
        found = {name: array.shape for name, array in file.arrays.items()}
        if found != shapes_of(hidden):
            raise ConfigError(f"weights of {file.title}: arrays {found} are no network over jobs; train again")

    def worth(self, seen: JobsObservation, work_s: Floats, soonest_s: Floats) -> JobWorth:
        """By the network."""
        if not seen.jobs:
            return JobWorth(np.zeros(0), np.zeros(0), np.zeros(0))
        known = np.isfinite(work_s)
        x = features(seen, np.where(known, work_s, HOUR_S), np.where(known, soonest_s, HOUR_S))
        weights, offsets, restarts = np.exp(answer(self._arrays, x, self._layers)).T
        return JobWorth(np.where(known, weights, np.inf), OFFSET_S * offsets, RESTARTS * restarts)
