"""One episode of the placement experiment: pods one by one onto a GPU cluster, each by the best score.

A scorer judges (state, request) pairs and knows nothing of nodes, so a pair is judged once per episode: nodes in the
same state share the score, and after a placement only one node's state is new. Ties fall to the first node of an order
that the seed shuffles, as FGD's simulator breaks them (by name, under a renaming per seed), or at random where the
policy's own scheduler does so.

A pod that has any feasible node is placed; a scorer cannot refuse it. It refuses scores that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.model.gpu import GpuRequest, GpuStates, Ints
from shared.policy.rehearsal.gpu_cluster import GpuCluster
from shared.policy.rehearsal.submission import CHOICE_STREAM, NAMES_STREAM, GpuNodes, GpuPods, generator, submission

Floats = NDArray[np.float64]
NO_NODE = -1
EVERY = 512
"""Pods between two calls of ``tick``."""


class Scorer(Protocol):
    """Judges placements by the node's state alone."""

    random_ties: bool
    """Whether equal scores fall at random; else to the first node in the seed's order."""

    def score(self, states: GpuStates, request: GpuRequest) -> tuple[Floats, Ints]:
        """Score, higher is better, and device of a share (-1 otherwise), ``[states]`` each; all have room."""
        ...


@dataclass(frozen=True, slots=True)
class RehearsedEpisode:
    """What happened, pod by pod in the order of submission.

    ``row``: int64, row of the pod list; ``node``: int64, index in the node list, ``NO_NODE`` where none had room;
    ``devices``: the devices used. ``allocated``: thousandths allocated after each pod; ``capacity``: those there are.
    """

    seed: int
    row: Ints
    node: Ints
    devices: tuple[tuple[int, ...], ...]
    allocated: Ints
    arrived: Ints
    capacity: int
    fragment: float
    """Expected fragment at the end in thousandths, by the caller's measure."""

    @property
    def failed(self) -> int:
        """Pods that no node had room for."""
        return int((self.node == NO_NODE).sum())

    def allocation(self, demand: float | None = None) -> float:
        """Allocated share of all GPUs in percent, at the end or when ``demand`` x capacity had been asked for."""
        if demand is None:
            return 100 * int(self.allocated[-1]) / self.capacity
        until = int(np.searchsorted(self.arrived, demand * self.capacity, side="right"))
        return 100 * int(self.allocated[until - 1]) / self.capacity if until else 0.0


class _Scores:
    """Scores of one class by state number; NaN where not judged yet."""

    def __init__(self) -> None:
        self.score: Floats = np.full(256, np.nan)
        self.device: Ints = np.zeros(256, np.int64)

    def grow(self, states: int) -> None:
        while len(self.score) < states:
            self.score = np.concatenate((self.score, np.full(len(self.score), np.nan)))
            self.device = np.concatenate((self.device, np.zeros(len(self.device), np.int64)))


def run_episode(
    nodes: GpuNodes,
    pods: GpuPods,
    scorer: Scorer | None,
    seed: int,
    *,
    measure: Callable[[GpuStates], Floats] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> RehearsedEpisode:
    """Submit the pods of ``seed`` and place each by ``scorer``; None: node and device at random.

    ``measure``: fragment of node states at the end. ``tick``: called now and then, for progress or to stop by raising.
    """
    order = generator(seed, NAMES_STREAM).permutation(len(nodes.names)).astype(np.int64)
    cluster = GpuCluster(nodes.take(order))
    rng = generator(seed, CHOICE_STREAM)
    rows = submission(pods, cluster.capacity, seed)
    known: dict[int, _Scores] = {}
    chosen = np.full(len(rows), NO_NODE, np.int64)
    allocated = np.zeros(len(rows), np.int64)
    used: list[tuple[int, ...]] = []
    for number, row in enumerate(rows.tolist()):
        if number % EVERY == 0:
            tick()
        which = int(pods.of[row])
        request = pods.classes[which]
        mask = cluster.feasible(request)
        devices: tuple[int, ...] = ()
        if mask.any():
            if scorer is None:
                node, device = _any(cluster, request, mask, rng)
            else:
                node, device = _best(cluster, request, mask, known.setdefault(which, _Scores()), scorer, rng)
            devices = cluster.place(node, request, device)
            chosen[number] = order[node]
        used.append(devices)
        allocated[number] = cluster.allocated
    fragment = float(measure(cluster.states).sum()) if measure is not None else float("nan")
    arrived = np.cumsum(pods.gpu[rows])
    return RehearsedEpisode(seed, rows, chosen, tuple(used), allocated, arrived, cluster.capacity, fragment)


def _any(
    cluster: GpuCluster, request: GpuRequest, mask: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[int, int]:
    """A feasible node and, for a share, one of its devices with room, uniformly."""
    node = int(rng.choice(np.flatnonzero(mask)))
    if not request.shared:
        return node, -1
    return node, int(rng.choice(np.flatnonzero(cluster.states.free[node] >= request.milli)))


def _best(
    cluster: GpuCluster,
    request: GpuRequest,
    mask: NDArray[np.bool_],
    scores: _Scores,
    scorer: Scorer,
    rng: np.random.Generator,
) -> tuple[int, int]:
    """The best feasible node and its device; states not judged before are judged now, in one batch."""
    scores.grow(cluster.state_count)
    value = scores.score[cluster.state_of]
    new = mask & np.isnan(value)
    if new.any():
        numbers, first = np.unique(cluster.state_of[new], return_index=True)
        states = cluster.states.take(np.flatnonzero(new)[first])
        score, device = scorer.score(states, request)
        if score.shape != (len(numbers),) or not np.isfinite(score).all():
            raise ValueError("a scorer must give one finite score per state")
        scores.score[numbers], scores.device[numbers] = score, device
        value = scores.score[cluster.state_of]
    value = np.where(mask, value, -np.inf)
    node = int(value.argmax())
    if scorer.random_ties:
        node = int(rng.choice(np.flatnonzero(value == value[node])))
    return node, int(scores.device[cluster.state_of[node]])
