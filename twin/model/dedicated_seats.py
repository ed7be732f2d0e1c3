"""Which zones Katalyst's agent of a simulated node gives a pod of dedicated cores: any that its rules allow.

It shares no code with the scheduler, and chooses otherwise: real agents choose by what no object says, so a scheduler
that relies on one choice is refused here. The choice hangs on the pod's uid alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from itertools import combinations

from shared.model.node_topology import ContainerSeat, Dedicated, MemoryBlock, NodeTopology, TopologyPolicy
from shared.model.resources import CPU, MEMORY

Standing = Collection[tuple[Dedicated, ContainerSeat]]
"""Who has dedicated cores there, and where."""

MOST_WAYS = 64


def ways(topology: NodeTopology, standing: Standing, wanted: Dedicated) -> list[tuple[int, ...]]:
    """Sets of zones (ids) that it may have, ``MOST_WAYS`` at most."""
    single = topology.policy is TopologyPolicy.SINGLE_NUMA_NODE
    has = {zone.id: dict(zone.allocatable) for zone in topology.zones}
    lonely, used = _take(has, standing)
    size = max(_fewest(topology, CPU, wanted.cpus), _fewest(topology, MEMORY, wanted.memory))
    if size > 1 and (single or not wanted.exclusive):
        return []
    allowed = [zone for zone in has if zone not in (used if wanted.exclusive else lonely)]
    of_one = size * max(1, len(set(topology.sockets.values()))) <= len(has)
    found: list[tuple[int, ...]] = []
    for zones in combinations(allowed, size):
        asked = ((CPU, wanted.cpus), (MEMORY, wanted.memory), *(wanted.devices if single else ()))
        if of_one and len({topology.sockets.get(zone) for zone in zones}) > 1:
            continue
        if all(
            sum(has[zone].get(name, 0) for zone in zones) >= amount
            for name, amount in asked
            if any(zone.allocatable.get(name) for zone in topology.zones)
        ):
            found.append(zones)
            if len(found) == MOST_WAYS:
                break
    return found


def seat(topology: NodeTopology, standing: Standing, wanted: Dedicated, uid: str) -> ContainerSeat | None:
    """Where it puts the pod; None: it refuses it."""
    found = [] if wanted.unreadable else ways(topology, standing, wanted)
    if not found:
        return None
    zones = found[zlib.crc32(uid.encode()) % len(found)]
    has = {zone.id: dict(zone.allocatable) for zone in topology.zones}
    _take(has, standing)
    order = [*zones, *(zone for zone in has if zone not in zones)]
    cpus = _dealt(has, zones, CPU, None if wanted.exclusive else wanted.cpus)
    memory = _dealt(has, zones, MEMORY, None if wanted.exclusive else wanted.memory)
    devices: dict[str, Mapping[int | None, int]] = {}
    for name, count in wanted.devices:
        given: dict[int | None, int] = dict(_dealt(has, order, name, count).items())
        rest = count - sum(given.values())
        if rest and name in topology.loose_devices:
            given[None] = rest
        devices[name] = given
    return ContainerSeat(cpus, tuple(MemoryBlock(MEMORY, (zone,), size) for zone, size in memory.items()), devices)


def _take(has: dict[int, dict[str, int]], standing: Standing) -> tuple[set[int], set[int]]:
    """Takes what they hold. Zones that somebody has alone, and those where anybody has CPUs or memory."""
    lonely, used = set[int](), set[int]()
    for one, at in standing:
        zones = {*at.cpus, *(zone for block in at.memory for zone in block.zones)}
        used |= zones
        lonely |= zones if one.exclusive else set()
        for zone, count in at.cpus.items():
            has[zone][CPU] -= count
        for block in at.memory:
            has[block.zones[0]][block.type] -= block.size
        for name, by_zone in at.devices.items():
            for where, count in by_zone.items():
                if where is not None:
                    has[where][name] = has[where].get(name, 0) - count
    return lonely, used


def _fewest(topology: NodeTopology, name: str, amount: int) -> int:
    count = 0
    for there in sorted((zone.capacity.get(name, 0) for zone in topology.zones), reverse=True):
        if amount <= 0:
            break
        amount -= there
        count += 1
    return max(1, count)


def _dealt(
    has: Mapping[int, Mapping[str, int]], zones: Collection[int], name: str, amount: int | None
) -> dict[int, int]:
    """The amount from these zones in their order; None: all that is there."""
    found: dict[int, int] = {}
    for zone in zones:
        there = max(0, has[zone].get(name, 0))
        part = there if amount is None else min(there, amount - sum(found.values()))
        if part > 0:
            found[zone] = part
    return found
