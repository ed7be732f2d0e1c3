"""What the GPU cluster of the placement experiment draws, and ``power`` as its scorer.

By PWR's figures (``shared/model/power.py``) unless others are given. The experiment has no clock: what a cluster draws
is told by how much of its GPUs had been asked for, as Lettich et al. do (CCGrid 2025). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lab.evaluation.results import ResultMetric
from shared.model.gpu import GpuRequest, GpuStates, Ints, options
from shared.model.power import PWR, PowerCurves
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.frag.features import model_share
from shared.policy.frag.power_policy import PRICE, priced
from shared.policy.frag.scorers import Frag
from shared.policy.power import node_watts
from shared.policy.rehearsal.episode import NO_NODE, RehearsedEpisode
from shared.policy.rehearsal.rehearsal import RehearsalTrace
from shared.policy.weights import WeightsFile

Floats = NDArray[np.float64]

POINTS = 100
"""What is drawn is read each time so many more parts of all GPUs have been asked for."""


class StateWatts:
    """Watts of node states. ``models``: the code of each GPU model."""

    def __init__(self, models: Mapping[str, int], curves: PowerCurves = PWR) -> None:
        self._names = {code: name for name, code in models.items()}
        self._curves = curves

    def of(self, states: GpuStates) -> Floats:
        """float64 ``[states]``."""
        idle = (states.free == MILLI_PER_DEVICE).sum(1)
        empty = (idle == states.devices) & (states.cpu == states.cpu_total) & (states.memory == states.memory_total)
        cores, used = states.cpu_total / 1000, (states.cpu_total - states.cpu) / 1000
        found: Floats = np.zeros(len(states))
        for code in np.unique(states.model).tolist():
            rows, name = states.model == code, self._names.get(code, "")
            node, gpu = self._curves.of_node({}, name), self._curves.of_gpu(name)
            devices = gpu.idle * idle[rows] + gpu.peak * (states.devices[rows] - idle[rows])
            if node.off_when_empty:
                devices = np.where(empty[rows], 0.0, devices)
            found[rows] = node_watts(node, used[rows], cores[rows], empty[rows]) + devices
        return found


class PowerScorer:
    """The learned growth of waste and the watts added, as ``power`` has them in the mesh: a share goes to the fullest
    device with room."""

    random_ties = False

    def __init__(
        self, trace: RehearsalTrace, weights: WeightsFile, *, curves: PowerCurves = PWR, price: float = PRICE
    ) -> None:
        self._frag = Frag(weights, trace.demand, model_share(trace.nodes.states), fullest_only=True)
        self._watts = StateWatts(trace.nodes.models, curves)
        self._price = price

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """Whole steps of both, negative for growth; and the device of a share."""
        waste, device = self._frag.score(states, request)
        after = options(states, request, fullest_only=True).after
        return waste + priced(self._watts.of(after) - self._watts.of(states), self._price), device


def kilowatts(trace: RehearsalTrace, episode: RehearsedEpisode, curves: PowerCurves = PWR) -> Floats:
    """float64 ``[POINTS + 1]``: what all nodes draw when 0, 1, ..., 100 % of the GPUs have been asked for."""
    watts, states = StateWatts(trace.nodes.models, curves), trace.nodes.states.take(np.arange(len(trace.nodes.names)))
    asked = np.arange(1, POINTS + 1) * episode.capacity / POINTS
    until = np.searchsorted(episode.arrived, asked, side="right").tolist()
    found, begin = [watts.of(states).sum()], 0
    for end in until:
        for place in range(begin, end):
            node = int(episode.node[place])
            if node != NO_NODE:
                request = trace.pods.classes[int(trace.pods.of[episode.row[place]])]
                states.cpu[node] -= request.cpu
                states.memory[node] -= request.memory
                for device in episode.devices[place]:
                    if device >= 0:
                        states.free[node, device] -= request.milli
        begin = end
        found.append(watts.of(states).sum())
    return np.array(found, np.float64) / 1000


def power_metrics(trace: RehearsalTrace, episodes: list[RehearsedEpisode], prefix: str = "") -> dict[str, ResultMetric]:
    """``kilowatts``: what is drawn on the way from no GPU asked for to all of them, in the mean; ``kilowatts_25``,
    ``_50``, ``_75``, ``_100``: when so many percent of them are."""
    drawn, parts = [kilowatts(trace, episode) for episode in episodes], (25, 50, 75, 100)
    at = {f"{prefix}kilowatts_{part}": [float(one[part * POINTS // 100]) for one in drawn] for part in parts}
    mean = {f"{prefix}kilowatts": [float(one.mean()) for one in drawn]}
    return {name: ResultMetric.of(figures) for name, figures in (mean | at).items()}
