"""The zones of a simulated node, by the annotation ``conclave.io/twin-zones``; what an exporter publishes of them.

JSON: ``count`` zones that are alike, the kubelet's ``policy`` and ``scope``, ``late_s``: by how much the exporter is
late. What the node has (CPUs, memory, extended resources) is dealt evenly. Pure: text in, objects out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from shared.errors import ConfigError
from shared.model.node_topology import NodeTopology, TopologyPolicy, TopologyScope, Zone
from shared.model.resources import CPU, MEMORY, parse_amount

Json = dict[str, Any]

ZONES_ANNOTATION = "conclave.io/twin-zones"
GROUP, PLURAL, VERSION = "topology.node.k8s.io", "noderesourcetopologies", "v1alpha2"
TOPOLOGIES = f"{PLURAL}.{GROUP}"
MOST_ZONES = 8


class Zones(Struct, frozen=True, forbid_unknown_fields=True):
    """See the module."""

    count: int = 2
    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "single-numa-node"
    scope: Literal["container", "pod"] = "container"
    late_s: float = 0.0


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
    counts = {resource: parse_amount(resource, text) for resource, text in allocatable.items()}
    return found.with_node(counts)


def object_of(topology: NodeTopology) -> Json:
    """As NFD's topology updater publishes it."""
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


def definition() -> Json:
    """The CustomResourceDefinition of the objects."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {
        "kind": "NodeResourceTopology", "listKind": "NodeResourceTopologyList", "plural": PLURAL,
        "singular": "noderesourcetopology", "shortNames": ["node-res-topo"],
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": TOPOLOGIES,
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
        },
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }
