"""The inside of a node: its zones (NUMA nodes), the kubelet's policy, what a pod is aligned by, where pods sit.

Amounts: ``cpu`` in whole CPUs, memory and hugepages in bytes, devices by number. A *mask* is a set of zones as bits:
bit i stands for the i-th zone of the node in the order of their ids, as the kubelet compares masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum

from msgspec import Struct

Amounts = tuple[tuple[str, int], ...]
"""By type or resource, sorted by name."""


class TopologyPolicy(StrEnum):
    """``topologyManagerPolicy`` of a kubelet; the last one only KubeWharf's kubelet knows."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"
    NUMERIC = "numeric"


class TopologySource(StrEnum):
    """The kind of object that tells of a node's zones, and with it who lets pods on there: the kubelet's managers, or
    Katalyst's agent."""

    KUBELET = "NodeResourceTopology"
    KATALYST = "CustomNodeResource"


class TopologyScope(StrEnum):
    """``topologyManagerScope``: each container for itself, or one mask for the whole pod."""

    CONTAINER = "container"
    POD = "pod"


class TopologyRefusal(StrEnum):
    """The reason that a kubelet's managers give in the status of a pod that they refuse."""

    TOPOLOGY_AFFINITY = "TopologyAffinityError"
    UNEXPECTED = "UnexpectedAdmissionError"
    SMT_ALIGNMENT = "SMTAlignmentError"


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node. ``capacity``: all there is; ``allocatable``: without what is reserved; ``available``: what the
    exporter takes to be free. ``costs``: distance to each zone by id."""

    id: int
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    available: Mapping[str, int]
    costs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """What a kubelet's configuration says and no object of the API does; defaults: the kubelet's own.

    ``sockets``: of each zone by id, for ``align_by_socket``. ``reserved_siblings``: threads that share a core with a
    reserved CPU and are not reserved themselves."""

    full_pcpus_only: bool = False
    align_by_socket: bool = False
    prefer_closest: bool = False
    threads_per_core: int = 1
    reserved_siblings: int = 0
    sockets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """``zones`` in the order of their ids. ``loose_devices``: devices of the node that belong to no zone.
    ``resource_version``: of the object that says so. ``sockets``: of zones by id, where it says. ``held``: where it
    names its pods, by uid and the id of a zone what each has; ``available`` of zones is without all of them then."""

    node: str
    policy: TopologyPolicy
    scope: TopologyScope
    zones: tuple[Zone, ...]
    loose_devices: Mapping[str, int] = field(default_factory=dict)
    pods_fingerprint: str = ""
    options: KubeletOptions = KubeletOptions()
    resource_version: str = ""
    source: TopologySource = TopologySource.KUBELET
    sockets: Mapping[int, str] = field(default_factory=dict)
    held: Mapping[str, Mapping[int, Mapping[str, int]]] = field(default_factory=dict)

    def with_node(self, allocatable: Mapping[str, int]) -> NodeTopology:
        """With the devices that only the node lists. A resource that no zone knows at all may as well be no device: it
        is aligned by nothing either way."""
        loose = {
            name: max(0, amount - sum(zone.allocatable.get(name, 0) for zone in self.zones))
            for name, amount in allocatable.items()
            if "/" in name
        }
        return replace(self, loose_devices=loose)


class ContainerKind(Enum):
    """How long a container keeps what it is given: an init container until the next one starts, the others always."""

    __hash__ = object.__hash__  # part of every class that is aligned

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


class ContainerNeeds(Struct, frozen=True, array_like=True, gc=False):
    """What one container is aligned by. ``name``: its place among the pod's containers, for its own name would give
    each workload a class to itself. ``cpus``: exclusive ones, 0 for the shared pool; ``memory``: by type, empty
    where the memory manager leaves it alone; ``devices``: extended resources of device plug-ins."""

    name: str
    kind: ContainerKind
    cpus: int = 0
    memory: Amounts = ()
    devices: Amounts = ()


class Dedicated(Struct, frozen=True, array_like=True, gc=False):
    """What Katalyst binds to zones of a pod of dedicated cores: its main container. ``exclusive``: it shares no zone
    with another pod of dedicated cores. ``binding``: it asks for a zone; else it counts where the object names it.
    ``unreadable``: why nobody can tell what it asks for; then no agent of Katalyst is given it."""

    cpus: int
    memory: int
    devices: Amounts = ()
    exclusive: bool = False
    binding: bool = True
    unreadable: str = ""


class PodNeeds(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """Of all containers, init containers first, in the order in which the kubelet admits them: what its managers align.
    ``dedicated``: what counts in their place where Katalyst lets pods on; None: nothing does there."""

    containers: tuple[ContainerNeeds, ...]
    dedicated: Dedicated | None = None

    @property
    def of_kubelet(self) -> bool:
        """Whether a manager of a kubelet looks at the pod."""
        return any(one.cpus or one.memory or one.devices for one in self.containers)

    @property
    def of_katalyst(self) -> bool:
        """Whether an agent of Katalyst looks for zones for the pod."""
        return self.dedicated is not None and self.dedicated.binding


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """``size`` bytes of ``type`` over the zones of ``zones`` (ids)."""

    type: str
    zones: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class ContainerSeat:
    """Where a container sits: CPUs by zone, memory blocks, devices by resource and zone (None: of no zone)."""

    cpus: Mapping[int, int] = field(default_factory=dict)
    memory: tuple[MemoryBlock, ...] = ()
    devices: Mapping[str, Mapping[int | None, int]] = field(default_factory=dict)
