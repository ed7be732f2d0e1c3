"""A node as the scheduler sees it: its static half. What runs there is accounted in ``scheduling.node_table``."""

from __future__ import annotations

from msgspec import Struct

from shared.model.constraints import Taint

LATENCY_ANNOTATION = "conclave.io/latency-ms"
"""On a node: its network latency to the users, in milliseconds ("12" or "12.5"), as whoever measures it writes it."""

UNKNOWN_LATENCY = -1

HELD_TAINT = "conclave.io/making-room"
"""Key of the taint (NoSchedule) by which a node is closed to other schedulers while room is made on it (ADR 0054). To
ours it is no taint: ``Node.held`` says that it is there."""

NOT_REMOVED = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
"""Annotations by which autoscalers leave a node alone; a held node bears them."""

OUR_ANNOTATIONS = "conclave.io/making-room-annotations"
"""Annotation of a held node: which of them it did not bear before, and so are taken away with the taint."""


CONDITIONS = {
    "Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False",
    "NetworkUnavailable": "False",
}  # fmt: skip
"""The conditions that a kubelet and a network plugin tell, and how each should be."""

MESSAGE_CHARS = 256


class Condition(Struct, frozen=True, gc=False):
    """One condition that is not as it should be. ``since``: its last transition, as the API server writes it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


class Node(Struct, frozen=True, gc=False):
    """One node. ``allocatable``: amounts by resource name, CPU in milli-cores. ``latency_us``: latency to the users in
    microseconds, ``UNKNOWN_LATENCY`` where nobody says. ``features``: those it declares of ``DECIDING_FEATURES``.
    ``drained``: by whom and why it was drained from our scheduling, "" for one that was not; no part of the Kubernetes
    object. ``conditions``: those that are not as they should be, for people; rules go by taints. ``held``: it bears
    ``HELD_TAINT``, which is not among ``taints``; ``marked``: ``OUR_ANNOTATIONS``. ``capacity``: cpu and memory with
    what is reserved for the system; all 0 where it is not told. ``reserved``: whether it says that room is kept on it
    (``RESERVED_ANNOTATIONS``), and whether it bears all of ``NOT_REMOVED``."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    ready: bool = True
    deleting: bool = False
    invalid: str = ""
    latency_us: int = UNKNOWN_LATENCY
    drained: str = ""
    conditions: tuple[Condition, ...] = ()
    features: tuple[str, ...] = ()
    held: bool = False
    marked: bool = False
    capacity: tuple[int, int] = (0, 0)
    reserved: tuple[bool, bool] = (False, False)

    @property
    def closed(self) -> bool:
        """Whether it takes no pods but those that tolerate it: cordoned, or drained from scheduling."""
        return self.unschedulable or bool(self.drained)
