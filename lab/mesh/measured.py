"""Pods that come, run and end on a mesh whose nodes are measured late and in part.

Every 15 s the coordinator hears of each node's cpu and memory, as ``metrics.k8s.io`` tells them, and of neither disk
nor network. With ``SENSORS`` it hears of all four every 5 s, as agents' sensors tell them, 15 s late and with 10 %
noise. The imbalance is the time mean of the s.d. over nodes of the highest of all four parts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from lab.environments.node_load import FloatArray, NodeLoad, pattern_of
from lab.environments.placement_rewards import RewardedPlacement, el_bounded_reward
from lab.environments.thesis import ThesisCluster
from lab.environments.thesis_workload import EnvPod, usage_array
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents, MeshWorld
from lab.worlds.placement.captured_placement import MOST_EL
from services.coordinator.core.events import NodeSample, NodesMeasured
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY
from shared.policy.usage.views import MOST_SHARE

START_DELAY_S = 1.0
FIRST_SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True)
class MeshSensing:
    """What is measured: how often, how late, how noisily, and whether disk and network are."""

    every_s: float
    lag_s: float
    noise: float
    all_parts: bool


METRICS, SENSORS = MeshSensing(15.0, 0.0, 0.0, all_parts=False), MeshSensing(5.0, 15.0, 0.1, all_parts=True)
NOBODY = MeshSensing(float("inf"), 0.0, 0.0, all_parts=False)
"""Nothing is measured: policies go by requests."""


class MeasuredResult(NamedTuple):
    """``imbalance`` as in targets T3; ``offer_bytes`` per pod, over all agents; time means of the s.d. over nodes
    of what is requested (``load_spread``, mean of cpu and memory) and of the nodes that have a pod; pods that never
    got a node; ``each``: the imbalance from the beginning of each workload to that of the next one; ``use_spread``: as
    ``load_spread``, of what is really used; ``reward_missed``: of what ``el`` is paid, mean over the placements;
    ``work``: of each pod, in the order given, the share of its work that got done: a node that is short slows what
    runs there."""

    imbalance: float
    offer_bytes: float
    load_spread: float = 0.0
    nodes_in_use: float = 0.0
    unplaced: int = 0
    each: tuple[float, ...] = ()
    use_spread: float = 0.0
    reward_missed: float = 0.0
    work: tuple[float, ...] = ()


class _Due(NamedTuple):
    """What comes at ``at_s``; of equal times in this order."""

    at_s: float
    what: int
    number: int
    node: int = -1


_ARRIVE, _START, _END, _SAMPLE = range(4)


def play(
    policy: NamedPolicy, cluster: ThesisCluster, pods: Sequence[EnvPod], agents: Agents, sensing: MeshSensing,
    seed: int, *,
    measured_s: float, delays_ms: Sequence[float] = (), begins: Sequence[float] = (),
) -> MeasuredResult:  # fmt: skip
    """Until all pods have ended. ``measured_s``: for how long nodes are measured; ``delays_ms``: of the nodes to
    others, as sensors tell it; none: nobody measures it; ``begins``: of each workload, at last the end of the last."""
    load = NodeLoad(len(cluster.nodes))
    for row, own in enumerate(cluster.own / cluster.limits):
        if own.any():
            load.change(0.0, row, own)
    world, measured = (
        policy.world(list(cluster.nodes), agents, seed),
        _Measured(cluster, load, sensing, seed, delays_ms),
    )
    rows = {node.name: row for row, node in enumerate(cluster.nodes)}
    asked, used = _Loads(cluster), _Loads(cluster)
    due = [_Due(pod.at_s, _ARRIVE, number) for number, pod in enumerate(pods)]
    samples = round(measured_s / sensing.every_s)  # of nobody none
    due += [_Due(FIRST_SAMPLE_S + place * sensing.every_s, _SAMPLE, place) for place in range(samples)]
    heapq.heapify(due)
    began_s, last_s = world.now, 0.0
    coming, running = len(pods), 0
    waiting: list[int] = []
    work, lost_s = [0.0] * len(pods), [0.0] * len(pods)
    areas: list[float] = []
    while due and (coming or running):
        one = heapq.heappop(due)
        while len(areas) < len(begins) and one.at_s >= begins[len(areas)]:
            load.advance(begins[len(areas)])
            areas.append(load.imbalance_area)
        world.rest(for_s=max(0.0, began_s + one.at_s - world.now))
        if one.what == _SAMPLE:
            if (read := measured.read()) is not None:
                world.tell(NodesMeasured(read))
                world.rest()
        elif one.what == _ARRIVE:
            coming -= 1
            _create(world, one.number, pods[one.number])
            waiting.append(one.number)
        elif one.what == _START:
            load.change(one.at_s, one.node, usage_array(pods[one.number].usage) / cluster.limits[one.node])
            used.change(one.at_s, one.node, _used(pods[one.number]), 1)
            lost_s[one.number] = _lost(load, cluster, pods[one.number], one.node)
            heapq.heappush(due, _Due(one.at_s + pods[one.number].duration_s, _END, one.number, one.node))
        else:
            load.change(one.at_s, one.node, -usage_array(pods[one.number].usage) / cluster.limits[one.node])
            lost = _lost(load, cluster, pods[one.number], one.node) - lost_s[one.number]
            work[one.number] = 1.0 - lost / pods[one.number].duration_s
            used.change(one.at_s, one.node, _used(pods[one.number]), -1)
            asked.change(one.at_s, one.node, _asked(pods[one.number]), -1)
            world.remove(f"p{one.number}")
            running, last_s = running - 1, one.at_s
            if waiting:
                world.rest()
        still = []
        for number in waiting:
            if name := world.node_of(f"p{number}"):
                asked.change(one.at_s, rows[name], _asked(pods[number]), 1)
                asked.judge(rows[name], pods[number])
                heapq.heappush(due, _Due(one.at_s + START_DELAY_S, _START, number, rows[name]))
                running += 1
            else:
                still.append(number)
        waiting = still
    load.advance(last_s)
    each = tuple(float(one) for one in np.diff(areas) / np.diff(begins[: len(areas)]))
    return MeasuredResult(
        load.imbalance_area / last_s, world.offer_bytes / len(pods), *asked.means(last_s), unplaced=len(waiting),
        each=each, use_spread=used.means(last_s)[0], reward_missed=asked.reward_missed, work=tuple(work),
    )  # fmt: skip


def _lost(load: NodeLoad, cluster: ThesisCluster, pod: EnvPod, node: int) -> float:
    """Seconds of work that pods of its kind have lost on the node so far."""
    return float(load.lost[node, pattern_of(usage_array(pod.usage) / cluster.limits[node])])


def _create(world: MeshWorld, number: int, pod: EnvPod) -> None:
    uid, asks, workload = f"p{number}", replace(pod.pod_class, workload=""), pod.pod_class.workload
    world.add([Pod(uid, "default", uid, "", asks, scheduler_name="conclave", workload=workload, priority=pod.priority)])
    world.rest()


def _asked(pod: EnvPod) -> FloatArray:
    """float64 [2]: milli-cores and bytes requested."""
    requests = dict(pod.pod_class.requests)
    return np.array([requests.get(CPU, 0), requests.get(MEMORY, 0)], np.float64)


def _used(pod: EnvPod) -> FloatArray:
    """The same of what it uses."""
    return usage_array(pod.usage)[:2]


class _Loads:
    """What pods request, or use, of each node's cpu and memory over time."""

    def __init__(self, cluster: ThesisCluster) -> None:
        self._offered = np.array(
            [[max(node.allocatable.get(name, 0), 1) for name in (CPU, MEMORY)] for node in cluster.nodes], np.float64
        )
        self._load = np.zeros(len(cluster.nodes))
        self._pods = np.zeros(len(cluster.nodes), np.int64)
        self._latency_us = [node.latency_us for node in cluster.nodes]
        self._missed: list[float] = []
        self._at_s = self._spread_area = self._use_area = 0.0

    def change(self, now_s: float, node: int, amounts: FloatArray, sign: int) -> None:
        """From now on the node has one pod more, or less, of so many milli-cores and bytes."""
        self._advance(now_s)
        self._load[node] += sign * float((amounts / self._offered[node]).mean())
        self._pods[node] += sign

    def judge(self, node: int, pod: EnvPod) -> None:
        """What ``el`` is paid for the pod that was placed there just now."""
        self._missed.append(self._missed_by(node, pod))

    @property
    def reward_missed(self) -> float:
        """Mean over the placements; 0 where there was none."""
        return float(np.mean(self._missed)) if self._missed else 0.0

    def _missed_by(self, node: int, pod: EnvPod) -> float:
        soft, hard = pod.pod_class.latency_soft_us, pod.pod_class.latency_hard_us
        total = float(self._load.sum()) if soft or hard else 0.0
        paid = el_bounded_reward(
            RewardedPlacement(self._load[[node]], 0, self._pods, self._latency_us[node], soft, hard, total)
        )
        return MOST_EL - paid.reward

    def means(self, until_s: float) -> tuple[float, float]:
        """Time means of the spread and of the nodes in use."""
        self._advance(until_s)
        return self._spread_area / until_s, self._use_area / until_s

    def _advance(self, now_s: float) -> None:
        passed, self._at_s = now_s - self._at_s, now_s
        self._spread_area += passed * float(self._load.std())
        self._use_area += passed * int(np.count_nonzero(self._pods))


class _Measured:
    """What the coordinator hears, when it does."""

    def __init__(
        self, cluster: ThesisCluster, load: NodeLoad, sensing: MeshSensing, seed: int, delays_ms: Sequence[float]
    ) -> None:
        self._cluster = cluster
        self._load = load
        self._sensing = sensing
        self._delay_us: list[int | None] = [round(delay * 1000) for delay in delays_ms] or [None] * len(cluster.nodes)
        self._noise = np.random.default_rng(seed)
        self._late: list[FloatArray] = []

    def read(self) -> tuple[NodeSample, ...] | None:
        """Read now; what comes in now was read so long ago. None: nothing yet."""
        sensing = self._sensing
        shares: FloatArray = np.minimum(np.maximum(self._load.demand, 0.0), min(1.0, MOST_SHARE))
        if sensing.noise:
            shares = shares * np.maximum(0.0, self._noise.normal(1.0, sensing.noise, shares.shape))
        self._late.append(shares)
        if len(self._late) <= sensing.lag_s / sensing.every_s:
            return None
        return tuple(self._sample(row, one) for row, one in enumerate(self._late.pop(0)))

    def _sample(self, row: int, shares: FloatArray) -> NodeSample:
        limits, name = self._cluster.limits[row], self._cluster.nodes[row].name
        cpu, memory = (
            round(float(shares[part] * limits[part])) if np.isfinite(limits[part]) else 0 for part in range(2)
        )
        if not self._sensing.all_parts:
            return NodeSample(name, self._sensing.lag_s, cpu, memory)
        disk, network = float(shares[2]), float(shares[3])
        return NodeSample(
            name, self._sensing.lag_s, cpu, memory, disk, network, source="agent", delay_us=self._delay_us[row],
            latencies={},
        )  # fmt: skip
