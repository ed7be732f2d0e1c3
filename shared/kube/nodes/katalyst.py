"""Katalyst: ``node.katalyst.kubewharf.io/v1alpha1`` CustomNodeResource, and pods of dedicated cores, as the model.

Pure. A bad field spoils its object only (``ObjectError`` names it). One object for each node, of the node's name: a
tree of zones, Socket over Numa, of which Katalyst's scheduler plug-in reads the Numa zones under sockets; each lists
its resources and, by consumer (``namespace/name/uid``), what pods have there. Who is bound to zones is said by
annotations of the pod (katalyst-api ``pkg/consts/qos.go``); of its containers the main one counts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.nodes.node_topology import MOST_ZONES, POLICIES, known_policy, zone_number
from shared.kube.objects import Json, ObjectMeta
from shared.kube.pods.convert_requests import amount_of
from shared.kube.resources import Resource
from shared.model.node_topology import Dedicated, NodeTopology, TopologyPolicy, TopologyScope, TopologySource, Zone
from shared.model.resources import CPU, MEMORY

QOS_ANNOTATION = "katalyst.kubewharf.io/qos_level"
DEDICATED_CORES = "dedicated_cores"
ENHANCEMENT_ANNOTATION = "katalyst.kubewharf.io/memory_enhancement"
MAIN_ANNOTATION = "kubernetes.io/main-container-name"
"""Which container is the pod's main one; without it the first is."""

_NUMERIC = {
    "NumericContainerLevel": (TopologyPolicy.NUMERIC, TopologyScope.CONTAINER),
    "NumericPodLevel": (TopologyPolicy.NUMERIC, TopologyScope.POD),
}

Quantities = dict[str, str | int | float]


class KatalystResources(Json, frozen=True):
    allocatable: Quantities | None = None
    capacity: Quantities | None = None


class KatalystAllocation(Json, frozen=True):
    consumer: str = ""
    requests: Quantities | None = None


class KatalystZone(Json, frozen=True):
    type: str = ""
    name: str = ""
    resources: KatalystResources = KatalystResources()
    allocations: list[KatalystAllocation] | None = None
    children: list[KatalystZone] | None = None


class KatalystStatus(Json, frozen=True):
    topology_zone: list[KatalystZone] | None = None
    topology_policy: str = ""


class CustomNodeResource(Json, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: KatalystStatus = KatalystStatus()


CUSTOM_NODE_RESOURCES = Resource(
    "CustomNodeResource", "node.katalyst.kubewharf.io", "v1alpha1", "customnoderesources", False, CustomNodeResource
)


def topology_of_katalyst(item: CustomNodeResource) -> NodeTopology:
    """What the object says of its node. Raises ``ObjectError`` for an unknown policy, a zone whose name holds no number
    or that occurs twice, more zones than a machine has, amounts that are no quantities, and a consumer that names no
    pod."""
    policy, scope = known_policy(item.status.topology_policy or "None", POLICIES | _NUMERIC, "status.topologyPolicy")
    zones: dict[int, Zone] = {}
    sockets: dict[int, str] = {}
    held: dict[str, dict[int, dict[str, int]]] = {}
    for where, socket, zone in _numa_zones(item.status.topology_zone or ()):
        number = zone_number(zone.name, f"{where}.name")
        if number in zones:
            raise ObjectError("two zones have one number", field=f"{where}.name")
        if len(zones) == MOST_ZONES:
            raise ObjectError(f"more than {MOST_ZONES} zones", field=where)
        zones[number] = _zone(number, where, zone)
        sockets[number] = socket
        for index, one in enumerate(zone.allocations or ()):
            there = f"{where}.allocations[{index}]"
            has = held.setdefault(_uid(one.consumer, f"{there}.consumer"), {}).setdefault(number, {})
            for name, amount in _amounts(f"{there}.requests", one.requests, up=True).items():
                has[name] = has.get(name, 0) + amount
    return NodeTopology(
        node=item.metadata.name,
        policy=policy,
        scope=scope,
        zones=tuple(zones[number] for number in sorted(zones)),
        resource_version=item.metadata.resource_version,
        source=TopologySource.KATALYST,
        sockets=sockets,
        held=held,
    )


def _numa_zones(zones: Iterable[KatalystZone]) -> Iterator[tuple[str, str, KatalystZone]]:
    """(field, name of the socket, zone)."""
    for index, socket in enumerate(zones):
        for place, zone in enumerate(socket.children or ()) if socket.type == "Socket" else ():
            if zone.type == "Numa":
                yield f"status.topologyZone[{index}].children[{place}]", socket.name, zone


def _zone(number: int, where: str, zone: KatalystZone) -> Zone:
    allocatable = _amounts(f"{where}.resources.allocatable", zone.resources.allocatable)
    capacity = _amounts(f"{where}.resources.capacity", zone.resources.capacity)
    for name, amount in allocatable.items():
        if amount > capacity.setdefault(name, amount):
            raise ObjectError(
                f"{amount} is more than its capacity of {capacity[name]}",
                field=f"{where}.resources.allocatable[{name}]",
            )
    return Zone(number, capacity, allocatable, allocatable)


def _amounts(where: str, quantities: Mapping[str, str | int | float] | None, *, up: bool = False) -> dict[str, int]:
    """CPUs are whole ones here, those that pods have rounded ``up``."""
    found = {}
    for name, quantity in (quantities or {}).items():
        amount = amount_of(f"{where}[{name}]", name, quantity)
        found[name] = (-(-amount // 1000) if up else amount // 1000) if name == CPU else amount
    return found


def _uid(consumer: str, where: str) -> str:
    parts = consumer.split("/")
    if len(parts) != 3 or not all(parts):
        raise ObjectError(f"{consumer[:128]!r} is not NAMESPACE/NAME/UID", field=where)
    return parts[2]


def dedicated_of(meta: ObjectMeta, spec: api.PodSpec) -> Dedicated | None:
    """What Katalyst binds to zones of the pod; None: it has no dedicated cores. Where an annotation cannot be read the
    main container counts as far as it is known, and ``unreadable`` names the annotation: without Katalyst nothing hangs
    on it. Raises ``ObjectError`` naming an amount that is none."""
    annotations = meta.annotations or {}
    if annotations.get(QOS_ANNOTATION) != DEDICATED_CORES or not spec.containers:
        return None
    unreadable, enhancement = "", {"numa_binding": "true"}
    try:
        enhancement = _enhancement(annotations.get(ENHANCEMENT_ANNOTATION, ""))
    except ObjectError as error:
        unreadable = str(error)
    if enhancement.get("numa_binding") != "true":
        return Dedicated(0, 0, binding=False)
    named = annotations.get(MAIN_ANNOTATION) or spec.containers[0].name
    main = next((one for one in spec.containers if one.name == named), None)
    if main is None:
        main = spec.containers[0]
        unreadable = unreadable or f"metadata.annotations[{MAIN_ANNOTATION}]: the pod has no container {named[:64]!r}"
    requests = (main.resources.requests if main.resources is not None else None) or {}
    amounts = _amounts(f"{main.name}.resources.requests", requests, up=True)
    devices = tuple(sorted((name, amount) for name, amount in amounts.items() if "/" in name and amount))
    exclusive = enhancement.get("numa_exclusive") == "true"
    return Dedicated(amounts.get(CPU, 0), amounts.get(MEMORY, 0), devices, exclusive, unreadable=unreadable)


def _enhancement(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ObjectError(
            f'{error}; give an object of strings such as {{"numa_binding":"true"}}',
            field=f"metadata.annotations[{ENHANCEMENT_ANNOTATION}]",
        ) from error
