"""Clusters and gangs for tests, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.groups.placing import Attempt, try_group
from shared.scheduling.state.cluster_state import ClusterState

KEY = "podgroup:d/g"


def cluster(*nodes: tuple[str, dict[str, int], dict[str, str]]) -> ClusterState:
    """Nodes of (name, allocatable, labels); 110 pods unless said otherwise."""
    state = ClusterState()
    for name, allocatable, labels in nodes:
        state.upsert_node(Node(name=name, allocatable={"pods": 110, **allocatable}, labels=labels))
    return state


def cpus(**amounts: int) -> ClusterState:
    """One node per name with so many milli-cores."""
    return cluster(*((name, {"cpu": amount}, {}) for name, amount in amounts.items()))


def member(name: str, cpu: int = 0, *, group: str = KEY, priority: int = 0, **fields: Any) -> Pod:
    """One that asks for so many milli-cores, and for what ``more`` says: (resource, amount)."""
    more: dict[str, int] = fields.pop("more", {})
    requests = tuple(sorted({**({"cpu": cpu} if cpu else {}), **more}.items()))
    pod_class = PodClass(requests=requests, host_ports=fields.pop("host_ports", ()))
    return Pod(name, "d", name, "", pod_class, group=group, priority=priority, **fields)


def members(count: int, cpu: int = 0, **fields: Any) -> list[Pod]:
    """So many that are alike."""
    return [member(f"m{number}", cpu, **fields) for number in range(count)]


def gang(minimum: int, topology: str = "", *, required: bool = True, **fields: Any) -> PodGroup:
    """A gang of at least ``minimum``, within one value of ``topology`` where that is named."""
    within = GroupTopology(topology, required) if topology else None
    return PodGroup(KEY, GroupSource.NATIVE, "d", "g", gang=True, min_count=minimum, topology=within, **fields)


def attempt(state: ClusterState, group: PodGroup, pods: Sequence[Pod], bound: Sequence[Pod] = ()) -> Attempt:
    return try_group(state, FeasibilityCache(state.table), group, pods, bound)


def stand(state: ClusterState, pod: Pod, node: str) -> Pod:
    """``pod`` as it runs on a node."""
    from msgspec.structs import replace

    bound = replace(pod, node_name=node)
    state.observe(bound)
    return bound
