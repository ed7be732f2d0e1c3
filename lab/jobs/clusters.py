"""The nodes that jobs run on, from a document such as

    nodes:
      - {count: 6, gpus: 4, gpu_type: t4}
      - {count: 2, gpus: 8, gpu_type: a100, speed: 3.5}

``speed`` is that of the type beside the GPU that the tables were measured on. ``{nodes: 16, gpus_per_node: 4}`` is the
short form for nodes of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import msgspec

from shared.errors import ConfigError
from shared.jobs.observation import NodeObservation

REMEDY = "write nodes: [{count: 16, gpus: 4}], or nodes: 16 with gpus_per_node: 4"
MOST_NODES = 10_000
MOST_GPUS = 64


class _Kind(msgspec.Struct, forbid_unknown_fields=True):
    gpus: int
    count: int = 1
    name: str = ""
    gpu_type: str = ""
    speed: float | None = None


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    nodes: int | list[_Kind]
    gpus_per_node: int | None = None


@dataclass(frozen=True)
class JobsCluster:
    """Nodes, and the speed of GPU types that are not as fast as the measured one."""

    nodes: tuple[NodeObservation, ...]
    gpu_types: Mapping[str, float] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """In all."""
        return sum(node.gpus for node in self.nodes)


def uniform(nodes: int, gpus: int) -> JobsCluster:
    """Nodes of one kind, without a type."""
    return JobsCluster(tuple(NodeObservation(name=f"node-{at:0{len(str(nodes))}d}", gpus=gpus) for at in range(nodes)))


POLLUX = uniform(16, 4)
"""The cluster of Pollux' simulator: 16 nodes of 4 GPUs."""


def mixed() -> JobsCluster:
    """64 GPUs of three types, in the shape of Sia's cluster (SOSP 2023): 6 nodes of 4, 2 of 8, 3 of 8. There they are
    T4, A100 and RTX 2080 Ti; here types that were measured (``gavel.py``) stand in their place: T4, V100 and P100."""
    kinds = [_Kind(gpus=4, count=6, gpu_type="t4"), _Kind(gpus=8, count=2, gpu_type="v100")]
    return _cluster([*kinds, _Kind(gpus=8, count=3, gpu_type="p100")], "the mixed cluster")


def parse_cluster(document: Any, file: str) -> JobsCluster:
    """A cluster from what a YAML or JSON file holds. ``ConfigError`` names the field and the remedy."""
    try:
        found = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {error}; {REMEDY}") from None
    if isinstance(found.nodes, int):
        if found.gpus_per_node is None:
            raise ConfigError(f"{file}: $.gpus_per_node is missing; {REMEDY}")
        kinds = [_Kind(gpus=found.gpus_per_node, count=found.nodes)]
    else:
        kinds = found.nodes
        if found.gpus_per_node is not None:
            raise ConfigError(f"{file}: $.gpus_per_node: each kind of node says gpus itself; leave it out")
    return _cluster(kinds, file)


def _cluster(kinds: list[_Kind], file: str) -> JobsCluster:
    nodes: list[NodeObservation] = []
    speeds: dict[str, float] = {}
    for at, kind in enumerate(kinds):
        where = f"{file}: $.nodes[{at}]"
        if not 1 <= kind.gpus <= MOST_GPUS or not 1 <= kind.count <= MOST_NODES:
            raise ConfigError(f"{where}: {kind.count} nodes of {kind.gpus} GPUs; give 1-{MOST_NODES} of 1-{MOST_GPUS}")
        if kind.speed is not None:
            if not (isfinite(kind.speed) and kind.speed > 0.0):
                raise ConfigError(f"{where}.speed: {kind.speed}; give a number above 0")
            if speeds.setdefault(kind.gpu_type, kind.speed) != kind.speed:
                raise ConfigError(f"{where}.speed: {kind.gpu_type!r} has another speed above; give one per type")
        base = kind.name or (f"{kind.gpu_type}-{at}" if kind.gpu_type else "node" if len(kinds) == 1 else f"node-{at}")
        width = len(str(kind.count))
        nodes += [
            NodeObservation(
                name=base if kind.name and kind.count == 1 else f"{base}-{number:0{width}d}",
                gpus=kind.gpus,
                gpu_type=kind.gpu_type,
            )
            for number in range(kind.count)
        ]
    if not nodes or len({node.name for node in nodes}) < len(nodes) or len(nodes) > MOST_NODES:
        raise ConfigError(f"{file}: $.nodes: names must differ, and 1 to {MOST_NODES} nodes are needed; {REMEDY}")
    return JobsCluster(tuple(nodes), speeds)
