"""What is free in the zones of one node: CPUs, memory with its groups of zones, devices.

Reserved CPUs are in ``cpus.held`` and never free. Zones are named by position here (``masks``). Changed by
``charge`` as pods sit down; a copy is tried on and thrown away.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from shared.model.node_topology import ContainerSeat, MemoryBlock, NodeTopology
from shared.model.resources import CPU, MEMORY
from shared.scheduling.numa.hints import ZoneAmounts
from shared.scheduling.numa.masks import mask_of, members

HUGEPAGES = "hugepages-"


class Books:
    """Of the node of ``topology``, with nobody on it."""

    def __init__(self, topology: NodeTopology) -> None:
        zones = topology.zones
        self.positions = {zone.id: index for index, zone in enumerate(zones)}
        self.every_zone = (1 << len(zones)) - 1
        self.cpus_free = [zone.allocatable.get(CPU, 0) for zone in zones]
        self.cpus_held = [zone.capacity.get(CPU, 0) for zone in zones]
        self.exclusive_cpus = any(self.cpus_free)
        """Whether the CPU manager hands out any."""
        kinds = {name for zone in zones for name in zone.allocatable if name == MEMORY or name.startswith(HUGEPAGES)}
        self.memory_free = {name: [zone.allocatable.get(name, 0) for zone in zones] for name in kinds}
        self.memory_held = {name: list(free) for name, free in self.memory_free.items()}
        self.aligned_memory = any(self.memory_free.get(MEMORY, ()))
        self.groups = [1 << index for index in range(len(zones))]
        """Of each zone, which zones share its memory."""
        self.seats = [0] * len(zones)
        """Of each zone, how many memory blocks lie in it."""
        devices = {name for zone in zones for name in zone.capacity if "/" in name} | topology.loose_devices.keys()
        loose = topology.loose_devices
        self.devices_free = {
            name: [*(zone.allocatable.get(name, 0) for zone in zones), loose.get(name, 0)] for name in devices
        }
        """By zone; the last are those of no zone, which are in no mask."""
        self.devices_held = {name: [zone.capacity.get(name, 0) for zone in zones] for name in devices}
        self.most: Books | None = None
        """Where nobody knows in which zones some pods sit: what is free at most; the others say at least."""

    def copy(self) -> Books:
        """The same, to be changed apart."""
        other = object.__new__(Books)
        other.__dict__.update(self.__dict__)
        other.cpus_free = list(self.cpus_free)
        other.memory_free = {name: list(free) for name, free in self.memory_free.items()}
        other.groups, other.seats = list(self.groups), list(self.seats)
        other.devices_free = {name: list(free) for name, free in self.devices_free.items()}
        other.most = self.most.copy() if self.most is not None else None
        return other

    def key(self) -> Hashable:
        """Equal for nodes of one make where the same is free."""
        return (
            tuple(self.cpus_free), tuple(self.groups), tuple(self.seats),
            tuple((name, *self.memory_free[name]) for name in sorted(self.memory_free)),
            tuple((name, *self.devices_free[name]) for name in sorted(self.devices_free)),
            self.most.key() if self.most is not None else None,
        )  # fmt: skip

    def free(self) -> dict[str, list[int]]:
        """All that is free, by resource and zone; for people."""
        devices = {name: free[:-1] for name, free in self.devices_free.items()}
        return {CPU: list(self.cpus_free), **{name: list(free) for name, free in self.memory_free.items()}, **devices}

    def cpus(self) -> ZoneAmounts:
        """CPUs by zone."""
        return ZoneAmounts(self.cpus_free, self.cpus_held)

    def devices_of(self, name: str) -> ZoneAmounts:
        """Devices of one kind by zone."""
        return ZoneAmounts(self.devices_free[name], self.devices_held[name])

    def memory_of(self, kind: str) -> ZoneAmounts:
        """Memory or hugepages of one size by zone."""
        nothing = (0,) * len(self.seats)
        return ZoneAmounts(self.memory_free.get(kind, nothing), self.memory_held.get(kind, nothing))

    def may_lie_in(self, mask: int) -> bool:
        """Whether memory may be given from just these zones: one zone outside all groups, or zones that are unused
        or this very group (``memorymanager/policy_static.go``)."""
        inside = members(mask)
        if len(inside) == 1:
            return self.groups[inside[0]].bit_count() == 1
        return all(self.seats[index] == 0 or self.groups[index] == mask for index in inside)

    def put_memory(self, kind: str, mask: int, size: int) -> None:
        """A block: taken from the zones in ascending order; they are a group from now on."""
        free = self.memory_free.setdefault(kind, [0] * len(self.seats))
        for index in members(mask):
            self.seats[index] += 1
            self.groups[index] = mask
            part = min(size, max(0, free[index]))
            free[index] -= part
            size -= part

    def charge(self, seats: Iterable[ContainerSeat]) -> None:
        """Takes what these containers hold."""
        for seat in seats:
            for zone, count in seat.cpus.items():
                self.cpus_free[self.positions[zone]] -= count
            for block in seat.memory:
                self._put(block)
            for name, by_zone in seat.devices.items():
                self._take_devices(name, by_zone)

    def _take_devices(self, name: str, by_zone: Mapping[int | None, int]) -> None:
        free = self.devices_free.setdefault(name, [0] * (len(self.seats) + 1))
        for zone, count in by_zone.items():
            free[-1 if zone is None else self.positions[zone]] -= count

    def _put(self, block: MemoryBlock) -> None:
        self.put_memory(block.type, mask_of(self.positions[zone] for zone in block.zones), block.size)
