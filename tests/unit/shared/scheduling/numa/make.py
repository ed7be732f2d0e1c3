"""Nodes with zones and pods that are aligned, for tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.node_topology import (
    ContainerKind,
    ContainerNeeds,
    Dedicated,
    NodeTopology,
    PodNeeds,
    TopologyPolicy,
    TopologyScope,
    TopologySource,
    Zone,
)
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState

GI = 2**30


def topology(
    name: str = "n0", *, zones: int = 2, cpus: int = 8, memory: int = 32 * GI, gpus: int = 0,
    policy: TopologyPolicy = TopologyPolicy.SINGLE_NUMA_NODE, scope: TopologyScope = TopologyScope.CONTAINER,
    free: tuple[int, ...] | None = None, version: str = "1",
) -> NodeTopology:  # fmt: skip
    """Equal zones; ``free``: CPUs that are available in each."""
    found = []
    for index in range(zones):
        there = {CPU: cpus, MEMORY: memory} | ({"nvidia.com/gpu": gpus} if gpus else {})
        available = dict(there) if free is None else {**there, CPU: free[index]}
        found.append(Zone(index, dict(there), dict(there), available))
    return NodeTopology(name, policy, scope, tuple(found), resource_version=version)


def needs(cpus: int = 2, memory: int = GI, *, gpus: int = 0, init: int = 0, count: int = 1) -> PodNeeds:
    """Of ``count`` like containers, after an init container of ``init`` CPUs."""
    devices = (("nvidia.com/gpu", gpus),) if gpus else ()
    main = [
        ContainerNeeds(f"c{n}", ContainerKind.MAIN, cpus, ((MEMORY, memory),) * bool(memory), devices)
        for n in range(count)
    ]
    first = [ContainerNeeds("i", ContainerKind.INIT, init, ((MEMORY, memory),) * bool(memory))] if init else []
    return PodNeeds((*first, *main))


def katalyst(name: str = "n0", *, version: str = "1", sockets: int = 2, held: Held | None = None,
             policy: TopologyPolicy = TopologyPolicy.NUMERIC, **zones: int) -> NodeTopology:  # fmt: skip
    """Equal zones, dealt to sockets, by Katalyst's object; ``held``: CPUs and memory by uid and zone."""
    found = topology(name, version=version, policy=policy, **zones)  # type: ignore[arg-type]
    each = max(1, len(found.zones) // sockets)
    return replace(
        found,
        source=TopologySource.KATALYST,
        sockets={zone.id: str(zone.id // each) for zone in found.zones},
        held={uid: {at: {CPU: cpus, MEMORY: GI} for at, cpus in of.items()} for uid, of in (held or {}).items()},
    )


Held = dict[str, dict[int, int]]


def dedicated(cpus: int = 2, memory: int = GI, *, exclusive: bool = False, gpus: int = 0) -> PodNeeds:
    """Of a pod of dedicated cores that is bound to zones."""
    devices = (("nvidia.com/gpu", gpus),) if gpus else ()
    return PodNeeds((), Dedicated(cpus, memory, devices, exclusive))


def pod(uid: str, asked: PodNeeds | None, *, node_name: str = "", phase: str = "", refused: str = "") -> Pod:
    """A pod that asks for what it is aligned by."""
    cpus = sum(one.cpus for one in asked.containers if one.kind is not ContainerKind.INIT) if asked is not None else 1
    if asked is not None and asked.dedicated is not None:
        cpus = asked.dedicated.cpus
    pod_class = PodClass(requests=((CPU, cpus * 1000),), needs=asked)
    return Pod(uid, "default", uid, "1", pod_class, node_name=node_name, phase=phase, refused=refused)


def cluster(*topologies: NodeTopology, trusting: bool = False) -> tuple[ClusterState, NodeZones]:
    """Nodes with these zones."""
    state = ClusterState()
    zones = NodeZones(state.cache, trusting=trusting)
    state.cache.zones = zones
    for one in topologies:
        amounts = Counter[str]()
        for zone in one.zones:
            amounts.update(zone.allocatable)
        state.upsert_node(Node(one.node, allocatable={**amounts, CPU: amounts[CPU] * 1000, "pods": 110}))
        zones.put(one.node, one)
    return state, zones


def later(one: NodeTopology, version: int) -> NodeTopology:
    """The object written once more."""
    return replace(one, resource_version=str(version))
