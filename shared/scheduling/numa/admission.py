"""One pod on one node: container by container, hints, the merged mask, then devices, CPUs and memory are handed out.

Follows the kubelet of 1.36 (``pkg/kubelet/cm``: ``topologymanager/scope_{container,pod}.go`` and the static policies
of the CPU and Memory Managers). What hangs on CPU ids alone is left out: zones are counted, so of the CPUs that an init
container passes on the next container is taken to use those first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shared.model.node_topology import (
    ContainerKind,
    ContainerNeeds,
    ContainerSeat,
    MemoryBlock,
    NodeTopology,
    PodNeeds,
    TopologyPolicy,
    TopologyRefusal,
    TopologyScope,
    TopologySource,
)
from shared.model.resources import CPU
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.dedicated import SEAT, seat_of
from shared.scheduling.numa.hints import Hint, Hints, countable_hints, merged
from shared.scheduling.numa.masks import Narrower, closest, mask_of, masks_of, members, narrowest
from shared.scheduling.numa.totals import pod_totals


class _Refused(Exception):
    def __init__(self, reason: TopologyRefusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """``refusal`` None: admitted, and each container sits as ``seats`` says; else ``at`` is the one that got stuck,
    None for the pod as a whole."""

    refusal: TopologyRefusal | None
    message: str = ""
    at: ContainerNeeds | None = None
    seats: Mapping[str, ContainerSeat] = field(default_factory=dict)

    def zones(self) -> dict[str, list[int]]:
        """By container, the ids of the zones that it gets anything from."""
        return {name: _zones_of(seat) for name, seat in self.seats.items()}


def admit(topology: NodeTopology, books: Books, needs: PodNeeds) -> AdmissionVerdict:
    """What the kubelet would say now. ``books`` are left as they are; raises nothing."""
    if topology.source is TopologySource.KATALYST:
        return _katalyst_says(topology, books, needs)
    if not needs.of_kubelet:
        return AdmissionVerdict(None, seats={one.name: ContainerSeat() for one in needs.containers})
    trial = _Trial(topology, books.copy(), needs)
    try:
        return AdmissionVerdict(None, seats=trial.run())
    except _Refused as error:
        return AdmissionVerdict(error.reason, str(error), trial.at)


def _katalyst_says(topology: NodeTopology, books: Books, needs: PodNeeds) -> AdmissionVerdict:
    """Of pods that are not bound to zones nothing."""
    if needs.dedicated is None or not needs.dedicated.binding:
        return AdmissionVerdict(None)
    unreadable = needs.dedicated.unreadable
    seat = None if unreadable else seat_of(topology, books, needs.dedicated)
    if seat is None:
        stuck = ContainerNeeds(SEAT, ContainerKind.MAIN)
        message = unreadable or "Resources cannot be allocated with Topology locality"
        return AdmissionVerdict(TopologyRefusal.TOPOLOGY_AFFINITY, message, stuck)
    return AdmissionVerdict(None, seats={SEAT: seat})


class _Trial:
    def __init__(self, topology: NodeTopology, books: Books, needs: PodNeeds) -> None:
        self._topology, self._books, self._needs = topology, books, needs
        self._ids = [zone.id for zone in topology.zones]
        strict = topology.policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE)
        self._preferred_only = strict and not topology.options.align_by_socket
        self._cpu_zones = mask_of(index for index, count in enumerate(books.cpus_held) if count)
        zones = len(self._ids)
        self._passed_cpus = [0] * zones
        self._passed_memory: dict[tuple[int, str], int] = {}
        self._passed_devices: dict[str, list[int]] = {}
        self.at: ContainerNeeds | None = None
        """The container that is being seated; None: all at once."""

    def run(self) -> dict[str, ContainerSeat]:
        seats = {}
        policy, scope = self._topology.policy, self._topology.scope
        mask: int | None = None
        preferred = False
        if policy is not TopologyPolicy.NONE and scope is TopologyScope.POD:
            mask, preferred = self._agreed(self._pod_hints())
        for one in self._needs.containers:
            self.at = one
            if policy is not TopologyPolicy.NONE and scope is TopologyScope.CONTAINER:
                mask, preferred = self._agreed(self._hints(one))
            devices = self._give_devices(one, mask)
            cpus = self._give_cpus(one, mask)
            seats[one.name] = ContainerSeat(cpus, self._give_memory(one, mask, preferred), devices)
        return seats

    # -- what is asked, and agreed on ---------------------------------------------------------------------------------

    def _agreed(self, hints: Sequence[Hints]) -> tuple[int | None, bool]:
        policy = self._topology.policy
        mask, preferred = merged(policy, hints, self._books.every_zone, self._better())
        if not preferred and policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE):
            raise _Refused(TopologyRefusal.TOPOLOGY_AFFINITY, "Resources cannot be allocated with Topology locality")
        return mask, preferred

    def _better(self) -> Narrower:
        if not self._topology.options.prefer_closest or self._topology.policy is TopologyPolicy.SINGLE_NUMA_NODE:
            return narrowest
        return closest(tuple(tuple(zone.costs.get(id_, 0) for id_ in self._ids) for zone in self._topology.zones))

    def _pod_hints(self) -> list[Hints]:
        cpus, memory, devices = pod_totals(self._needs)
        return [
            {name: self._device_hints(name, count, ()) for name, count in devices.items()},
            self._cpu_hints(cpus),
            self._memory_hints(memory),
        ]

    def _hints(self, one: ContainerNeeds) -> list[Hints]:
        passed = self._passed_devices
        return [
            {name: self._device_hints(name, count, passed.get(name, ())) for name, count in one.devices},
            self._cpu_hints(one.cpus),
            self._memory_hints(dict(one.memory)),
        ]

    def _device_hints(self, name: str, count: int, passed_on: Sequence[int]) -> list[Hint] | None:
        held = self._books.devices_held.get(name, ())
        zones = mask_of(index for index, there in enumerate(held) if there)
        if not zones:
            return None
        free = self._books.devices_free[name]
        if sum(free) + sum(passed_on) < count:
            return []
        return countable_hints(
            count, self._books.devices_of(name), zones, passed_on, preferred_only=self._preferred_only
        )

    def _cpu_hints(self, count: int) -> Hints:
        if not count or not self._books.exclusive_cpus:
            return {}
        hints = countable_hints(
            count, self._books.cpus(), self._cpu_zones, self._passed_cpus, preferred_only=self._preferred_only
        )
        if self._topology.options.align_by_socket and hints:
            hints = self._by_socket(hints, count)
        return {CPU: hints}

    def _by_socket(self, hints: list[Hint], count: int) -> list[Hint]:
        """``align-by-socket``: masks that span as few sockets as the fewest zones would are preferred too."""
        sockets = self._topology.options.sockets
        of_zone = [sockets.get(id_, id_) for id_ in self._ids]
        each = len(of_zone) // len(set(of_zone))
        if not each:
            return hints
        amounts = self._books.cpus()
        fitting = (mask.bit_count() for mask in masks_of(self._cpu_zones) if amounts.largest(mask) >= count)
        fewest = -(-min(fitting, default=self._cpu_zones.bit_count()) // each)
        return [
            Hint(one.mask, one.preferred or len({of_zone[index] for index in members(one.mask or 0)}) == fewest)
            for one in hints
        ]

    def _memory_hints(self, memory: Mapping[str, int]) -> Hints:
        if not memory or not self._books.aligned_memory:
            return {}
        found = self._memory_masks(memory, preferred_only=self._preferred_only)
        # without any mask the manager names no resource at all, which counts as no preference
        return dict.fromkeys(memory, found) if found else {}

    def _memory_masks(self, memory: Mapping[str, int], *, preferred_only: bool = False) -> list[Hint]:
        """``preferred_only``: others only where there are none."""
        books, smallest, found = self._books, self._books.every_zone.bit_count(), list[int]()
        amounts = {name: books.memory_of(name) for name in memory}
        for mask in masks_of(books.every_zone):
            if preferred_only and found and mask.bit_count() > smallest:
                break
            if any(amounts[name].largest(mask) < size for name, size in memory.items()):
                continue
            smallest = min(smallest, mask.bit_count())
            if books.may_lie_in(mask) and all(
                amounts[name].of(mask) + self._passed_memory.get((mask, name), 0) >= size
                for name, size in memory.items()
            ):
                found.append(mask)
        return [Hint(mask, mask.bit_count() == smallest) for mask in found]

    # -- what is handed out -------------------------------------------------------------------------------------------

    def _give_cpus(self, one: ContainerNeeds, mask: int | None) -> dict[int, int]:
        if not one.cpus or not self._books.exclusive_cpus:
            return {}
        self._check_threads(one.cpus)
        pool = [free + passed for free, passed in zip(self._books.cpus_free, self._passed_cpus, strict=True)]
        if sum(pool) < one.cpus:
            raise _Refused(
                TopologyRefusal.UNEXPECTED,
                f"Allocate failed due to not enough cpus available to satisfy request: requested={one.cpus}, "
                f"available={sum(pool)}, which is unexpected",
            )
        aligned = self._take_packed(pool, one.cpus, self._with_sockets(mask))
        rest = self._take_packed(pool, one.cpus - sum(aligned), self._books.every_zone)
        for index, count in enumerate(zip(aligned, rest, strict=True)):
            reused = min(sum(count), self._passed_cpus[index])
            self._books.cpus_free[index] -= sum(count) - reused
            self._passed_cpus[index] += (sum(count) - reused) if one.kind is ContainerKind.INIT else -reused
        return {id_: sum(count) for id_, *count in zip(self._ids, aligned, rest, strict=True) if sum(count)}

    def _with_sockets(self, mask: int | None) -> int:
        if mask is None:
            return 0
        if not self._topology.options.align_by_socket:
            return mask
        sockets = self._topology.options.sockets
        inside = {sockets.get(self._ids[index], self._ids[index]) for index in members(mask)}
        return mask_of(index for index, id_ in enumerate(self._ids) if sockets.get(id_, id_) in inside)

    def _take_packed(self, pool: list[int], count: int, zones: int) -> list[int]:
        """Whole zones first, then zones with the fewest free (``cpu_assignment.go``, packed). By position."""
        inside = sorted(members(zones), key=lambda index: (pool[index], index))
        taken = [0] * len(pool)
        for index in inside:
            if pool[index] == self._books.cpus_held[index] <= count - sum(taken):
                taken[index], pool[index] = pool[index], 0
        rest = _take(pool, count - sum(taken), inside)
        return [whole + part for whole, part in zip(taken, rest, strict=True)]

    def _check_threads(self, count: int) -> None:
        options = self._topology.options
        if not options.full_pcpus_only:
            return
        if count % options.threads_per_core:
            raise _Refused(
                TopologyRefusal.SMT_ALIGNMENT,
                f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {options.threads_per_core}",
            )
        whole = sum(self._books.cpus_free) - options.reserved_siblings
        if count > whole:
            raise _Refused(
                TopologyRefusal.SMT_ALIGNMENT,
                f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {whole}, "
                f"requested CPUs = {count}, CPUs per core = {options.threads_per_core}",
            )

    def _give_devices(self, one: ContainerNeeds, mask: int | None) -> dict[str, dict[int | None, int]]:
        known = self._books.devices_free
        return {
            name: self._give_devices_of(one, name, count, mask or 0) for name, count in one.devices if name in known
        }

    def _give_devices_of(self, one: ContainerNeeds, name: str, count: int, mask: int) -> dict[int | None, int]:
        free = self._books.devices_free[name]
        passed = self._passed_devices.setdefault(name, [0] * len(free))
        reused = _take(passed, count, range(len(passed)))
        count -= sum(reused)
        if count > sum(free):
            raise _Refused(
                TopologyRefusal.UNEXPECTED,
                f"Allocate failed due to requested number of devices unavailable for {name}. Requested: {count}, "
                f"Available: {sum(free)}, which is unexpected",
            )
        loose = len(free) - 1
        order = sorted(range(len(free)), key=lambda index: (index == loose, not mask >> index & 1, free[index], index))
        fresh = _take(free, count, order)
        both = [old + new for old, new in zip(reused, fresh, strict=True)]
        if one.kind is ContainerKind.INIT:
            self._passed_devices[name] = [rest + used for rest, used in zip(passed, both, strict=True)]
        return {id_: given for id_, given in zip((*self._ids, None), both, strict=True) if given}

    def _give_memory(self, one: ContainerNeeds, mask: int | None, preferred: bool) -> tuple[MemoryBlock, ...]:
        books, memory = self._books, dict(one.memory)
        if not memory or not books.aligned_memory:
            return ()
        mask = self._memory_mask(memory, mask, preferred)
        inside = members(mask)
        if len(inside) > 1 and any(books.seats[index] and books.groups[index] != mask for index in inside):
            raise _unexpected("preferred hint violates NUMA node allocation")
        blocks = []
        for name, size in memory.items():
            blocks.append(MemoryBlock(name, tuple(self._ids[index] for index in inside), size))
            passed = self._passed_memory.get((mask, name), 0)
            books.put_memory(name, mask, max(0, size - passed))
            if one.kind is ContainerKind.INIT:
                self._passed_memory[mask, name] = max(passed, size)
            elif passed:
                self._passed_memory[mask, name] = max(0, passed - size)
        return tuple(blocks)

    def _memory_mask(self, memory: Mapping[str, int], mask: int | None, preferred: bool) -> int:
        """The given mask, or where it has not enough the best one that it is a part of."""
        if mask is None:
            found = self._memory_masks(memory)
            if not found:
                raise _unexpected(
                    "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                )
            best = _best(found)
            if preferred and not best.preferred:
                raise _unexpected("failed to find the default preferred hint")
            mask, preferred = best.mask or 0, best.preferred
        if all(self._books.memory_of(name).of(mask) >= size for name, size in memory.items()):
            return mask
        wider = [one for one in self._memory_masks(memory) if (one.mask or 0) & mask == mask]
        if not wider:
            raise _unexpected("failed to find NUMA nodes to extend the current topology hint")
        best = _best(wider)
        if preferred and not best.preferred:
            raise _unexpected("failed to find the extended preferred hint")
        return best.mask or 0


def _take(free: list[int], count: int, order: Iterable[int]) -> list[int]:
    """Up to ``count`` of what is free, in this order of positions; by position."""
    taken = [0] * len(free)
    for index in order:
        taken[index] = min(count - sum(taken), max(0, free[index]))
        free[index] -= taken[index]
    return taken


def _best(hints: Sequence[Hint]) -> Hint:
    return min(hints, key=lambda one: (not one.preferred, narrowest(one.mask or 0)))


def _unexpected(why: str) -> _Refused:
    return _Refused(TopologyRefusal.UNEXPECTED, f"Allocate failed due to [memorymanager] {why}, which is unexpected")


def _zones_of(seat: ContainerSeat) -> list[int]:
    found = set(seat.cpus) | {zone for block in seat.memory for zone in block.zones}
    found |= {zone for by_zone in seat.devices.values() for zone in by_zone if zone is not None}
    return sorted(found)
