"""Cluster objects beside pods and nodes that decide where a pod may run: volumes, workloads, disruption budgets.

Only what the rules read. Keys are ``namespace/name`` for namespaced kinds.
"""

from __future__ import annotations

from msgspec import Struct

from shared.model.constraints import SelectorTerm
from shared.model.terms.labels import LabelSelector


class VolumeClaim(Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim. ``storage_bytes``: requested; ``bind_completed``: the volume controller confirmed the
    binding; ``selected_node``: where a delayed claim is being provisioned; ``owner_pod``: the pod an ephemeral claim
    was made for; ``selector`` None: any volume."""

    key: str
    uid: str = ""
    volume_name: str = ""
    class_name: str = ""
    storage_bytes: int = 0
    access_modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    bind_completed: bool = False
    lost: bool = False
    deleting: bool = False
    selected_node: str = ""
    owner_pod: str = ""
    resource_version: str = ""

    @property
    def name(self) -> str:
        """Without the namespace."""
        return self.key.partition("/")[2]

    @property
    def bound(self) -> bool:
        """Fully bound: named volume and a confirmed binding."""
        return bool(self.volume_name) and self.bind_completed


class PersistentVolume(Struct, frozen=True, gc=False):
    """A PersistentVolume. ``claim``: (key, uid) it is bound or reserved for; ``affinity`` None: reachable from every
    node; ``csi``: (driver, handle)."""

    name: str
    labels: dict[str, str] = {}
    class_name: str = ""
    capacity_bytes: int = 0
    access_modes: frozenset[str] = frozenset()
    volume_mode: str = "Filesystem"
    claim: tuple[str, str] | None = None
    affinity: tuple[SelectorTerm, ...] | None = None
    available: bool = False
    deleting: bool = False
    csi: tuple[str, str] | None = None
    resource_version: str = ""


class StorageClass(Struct, frozen=True, gc=False):
    """``delayed``: WaitForFirstConsumer. ``topologies``: per term (label key, allowed values); () allows every node."""

    name: str
    provisioner: str = ""
    delayed: bool = False
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()


class Workload(Struct, frozen=True, gc=False):
    """A Service or a controller: pods of ``namespace`` it selects. ``kind`` as in ``ownerReferences``."""

    api_version: str
    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None


class DisruptionBudget(Struct, frozen=True, gc=False):
    """A PodDisruptionBudget. ``allowed``: further evictions it permits now; ``disrupted``: names of pods that the API
    server has already counted against it."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()


class EndingNamespace(dict[str, str]):
    """The labels of a namespace that is being deleted: what is in it goes next, and the API server takes nothing new,
    no Binding either."""
