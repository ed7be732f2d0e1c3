"""``topology.node.k8s.io`` NodeResourceTopology (v1alpha1, v1alpha2) and what a pod is aligned by, as the model.

Pure. A bad field spoils its object only (``ObjectError`` names it). The rules of who is aligned are the kubelet's
(``pkg/kubelet/cm/{cpumanager,memorymanager}/policy_static.go``): Guaranteed pods alone, without pod-level resources;
CPUs where a container asks for a whole number of them; devices for every pod.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.objects import Json, ObjectMeta
from shared.kube.pods.convert_requests import amount_of
from shared.kube.resources import Resource
from shared.model import node_topology as model
from shared.model.node_topology import ContainerKind, TopologyPolicy, TopologyScope
from shared.model.resources import CPU, MEMORY, parse_amount

HUGEPAGES = "hugepages-"
POLICY_ATTRIBUTE, SCOPE_ATTRIBUTE = "topologyManagerPolicy", "topologyManagerScope"
FINGERPRINT_ATTRIBUTE = "nodeTopologyPodsFingerprint"

POLICIES = {
    "None": (TopologyPolicy.NONE, TopologyScope.CONTAINER),
    "BestEffort": (TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
    "BestEffortContainerLevel": (TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
    "BestEffortPodLevel": (TopologyPolicy.BEST_EFFORT, TopologyScope.POD),
    "Restricted": (TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
    "RestrictedContainerLevel": (TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
    "RestrictedPodLevel": (TopologyPolicy.RESTRICTED, TopologyScope.POD),
    "SingleNUMANodeContainerLevel": (TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.CONTAINER),
    "SingleNUMANodePodLevel": (TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.POD),
}
"""``topologyPolicies`` of v1alpha1, which v1alpha2 keeps beside the attributes; Katalyst has the same names."""

MOST_ZONES = 16
"""Zones of one node; a kubelet's Topology Manager takes 8. Sets of zones are many more."""


class TopologyAttribute(Json, frozen=True):
    name: str = ""
    value: str = ""


class ZoneResource(Json, frozen=True):
    name: str = ""
    capacity: str | int | float = 0
    allocatable: str | int | float = 0
    available: str | int | float = 0


class ZoneCost(Json, frozen=True):
    name: str = ""
    value: int = 0


class TopologyZone(Json, frozen=True):
    name: str = ""
    type: str = ""
    resources: list[ZoneResource] | None = None
    costs: list[ZoneCost] | None = None


class NodeResourceTopology(Json, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] | None = None
    attributes: list[TopologyAttribute] | None = None
    zones: list[TopologyZone] | None = None


def _served(version: str) -> Resource[NodeResourceTopology]:
    plural = "noderesourcetopologies"
    return Resource("NodeResourceTopology", "topology.node.k8s.io", version, plural, False, NodeResourceTopology)


NODE_TOPOLOGIES, NODE_TOPOLOGIES_V1ALPHA1 = _served("v1alpha2"), _served("v1alpha1")


def topology_from_api(item: NodeResourceTopology) -> model.NodeTopology:
    """What the object says of its node. Raises ``ObjectError`` for an unknown policy or scope, a zone whose name holds
    no number or that occurs twice, more zones than a machine has, and amounts that are no quantities."""
    named = {one.name: one.value for one in item.attributes or ()}
    policy, scope = known_policy((item.topology_policies or ["None"])[0], POLICIES, "topologyPolicies[0]")
    try:
        if (policy := TopologyPolicy(named.get(POLICY_ATTRIBUTE, policy))) is TopologyPolicy.NUMERIC:
            raise ValueError(f"{policy.value!r} is Katalyst's")
        scope = TopologyScope(named.get(SCOPE_ATTRIBUTE, scope))
    except ValueError as error:
        raise ObjectError(f"{error}; name one that a kubelet knows", field="attributes") from error
    zones = sorted(_zones(item.zones or ()), key=lambda zone: zone.id)
    if len({zone.id for zone in zones}) != len(zones):
        raise ObjectError("two zones have one number", field="zones")
    if len(zones) > MOST_ZONES:
        raise ObjectError(f"more than {MOST_ZONES} zones", field="zones")
    return model.NodeTopology(
        node=item.metadata.name,
        policy=policy,
        scope=scope,
        zones=tuple(zones),
        pods_fingerprint=named.get(FINGERPRINT_ATTRIBUTE, ""),
        resource_version=item.metadata.resource_version,
    )


def known_policy(
    name: str, known: Mapping[str, tuple[TopologyPolicy, TopologyScope]], field: str
) -> tuple[TopologyPolicy, TopologyScope]:
    """What an object calls by that name. Raises ``ObjectError`` where it is none."""
    if name not in known:
        raise ObjectError(f"{name!r} is none of {', '.join(known)}", field=field)
    return known[name]


def _zones(zones: Iterable[TopologyZone]) -> Iterator[model.Zone]:
    for index, zone in enumerate(zones):
        if zone.type != "Node":
            continue
        where = f"zones[{index}]"
        resources = zone.resources or ()
        yield model.Zone(
            id=zone_number(zone.name, f"{where}.name"),
            capacity={one.name: _amount(where, one.name, one.capacity) for one in resources},
            allocatable={one.name: _amount(where, one.name, one.allocatable) for one in resources},
            available={one.name: _available(where, one) for one in resources},
            costs={zone_number(one.name, f"{where}.costs"): one.value for one in zone.costs or ()},
        )


def zone_number(name: str, field: str) -> int:
    """The number that a zone's name ends in. Raises ``ObjectError`` where there is none."""
    found = re.search(r"(\d+)$", name)
    if found is None:
        raise ObjectError(f"{name!r} ends in no number, such as node-0", field=field)
    return int(found[1])


def _available(where: str, one: ZoneResource) -> int:
    """Never more than is allocatable, nor below 0: an exporter subtracts pods that a kubelet has let go or lets on."""
    try:
        if parse_amount(one.name, one.available) < 0:
            return 0
    except ValueError:
        pass  # named below
    return min(_amount(where, one.name, one.available), _amount(where, one.name, one.allocatable))


def _amount(where: str, name: str, quantity: str | float) -> int:
    amount = amount_of(f"{where}.resources[{name}]", name, quantity)
    return amount // 1000 if name == CPU else amount


def needs_of(spec: api.PodSpec, dedicated: model.Dedicated | None = None) -> model.PodNeeds | None:
    """What a kubelet's managers would align the pod by, and what Katalyst would; None: both leave it alone. Raises
    ``ObjectError`` naming an amount that is none."""
    aligned = spec.resources is None and _guaranteed(spec)
    every = [
        (one, ContainerKind.SIDECAR if one.restart_policy == "Always" else ContainerKind.INIT)
        for one in spec.init_containers or ()
    ]
    every += [(one, ContainerKind.MAIN) for one in spec.containers or ()]
    containers = tuple(_needs(str(at), one, kind, aligned) for at, (one, kind) in enumerate(every))
    needs = model.PodNeeds(containers, dedicated)
    return needs if dedicated is not None or needs.of_kubelet else None


def _needs(name: str, container: api.Container, kind: ContainerKind, aligned: bool) -> model.ContainerNeeds:
    requests, limits = _quantities(container, "requests"), _quantities(container, "limits")
    cpu = requests.get(CPU, 0) if aligned else 0
    return model.ContainerNeeds(
        name=name,
        kind=kind,
        cpus=cpu // 1000 if cpu % 1000 == 0 else 0,
        memory=_sorted(requests, _is_memory) if aligned else (),
        devices=_sorted(limits, lambda name: "/" in name),
    )


def _sorted(amounts: Mapping[str, int], wanted: Callable[[str], bool]) -> model.Amounts:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount and wanted(name)))


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(HUGEPAGES)


def _quantities(container: api.Container, which: str) -> dict[str, int]:
    found = getattr(container.resources, which, None) or {}
    return {name: amount_of(f"{container.name}.resources.{which}[{name}]", name, one) for name, one in found.items()}


def _guaranteed(spec: api.PodSpec) -> bool:
    """Quality of service Guaranteed: limits for CPU and memory everywhere, each equal to its request
    (``pkg/apis/core/v1/helper/qos``)."""
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        requests, limits = _quantities(container, "requests"), _quantities(container, "limits")
        for name in (CPU, MEMORY):
            if not limits.get(name) or requests.get(name, limits[name]) != limits[name]:
                return False
    return True
