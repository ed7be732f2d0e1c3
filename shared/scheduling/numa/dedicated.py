"""Pods of dedicated cores where Katalyst lets pods on: one zone, or whole zones that nobody else of them has.

Follows the dynamic policy of katalyst-core v0.5 (``pkg/scheduler/plugins/noderesourcetopology/filter_dedicated.go``),
with its defaults: CPUs and memory lie in the same zones. ``numa_binding`` alone: one zone that has room. With
``numa_exclusive``: as few zones as could hold it by their capacity, where no other pod of dedicated cores has
anything, of one socket while one has as many; under ``single-numa-node`` one. Devices lie in the same zone under
``single-numa-node``, elsewhere if they can. Where the plug-in looks at no zone (policies ``none``, ``best-effort``,
``restricted``, scope ``pod``) the rule is that of ``numeric``: the agent of the node wants a zone all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice

from shared.model.node_topology import ContainerSeat, Dedicated, MemoryBlock, NodeTopology, TopologyPolicy
from shared.model.resources import CPU, MEMORY
from shared.scheduling.numa.books import Books

SEAT = "main"
"""The one container that has a seat."""


def seat_of(topology: NodeTopology, books: Books, wanted: Dedicated) -> ContainerSeat | None:
    """Where it would sit; None: nowhere."""
    together = _together(topology)
    best = None
    for zones in _sets(topology, books, wanted):
        if not _holds(books, zones, wanted):
            continue
        if all(_devices_in(books, zones, name) >= count for name, count in wanted.devices):
            best = zones
            break
        if best is None and not together:
            best = zones
    return None if best is None else _seat(topology, books, best, wanted)


def ways(topology: NodeTopology, books: Books, wanted: Dedicated) -> tuple[Sequence[int], bool]:
    """(Positions of all zones of which its agent may choose, whether it has no choice among them). Which one it takes
    hangs on more than an object says: on what shared cores need, on GPUs, on who came first there."""
    possible = (
        zones
        for zones in _sets(topology, books, wanted)
        if _holds(books, zones, wanted)
        and (not _together(topology) or all(_devices_in(books, zones, name) >= count for name, count in wanted.devices))
    )
    if not wanted.exclusive:
        found = [index for (index,) in possible]
        return found, len(found) == 1
    few = list(islice(possible, 2))
    if len(few) <= 1:
        return (few[0] if few else ()), bool(few)
    return [index for index in range(len(topology.zones)) if _idle(topology, books, index)], False


def take_off(books: Books, wanted: Dedicated, zones: Iterable[int]) -> None:
    """Off each of these zones all that it may have there: everything, where it is to be alone."""
    zones = list(zones)
    for name, free in ((CPU, books.cpus_free), *books.memory_free.items()):
        amount = wanted.cpus if name == CPU else wanted.memory if name == MEMORY else 0
        for index in zones:
            free[index] = min(free[index], 0) if wanted.exclusive else max(0, free[index] - amount)
    for name, amount in wanted.devices:
        for index in zones if name in books.devices_free else ():
            books.devices_free[name][index] = max(0, books.devices_free[name][index] - amount)


def _together(topology: NodeTopology) -> bool:
    """Whether devices lie where the CPUs do."""
    return topology.policy is TopologyPolicy.SINGLE_NUMA_NODE


def _idle(topology: NodeTopology, books: Books, index: int) -> bool:
    """Whether no pod of dedicated cores has CPUs or memory there."""
    there = topology.zones[index].allocatable
    return books.cpus_free[index] == there.get(CPU, 0) and all(
        free[index] == books.memory_held[name][index] for name, free in books.memory_free.items()
    )


def _sets(topology: NodeTopology, books: Books, wanted: Dedicated) -> Iterator[tuple[int, ...]]:
    """Sets of zones that it may have, by position, lower ones first; each as small as could hold it."""
    zones = range(len(topology.zones))
    size = max(_fewest(topology, CPU, wanted.cpus), _fewest(topology, MEMORY, wanted.memory))
    if not wanted.exclusive:
        yield from ((index,) for index in zones if size == 1)
        return
    if size > 1 and topology.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return
    sockets = [topology.sockets.get(zone.id, "") for zone in topology.zones]
    of_one = size <= len(sockets) // max(1, len(set(sockets)))
    for chosen in combinations([index for index in zones if _idle(topology, books, index)], size):
        if not (of_one and len({sockets[index] for index in chosen}) > 1):
            yield chosen


def _fewest(topology: NodeTopology, name: str, amount: int) -> int:
    """How many zones could hold it if nothing were taken or reserved."""
    left, count = amount, 0
    for there in sorted((zone.capacity.get(name, 0) for zone in topology.zones), reverse=True):
        count += 1
        left -= there
        if left <= 0:
            break
    return max(1, count)


def _holds(books: Books, zones: tuple[int, ...], wanted: Dedicated) -> bool:
    memory = books.memory_free.get(MEMORY)
    return (not books.exclusive_cpus or sum(books.cpus_free[index] for index in zones) >= wanted.cpus) and (
        memory is None or sum(memory[index] for index in zones) >= wanted.memory
    )


def _devices_in(books: Books, zones: tuple[int, ...], name: str) -> int:
    """Of a resource that no zone has, as many as one likes: the node's totals decide."""
    if not any(books.devices_held.get(name, ())):
        return 1 << 62
    return sum(books.devices_free[name][index] for index in zones)


def _seat(topology: NodeTopology, books: Books, zones: tuple[int, ...], wanted: Dedicated) -> ContainerSeat:
    ids = [zone.id for zone in topology.zones]
    cpus = _spread(books.cpus_free, zones, None if wanted.exclusive else wanted.cpus)
    memory = _spread(books.memory_free.get(MEMORY, ()), zones, None if wanted.exclusive else wanted.memory)
    devices: dict[str, Mapping[int | None, int]] = {}
    for name, count in wanted.devices:
        if name in books.devices_free:
            free = books.devices_free[name]
            others = [index for index in range(len(free)) if index not in zones]
            given = _spread(free, (*zones, *others), count)
            devices[name] = {(ids[at] if at < len(ids) else None): amount for at, amount in given.items()}
    return ContainerSeat(
        {ids[index]: amount for index, amount in cpus.items()},
        tuple(MemoryBlock(MEMORY, (ids[index],), amount) for index, amount in memory.items()),
        devices,
    )


def _spread(free: Sequence[int], zones: tuple[int, ...], amount: int | None) -> dict[int, int]:
    """The amount from these positions in their order, by position; None: all that is free there."""
    found: dict[int, int] = {}
    for index in zones if free else ():
        part = free[index] if amount is None else min(amount - sum(found.values()), max(0, free[index]))
        if part > 0:
            found[index] = part
    return found
