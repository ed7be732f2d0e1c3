"""``power``: joules and fragmentation as one cost, in the mesh.

    cost(pod, node) = the growth of the cost that ``frag`` learned + PRICE * watts that the pod adds there

Lettich et al. (CCGrid 2025, arXiv 2412.17484) weigh FGD's score and their own, each normalised over the nodes at hand.
Agents see some of the nodes each, so here both parts are amounts (GPUs that will stay idle, watts), and a price in GPUs
per watt says what one is worth in the other: a node's score is the same whoever gives it. The first part is rounded to
the steps of ``frag``, the second to parts of one (0.6 W), so what is equal ties, and the fixed order decides. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import GpuRequest, Ints
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.frag.policy import FREE, GpuPolicy
from shared.policy.frag.scorers import Floats, Frag
from shared.policy.frag.value import NAME as FRAG
from shared.policy.frag.value import steps
from shared.policy.observation import Need, Observation, Supplies
from shared.policy.power import AddedGpus, NodePower
from shared.policy.weights import shipped
from shared.scheduling.state.node_table import NodeTable

POWER = "power"
PRICE = 0.001
"""GPUs that one watt is worth; settled on one trace and validation seed, see docs/policies/power.md."""
PARTS = 32
"""Of a step of ``frag``, that watts are told in: a pod of one core adds a few watts, a step is worth 20. A power of
two, so that sums are exact."""
ROUNDING = 1e-9
"""GPUs, by which sums of watts may be off."""


def priced(watts: Floats, price: float) -> Floats:
    """Steps that watts cost, in whole ``PARTS``, negative. What differs by the rounding of sums alone is the same."""
    return steps(PARTS * (price * watts - ROUNDING)) / PARTS


class PowerPolicy(GpuPolicy):
    """By the shipped value of ``frag``, whose version it bears.

    To explain: a score is minus the sum of its two inputs, the second times ``PRICE``, before rounding.
    """

    goal = "joules"
    needs = GpuPolicy.needs | {Need.POWER}
    feature_names = ("gpu_cost_added", "joules_per_s_added")

    def __init__(self) -> None:
        super().__init__(POWER, shipped(FRAG))
        self._power = NodePower()
        self._devices: Ints = np.zeros(0, np.int64)
        self._part: Ints = np.zeros(0, np.int64)
        """By state: how many devices it has, and what is free of the emptiest one that somebody uses."""

    def supply(self, supplies: Supplies) -> None:
        """What counts as a GPU, and what nodes draw, from now on."""
        super().supply(supplies)
        if supplies.power != self._power.curves:
            self._power = NodePower(supplies.power)

    def _take_nodes(self, table: NodeTable) -> None:
        super()._take_nodes(table)
        self._order /= PARTS

    def features(self, observation: Observation) -> NDArray[np.float32]:
        """float32 ``[candidates, 2]``; looks only, so the demand is not counted up."""
        table, rows = observation.table, observation.rows
        self._follow(table)
        request, scorer = self._request(observation.pod_class), self._scorer
        assert isinstance(scorer, Frag)
        x = np.empty((len(rows), 2), np.float32)
        x[:, 0] = scorer.net.growth(self._judged(observation), request, fullest_only=True)[0]
        x[:, 1] = self._added(table, rows, self._numbers_of(rows), request)
        return x

    def q_values(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 ``[candidates, 2]``: taking none is worth 0."""
        q = np.zeros((len(features), 2), np.float32)
        q[:, 1] = -(features[:, 0] + PRICE * features[:, 1])
        return q

    def _beside(self, table: NodeTable, rows: Ints, numbers: Ints, request: GpuRequest) -> Floats:
        return priced(self._added(table, rows, numbers, request), PRICE)

    def _added(self, table: NodeTable, rows: Ints, numbers: Ints, request: GpuRequest) -> Floats:
        """float64 ``[rows]``: watts."""
        if fresh := self._states[len(self._part) :]:
            used = [max((free for free in state[FREE:] if free < MILLI_PER_DEVICE), default=0) for state in fresh]
            self._devices = np.concatenate((self._devices, [state[FREE - 1] for state in fresh]))
            self._part = np.concatenate((self._part, used))
        there = self._devices[numbers].astype(np.float64)
        if request.shared:
            begun = (self._part[numbers] < request.milli).astype(np.float64)
        else:
            begun = np.full(len(rows), float(request.devices))
        return self._power.added(table, rows, request.cpu, AddedGpus(begun, there))

    def _forget_states(self) -> None:
        super()._forget_states()
        self._devices, self._part = np.zeros(0, np.int64), np.zeros(0, np.int64)
