"""Placement of one trace by one policy over some seeds: the figures, and where every pod went.

Used by the openb suite and by ``conclave evaluate --trace``. Pure: file texts and weights in, values out. It refuses,
by name: files ``gpu_trace`` refuses, and a policy it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lab.evaluation.results import ResultMetric
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from lab.worlds.placement.gpu_power import PowerScorer
from shared.errors import ConfigError
from shared.model.gpu import GpuRequest, GpuStates, Ints, fullest
from shared.policy.frag.fragmentation import TypicalDemand, typical_demand
from shared.policy.frag.power_policy import POWER
from shared.policy.frag.scorers import MAX_NODE_SCORE, BestFit, Fgd
from shared.policy.frag.value import NAME
from shared.policy.rehearsal import rehearsal
from shared.policy.rehearsal.episode import NO_NODE, RehearsedEpisode, Scorer
from shared.policy.rehearsal.rehearsal import RehearsalTrace, by_value
from shared.policy.rehearsal.submission import GpuNodes
from shared.policy.weights import WeightsFile, shipped

Floats = NDArray[np.float64]


class ModelledKubeDefault:
    """The experiment's model of kube-scheduler's default profile: LeastAllocated and BalancedAllocation, equal weights.

    It does not see GPUs beyond whether they fit: an extended resource is no part of its default scores. The device of
    a share is the fullest with room, as the mesh's accounting picks it. Ties fall at random, as ``selectHost`` does.
    Sources: kube-scheduler 1.36 ``least_allocated.go``, ``balanced_allocation.go``, ``schedule_one.go``.
    """

    random_ties = True

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """The sum of both scores, 0..200."""
        cpu, memory = np.maximum(states.cpu_total, 1), np.maximum(states.memory_total, 1)
        cpu_left, memory_left = states.cpu - request.cpu, states.memory - request.memory
        least = (cpu_left * MAX_NODE_SCORE // cpu + memory_left * MAX_NODE_SCORE // memory) // 2
        after = _balance(1 - cpu_left / cpu, 1 - memory_left / memory)
        before = _balance(1 - states.cpu / cpu, 1 - states.memory / memory)
        balanced = 50 + np.trunc((50 + after - before) / 2)
        if not request.cpu and not request.memory:
            balanced = np.zeros(len(states))
        return least + balanced, fullest(states, request)


def _balance(cpu: Floats, memory: Floats) -> Floats:
    result: Floats = np.trunc((1 - np.abs(cpu - memory) / 2) * MAX_NODE_SCORE)
    return result


HEURISTICS: dict[str, Callable[[TypicalDemand], Scorer | None]] = {
    "best-fit": lambda _: BestFit(),
    "fgd": Fgd,
    "kube-default": lambda _: ModelledKubeDefault(),
    "random": lambda _: None,
}

POLICIES = (*sorted(HEURISTICS), NAME, POWER)
PLACEMENTS_HEADER = "seed,order,pod_row,node_sn,devices"


def parse_lists(pods: str, pods_file: str, nodes: str, nodes_file: str) -> RehearsalTrace:
    """From the texts of two files; their names are named in errors."""
    return trace_on(parse_gpu_nodes(nodes, nodes_file), pods, pods_file)


def trace_on(nodes: GpuNodes, pods: str, pods_file: str) -> RehearsalTrace:
    """A pod list's text on nodes read before."""
    parsed = parse_gpu_pods(pods, pods_file, nodes)
    return RehearsalTrace(nodes, parsed, typical_demand(parsed.classes, parsed.counts))


def scorer_of(policy: str, trace: RehearsalTrace, weights: WeightsFile | None = None) -> Scorer | None:
    """The scorer of ``policy``; None places at random. ``weights``: of ``frag``, and of ``power`` that decides by them;
    default the shipped ones."""
    if policy == NAME:
        return by_value(trace, weights or shipped(NAME))
    if policy == POWER:
        return PowerScorer(trace, weights or shipped(NAME))
    if policy not in HEURISTICS:
        raise ConfigError(f"--policy: {policy!r} does not place GPU traces; choose one of {', '.join(POLICIES)}")
    return HEURISTICS[policy](trace.demand)


def play(
    trace: RehearsalTrace,
    policy: str,
    seed: int,
    *,
    weights: WeightsFile | None = None,
    tick: Callable[[], None] = lambda: None,
) -> RehearsedEpisode:
    """One episode of ``policy`` on ``trace``."""
    return rehearsal.play(trace, scorer_of(policy, trace, weights), seed, tick=tick)


def metrics_of(episodes: Sequence[RehearsedEpisode], prefix: str = "") -> dict[str, ResultMetric]:
    """The figures of some episodes, one per seed.

    ``allocated_130``, ``allocated_100``: percent of all GPU thousandths allocated at the end (130 % demand) and when
    100 % had been asked for; ``fragment``: expected fragment at the end, percent of all; ``failed`` and ``submitted``:
    numbers of pods.
    """
    return {
        f"{prefix}allocated_130": ResultMetric.of([episode.allocation() for episode in episodes]),
        f"{prefix}allocated_100": ResultMetric.of([episode.allocation(1.0) for episode in episodes]),
        f"{prefix}fragment": ResultMetric.of([100 * episode.fragment / episode.capacity for episode in episodes]),
        f"{prefix}failed": ResultMetric.of([episode.failed for episode in episodes]),
        f"{prefix}submitted": ResultMetric.of([len(episode.row) for episode in episodes]),
    }


def placement_rows(trace: RehearsalTrace, episode: RehearsedEpisode) -> Iterator[str]:
    """Lines under ``PLACEMENTS_HEADER``, one per submitted pod, in order.

    ``order`` and ``pod_row`` count from 0, the latter over the pod list's rows; ``node_sn`` and ``devices`` are empty
    where no node had room; ``devices`` is ``device:thousandths`` joined by ``;``.
    """
    names, classes, of = trace.nodes.names, trace.pods.classes, trace.pods.of
    for order, (row, node) in enumerate(zip(episode.row.tolist(), episode.node.tolist(), strict=True)):
        name = names[node] if node != NO_NODE else ""
        milli = classes[int(of[row])].milli
        devices = ";".join(f"{device}:{milli}" for device in episode.devices[order] if device >= 0)
        yield f"{episode.seed},{order},{row},{name},{devices}"
