"""The traces that the placement policy learns on: the given ones and variants drawn from them, never test seeds.

A variant changes what the published variants change: how much of the GPU demand is shares, how much asks for several
devices, how many pods are CPU-only, how many name a GPU model. Pods are drawn with replacement from the given lists, so
requests are those of the trace while the mix is new. A case also has nodes: all, or a random part of the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.learner.frag.kernel import FGD, LEARNED, WIDTH, episode
from shared.model.gpu import ANY_MODEL, GpuRequest
from shared.policy.frag.features import FEATURES, FragFeatures, model_share
from shared.policy.frag.fragmentation import TypicalDemand, typical_demand
from shared.policy.frag.value import HIDDEN, PRICES, STEP
from shared.policy.rehearsal.submission import NAMES_STREAM, GpuNodes, GpuPods, generator, pods_of, submission

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SNAPSHOTS = 13
CHUNK = 2048
CPU_ONLY, SHARE, ONE, SEVERAL = range(4)
MIXES = ("share", "several", "model", "cpu", "all")


class FragCase:
    """Pods and nodes ready to be played. ``prices``: of ``frag_value``; training learns without (``UNPRICED``)."""

    def __init__(self, nodes: GpuNodes, pods: GpuPods, prices: tuple[float, float] = PRICES) -> None:
        if nodes.states.free.shape[1] > WIDTH:
            raise ValueError(f"training knows nodes of up to {WIDTH} devices")
        self.nodes, self.pods = nodes, pods
        self.demand: TypicalDemand = typical_demand(pods.classes, pods.counts)
        self.features = FragFeatures(self.demand, model_share(nodes.states))
        self.classes = np.array([(r.cpu, r.memory, r.devices, r.milli, r.models) for r in pods.classes], np.int64)
        d = self.demand
        self.typical = np.stack((d.cpu, d.devices, d.milli, d.models), 1)
        self.by_gpu, constants = self.features.constants()
        self.constants = np.concatenate((prices, constants))

    def play(self, weights: Floats | None, seed: int, *, explore: float = 0.0, step: float = STEP) -> float:
        """Allocated percent of one episode; ``weights`` None: FGD."""
        return self.play_both(weights, seed, explore=explore, step=step)[0]

    def play_both(
        self, weights: Floats | None, seed: int, *, explore: float = 0.0, step: float = STEP
    ) -> tuple[float, float]:
        """Allocated percent at the end of one episode and when 100 % had been asked for."""
        found = self._play(weights, seed, explore, step, 0)
        return found[0], found[1]

    def learn(self, weights: Floats | None, seed: int, explore: float) -> tuple[Floats, Floats, Floats]:
        """Features ``[rows, features]``, idle GPUs then and idle GPUs at the end, ``[rows]`` each, of one episode."""
        _, _, idle_end, seen, seen_free, order = self._play(weights, seed, explore, STEP, SNAPSHOTS)
        width = self.nodes.states.free.shape[1]
        x = np.zeros((len(seen), len(FEATURES)))
        for start in range(0, len(seen), CHUNK):
            part = slice(start, start + CHUNK)
            states = self.nodes.states.take(order[seen[part, 2]])
            states.cpu[:], states.memory[:], states.free[:] = seen[part, 0], seen[part, 1], seen_free[part, :width]
            x[part] = self.features.of(states)
        return x, seen_free.sum(1) / 1000.0, idle_end[seen[:, 2]] / 1000.0

    def _play(
        self, weights: Floats | None, seed: int, explore: float, step: float, snapshots: int
    ) -> tuple[float, float, Ints, Ints, Ints, Ints]:
        states = self.nodes.states
        order = generator(seed, NAMES_STREAM).permutation(len(states)).astype(np.int64)
        rows = len(states) * snapshots
        seen, seen_free = np.zeros((rows, 3), np.int64), np.zeros((rows, WIDTH), np.int64)
        pods = self.pods.of[submission(self.pods, self.nodes.capacity, seed)]
        with np.errstate(over="ignore"):  # hashes wrap around; loops that are not compiled would tell
            allocated, early, idle_end, used = episode(
                FGD if weights is None else LEARNED,
                states.cpu[order], states.memory[order], states.devices[order], states.model[order],
                self.classes, pods, self.typical, self.demand.frequency, self.by_gpu, self.constants,
                np.zeros(1) if weights is None else weights, *HIDDEN, step, explore, seed, snapshots, seen, seen_free,
            )  # fmt: skip
        return allocated, early, idle_end, seen[:used], seen_free[:used], order


@dataclass(frozen=True, slots=True)
class RequestPools:
    """Requests to draw from, by kind, and the demand of the list they vary."""

    by_kind: tuple[tuple[GpuRequest, ...], ...]
    cpu_only: int
    gpu: int
    demand: tuple[float, float, float]
    """Share of the GPU demand that is shares, one device, several."""
    masks: tuple[int, ...]
    """Sets of models that pods name."""


def kind_of(request: GpuRequest) -> int:
    """CPU_ONLY, SHARE, ONE or SEVERAL."""
    return CPU_ONLY if not request.devices else SEVERAL if request.devices > 1 else SHARE if request.shared else ONE


def pools_of(lists: Mapping[str, GpuPods]) -> RequestPools:
    """Pools of the list called ``default``, with the several-device pods and the model sets of all lists."""
    base = lists["default"]
    requests = [base.classes[which] for which in base.of.tolist()]
    by_kind: list[list[GpuRequest]] = [[], [], [], []]
    for request in requests:
        by_kind[kind_of(request)].append(request)
    masks: list[int] = []
    for name in sorted(lists):
        pods = lists[name]
        for which in pods.of.tolist():
            request = pods.classes[which]
            if name != "default" and kind_of(request) == SEVERAL and request.models == ANY_MODEL:
                by_kind[SEVERAL].append(request)
            if request.models != ANY_MODEL:
                masks.append(request.models)
    asked = [sum(request.gpu for request in requests if kind_of(request) == kind) for kind in (SHARE, ONE, SEVERAL)]
    total = sum(asked)
    share, one, several = (amount / total for amount in asked)
    return RequestPools(
        tuple(tuple(kind) for kind in by_kind), len(by_kind[CPU_ONLY]), total, (share, one, several), tuple(masks)
    )


def variant(
    pools: RequestPools, rng: np.random.Generator, mix: str | None = None, amount: float | None = None
) -> GpuPods:
    """A pod list with another mix; ``mix`` and ``amount`` None: drawn.

    ``share``, ``several``: their share of the GPU demand; ``model``: share of GPU pods that name one; ``cpu``: CPU-only
    pods as a multiple of the given number; ``all``: everything drawn.
    """
    share, one, several = pools.demand
    mix = MIXES[rng.integers(len(MIXES))] if mix is None else mix
    cpu, named = 1.0, 0.0
    if mix == "share":
        share = rng.uniform(0.3, 1.0) if amount is None else amount
        rest = one + several
        one, several = (1 - share) * one / rest, (1 - share) * several / rest
    elif mix == "several":
        several = rng.uniform(0.1, 0.6) if amount is None else amount
        rest = share + one
        share, one = (1 - several) * share / rest, (1 - several) * one / rest
    elif mix == "model":
        named = rng.uniform(0.05, 0.4) if amount is None else amount
    elif mix == "cpu":
        drawn = rng.uniform(0, 1) if rng.random() < 0.5 else rng.uniform(1, 2.6)
        cpu = drawn if amount is None else amount
    else:
        share = rng.uniform(0.1, 0.9)
        several = rng.uniform(0, 0.6) * (1 - share)
        one = 1 - share - several
        cpu = rng.uniform(0, 2.3)
        named = rng.uniform(0, 0.3) if rng.random() < 0.5 else 0.0
    requests: list[GpuRequest] = _draw(pools.by_kind[CPU_ONLY], int(pools.cpu_only * cpu), rng)
    for kind, part in ((SHARE, share), (ONE, one), (SEVERAL, several)):
        pool = pools.by_kind[kind]
        each = sum(request.gpu for request in pool) / len(pool)
        requests += _draw(pool, round(part * pools.gpu / each), rng)
    if named > 0 and pools.masks:
        requests = [
            request
            if not request.devices or rng.random() >= named
            else GpuRequest(
                request.cpu, request.memory, request.devices, request.milli, pools.masks[rng.integers(len(pools.masks))]
            )
            for request in requests
        ]
    return pods_of(requests)


def part_of(nodes: GpuNodes, share: float, rng: np.random.Generator) -> GpuNodes:
    """A random part of the node list, or all of it."""
    if share >= 1:
        return nodes
    kept = rng.permutation(len(nodes.names))[: max(8, int(share * len(nodes.names)))]
    return nodes.take(np.sort(kept).astype(np.int64))


def _draw(pool: tuple[GpuRequest, ...], number: int, rng: np.random.Generator) -> list[GpuRequest]:
    return [pool[index] for index in rng.integers(len(pool), size=max(0, number)).tolist()] if pool else []
