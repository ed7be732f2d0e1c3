"""The books of a node with pods on it: what each holds, also what nobody reports.

The podresources API, and so every exporter, is silent of init containers: the CPUs and devices of a finished one stay
with its pod until that ends, its memory is held while init containers run. And of a pod that was bound after the last
report nothing is known but what it asks for: it is seated as the kubelet would seat it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from shared.model.node_topology import ContainerKind, ContainerSeat, NodeTopology, PodNeeds, TopologySource
from shared.scheduling.numa.admission import admit
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.masks import mask_of
from shared.scheduling.numa.totals import pod_totals


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """``seats``: of each container, as reported; None: nothing is reported yet. ``initializing``: an init container
    that is no sidecar still runs."""

    needs: PodNeeds
    seats: Mapping[str, ContainerSeat] | None
    initializing: bool = False


def books_with(topology: NodeTopology, pods: Iterable[PlacedPod]) -> Books:
    """``pods``: those that have not ended and were not refused, in the order in which they came."""
    books = Books(topology)
    later = []
    for pod in pods:
        if pod.seats is None:
            later.append(pod)
        else:
            charge(topology, books, pod.needs, pod.seats, initializing=pod.initializing)
    for pod in later:
        seat(topology, books, pod.needs)
    return books


def seat(topology: NodeTopology, books: Books, needs: PodNeeds) -> Mapping[str, ContainerSeat] | None:
    """Seat the pod as the kubelet would, on what is free; None, and nothing is taken, where that would refuse it."""
    verdict = admit(topology, books, needs)
    if verdict.refusal is not None:
        return None
    charge(topology, books, needs, verdict.seats)
    return verdict.seats


def charge(
    topology: NodeTopology, books: Books, needs: PodNeeds, seats: Mapping[str, ContainerSeat], *,
    initializing: bool = True,
) -> None:  # fmt: skip
    """Take what the pod holds on these seats, also what nobody reports."""
    init = init_names(needs)
    books.charge(one for name, one in seats.items() if name not in init)
    if topology.source is TopologySource.KATALYST:
        return
    _charge_unreported(topology, books, needs, seats, initializing)


def init_names(needs: PodNeeds) -> frozenset[str]:
    """Containers that are over before the others start."""
    return frozenset(one.name for one in needs.containers if one.kind is ContainerKind.INIT)


def _charge_unreported(
    topology: NodeTopology, books: Books, needs: PodNeeds, seats: Mapping[str, ContainerSeat], initializing: bool
) -> None:
    """What init containers hold beyond what the others took over, in the zones where the others sit."""
    init = init_names(needs)
    if not init or not seats:
        return
    lasting = [seat for name, seat in seats.items() if name not in init]
    cpus, memory, devices = pod_totals(needs)
    zones = _zones(lasting) or [topology.zones[0].id]
    if books.exclusive_cpus:
        more = cpus - sum(sum(seat.cpus.values()) for seat in lasting)
        if more > 0:
            _take(books.cpus_free, books, zones, more)
    for name, count in devices.items():
        more = count - sum(sum(seat.devices.get(name, {}).values()) for seat in lasting)
        if more > 0 and name in books.devices_free:
            _take(books.devices_free[name], books, zones, more)
    if initializing and books.aligned_memory:
        for name, size in memory.items():
            more = size - sum(block.size for seat in lasting for block in seat.memory if block.type == name)
            if more > 0:
                books.put_memory(name, mask_of(books.positions[zone] for zone in zones), more)


def _zones(seats: Collection[ContainerSeat]) -> list[int]:
    """Zones with CPUs where there are any, else with memory, else with devices, in the order of the containers."""
    ways: tuple[Callable[[ContainerSeat], Iterable[int | None]], ...] = (
        lambda seat: sorted(seat.cpus),
        lambda seat: (zone for block in seat.memory for zone in block.zones),
        lambda seat: (zone for by_zone in seat.devices.values() for zone in by_zone),
    )
    for way in ways:
        found = dict.fromkeys(zone for seat in seats for zone in way(seat) if zone is not None)
        if found:
            return list(found)
    return []


def _take(free: list[int], books: Books, zones: Iterable[int], count: int) -> None:
    for zone in zones:
        index = books.positions[zone]
        part = min(count, max(0, free[index]))
        free[index] -= part
        count -= part
