"""What a watch of the API server tells a core: the facts that every core which follows the cluster takes in.

Frozen data; they may come twice (I9). ``shared.runtime.kube.watches`` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shared.model.node import Node
from shared.model.pod import Pod


class PodUpserted(Struct, frozen=True, gc=False):
    pod: Pod


class PodDeleted(Struct, frozen=True, gc=False):
    uid: str


class NodeUpserted(Struct, frozen=True, gc=False):
    """``images``: bytes by name of what the node has; None: as before, or not asked for."""

    node: Node
    images: Mapping[str, int] | None = None


class NodeDeleted(Struct, frozen=True, gc=False):
    name: str


class ObjectChanged(Struct, frozen=True):
    """An object of another kind came or changed; ``item`` None: it is gone. See ``object_changes``."""

    kind: str
    key: str
    item: object | None


class ObjectUnreadable(Struct, frozen=True):
    """An object of a kind that stays as it was where it cannot be read has this version now."""

    kind: str
    key: str
    resource_version: str


class Listed(Struct, frozen=True):
    """A complete list of a kind, named by its plural, has been delivered, the first or one after ``PositionLost``, or
    there is none to be had: ``served`` False; ``refused``: it is not ours to read, so that there may be some."""

    kind: str
    served: bool = True
    refused: bool = False


class PositionLost(Struct, frozen=True):
    """The watch of a kind has missed something: what is shown of it is in no order until it is ``Listed`` again."""

    kind: str


ClusterEvent = (
    PodUpserted | PodDeleted | NodeUpserted | NodeDeleted | ObjectChanged | ObjectUnreadable | Listed | PositionLost
)
