"""Small recorded series, and twins of them whose networks are given by hand: no training, so no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lab.autoscaling.recording import record
from lab.worlds.learned import encoding as code
from lab.worlds.learned.fitting import FittingSteps, lesson_of
from lab.worlds.learned.model import LearnedTwin
from lab.worlds.learned.series import RecordedSeries, parse_series
from lab.worlds.services.topology import default_topology


@lru_cache(maxsize=4)
def recorded_bytes(scenarios: tuple[str, ...] = ("calm", "mixed"), seconds: int = 300) -> bytes:
    """A file of series: two policies on one seed."""
    rows = record(default_topology(), [1000], scenarios=scenarios, policies=("demand", "wanderer"), seconds=seconds)
    return "".join(text for _, text in rows).encode()


def recorded(scenarios: tuple[str, ...] = ("calm", "mixed"), seconds: int = 300) -> RecordedSeries:
    """The same, parsed."""
    return parse_series(recorded_bytes(scenarios, seconds), "series.csv", services=default_topology().order)


def lesson(scenarios: tuple[str, ...] = ("calm", "mixed"), seconds: int = 300) -> FittingSteps:
    """What would be learned from it."""
    return lesson_of(recorded(scenarios, seconds), default_topology(), held_out=0.3, seed=1000)


def twin_that_says(
    found: FittingSteps, *, change: int, levels: Sequence[int], pending: int = 0, members: int = 2
) -> LearnedTwin:
    """Networks that know nothing but these classes, whatever they see: ``change`` of ready replicas, the level of each
    signal."""
    bias = np.zeros(code.OUTPUTS, np.float32)
    bias[change + code.MOST_CHANGE] = bias[code.CHANGES + pending] = 50.0
    for at, level in enumerate(levels):
        bias[code.CHANGES + code.PENDINGS + at * code.LEVELS + level] = 50.0
    inputs = found.inputs.shape[-1]
    networks = {
        "l0.w": np.zeros((members, inputs, code.OUTPUTS), np.float32),
        "l0.b": np.tile(bias, (members, 1)),
    }
    return found.twin(networks, trained={})
