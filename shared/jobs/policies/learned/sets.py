"""``jobs-sets``: ours by learning: what a second's less waiting of each job counts, by a network over the set of jobs.

``marginal`` deals GPUs by ``weight / (T + offset)`` of each job, with a formula of four numbers for both. Here a
network of Deep Sets layers (Zaheer et al., NeurIPS 2017, section 3.1) says them, job by job, seeing the job and the
mean of all:

    y_i = x_i W + mean(x) G + b

Reordering the jobs reorders the answers and changes nothing else; any number of jobs, GPU types and nodes is the same
network, asked once a decision. How many workers and servers a job gets, of which type and where, follows as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.jobs.observation import Observation
from shared.jobs.policies.goodput import Floats
from shared.jobs.policies.marginal import Marginal
from shared.policy.networks import deep_sets_shapes, layer_count
from shared.policy.weights import WeightsFile, decode

NAME = "jobs-sets"
DATA = Path(__file__).with_name(f"{NAME}.npz")
FEATURES = ("work", "age", "attained", "progress", "runs", "crowd")
"""Of a job: log of its work left in hours on one GPU, log(1 + hours since it came), log(1 + GPU-hours it had),
progress, whether it runs, and log of jobs beside GPUs, the same for all. The first three and the last over 3."""
OUTPUTS = 2
"""Logarithm of the weight; logarithm of the offset beside ``OFFSET_S``."""
OFFSET_S = 300.0
MOST = 8.0
"""Outputs are kept within plus and minus so much: e^8 is 3,000 times."""
HOUR_S = 3600.0
Arrays = Mapping[str, NDArray[np.float32]]


def shapes_of(hidden: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The arrays of a network with these hidden layers."""
    return deep_sets_shapes([len(FEATURES), *hidden, OUTPUTS])


def features(seen: Observation, work_s: Floats) -> Floats:
    """float64 [jobs, len(FEATURES)]: see there. ``work_s`` float64 [jobs], finite."""
    gpus = max(sum(node.gpus for node in seen.nodes), 1)
    crowd = np.log(max(len(seen.jobs), 1) / gpus) / 3.0
    rows = [
        (
            np.log(max(work, 1.0) / HOUR_S) / 3.0,
            np.log1p((seen.now - job.submitted) / HOUR_S) / 3.0,
            np.log1p(job.attained_s / HOUR_S) / 3.0,
            job.progress or 0.0,
            float(job.workers > 0),
            crowd,
        )
        for job, work in zip(seen.jobs, work_s.tolist(), strict=True)
    ]
    return np.array(rows, float).reshape(-1, len(FEATURES))


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
        file = weights if weights is not None else _shipped()
        self._arrays, self._layers = file.arrays, layer_count(file.arrays)
        hidden = tuple(file.arrays[f"l{at}.w"].shape[1] for at in range(self._layers - 1))
        found = {name: array.shape for name, array in file.arrays.items()}
        if found != shapes_of(hidden):
            raise ConfigError(f"weights of {file.title}: arrays {found} are no network over jobs; train again")

    def worth(self, seen: Observation, work_s: Floats) -> tuple[Floats, Floats]:
        """By the network; of a job that cannot run, an infinite weight, as there."""
        if not seen.jobs:
            return np.zeros(0), np.zeros(0)
        known = np.isfinite(work_s)
        out = answer(self._arrays, features(seen, np.where(known, work_s, HOUR_S)), self._layers)
        return np.where(known, np.exp(out[:, 0]), np.inf), OFFSET_S * np.exp(out[:, 1])


@lru_cache(maxsize=1)
def _shipped() -> WeightsFile:
    return decode(DATA.read_bytes(), policy=NAME)
