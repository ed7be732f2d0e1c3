"""Decayed states: clusters that were filled well and whose pods have come and gone at random since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from lab.mesh.openb import class_of, nodes_of
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY, PODS
from shared.policy.rehearsal.submission import GpuNodes, GpuPods
from shared.rebalance.planner import ClusterSituation
from shared.rebalance.residents import Resident, pending_again
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cluster_state import ClusterState

MIB, GIB = 1 << 20, 1 << 30
OWNER = ("apps/v1", "ReplicaSet", "bench")


@dataclass
class Decaying:
    """A cluster into which pods come, each to the least requested node that takes it, ties at random, and leave."""

    state: ClusterState
    classes: Sequence[PodClass]
    rng: np.random.Generator
    of: dict[str, int]
    made: int = 0

    def __post_init__(self) -> None:
        self._feasibility = FeasibilityCache(self.state.table, cache_bytes=1 << 28)
        self._uids: list[str] = []

    def fits(self, number: int, row: int) -> bool:
        """Whether a node has the CPU and memory for one more of the class."""
        table, pod_class = self.state.table, self.classes[number]
        free = table.allocatable[:2, row] - table.requested[:2, row]
        return bool((free >= (pod_class.score_cpu_millis, pod_class.score_memory_bytes)).all())

    def come(self, number: int, row: int = -1) -> bool:
        """One more pod of the class, on that row where one is named; False: no node takes it."""
        table, pod_class = self.state.table, self.classes[number]
        if row < 0:
            rows = np.flatnonzero(self._feasibility.of(pod_class).mask)
            if not len(rows):
                return False
            used = (table.requested[:2, rows] / np.maximum(table.allocatable[:2, rows], 1)).sum(0)
            row = int(self.rng.choice(rows[used == used.min()]))
        uid = f"p{self.made}"
        self.made += 1
        pod = Pod(
            uid, "default", uid, "", pod_class, scheduler_name="conclave", node_name=table.names[row],
            workload=f"default/ReplicaSet:w{number}",
        )  # fmt: skip
        self.state.observe(pod)
        self.of[uid] = number
        self._uids.append(uid)
        return True

    def leave(self) -> int:
        """A pod drawn at random leaves; its class."""
        at = int(self.rng.integers(len(self._uids)))
        self._uids[at], self._uids[-1] = self._uids[-1], self._uids[at]
        uid = self._uids.pop()
        self.state.forget(uid)
        return self.of.pop(uid)

    def situation(self) -> ClusterSituation:
        """As it stands."""
        residents = []
        for uid in self._uids:
            pod = self.state.index.get(uid)
            account = self.state.cache.accounts[uid]
            assert pod is not None
            stands = replace(pod, node_name=account.node_name, devices=account.devices)
            residents.append(Resident(pod=stands, replacement=pending_again(stands), owner=OWNER))
        return ClusterSituation(self.state, tuple(residents))


def openb_state(nodes: GpuNodes, pods: GpuPods, seed: int, share: float, departures: int) -> Decaying:
    """openb's GPU nodes, filled to a share of all GPUs by pods drawn from its list, then so many departures, each
    followed by arrivals until the share is held again."""
    state = ClusterState()
    for node in nodes_of(nodes):
        state.upsert_node(node)
    found = Decaying(state, [class_of(one, nodes) for one in pods.classes], np.random.default_rng(seed), {})
    held, wanted = 0, share * nodes.capacity

    def fill() -> None:
        nonlocal held
        while held < wanted:
            number = int(pods.of[found.rng.integers(len(pods.of))])
            if not found.come(number):
                return
            held += pods.classes[number].gpu

    fill()
    for _ in range(departures):
        held -= pods.classes[found.leave()].gpu
        fill()
    return found


SHAPES = ((8, 32), (16, 64), (32, 64))
"""Cores and GiB of nodes."""
SIZES = ((500, 1), (1000, 2), (1000, 4), (2000, 4), (2000, 8), (4000, 8), (4000, 16), (6000, 12))
"""Milli-cores and GiB of pods."""


def large_state(nodes: int, pods: int, seed: int, kinds: int = 200) -> Decaying:
    """Nodes of 64 cores and pods of so many kinds, spread at random."""
    rng = np.random.default_rng(seed)
    state = ClusterState()
    for number in range(nodes):
        state.upsert_node(Node(f"n{number}", allocatable={CPU: 64_000, MEMORY: 256 * GIB, PODS: 110}))
    amounts = [(int(rng.integers(2, 80)) * 100, int(rng.integers(2, 64)) * GIB // 4) for _ in range(kinds)]
    classes = [PodClass(((CPU, cpu), (MEMORY, memory)), cpu, memory) for cpu, memory in amounts]
    found = Decaying(state, classes, rng, {})
    while len(found.of) < pods:
        number, row = int(rng.integers(kinds)), int(rng.integers(nodes))
        if found.fits(number, row):
            found.come(number, row)
    return found


def plain_state(count: int, seed: int, share: float, departures: float) -> Decaying:
    """Nodes of three shapes without GPUs, filled to a share of CPU, of whose pods a part has left since."""
    rng = np.random.default_rng(seed)
    state, cores = ClusterState(), 0
    for number in range(count):
        cpu, memory = SHAPES[int(rng.integers(len(SHAPES)))]
        cores += cpu
        state.upsert_node(Node(f"n{number}", allocatable={CPU: cpu * 1000, MEMORY: memory * GIB, PODS: 110}))
    classes = [
        PodClass(((CPU, cpu), (MEMORY, memory * GIB)), score_cpu_millis=cpu, score_memory_bytes=memory * GIB)
        for cpu, memory in SIZES
    ]
    found = Decaying(state, classes, rng, {})
    held, wanted = 0, share * cores * 1000
    while held < wanted:
        number = int(rng.integers(len(SIZES)))
        if not found.come(number):
            break
        held += SIZES[number][0]
    for _ in range(int(departures * len(found.of))):
        found.leave()
    return found
