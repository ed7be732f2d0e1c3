"""The thesis' experiment as an environment: pods arrive one by one, each must be given a node, loads follow in time.

A state machine without network, clock or global randomness: ``pending`` is the pod to place, ``place(node)`` binds it
and lets virtual time run to the next arrival, ``result()`` is what the whole episode was worth. The nodes' accounting
and the filters are those of the mesh (``NodeTable``, ``FeasibilityCache``), so a policy is asked here what it is asked
there. It neither chooses nor rewards, and what a pod really uses stays hidden: policies see ``measured`` (what each
node used ``lag_s`` ago, with noise), ``changes`` (bindings and ends, as the API server tells them) and the requests.

A pod::

    arrives --place--> bound --start_delay_s--> runs --duration_s--> ends
                         |                       |
                         +---- its node fails ---+--> arrives again after ``recreate_s`` (its controller makes a copy)

Invariants, checked by tests: T1 a node's demand is the sum over the pods that run on it; T2 a pod is bound only to a
node that passes the filters; T3 same settings, pods and seed give the same episode; T4 every pod either ended or was
never placeable when the episode is over. Source of every number: targets T3.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lab.environments.node_load import CPU, PARTS, FloatArray, NodeLoad, pattern_of
from lab.environments.thesis_workload import NODE_ALLOCATABLE, NODE_LIMITS, EnvPod, in_order, usage_array
from shared.errors import ConfigError
from shared.model.node import Node
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.state.node_table import NodeTable

READ_AFTER_S = 15.0
"""T_i of the thesis: so long after the binding the reward is read."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """Node ``node`` is dead from ``at_s`` for ``for_s`` seconds; what ran there starts anew elsewhere."""

    node: int
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class ThesisSettings:
    """How an episode goes. All times in virtual seconds."""

    nodes: int = 4
    """Workers, each of 4 vCPU, 8 GB, 10 MB/s of writes, 10 Mbit/s."""
    lag_s: float = 15.0
    """Age of what ``measured`` shows. 15: a metrics server's period, and the thesis' T_i."""
    noise: float = 0.0
    """Half width of the uniform relative error of every measured value; 0.1 is +-10 %. Drawn per reading."""
    start_delay_s: float = 1.0
    """From the binding to the run; as ``cluster.ModelSettings.start_delay_s``."""
    recreate_s: float = 1.0
    """From a node's death to its pods' copies arriving."""
    faults: tuple[NodeFault, ...] = ()
    """Which nodes die when."""
    readings: bool = False
    """Keep every node's utilisation ``READ_AFTER_S`` after each binding: for training."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("nodes", self.nodes, 1, 100_000), ("lag_s", self.lag_s, 0, 86_400), ("noise", self.noise, 0, 1),
            ("start_delay_s", self.start_delay_s, 0, 3_600), ("recreate_s", self.recreate_s, 0, 3_600),
        ):  # fmt: skip
            if not low <= value <= high:
                raise ConfigError(f"{name}: {value} is out of range; give {low} to {high}")
        for fault in self.faults:
            if not 0 <= fault.node < self.nodes or fault.at_s < 0 or fault.for_s <= 0:
                raise ConfigError(f"faults: {fault} does not fit {self.nodes} nodes; node from 0, at_s >= 0, for_s > 0")


@dataclass(frozen=True, slots=True)
class LoadChange:
    """A binding (``sign`` 1) or an end (-1), as everybody hears of it at ``at_s``."""

    at_s: float
    pod: int
    node: int
    workload: str
    sign: int


@dataclass(frozen=True, slots=True)
class ThesisReading:
    """Utilisation [nodes, 4] (may exceed 1), ``READ_AFTER_S`` after decision number ``decision``."""

    decision: int
    utilisation: FloatArray


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """``imbalance``: targets T3. ``completed_work``: share of the work of all pods that got done, 1 without contention.
    ``utilisation``, ``cpu``: time means over nodes of the highest part's mean and of cpu, each capped at 1."""

    imbalance: float
    completed_work: float
    utilisation: FloatArray
    cpu: float
    seconds: float
    decisions: int
    restarted: int
    unplaced: int


@dataclass(slots=True)
class _Live:
    """A bound pod."""

    pod: EnvPod
    node: int
    delta: FloatArray
    started_s: float | None = None
    lost_at_start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ThesisCluster:
    """Unlike nodes. ``limits`` float64 [nodes, 4]: what each offers, infinite where nobody knows; ``own``, alike: what
    it uses by itself."""

    nodes: tuple[Node, ...]
    limits: FloatArray
    own: FloatArray

    def __post_init__(self) -> None:
        if not self.limits.shape == self.own.shape == (len(self.nodes), len(PARTS)):
            raise ConfigError(f"cluster: limits and own are not of {len(self.nodes)} nodes; give a row for each")

    @classmethod
    def alike(cls, count: int) -> ThesisCluster:
        """The workers of targets T3."""
        nodes = tuple(Node(name=f"worker-{number + 1}", allocatable=NODE_ALLOCATABLE) for number in range(count))
        return cls(nodes, np.tile(NODE_LIMITS, (count, 1)), np.zeros((count, len(PARTS))))


class ThesisEnv:
    """One episode. ``pods`` in any order; ``rng`` draws noise and the nodes' network delays. ``cluster`` None: nodes of
    targets T3; another has as many nodes as ``settings`` say."""

    def __init__(
        self,
        pods: Sequence[EnvPod],
        rng: np.random.Generator,
        settings: ThesisSettings | None = None,
        cluster: ThesisCluster | None = None,
    ) -> None:
        self.settings = settings or ThesisSettings()
        self._rng = rng
        count = self.settings.nodes
        self.table = NodeTable(count)
        self.cluster = ThesisCluster.alike(count) if cluster is None else cluster
        if len(self.cluster.nodes) != count:
            raise ConfigError(f"nodes: {count} are set, the cluster has {len(self.cluster.nodes)}; give as many")
        for node in self.cluster.nodes:
            self.table.upsert(node)
        self.feasibility = FeasibilityCache(self.table, profile=UNMEASURED)
        self.load = NodeLoad(count)
        self.healthy: NDArray[np.bool_] = np.ones(count, np.bool_)
        self.delay_ms: FloatArray = rng.uniform(0.5, 3.0, count)
        self.now_s = 0.0
        self.pending: EnvPod | None = None
        self.changes: list[LoadChange] = []
        """What happened since the caller last emptied this list."""
        self.readings: list[ThesisReading] = []
        self.decisions = self.restarted = self.unplaced = 0
        self._work = self._all_work = 0.0
        self._last_end_s = 0.0
        self._live: dict[int, _Live] = {}
        self._waiting: deque[EnvPod] = deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._late: deque[tuple[float, int, FloatArray]] = deque()
        self._seen: FloatArray = np.zeros_like(self.load.demand)
        for row, own in enumerate(self.cluster.own / self.cluster.limits):
            if own.any():
                self._change_load(row, own)
        for pod in in_order(pods):
            self._all_work += 1.0
            self._plan(pod.at_s, partial(self._waiting.append, pod))
        for fault in self.settings.faults:
            self._plan(fault.at_s, partial(self._fail, fault.node))
            self._plan(fault.at_s + fault.for_s, partial(self._recover, fault.node))
        self._run()

    # --- what a policy may see ----------------------------------------------------------------------------------

    @property
    def mask(self) -> NDArray[np.bool_]:
        """bool [nodes]: which nodes pass the filters for the pending pod."""
        assert self.pending is not None, "the episode is over"
        return self.feasibility.of(self.pending.pod_class).mask.copy()

    def measured(self) -> FloatArray:
        """float64 [nodes, 4]: what each node used ``lag_s`` ago as its kernel counts it (at most 1), with noise.

        Each call draws new noise: ask once per decision.
        """
        until_s = self.now_s - self.settings.lag_s
        late, seen = self._late, self._seen
        while late and late[0][0] <= until_s:
            _, node, delta = late.popleft()
            seen[node] += delta
        values = np.minimum(np.maximum(seen, 0.0), 1.0)
        if self.settings.noise:
            values *= self._rng.uniform(1.0 - self.settings.noise, 1.0 + self.settings.noise, values.shape)
        return values

    # --- what only judges see -----------------------------------------------------------------------------------

    def true_utilisation(self) -> FloatArray:
        """float64 [nodes, 4]: demand over limit now, with the pods that are bound and have not started yet."""
        total = self.load.demand.copy()
        for live in self._live.values():
            if live.started_s is None:
                total[live.node] += live.delta
        return total

    def true_usage(self) -> FloatArray:
        """float64 [4]: the pending pod's real use as shares of the first node's limits."""
        assert self.pending is not None, "the episode is over"
        found: FloatArray = usage_array(self.pending.usage) / self.cluster.limits[0]
        return found

    def true_ends(self) -> list[tuple[int, float, FloatArray]]:
        """(node, end, use [4]) of every bound pod: what only a clairvoyant knows."""
        delay_s = self.settings.start_delay_s
        return [
            (live.node, (self.now_s + delay_s if live.started_s is None else live.started_s) + live.pod.duration_s,
             live.delta)
            for live in self._live.values()
        ]  # fmt: skip

    # --- the episode --------------------------------------------------------------------------------------------

    def place(self, node: int) -> None:
        """Bind the pending pod to ``node`` and go on to the next decision. A node that is not feasible: ValueError."""
        pod = self.pending
        if pod is None:
            raise ValueError("the episode is over: no pod is pending")
        if not 0 <= node < self.settings.nodes or not self.mask[node]:
            raise ValueError(f"node {node} does not pass the filters; choose among the mask")
        number = self.decisions
        self.decisions += 1
        self._live[number] = _Live(pod, node, usage_array(pod.usage) / self.cluster.limits[node])
        self.table.add_usage(node, pod.pod_class, ())
        self.changes.append(LoadChange(self.now_s, number, node, pod.pod_class.workload, 1))
        self._plan(self.now_s + self.settings.start_delay_s, partial(self._start, number))
        if self.settings.readings:
            self._plan(self.now_s + READ_AFTER_S, partial(self._read, number))
        self.pending = None
        self._run()

    @property
    def over(self) -> bool:
        """No pod will ever have to be placed any more."""
        return self.pending is None

    def result(self) -> EpisodeResult:
        """The figures of an episode that is over; RuntimeError before."""
        if not self.over:
            raise RuntimeError("the episode is not over: place the pending pod first")
        seconds = max(self._last_end_s, 1e-9)
        used = self.load.used_area / (seconds * self.settings.nodes)
        return EpisodeResult(
            imbalance=self.load.imbalance_area / seconds,
            completed_work=self._work / self._all_work,
            utilisation=used,
            cpu=float(used[CPU]),
            seconds=seconds,
            decisions=self.decisions,
            restarted=self.restarted,
            unplaced=self.unplaced,
        )

    # --- inside -------------------------------------------------------------------------------------------------

    def _plan(self, at_s: float, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (at_s, self._sequence, event))

    def _run(self) -> None:
        """Handle events until a pod can be placed, or to the end of all things."""
        while True:
            for place, pod in enumerate(self._waiting):
                self.pending = pod
                if self.mask.any():
                    del self._waiting[place]
                    return
            self.pending = None
            if not self._events:
                break
            self.now_s, _, event = heapq.heappop(self._events)
            event()
        self.unplaced = len(self._waiting)
        self.load.advance(max(self.load.now_s, self._last_end_s))

    def _change_load(self, node: int, delta: FloatArray) -> None:
        self.load.change(self.now_s, node, delta)
        self._late.append((self.now_s, node, delta))

    def _start(self, number: int) -> None:
        live = self._live.get(number)
        if live is None:
            return
        self._change_load(live.node, live.delta)
        live.started_s = self.now_s
        live.lost_at_start_s = float(self.load.lost[live.node, pattern_of(live.delta)])
        self._plan(self.now_s + live.pod.duration_s, partial(self._end, number))

    def _end(self, number: int) -> None:
        live = self._live.get(number)
        if live is None:
            return
        self._remove(number, live)
        lost_s = float(self.load.lost[live.node, pattern_of(live.delta)]) - live.lost_at_start_s
        self._work += 1.0 - lost_s / live.pod.duration_s
        self._last_end_s = self.now_s

    def _remove(self, number: int, live: _Live) -> None:
        del self._live[number]
        if live.started_s is not None:
            self._change_load(live.node, -live.delta)
        self.table.add_usage(live.node, live.pod.pod_class, (), sign=-1)
        self.changes.append(LoadChange(self.now_s, number, live.node, live.pod.pod_class.workload, -1))

    def _read(self, number: int) -> None:
        self.readings.append(ThesisReading(number, self.load.demand.copy()))

    def _fail(self, node: int) -> None:
        self.healthy[node] = False
        # a dead node is not schedulable: what its not-ready taints come to
        self.table.upsert(replace(self.cluster.nodes[node], unschedulable=True))
        for number, live in [item for item in self._live.items() if item[1].node == node]:
            self._remove(number, live)
            self.restarted += 1
            self._plan(self.now_s + self.settings.recreate_s, partial(self._waiting.append, live.pod))
        self.load.count(self.now_s, node, counted=False)

    def _recover(self, node: int) -> None:
        self.healthy[node] = True
        self.table.upsert(self.cluster.nodes[node])
        self.load.count(self.now_s, node, counted=True)
