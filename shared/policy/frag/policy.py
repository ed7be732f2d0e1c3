"""GPU placement inside the mesh: ``frag`` (learned), ``fgd`` and ``best-fit`` on the rows of a node table.

GPUs are those of ``conclave.io/gpu-milli``, or devices that claims are given, or units of a device plugin, in the order
in which a node has any (``view.py``).

The same scorers as in the placement experiment, with three differences that the mesh imposes. The device of a share is
the one that the table's accounting picks, the fullest with room, so only that way is judged. The demand is what the
coordinator counted of all that pods ask for (``ToldDemand``); where nobody tells it, it is estimated from the requests
this policy was asked to place, weighted by how often, and taken over anew each time their number has grown by a
quarter: nobody hands a scheduler the list of pods to come. And ties must fall in a fixed order though the
ranker breaks them at random and agents own different nodes: a fraction of a step, made from a checksum of the node's
name, is added to each score. FGD loses five points without a fixed order.

Where a rehearsal on the cluster's own demand says so, FGD places instead of the learned value (``place_by``).

A score depends on the node's state alone (what is free of CPU, memory and devices, and the model), and nodes are of few
kinds: a thousand of openb are in some thirty states at a time. So states are numbered, and scores are kept by state and
request until the demand is taken over. One answer is judged by one demand: all its units are counted before it.
It refuses nothing: filters have refused what is not feasible.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.gpu import MAX_MODELS, GpuRequest, GpuStates, Ints, options
from shared.model.gpu_shares import DEFAULT, GpuShares
from shared.model.resources import CPU, MEMORY
from shared.policy.frag.features import FEATURES, model_share
from shared.policy.frag.fragmentation import TypicalDemand, demand_of, typical_demand
from shared.policy.frag.scorers import BestFit, Fgd, Floats, Frag
from shared.policy.frag.value import NAME, CostNet, check_weights, steps
from shared.policy.frag.view import MIB, GpuView, asked_of, mask_of, model_codes, models_named, zone_state
from shared.policy.observation import Need, Observation, Rng, Supplies, ToldDemand, Verdicts
from shared.policy.weights import WeightsFile
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable
from shared.wire.demand import Demand as Told

FGD = "fgd"
MOST_ALIGNED = 64
"""Classes of aligned pods of which the states are remembered."""
GROWTH = 1.25
"""The demand is taken over when this many times as many requests have been seen."""
MAX_CLASSES = 4096
"""Pod classes whose request is remembered."""
MAX_STATES = 65_536
"""States numbered; beyond them all are numbered anew."""
MOST_PAST = 2
"""So many times as many states as nodes may be numbered where a demand is told: of all of them scores are kept."""
MAX_SCORES = 1 << 20
"""Scores kept, over all requests; of the request asked for longest ago they are forgotten."""
ORDER_STEP = 0.5 / 2**32
"""Of a score's unit, per unit of the name's checksum: always below half a step, so it never outweighs one."""

Scorer = BestFit | Fgd | Frag
State = tuple[int, ...]
"""What is free of a node: CPU, memory; its model, how many devices, and what is free of each, the most first."""
FREE = 4
"""Where in a state the devices begin."""


class GpuPolicy:
    """Scores by a GPU scorer that may depend on the demand seen so far."""

    version = 1
    goal = "gpus"
    row_local = False
    """A verdict depends on the row and on the demand, so the ranker must ask each time; known states cost little."""
    rows_apart = True
    needs = frozenset({Need.GPU_SHARES, Need.DEMAND})
    agents_agree = True
    """By one demand, which the coordinator tells. docs/policies/frag.md says what is lost where it does not."""

    def __init__(self, name: str, weights: WeightsFile | None = None) -> None:
        self.name = name
        self._shares: GpuShares = DEFAULT
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
        self._told = ToldDemand()
        self._heard: Told | None = None
        """What was told when scores began anew; None: they go by what this policy was asked about."""
        self._scorer: Scorer | None = None
        self._known: OrderedDict[GpuRequest, Floats] = OrderedDict()
        """Scores by state, NaN: not judged yet."""
        self._cost: Floats = np.zeros(0)
        """What states cost as they are, the same for all requests; NaN: not known yet."""
        self._number: dict[State, int] = {}
        self._states: list[State] = []
        self._amounts: Ints = np.zeros((0, FREE + 1), np.int64)
        self._written = 0
        """The states as rows of an array, shorter ones with zeros behind, and room for more; so many are written."""
        self._width = FREE + 1
        """Of the longest state: a device or none is one place at least."""
        self._state_of: Ints = np.zeros(0, np.int64)
        self._stamp: Ints = np.zeros(0, np.int64)
        """By row: the number of its state, and the row's stamp when that was looked up."""
        self._zone_states: OrderedDict[PodClass, tuple[Ints, Ints]] = OrderedDict()
        """The same of a class whose pods get zones, where that is another state."""
        self._order: Floats = np.zeros(0)
        self._model: Ints = np.zeros(0, np.int64)
        self._models: dict[str, int] = {}
        self._labels: tuple[dict[str, int], Ints] = {}, np.zeros(0, np.int64)
        """Of the table as it was taken over (``model_codes``)."""
        self.placed_by = name
        """Whose scorer ranks: this policy's own, or the one in its place."""

    def supply(self, supplies: Supplies) -> None:
        """Which resources and devices are GPUs, and who tells the demand, from now on."""
        self._told = supplies.demand
        if supplies.gpu_shares != self._shares:
            self._shares = supplies.gpu_shares
            if self._table is not None:
                self._take_nodes(self._table)

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Scores of the rows; a higher step count is better, within a step the fixed order decides."""
        table, rows, whole = observation.table, observation.rows, self._table
        if not (table.copied and whole is not None and all(name in whole.row_of for name in table.names)):
            whole = table
        self._follow(whole)
        request = self._request(observation.pod_class)
        if whole is not table:
            base = np.array([whole.row_of[name] for name in table.names])[rows]
            numbers = nodes = self._numbers(table, rows, base)
        else:
            self._count(request, observation.units)
            base, nodes = rows, self._numbers_of(rows)
            numbers = self._numbers_for(observation.pod_class, rows, nodes)
        score = self._scores(numbers, request) + self._order[base]
        beside = self._beside(table, rows, nodes, request)
        return Verdicts(score if beside is None else score + beside)

    def prepare(self, table: NodeTable, asked: Sequence[tuple[PodClass, Ints]]) -> None:
        """Decisions on these rows of the table are asked for next: what they need is judged at once, for a network
        costs little more for many states than for one."""
        self._follow(table)
        wanted = [
            (self._request(pod_class), self._numbers_for(pod_class, rows, self._numbers_of(rows)))
            for pod_class, rows in asked
        ]
        self._judge([(request, self._kept(request), numbers) for request, numbers in wanted])

    def _follow(self, table: NodeTable) -> None:
        """Judge by this table's nodes as they are, and by the demand as it was told last."""
        if table is not self._table or table.static_stamp != self._static:
            self._take_nodes(table)
        elif self._told.demand is not self._heard:
            self._take_demand()

    def _scores(self, numbers: Ints, request: GpuRequest) -> Floats:
        """float64 ``[numbers]``: of states by number; those not known yet are judged."""
        known = self._kept(request)
        self._judge([(request, known, numbers)])
        return known[numbers]

    def _kept(self, request: GpuRequest) -> Floats:
        """Scores by state's number, NaN where a state is not judged yet."""
        known = self._known.pop(request, None)
        if known is None or len(known) < len(self._states):
            known = _longer(np.zeros(0) if known is None else known, len(self._states))
        self._known[request] = known  # as the last one asked for
        while len(self._known) > 1 and len(self._known) * len(known) > MAX_SCORES:
            self._known.popitem(last=False)
        return known

    def _beside(self, table: NodeTable, rows: Ints, numbers: Ints, request: GpuRequest) -> Floats | None:  # noqa: ARG002
        """float64 ``[rows]``: what else counts of them, by the table and not by their states alone; None: nothing."""
        return None

    def _judge(self, asked: Sequence[tuple[GpuRequest, Floats, Ints]]) -> None:
        """Fill in what is missing of each request's scores, at these states."""
        missing = []
        for request, known, numbers in asked:
            new = np.isnan(known[numbers])
            if new.any():
                missing.append((request, known, np.unique(numbers[new])))
        if not missing:
            return
        states = [self._as_states(numbers) for _, _, numbers in missing]
        if not isinstance(self._scorer, Frag):
            assert self._scorer is not None
            for (request, known, numbers), found in zip(missing, states, strict=True):
                known[numbers] = self._scorer.score(found, request)[0]
            return
        if len(self._cost) < len(self._states):
            self._cost = _longer(self._cost, len(self._states))
        new = np.unique(np.concatenate([numbers for _, _, numbers in missing]))
        new = new[np.isnan(self._cost[new])]
        pairs = [(found, request) for (request, _, _), found in zip(missing, states, strict=True)]
        self._cost[new], after = self._scorer.costs(self._as_states(new), pairs)
        for (_, known, numbers), cost in zip(missing, after, strict=True):
            known[numbers] = steps(cost - self._cost[numbers])

    def _as_states(self, numbers: Ints) -> GpuStates:
        states, width = self._states, self._width
        if self._written < len(states):
            self._amounts = _roomy(self._amounts, len(states), width)
            fresh = [state + (0,) * (width - len(state)) for state in states[self._written :]]
            self._amounts[self._written : len(states)] = fresh
            self._written = len(states)
        amounts = self._amounts[numbers]
        cpu, memory, model, devices = amounts[:, :FREE].T
        return GpuStates(cpu, memory, amounts[:, FREE:], devices, model, cpu, memory)

    def _numbers_for(self, pod_class: PodClass, rows: Ints, nodes: Ints) -> Ints:
        """int64 ``[rows]``: the numbers of the states by which the class is judged: of a pod that kubelets align the
        zone that it gets, as a node of its own, for it can have no GPU outside, and a GPU in there is nobody's who
        finds no CPU beside it. ``nodes``: those of the nodes as a whole, which count for all others, and in tables of
        copies (``with_copies``), that know no zones."""
        table = self._table
        assert table is not None
        if pod_class.needs is None or not table.zones_free:
            return nodes
        known = self._zone_states.pop(pod_class, None)
        if known is None:
            known = np.zeros(table.rows, np.int64), np.full(table.rows, -1)
            while len(self._zone_states) >= MOST_ALIGNED:
                self._zone_states.popitem(last=False)
        self._zone_states[pod_class] = known
        state_of, stamp = known
        stale = rows[stamp[rows] != table.stamp[rows]]
        if len(stale):
            state_of[stale] = self._numbers_of(stale)
            request = self._request(pod_class)
            left = table.allocatable[:, stale] - table.requested[:, stale]
            free = zip(left[CPU_COLUMN].tolist(), left[MEMORY_COLUMN].tolist(), strict=True)
            for row, node in zip(stale.tolist(), free, strict=True):
                found = zone_state(table.zones_free.get(row, ()), request, pod_class.needs, node)
                if found is not None:
                    cpu, memory, devices = found
                    state_of[row] = self._numbered((cpu, memory // MIB, int(self._model[row])), devices)
            stamp[stale] = table.stamp[stale]
        return state_of[rows]

    def _numbered(self, amounts: Sequence[int], devices: Sequence[int]) -> int:
        """The number of a state; one that is new gets the next."""
        state = (*amounts, len(devices), *sorted([max(left, 0) for left in devices], reverse=True))
        known = self._number.get(state)
        if known is None:
            known = self._number[state] = len(self._states)
            self._states.append(state)
            self._width = max(self._width, len(state))
        return known

    def _numbers_of(self, rows: Ints) -> Ints:
        """int64 ``[rows]``: the numbers of their states now."""
        table = self._table
        assert table is not None
        stale = rows[self._stamp[rows] != table.stamp[rows]]
        if len(stale):
            self._state_of[stale] = self._numbers(table, stale, stale)
            self._stamp[stale] = table.stamp[stale]
        return self._state_of[rows]

    def _numbers(self, table: NodeTable, rows: Ints, base: Ints) -> Ints:
        """int64 ``[rows]``: the states' numbers; ``base``: the rows of these nodes in the table of all."""
        cpu = (table.allocatable[CPU_COLUMN, rows] - table.requested[CPU_COLUMN, rows]).tolist()
        memory = ((table.allocatable[MEMORY_COLUMN, rows] - table.requested[MEMORY_COLUMN, rows]) // MIB).tolist()
        view = GpuView(table, self._shares)
        found = [
            self._numbered(amounts, view.free(row))
            for row, *amounts in zip(rows.tolist(), cpu, memory, self._model[base].tolist(), strict=True)
        ]
        return np.array(found, np.int64)

    def _take_nodes(self, table: NodeTable) -> None:
        """Names and models of the table's rows, and the demand that is told; forget all scores and states."""
        self._table, self._static = table, table.static_stamp
        self._order = np.array([crc32(name.encode()) * ORDER_STEP for name in table.names])
        self._labels = model_codes(table)
        self._take_demand(anew=True)

    def _take_demand(self, *, anew: bool = False) -> None:
        """The demand that is told; forget all scores. States stay where models have the codes that they had, nodes are
        the same (not ``anew``), and not most states are past ones: numbering thousands costs milliseconds."""
        self._heard = self._told.demand
        models, raw = self._labels
        # models that are told have codes where no node here is of them: what pods accept is the same on every agent
        known = list(dict.fromkeys((*_models_told(self._heard), *models)))[: MAX_MODELS - 1]
        codes = {name: code for code, name in enumerate(known)}
        anew |= codes != self._models or len(self._states) > MOST_PAST * len(raw)
        if anew:
            self._models = codes
            # rows without the label, and models beyond what a mask holds, share the code after the last
            other = len(known)
            self._model = np.array([*(codes.get(name, other) for name in models), other], np.int64)[raw]
            self._requests.clear()
        self._start_over()
        if anew:
            self._forget_states()

    def _forget_states(self) -> None:
        """Number states anew, as rows are looked at."""
        self._known.clear()
        self._cost = np.zeros(0)
        self._number.clear()
        self._states.clear()
        self._written = 0
        rows = 0 if self._table is None else self._table.rows
        self._state_of, self._stamp = np.zeros(rows, np.int64), np.full(rows, -1)
        self._zone_states.clear()

    def _start_over(self) -> None:
        """Judge by the demand that was told, or else by what was seen so far; every score is judged anew."""
        self._known.clear()
        self._cost = np.zeros(0)
        if self._heard is not None:
            typical = [
                (GpuRequest(one.cpu_millis, 0, one.devices, one.milli, mask_of(one.models, self._models)), one.pods)
                for one in self._heard.typical
            ]
            self._scorer = self._make(demand_of(typical))
            return
        counts = dict(self._counts) or {GpuRequest(0, 0, 0, 0): 1}
        self._scorer = self._make(typical_demand(list(counts), np.array(list(counts.values()), np.int64)))

    def _make(self, demand: TypicalDemand) -> Scorer:
        if self._weights is not None and self.placed_by != FGD:
            return Frag(self._weights, demand, self._model_share(), fullest_only=True)
        return Fgd(demand, fullest_only=True) if self.placed_by == FGD else BestFit()

    def _model_share(self) -> Floats:
        """float64 ``[models]``: share of all GPUs that nodes of each model have, by what is told of the cluster, else
        by the nodes that are here."""
        if self._heard is None:
            assert self._table is not None
            return model_share(self._of_rows(self._table, np.arange(self._table.rows)))
        devices = np.zeros(len(self._models) + 1)
        devices[-1] = self._heard.others
        for name, count in self._heard.devices.items():
            devices[self._models.get(name, -1)] += count
        return devices / max(float(devices.sum()), 1.0)

    def _count(self, request: GpuRequest, units: int) -> None:
        if len(self._states) > MAX_STATES:
            self._forget_states()
        if self._heard is not None:
            return
        self._counts[request] += units
        self._seen += units
        if self._seen >= self._next:
            self._next = max(self._seen + 1.0, self._seen * GROWTH)
            self._start_over()

    def _request(self, pod_class: PodClass) -> GpuRequest:
        request = self._requests.get(pod_class)
        if request is None:
            if len(self._requests) >= MAX_CLASSES:
                self._requests.clear()
            request = self._requests[pod_class] = request_of(pod_class, self._models, self._shares)
        return request

    def _judged(self, observation: Observation) -> GpuStates:
        """The states by which the rows are judged, to explain it."""
        if observation.pod_class.needs is None or not observation.table.zones_free:
            return self._of_rows(observation.table, observation.rows)
        rows = observation.rows
        return self._as_states(self._numbers_for(observation.pod_class, rows, self._numbers_of(rows)))

    def _of_rows(self, table: NodeTable, rows: Ints) -> GpuStates:
        view = GpuView(table, self._shares)
        free = [view.free(row) for row in rows.tolist()]
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


def _models_told(demand: Told | None) -> list[str]:
    """Names of the models that there are, and that pods want, by what is told."""
    return [] if demand is None else [*demand.devices, *(name for one in demand.typical for name in one.models)]


def _roomy(amounts: Ints, states: int, width: int) -> Ints:
    """With room for so many states of that width, and where it is made anew for some more; zeros in new places."""
    rows = len(amounts) if len(amounts) >= states else states + states // 2
    more = rows - len(amounts), width - amounts.shape[1]
    return np.pad(amounts, ((0, more[0]), (0, more[1]))) if any(more) else amounts


def _longer(values: Floats, states: int) -> Floats:
    """With room for so many states and some more; NaN in the new places."""
    return np.concatenate((values, np.full(states + states // 2 - len(values), np.nan)))


class FragPolicy(GpuPolicy):
    """``frag`` with the lens that explanations look through.

    Its features are those of the node once the pod is on it, and the node's cost before; Q(accept) is the cost that
    the pod saves there (mostly negative), Q(reject) is 0. A score is Q(accept) in whole steps, before the fixed order.
    """

    rehearsed_beside = FGD
    """Who may place instead of it."""

    def __init__(self, weights: WeightsFile) -> None:
        super().__init__(NAME, weights)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """None while another policy places instead of it: then nothing of the learned value explains a choice."""
        return (*(f"{name}_after" for name in FEATURES), "cost_before") if self.placed_by == NAME else None

    def place_by(self, name: str) -> None:
        """Rank by this policy's scorer from now on: by FGD instead of it, or by the learned value for any other name.

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
        self._follow(table)
        states, net = self._judged(observation), self._net()
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
        """The learned value; ``ValueError`` where another policy has come in its place since somebody took the lens."""
        if not isinstance(self._scorer, Frag):
            raise ValueError(f"{self.placed_by} places in place of {self.name}: there is no value to look into")
        return self._scorer.net


def request_of(pod_class: PodClass, models: dict[str, int], shares: GpuShares = DEFAULT) -> GpuRequest:
    """The class's request; ``models``: codes of the GPU models there are."""
    amounts = dict(pod_class.requests)
    devices, each = asked_of(pod_class, shares)
    memory = -(-amounts.get(MEMORY, 0) // MIB)
    return GpuRequest(amounts.get(CPU, 0), memory, devices, each, mask_of(models_named(pod_class), models))


class FgdPolicy(GpuPolicy):
    """FGD under the demand seen so far."""

    def __init__(self) -> None:
        super().__init__(FGD)


class BestFitPolicy(GpuPolicy):
    """Best fit of FGD's simulator: half CPU, half GPU."""

    needs = frozenset({Need.GPU_SHARES})

    def __init__(self) -> None:
        super().__init__("best-fit")
