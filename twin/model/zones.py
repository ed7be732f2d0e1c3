"""The zones of a simulated node, by the annotation ``conclave.io/twin-zones``; what an exporter publishes of them.

JSON: ``count`` zones that are alike, the kubelet's ``policy`` and ``scope``, ``late_s``: by how much the exporter is
late, ``exporter``: NFD's, or Katalyst's agent, which lets pods on by its own rules. What the node has (CPUs, memory,
extended resources) is dealt evenly. Pure: text in, objects out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec
from msgspec import Struct

from shared.errors import ConfigError
from shared.model.node_topology import NodeTopology, TopologyPolicy, TopologyScope, TopologySource, Zone
from shared.model.resources import CPU, MEMORY, parse_amount

Json = dict[str, Any]

ZONES_ANNOTATION = "conclave.io/twin-zones"
GROUP, PLURAL, VERSION = "topology.node.k8s.io", "noderesourcetopologies", "v1alpha2"
TOPOLOGIES = f"{PLURAL}.{GROUP}"
KATALYST_GROUP, KATALYST_PLURAL, KATALYST_VERSION = "node.katalyst.kubewharf.io", "customnoderesources", "v1alpha1"
KATALYST_TOPOLOGIES = f"{KATALYST_PLURAL}.{KATALYST_GROUP}"
MOST_ZONES = 8
APPROVED = "https://github.com/kubernetes/enhancements/pull/1870"
SOCKETS = 2
"""Of a machine with Katalyst, where it has an even number of zones."""


class Zones(Struct, frozen=True, forbid_unknown_fields=True):
    """See the module."""

    count: int = 2
    policy: Literal["none", "best-effort", "restricted", "single-numa-node", "numeric"] = "single-numa-node"
    scope: Literal["container", "pod"] = "container"
    late_s: float = 0.0
    exporter: Literal["nfd", "katalyst"] = "nfd"

    @property
    def resource(self) -> str:
        """The kind of object that its exporter writes."""
        return KATALYST_TOPOLOGIES if self.exporter == "katalyst" else TOPOLOGIES


def zones_of(text: str) -> Zones:
    """Raises ``ConfigError`` naming the field."""
    try:
        found = msgspec.json.decode(text, type=Zones)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{ZONES_ANNOTATION}: {error}") from None
    check_zones(found, ZONES_ANNOTATION)
    return found


def check_zones(zones: Zones, where: str) -> None:
    """Raises ``ConfigError`` where there are too few or too many, or the exporter would be ahead of time."""
    if not 1 <= zones.count <= MOST_ZONES:
        raise ConfigError(f"{where}.count: {zones.count} zones; a node has 1 to {MOST_ZONES}")
    if zones.policy == "numeric" and zones.exporter != "katalyst":
        raise ConfigError(f"{where}.policy: numeric is KubeWharf's kubelet's; give exporter katalyst with it")
    if not 0 <= zones.late_s <= 86_400:
        raise ConfigError(f"{where}.late_s: {zones.late_s}; give seconds from 0 to 86400")


def topology_of(name: str, allocatable: Mapping[str, str], zones: Zones) -> NodeTopology:
    """The node's inside with nobody on it."""
    parts = []
    for index in range(zones.count):
        amounts: dict[str, int] = {}
        for resource, text in allocatable.items():
            amount = parse_amount(resource, text)
            if resource == CPU:
                amount //= 1000
            elif resource != MEMORY and "/" not in resource:
                continue
            amounts[resource] = amount // zones.count + (index < amount % zones.count if resource != MEMORY else 0)
        costs = {other: 10 if other == index else 20 for other in range(zones.count)}
        parts.append(Zone(index, amounts, amounts, amounts, costs))
    found = NodeTopology(name, TopologyPolicy(zones.policy), TopologyScope(zones.scope), tuple(parts))
    if zones.exporter == "katalyst":
        each = max(1, zones.count // SOCKETS) if zones.count % SOCKETS == 0 else 1
        sockets = {index: str(index // each) for index in range(zones.count)}
        found = replace(found, source=TopologySource.KATALYST, sockets=sockets)
    counts = {resource: parse_amount(resource, text) for resource, text in allocatable.items()}
    return found.with_node(counts)


_KATALYST_POLICIES = {
    TopologyPolicy.BEST_EFFORT: "BestEffort", TopologyPolicy.RESTRICTED: "Restricted",
    TopologyPolicy.SINGLE_NUMA_NODE: "SingleNUMANode", TopologyPolicy.NUMERIC: "Numeric",
}  # fmt: skip


def object_of(topology: NodeTopology) -> Json:
    """As NFD's topology updater publishes it, or Katalyst's agent."""
    if topology.source is TopologySource.KATALYST:
        return _katalyst_object_of(topology)
    return {
        "metadata": {"name": topology.node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": topology.policy.value},
            {"name": "topologyManagerScope", "value": topology.scope.value},
        ],
        "zones": [
            {
                "name": f"node-{zone.id}",
                "type": "Node",
                "costs": [{"name": f"node-{other}", "value": value} for other, value in zone.costs.items()],
                "resources": [
                    {
                        "name": name,
                        "capacity": str(zone.capacity[name]),
                        "allocatable": str(amount),
                        "available": str(zone.available[name]),
                    }
                    for name, amount in sorted(zone.allocatable.items())
                ],
            }
            for zone in topology.zones
        ],
    }


def _katalyst_object_of(topology: NodeTopology) -> Json:
    level = "PodLevel" if topology.scope is TopologyScope.POD else "ContainerLevel"
    policy = _KATALYST_POLICIES.get(topology.policy)
    children: dict[str, list[Json]] = {}
    for zone in topology.zones:
        children.setdefault(topology.sockets[zone.id], []).append(
            {
                "type": "Numa",
                "name": str(zone.id),
                "resources": {"capacity": _texts(zone.capacity), "allocatable": _texts(zone.allocatable)},
                "allocations": [
                    {"consumer": consumer, "requests": _texts(has[zone.id])}
                    for consumer, has in sorted(topology.held.items())
                    if zone.id in has
                ],
            }
        )
    sockets = [{"type": "Socket", "name": name, "resources": {}, "children": of} for name, of in children.items()]
    return {
        "metadata": {"name": topology.node},
        "status": {"topologyPolicy": f"{policy}{level}" if policy else "None", "topologyZone": sockets},
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def definition(resource: str = TOPOLOGIES) -> Json:
    """The CustomResourceDefinition of the objects of that kind."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group, plural, kind, short, annotations = (
        (KATALYST_GROUP, KATALYST_PLURAL, "CustomNodeResource", "kcnr", {})
        if resource == KATALYST_TOPOLOGIES
        else (GROUP, PLURAL, "NodeResourceTopology", "node-res-topo", {"api-approved.kubernetes.io": APPROVED})
    )
    version = KATALYST_VERSION if resource == KATALYST_TOPOLOGIES else VERSION
    schema = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {
        "kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": [short],
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource, "annotations": annotations},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [schema]},
    }
