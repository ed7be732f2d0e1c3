"""Who owns which fields of an object, by ``metadata.managedFields``. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import field

from shared.kube.objects import Json, NodeStatus
from shared.kube.resources import Resource
from shared.kube.scaling.scaled_objects import ScaledMeta


class OwnedNode(Json, frozen=True):
    """A node with its managedFields, which a watch of nodes does not keep."""

    metadata: ScaledMeta = field(default_factory=ScaledMeta)
    status: NodeStatus = field(default_factory=NodeStatus)


OWNED_NODES = Resource("Node", "", "v1", "nodes", False, OwnedNode)


def owners(node: OwnedNode, names: Collection[str]) -> set[str]:
    """The managers that own one of these resources in the node's status, as capacity or as allocatable."""
    keys = {f"f:{name}" for name in names}
    return {
        one.manager
        for one in node.metadata.managed_fields or ()
        if any(keys & _under(one.fields_v1, "f:status", part).keys() for part in ("f:capacity", "f:allocatable"))
    }


def _under(fields: Any, *path: str) -> Mapping[str, Any]:
    for key in path:
        fields = fields.get(key) if isinstance(fields, dict) else None
    return fields if isinstance(fields, dict) else {}
