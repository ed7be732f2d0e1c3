"""Placing identical pods on a handful or a thousand of nodes: the English thesis' experiments as a state machine.

Pure: a scenario and a seed give the whole run. The cluster is the scheduler's own ``NodeTable`` under the scheduler's
own filters, so that what is feasible here is what is feasible in service. One *decision* places one pod; between two
decisions pods leave, oldest first (``waves``: all are created, then all deleted, again and again; ``replace``: once
all are there, the oldest makes room for each new one). Latency to the users belongs to the nodes and changes at the
scenario's instants. What the decider sees (``seen``) may lag behind and carry noise; the mask never does, as the
scheduler's own accounting does neither.

An infeasible choice binds nothing: it is counted and its pod is dropped.

Invariants: E1 no node above its allocatable. E2 the pods counted per node are those created and not yet deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import CPU, MEMORY, PODS
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What a node offers. The default holds 32 of the thesis' pods: its 30 fit on one node."""

    cpu_millis: int = 8_000
    memory_bytes: int = 16_384 * MIB
    pods: int = 110


@dataclass(frozen=True, slots=True)
class Scenario:
    """One experiment. The defaults are the thesis' test 1: 3 nodes, 30 pods of 250m and 64Mi."""

    sizes: tuple[NodeSize, ...] = (NodeSize(),) * 3
    """The nodes."""
    pod_cpu_millis: int = 250
    pod_memory_bytes: int = 64 * MIB
    pods: int = 30
    """Pods that are there when all are."""
    turnover: str = "waves"
    """``waves`` or ``replace``."""
    filled: bool = False
    """Begin with all the pods there, on random nodes: evenly in some runs, very unevenly in others (``replace``)."""
    decisions: int = 15_000
    """Pods created before the run ends (test 1: 500 waves of 30)."""
    latency_soft_us: int = 0
    latency_hard_us: int = 0
    """The pods' limits, 0: none. With one, nodes have latencies around them; without, none is known."""
    latency_changes: int = 2
    """Instants, evenly spread over the run, at which every node's latency is drawn anew."""
    lag: int = 0
    """Decisions by which what is seen of requests and latency is old."""
    noise: float = 0.0
    """What is seen is off by a factor drawn from 1 +- this."""

    def __post_init__(self) -> None:
        problems = (
            ("sizes", not self.sizes, "name at least one node"),
            ("turnover", self.turnover not in ("waves", "replace"), "choose waves or replace"),
            ("filled", self.filled and self.turnover != "replace", "pods that are there are replaced: choose replace"),
            ("pods", self.pods < 1, "give 1 or more"),
            ("decisions", self.decisions < 1, "give 1 or more"),
            ("lag", self.lag < 0, "give 0 or more"),
            ("noise", not 0 <= self.noise < 1, "give a share of at least 0 and below 1"),
            ("latency_changes", self.latency_changes < 0, "give 0 or more"),
        )
        for name, wrong, remedy in problems:
            if wrong:
                raise ConfigError(f"scenario.{name}: {getattr(self, name)!r} cannot be used; {remedy}")

    @property
    def pod_class(self) -> PodClass:
        """The class of every pod."""
        return PodClass(
            requests=((CPU, self.pod_cpu_millis), (MEMORY, self.pod_memory_bytes)),
            score_cpu_millis=self.pod_cpu_millis,
            score_memory_bytes=self.pod_memory_bytes,
            latency_soft_us=self.latency_soft_us,
            latency_hard_us=self.latency_hard_us,
        )

    def seen_late(self, lag: int, noise: float) -> Scenario:
        """The same experiment with observations that lag and are noisy."""
        return replace(self, lag=lag, noise=noise)


@dataclass(frozen=True, slots=True)
class PlacedDecision:
    """What became of a decision: ``placed`` False when the choice was infeasible. ``latency_us``: the node's true
    latency then, -1 when none is known."""

    row: int
    placed: bool
    latency_us: int


class PlacementEnv:
    """One run. Ask ``rows``; while it holds any, ``place`` the current pod on one of them; stop at ``finished``.

    ``table``: the true cluster; ``seen``: what the decider may look at (the same object without lag and noise).
    ``pods``: int64 ``[nodes]``, pods per node. ``held``, ``active`` and ``spread``: per creation and deletion, the pods
    there are, the nodes that have any, the greatest difference of pods between two nodes. ``moved``: the node of each.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self._rng = np.random.default_rng(seed)
        self.pod_class = scenario.pod_class
        self.table = _cluster(scenario.sizes)
        exact = scenario.lag == 0 and scenario.noise == 0
        self.seen = self.table if exact else _cluster(scenario.sizes)
        self._feasibility = FeasibilityCache(self.table)
        self.pods = np.zeros(len(scenario.sizes), np.int64)
        offered = np.array([(size.cpu_millis, size.memory_bytes) for size in scenario.sizes], np.float64)
        asked = np.array([scenario.pod_cpu_millis, scenario.pod_memory_bytes], np.float64)
        self.steps: NDArray[np.float64] = (asked / offered).sum(axis=1) / 2
        """float64 ``[nodes]``: the load that one pod adds to each node."""
        self.decided = self.infeasible = self.unplaceable = 0
        self.held: list[int] = []
        self.active: list[int] = []
        self.spread: list[int] = []
        self.moved: list[int] = []
        self._order: deque[int] = deque()
        self._history: deque[tuple[IntArray, IntArray, IntArray]] = deque(maxlen=scenario.lag + 1)
        self.segment = -1
        """How often latencies have changed so far, less one."""
        if scenario.filled:
            self._fill()
        self._before_decision()

    # --- the decider's side -------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether every pod of the run has been decided."""
        return self.decided >= self.scenario.decisions

    def mask(self) -> BoolArray:
        """bool ``[nodes]``: where the current pod fits, by the scheduler's filters. Read only."""
        return self._feasibility.of(self.pod_class).mask

    def rows(self) -> IntArray:
        """The feasible rows, ascending."""
        return np.flatnonzero(self.mask())

    def place(self, row: int) -> PlacedDecision:
        """Bind the current pod to ``row`` and go on to the next decision."""
        if not 0 <= row < len(self.pods):
            raise ValueError(f"row {row}: there are {len(self.pods)} nodes")
        fits = self._fits(row)
        latency_us = int(self.table.latency_us[row])
        if fits:
            self._count(row, 1)
            self._order.append(row)
        else:
            self.infeasible += 1
        self.decided += 1
        self._before_decision()
        return PlacedDecision(row, fits, latency_us)

    def skip(self) -> None:
        """No node takes the current pod: drop it and go on."""
        self.unplaceable += 1
        self.decided += 1
        self._before_decision()

    def offers(self) -> Iterator[IntArray]:
        """Each decision's feasible rows, to the end of the run; the caller places before it asks on.

        Pods that no node takes are skipped.
        """
        while not self.finished:
            rows = self.rows()
            if len(rows):
                yield rows
            else:
                self.skip()

    # --- inside -------------------------------------------------------------------------------------------------

    def _fits(self, row: int) -> bool:
        """Whether the pod fits by plain arithmetic; asked apart from the filters on purpose."""
        scenario, size = self.scenario, self.scenario.sizes[row]
        there = int(self.pods[row]) + 1
        return (
            there * scenario.pod_cpu_millis <= size.cpu_millis
            and there * scenario.pod_memory_bytes <= size.memory_bytes
            and there <= size.pods
        )

    def _fill(self) -> None:
        """Spread the scenario's pods, as many as fit, on random nodes that draw them by weights of their own."""
        weight = self._rng.random(len(self.pods)) ** self._rng.uniform(0, 2)
        for _ in range(self.scenario.pods):
            rows = self.rows()
            if not len(rows):
                return
            row = int(self._rng.choice(rows, p=weight[rows] / weight[rows].sum()))
            self._count(row, 1)
            self._order.append(row)

    def _count(self, row: int, sign: int) -> None:
        self.table.add_usage(row, self.pod_class, (), sign=sign)
        self.pods[row] += sign
        self.held.append((self.held[-1] if self.held else 0) + sign)
        self.active.append(int(np.count_nonzero(self.pods)))
        self.spread.append(int(self.pods.max() - self.pods.min()))
        self.moved.append(row)

    def _before_decision(self) -> None:
        """Pods leave, latencies change, and what is seen catches up."""
        scenario = self.scenario
        if self.finished:
            self._leave(len(self._order) if scenario.turnover == "waves" else 0)
            return
        if scenario.turnover == "replace":
            self._leave(1 if len(self._order) >= scenario.pods else 0)
        elif self.decided and self.decided % scenario.pods == 0:
            self._leave(len(self._order))
        self._change_latency()
        if self.seen is not self.table:
            self._observe()

    def _leave(self, count: int) -> None:
        for _ in range(count):
            self._count(self._order.popleft(), -1)

    def _change_latency(self) -> None:
        scenario = self.scenario
        if not (scenario.latency_soft_us or scenario.latency_hard_us):
            return
        segment = self.decided * (scenario.latency_changes + 1) // scenario.decisions
        if segment == self.segment:
            return
        self.segment = segment
        latency = draw_latency(scenario, self._rng)
        for row in range(len(self.pods)):
            self.table.set_latency(row, int(latency[row]))

    def _observe(self) -> None:
        """Bring ``seen`` up to ``lag`` decisions ago, each amount off by its own noise."""
        table, seen, noise = self.table, self.seen, self.scenario.noise
        self._history.append((table.requested.copy(), table.score_requested.copy(), table.latency_us.copy()))
        parts = self._history[0]
        if noise:
            parts = tuple(  # type: ignore[assignment]
                np.rint(part * self._rng.uniform(1 - noise, 1 + noise, part.shape)).astype(np.int64) for part in parts
            )
        seen.requested[:], seen.score_requested[:], seen.latency_us[:] = parts


def draw_latency(scenario: Scenario, rng: np.random.Generator) -> IntArray:
    """int64 ``[nodes]`` microseconds: per node within the soft limit, between the limits, or beyond the hard one.

    With up to three nodes the bands are dealt out, so that the best node moves; with more they are drawn, 3 : 3 : 4.
    """
    nodes = len(scenario.sizes)
    soft = scenario.latency_soft_us or scenario.latency_hard_us
    hard = scenario.latency_hard_us or scenario.latency_soft_us
    bands = rng.permutation(3)[:nodes] if nodes <= 3 else rng.choice(3, nodes, p=(0.3, 0.3, 0.4))
    low = np.array([soft // 10, soft + 1, hard + 1])[bands]
    high = np.array([soft, max(hard, soft + 1), 2 * hard])[bands]
    return rng.integers(low, high + 1)


def _cluster(sizes: tuple[NodeSize, ...]) -> NodeTable:
    table = NodeTable(len(sizes))
    for number, size in enumerate(sizes):
        amounts = {CPU: size.cpu_millis, MEMORY: size.memory_bytes, PODS: size.pods}
        table.upsert(Node(name=f"node-{number:04d}", allocatable=amounts))
    return table
