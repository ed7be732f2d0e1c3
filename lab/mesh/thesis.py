"""The thesis' experiment through a mesh: pods of targets T3 on four nodes, measured late and in part.

Every 15 s the coordinator hears of each node's cpu and memory, as ``metrics.k8s.io`` tells them, and of neither disk
nor network. With ``SENSORS`` it hears of all four every 5 s, as agents' sensors tell them, 15 s late and with 10 %
noise. The imbalance is the time mean of the s.d. over nodes of the highest of all four parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lab.environments.node_load import NodeLoad
from lab.environments.thesis_workload import NODE_LIMITS, Draws, EnvPod, thesis_pods, usage_array
from lab.mesh.placement import Named
from lab.mesh.world import Agents, MeshWorld
from services.coordinator.core.events import NodeSample, NodesMeasured
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY, PODS
from shared.policy.usage.class_usage import FloatArray
from shared.policy.usage.views import MOST_SHARE

NODES = 4
START_DELAY_S = 1.0
LAST_SAMPLE_S = 900.0
POD_CLASS = PodClass(
    requests=((CPU, 100), (MEMORY, 64 << 20)), score_cpu_millis=100, score_memory_bytes=64 << 20
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sensing:
    """What is measured: how often, how late, how noisily, and whether disk and network are."""

    every_s: float
    lag_s: float
    noise: float
    all_parts: bool


METRICS, SENSORS = Sensing(15.0, 0.0, 0.0, all_parts=False), Sensing(5.0, 15.0, 0.1, all_parts=True)


class Result(NamedTuple):
    """``imbalance`` as in targets T3; ``offer_bytes`` per pod, over all agents; ``each``: the imbalance from the first
    arrival of each workload to that of the next one, of the last to its last arrival."""

    imbalance: float
    offer_bytes: float
    each: tuple[float, ...]


class _Due(NamedTuple):
    """What comes at ``at_s``; of equal times in this order."""

    at_s: float
    what: int
    number: int
    node: int = -1


_ARRIVE, _START, _END, _SAMPLE = range(4)


def episode(
    policy: Named, workload: str, agents: Agents, sensing: Sensing, seed: int, delays_ms: Sequence[float] = (),
    times: int = 1,
) -> Result:  # fmt: skip
    """One episode of ``uniform`` or ``random``. ``delays_ms``: of the nodes to others, as sensors tell it; none: nobody
    measures it. ``times``: so many workloads, each begins as the one before has come to its last arrival."""
    (pods, begins), load = _one_after_the_other(workload, Draws(seed), times), NodeLoad(NODES)
    amounts = {CPU: 4000, MEMORY: 8_000_000_000, PODS: 110}
    nodes = [Node(name=f"worker-{number}", allocatable=amounts) for number in range(NODES)]
    world, measured = policy.world(nodes, agents, seed), _Measured(load, sensing, seed, delays_ms)
    due = [_Due(pod.at_s, _ARRIVE, number) for number, pod in enumerate(pods)]
    samples = round((begins[-2] + LAST_SAMPLE_S) / sensing.every_s)
    due += [_Due(1.0 + place * sensing.every_s, _SAMPLE, place) for place in range(samples)]
    heapq.heapify(due)
    began_s, left, last_s = world.now, len(pods), 0.0
    areas: list[float] = []
    while left:
        one = heapq.heappop(due)
        while len(areas) < len(begins) and one.at_s >= begins[len(areas)]:
            load.advance(begins[len(areas)])
            areas.append(load.imbalance_area)
        world.rest(for_s=max(0.0, began_s + one.at_s - world.now))
        if one.what == _SAMPLE:
            if (read := measured.read()) is not None:
                world.tell(NodesMeasured(read))
                world.rest()
            continue
        pod, uid = pods[one.number], f"p{one.number}"
        delta = usage_array(pod.usage) / NODE_LIMITS
        if one.what == _ARRIVE:
            node = _placed(world, uid, pod)
            heapq.heappush(due, _Due(one.at_s + START_DELAY_S, _START, one.number, node))
        elif one.what == _START:
            load.change(one.at_s, one.node, delta)
            heapq.heappush(due, _Due(one.at_s + pod.duration_s, _END, one.number, one.node))
        else:
            load.change(one.at_s, one.node, -delta)
            world.remove(uid)
            left, last_s = left - 1, one.at_s
    load.advance(last_s)
    each = tuple(float(one) for one in np.diff(areas) / np.diff(begins))
    return Result(load.imbalance_area / last_s, world.offer_bytes / len(pods), each)


def _one_after_the_other(workload: str, draws: Draws, times: int) -> tuple[list[EnvPod], list[float]]:
    """The pods of so many workloads, and when each begins; at last the last arrival of all."""
    pods: list[EnvPod] = []
    begins = [0.0]
    for _ in range(times):
        drawn = thesis_pods(workload, draws, nodes=NODES)
        pods += (replace(pod, at_s=begins[-1] + pod.at_s) for pod in drawn)
        begins.append(pods[-1].at_s)
    return pods, begins


def _placed(world: MeshWorld, uid: str, pod: EnvPod) -> int:
    """The node that it was bound to."""
    workload = pod.pod_class.workload
    world.add([Pod(uid, "default", uid, "", POD_CLASS, scheduler_name="conclave", workload=workload)])
    world.rest()
    return int(world.node_of(uid).removeprefix("worker-"))


class _Measured:
    """What the coordinator hears, when it does."""

    def __init__(self, load: NodeLoad, sensing: Sensing, seed: int, delays_ms: Sequence[float]) -> None:
        self._load = load
        self._sensing = sensing
        self._delay_us: list[int | None] = [*(round(delay * 1000) for delay in delays_ms)] or [None] * NODES
        self._noise = np.random.default_rng(seed)
        self._late: list[FloatArray] = []

    def read(self) -> tuple[NodeSample, ...] | None:
        """Read now; what comes in now was read so long ago. None: nothing yet."""
        sensing = self._sensing
        shares: FloatArray = np.minimum(self._load.demand, min(1.0, MOST_SHARE))
        if sensing.noise:
            shares = shares * np.maximum(0.0, self._noise.normal(1.0, sensing.noise, shares.shape))
        self._late.append(shares)
        if len(self._late) <= sensing.lag_s / sensing.every_s:
            return None
        return tuple(self._sample(node, one) for node, one in enumerate(self._late.pop(0)))

    def _sample(self, node: int, shares: FloatArray) -> NodeSample:
        cpu, memory = (round(float(shares[part] * NODE_LIMITS[part])) for part in range(2))
        if not self._sensing.all_parts:
            return NodeSample(f"worker-{node}", self._sensing.lag_s, cpu, memory)
        disk, network = float(shares[2]), float(shares[3])
        return NodeSample(
            f"worker-{node}", self._sensing.lag_s, cpu, memory, disk, network, source="agent",
            delay_us=self._delay_us[node], latencies={},
        )  # fmt: skip
