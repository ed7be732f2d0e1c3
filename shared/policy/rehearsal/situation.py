"""What a mesh knows of its demand and of its nodes, to be rehearsed; and when it has become another one.

The demand is what stands and waits in the cluster, by class: it needs no history, so a new leader knows it with its
first lists. The nodes are those there are, empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from shared.model.constraints import PodClass
from shared.model.gpu import MAX_MODELS
from shared.model.gpu_shares import DEFAULT, GpuShares
from shared.policy.frag.policy import request_of
from shared.policy.frag.view import MIB, GpuView, model_codes
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable

K = TypeVar("K")

FEWEST_GPU_PODS = 50
"""Of fewer the mix is chance."""
MOVED = 0.1
"""Share of the demand, or of the nodes, that must be another one for a rehearsal to be repeated."""


class NodeKind(msgspec.Struct, frozen=True):
    """Empty nodes that are alike: milli-cores, MiB, devices, code of the GPU model."""

    cpu: int
    memory: int
    devices: int
    model: int


class GpuAsk(msgspec.Struct, frozen=True):
    """What pods ask for, as ``GpuRequest``."""

    cpu: int
    memory: int
    devices: int
    milli: int
    models: int


class Situation(msgspec.Struct, frozen=True):
    """How many nodes and pods of each kind there are."""

    nodes: tuple[tuple[NodeKind, int], ...]
    pods: tuple[tuple[GpuAsk, int], ...]

    @property
    def gpu_pods(self) -> int:
        """Pods that ask for a GPU."""
        return sum(count for ask, count in self.pods if ask.devices)

    @property
    def gpus(self) -> int:
        """Devices of all nodes."""
        return sum(kind.devices * count for kind, count in self.nodes)

    @property
    def enough(self) -> bool:
        """Whether there is anything to rehearse."""
        return self.gpus > 0 and self.gpu_pods >= FEWEST_GPU_PODS

    def moved(self, before: Situation) -> bool:
        """Whether it is another demand, or another cluster, than ``before``."""
        return max(_distance(self.nodes, before.nodes), _distance(self.pods, before.pods)) >= MOVED


def situation_of(table: NodeTable, pods: Mapping[PodClass, int], shares: GpuShares = DEFAULT) -> Situation:
    """``table``: its nodes count with what they offer, whatever stands there; ``pods``: how many of each class;
    ``shares``: what counts as a GPU."""
    return Situation(nodes_of(table, shares), tuple(asked_of(table, pods.items(), shares).items()))


def nodes_of(table: NodeTable, shares: GpuShares) -> tuple[tuple[NodeKind, int], ...]:
    """How many nodes of each kind there are."""
    models, (names, codes), view = _models(table), model_codes(table), GpuView(table, shares)
    other = len(models)
    code_of = {code: models.get(name, other) for name, code in names.items()}
    nodes: Counter[NodeKind] = Counter()
    for row in table.live_rows().tolist():
        offers = table.allocatable[:, row]
        model = code_of.get(int(codes[row]), other)
        devices = len(view.free(row))
        nodes[NodeKind(int(offers[CPU_COLUMN]), int(offers[MEMORY_COLUMN]) // MIB, devices, model)] += 1
    return tuple(nodes.items())


def asked_of(table: NodeTable, pods: Iterable[tuple[PodClass, int]], shares: GpuShares) -> Counter[GpuAsk]:
    """What so many pods of each class ask for, on the nodes of ``table``."""
    models = _models(table)
    asked: Counter[GpuAsk] = Counter()
    for pod_class, count in pods:
        request = request_of(pod_class, models, shares)
        asked[GpuAsk(request.cpu, request.memory, request.devices, request.milli, request.models)] += count
    return asked


def _models(table: NodeTable) -> dict[str, int]:
    names, _ = model_codes(table)
    return {name: code for code, name in enumerate(sorted(names)[: MAX_MODELS - 1])}


def _distance(mine: tuple[tuple[K, int], ...], others: tuple[tuple[K, int], ...]) -> float:
    """Half the sum of the differences of all shares: 0 for the same mix, however many, 1 for nothing in
    common."""
    a, b = dict(mine), dict(others)
    total_a, total_b = max(sum(a.values()), 1), max(sum(b.values()), 1)
    keys = {*a, *b}
    return sum(abs(a.get(key, 0) / total_a - b.get(key, 0) / total_b) for key in keys) / 2


class RehearsalOrder(msgspec.Struct, frozen=True):
    """What is rehearsed: the learned ``policy`` with these ``weights`` (bytes of a file), in this situation."""

    policy: str
    weights: bytes
    situation: Situation


class RehearsalVerdict(msgspec.Struct, frozen=True):
    """``places``: which policy is to place, and ``told``, why; or the ``problem`` that kept it from being found."""

    places: str = ""
    told: str = ""
    problem: str = ""
    cpu_s: float = 0.0
