"""GPU placement inside the mesh: ``frag`` (learned), ``fgd`` and ``best-fit`` on the rows of a node table.

The same scorers as in the placement experiment, with three differences that the mesh imposes. The device of a share is
the one that the table's accounting picks, the fullest with room, so only that way is judged. The demand is estimated
from the requests this policy was asked to place, weighted by how often, and taken over anew each time their number has
grown by a quarter: nobody hands a scheduler the list of pods to come. And ties must fall in a fixed order though the
ranker breaks them at random and agents own different nodes: a fraction of a step, made from a checksum of the node's
name, is added to each score. FGD loses five points without a fixed order.

Where a rehearsal on the cluster's own demand says so, FGD places in the stead of the learned value (``place_by``).

Scores of rows whose stamp has not changed are kept per pod class until the demand is taken over, and the cost of nodes
as they are for all classes together. It refuses nothing: filters have refused what is not feasible.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.gpu import ANY_MODEL, MAX_MODELS, GpuRequest, GpuStates, Ints, options
from shared.model.resources import CPU, GPU_MILLI, MEMORY, MILLI_PER_DEVICE
from shared.policy.frag.features import FEATURES, model_share
from shared.policy.frag.fragmentation import Demand, typical_demand
from shared.policy.frag.scorers import BestFit, Fgd, Floats, Frag
from shared.policy.frag.value import NAME, CostNet, check_weights
from shared.policy.observation import Observation, Rng, Verdicts
from shared.policy.weights import WeightsFile
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable

GPU_MODEL_LABEL = "conclave.io/gpu-model"
MIB = 1 << 20
FGD = "fgd"
GROWTH = 1.25
"""The demand is taken over when this many times as many requests have been seen."""
MAX_CLASSES = 4096
"""Pod classes remembered; the one asked for longest ago is forgotten."""
ORDER_STEP = 0.5 / 2**32
"""Of a score's unit, per unit of the name's checksum: always below half a step, so it never outweighs one."""

Scorer = BestFit | Fgd | Frag


@dataclass(slots=True)
class _Known:
    score: Floats
    stamp: Ints


class GpuPolicy:
    """Scores by a GPU scorer that may depend on the demand seen so far."""

    version = 1
    row_local = False
    """A verdict depends on the row and on the demand, so the ranker must ask each time; unchanged rows cost little."""

    def __init__(self, name: str, weights: WeightsFile | None = None) -> None:
        self.name = name
        self._weights = weights
        if weights is not None:
            check_weights(weights)
            self.version = weights.card.version
        self._table: NodeTable | None = None
        self._static = -1
        self._requests: dict[PodClass, GpuRequest] = {}
        self._counts: Counter[GpuRequest] = Counter()
        self._seen = 0
        self._next = 1.0
        self._scorer: Scorer | None = None
        self._known: OrderedDict[PodClass, _Known] = OrderedDict()
        self._cost = _Known(np.zeros(0), np.zeros(0, np.int64))
        """What nodes cost as they are: the same for all classes."""
        self._order: Floats = np.zeros(0)
        self._model: Ints = np.zeros(0, np.int64)
        self._models: dict[str, int] = {}
        self.placed_by = name
        """Whose scorer ranks: this policy's own, or the one in its stead."""

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Scores of the rows; a higher step count is better, within a step the fixed order decides."""
        table, rows = observation.table, observation.rows
        if table is not self._table or table.static_stamp != self._static:
            self._take_nodes(table)
        request = self._request(observation.pod_class)
        self._count(request)
        known = self._known.get(observation.pod_class)
        if known is None or len(known.score) < table.rows:
            known = self._known[observation.pod_class] = _Known(np.zeros(table.rows), np.full(table.rows, -1))
        self._known.move_to_end(observation.pod_class)
        while len(self._known) > MAX_CLASSES:
            self._known.popitem(last=False)
        stale = rows[known.stamp[rows] != table.stamp[rows]]
        if len(stale):
            known.score[stale] = self._score(table, stale, request)
            known.stamp[stale] = table.stamp[stale]
        return Verdicts(known.score[rows] + self._order[rows])

    def _score(self, table: NodeTable, rows: Ints, request: GpuRequest) -> Floats:
        assert self._scorer is not None
        states = self._states(table, rows)
        if not isinstance(self._scorer, Frag):
            return self._scorer.score(states, request)[0]
        cost = self._cost
        changed = np.flatnonzero(cost.stamp[rows] != table.stamp[rows])
        if len(changed):
            cost.score[rows[changed]] = self._scorer.net.cost(states.take(changed))
            cost.stamp[rows[changed]] = table.stamp[rows[changed]]
        return self._scorer.score(states, request, cost.score[rows])[0]

    def _take_nodes(self, table: NodeTable) -> None:
        """Names and models of the table's rows; forget all scores."""
        self._table, self._static = table, table.static_stamp
        self._order = np.array([crc32(name.encode()) * ORDER_STEP for name in table.names])
        codes = table.codes_of(GPU_MODEL_LABEL)
        self._models = dict(list(table.label_values.get(GPU_MODEL_LABEL, {}).items())[: MAX_MODELS - 1])
        # rows without the label, and models beyond what a mask holds, share the code after the last
        other = len(self._models)
        raw = np.full(table.rows, -1, np.int64) if codes is None else codes
        self._model = np.where((raw < 0) | (raw >= other), other, raw).astype(np.int64)
        self._requests.clear()
        self._start_over()

    def _start_over(self) -> None:
        """Take over the demand seen so far; every score is judged anew."""
        self._known.clear()
        rows = 0 if self._table is None else self._table.rows
        self._cost = _Known(np.zeros(rows), np.full(rows, -1))
        counts = dict(self._counts) or {GpuRequest(0, 0, 0, 0): 1}
        demand = typical_demand(list(counts), np.array(list(counts.values()), np.int64))
        self._scorer = self._make(demand)

    def _make(self, demand: Demand) -> Scorer:
        if self.placed_by == NAME and self._weights is not None:
            assert self._table is not None
            everyone = self._states(self._table, np.arange(self._table.rows))
            return Frag(self._weights, demand, model_share(everyone), fullest_only=True)
        return Fgd(demand, fullest_only=True) if self.placed_by == FGD else BestFit()

    def _count(self, request: GpuRequest) -> None:
        self._counts[request] += 1
        self._seen += 1
        if self._seen >= self._next:
            self._next = max(self._seen + 1.0, self._seen * GROWTH)
            self._start_over()

    def _request(self, pod_class: PodClass) -> GpuRequest:
        request = self._requests.get(pod_class)
        if request is None:
            if len(self._requests) >= MAX_CLASSES:
                self._requests.clear()
            request = self._requests[pod_class] = request_of(pod_class, self._models)
        return request

    def _states(self, table: NodeTable, rows: Ints) -> GpuStates:
        free = [table.device_free[row] for row in rows.tolist()]
        width = max((len(devices) for devices in free), default=0) or 1
        padded = np.array([devices + [0] * (width - len(devices)) for devices in free], np.int64).reshape(-1, width)
        allocatable, requested = table.allocatable, table.requested
        return GpuStates(
            allocatable[CPU_COLUMN, rows] - requested[CPU_COLUMN, rows],
            (allocatable[MEMORY_COLUMN, rows] - requested[MEMORY_COLUMN, rows]) // MIB,
            np.maximum(padded, 0),
            np.array([len(devices) for devices in free], np.int64),
            self._model[rows],
            allocatable[CPU_COLUMN, rows],
            allocatable[MEMORY_COLUMN, rows] // MIB,
        )


class FragPolicy(GpuPolicy):
    """``frag`` with the lens that explanations look through.

    Its features are those of the node once the pod is on it, and the node's cost before; Q(accept) is the cost that
    the pod saves there (mostly negative), Q(reject) is 0. A score is Q(accept) in whole steps, before the fixed order.
    """

    rehearsed_beside = FGD
    """Who may place in its stead."""

    def __init__(self, weights: WeightsFile) -> None:
        super().__init__(NAME, weights)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """None while another policy places in its stead: then nothing of the learned value explains a choice."""
        return (*(f"{name}_after" for name in FEATURES), "cost_before") if self.placed_by == NAME else None

    def place_by(self, name: str) -> None:
        """Rank by this policy's scorer from now on: by FGD in its stead, or by the learned value for any other name.

        The demand seen so far stays.
        """
        name = name if name == self.rehearsed_beside else NAME
        if name != self.placed_by:
            self.placed_by = name
            if self._table is not None:
                self._start_over()

    def features(self, observation: Observation) -> NDArray[np.float32]:
        """float32 ``[candidates, len(feature_names)]``; looks only, so the demand is not counted up."""
        table = observation.table
        if table is not self._table or table.static_stamp != self._static:
            self._take_nodes(table)
        states, net = self._states(table, observation.rows), self._net()
        ways = options(states, self._request(observation.pod_class), fullest_only=True)
        x = np.empty((len(states), len(FEATURES) + 1), np.float32)
        x[:, :-1] = net.features.of(ways.after)
        x[:, -1] = net.cost(states)
        return x

    def q_values(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 ``[candidates, 2]``: Q(reject), Q(accept) in GPUs."""
        q = np.zeros((len(features), 2), np.float32)
        q[:, 1] = features[:, -1] - self._net().cost_of(features[:, :-1])
        return q

    def _net(self) -> CostNet:
        """The learned value; ``ValueError`` where another policy has come in its stead since somebody took the lens."""
        if not isinstance(self._scorer, Frag):
            raise ValueError(f"{self.placed_by} places in the stead of {self.name}: there is no value to look into")
        return self._scorer.net


def request_of(pod_class: PodClass, models: dict[str, int]) -> GpuRequest:
    """The class's request; ``models``: codes of the GPU models there are.

    Models count where a node selector or a single required affinity term names them by ``In``; anything else accepts
    any model here and is left to the filters.
    """
    amounts = dict(pod_class.requests)
    milli = amounts.get(GPU_MILLI, 0)
    devices, each = (
        (milli // MILLI_PER_DEVICE, MILLI_PER_DEVICE) if milli >= MILLI_PER_DEVICE else (int(milli > 0), milli)
    )
    named = [value for key, value in pod_class.node_selector if key == GPU_MODEL_LABEL]
    if pod_class.affinity_terms is not None and len(pod_class.affinity_terms) == 1:
        for expression in pod_class.affinity_terms[0].expressions:
            if expression.key == GPU_MODEL_LABEL and expression.operator == "In":
                named += expression.values
    mask = sum(1 << models[name] for name in dict.fromkeys(named) if name in models) if named else ANY_MODEL
    memory = -(-amounts.get(MEMORY, 0) // MIB)
    return GpuRequest(amounts.get(CPU, 0), memory, devices, each, mask)


def fgd() -> GpuPolicy:
    """FGD under the demand seen so far."""
    return GpuPolicy(FGD)


def best_fit() -> GpuPolicy:
    """Best fit of FGD's simulator: half CPU, half GPU."""
    return GpuPolicy("best-fit")
