"""What a ``ClusterState`` and its cache need to know of whoever keeps nodes' zones for them (``numa/zones.py``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from shared.model.node_topology import NodeTopology, PodNeeds, TopologySource

ZONE_KINDS = {
    "noderesourcetopologies": TopologySource.KUBELET,
    "customnoderesources": TopologySource.KATALYST,
}
"""The kinds that it keeps."""

News = tuple[str, str, str]
"""(event, node, why), for a log."""


class KeepsZones(Protocol):
    """Objects of nodes' zones, and who stands there. ``version`` counts all changes of any of it."""

    version: int

    def put(self, name: str, topology: NodeTopology) -> NodeTopology | None:
        """The object of a node as it is now; what counted before, None if none did."""
        ...

    def drop(self, name: str, source: TopologySource = TopologySource.KUBELET) -> None:
        """The object of that kind is gone; an unknown name is fine."""
        ...

    def node_changed(self, name: str) -> None:
        """The node came, went, or has other amounts."""
        ...

    def advance(self, now: float) -> list[str]:
        """It is ``now``: nodes that may take pods by that which they did not take before."""
        ...

    def count(self, uid: str, node_name: str, needs: PodNeeds, *, assumed: bool) -> None:
        """A pod stands on the node from now on, bound or assumed."""
        ...

    def uncount(self, uid: str, node_name: str) -> None:
        """The pod stands there no longer."""
        ...

    def refused(self, node_name: str, needs: PodNeeds, reason: str) -> None:
        """The node's kubelet refused such a pod."""
        ...

    def left(self, node_name: str) -> Collection[str]:
        """Uids of pods that are gone, but what they held counts as taken still."""
        ...

    def concerns(self, needs: PodNeeds) -> bool:
        """Whether some node's kubelet may refuse such a pod."""
        ...

    def validate(self) -> Iterator[str]:
        """What is broken of it."""
        ...
