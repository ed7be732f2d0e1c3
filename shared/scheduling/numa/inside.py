"""One node's inside as far as it is known: its object, the pods that stand there, and what is free in each zone.

    unseen --the object's amounts include it--> shown --the pod goes--> left --the object counts it no more--> (nothing)
                                                                          +--------``LATE_S`` seconds---------^

No object names its pods, so that is found by amounts: the pods that came first whose exclusive amounts add up to what
the object shows as taken. A pod that came while an object of this version was known is never in it. Of shown pods
``available`` says what is free; where the seats that were foreseen for them explain it exactly, those are taken to be
theirs, with the groups of zones that share memory and what init containers hold, of which the object is silent. The
others are seated on what is left, as the kubelet would seat them (``admission.py``).

An exporter that reads the same again writes nothing, so nobody can tell it from one that is late: after ``LATE_S`` the
object is taken to be later than a pod's end, and whoever came meanwhile may be in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shared.model.node_topology import (
    ContainerKind,
    ContainerSeat,
    NodeTopology,
    PodNeeds,
    TopologyPolicy,
    TopologySource,
)
from shared.model.resources import CPU, MEMORY
from shared.scheduling.numa.admission import admit
from shared.scheduling.numa.books import HUGEPAGES, Books
from shared.scheduling.numa.dedicated import take_off, ways
from shared.scheduling.numa.placed import charge, init_names, seat
from shared.scheduling.numa.totals import pod_totals

Seats = Mapping[str, ContainerSeat]

LATE_S = 180.0
"""Longest that an object is taken to be late: three times the interval at which NFD's exporter looks by default."""

MOST_WAYS = 16
"""Ways to read an object that are held against its zones."""


@dataclass(slots=True)
class PodInside:
    """A pod on the node, bound or assumed. ``since``: the version of the object while which it came, "" where that is
    not known; ``seats``: as foreseen; None: unknown. ``shown``: the object counts it; ``left_at``: when it
    went."""

    needs: PodNeeds
    since: str = ""
    seats: Seats | None = None
    shown: bool = False
    left_at: float = 0.0


@dataclass(slots=True)
class Inside:
    """``topology`` with the node's own devices; ``left``: pods that went and that the object still counts, in that
    order. ``clear``: whether it is known which pods the object counts."""

    topology: NodeTopology
    pods: dict[str, PodInside] = field(default_factory=dict)
    left: dict[str, PodInside] = field(default_factory=dict)
    clear: bool = True

    @property
    def doubt(self) -> str:
        """In what the object contradicts what stands there."""
        return "" if self.clear else "its amounts are not those of the pods that stand there"

    @property
    def settled(self) -> bool:
        """Whether the object counts just those that stand there."""
        return self.clear and not self.left and all(pod.shown for pod in self.pods.values())

    def show(self, topology: NodeTopology) -> None:
        """A newer object, or the node has other devices."""
        if [zone.id for zone in topology.zones] != [zone.id for zone in self.topology.zones]:
            self.left.clear()
            for pod in self.pods.values():
                pod.seats, pod.shown = None, False
        self.topology = topology

    def come(self, uid: str, needs: PodNeeds, *, assumed: bool) -> PodInside:
        """The pod stands here. ``assumed``: we placed it just now, so what was seen of the object does not count it;
        of one that others tell of it may. One that only counts otherwise is where it was."""
        known = self.left.get(uid)
        if known is not None and known.needs == needs:
            del self.left[uid]
        else:
            known = PodInside(needs, self.topology.resource_version if assumed else "")
        self.pods[uid] = known
        return known

    def leave(self, uid: str, now: float) -> bool:
        """The pod holds nothing any more. Whether what the object shows of it stays taken, until that shows it free or
        ``LATE_S`` are over (``outlast``)."""
        pod = self.pods.pop(uid)
        if pod.shown:
            pod.left_at = now
            self.left[uid] = pod
        return pod.shown

    def outlast(self, uid: str, now: float) -> bool:
        """The object counts the pod no more, if it left so long ago; then those that it did not count it may."""
        pod = self.left.get(uid)
        if pod is None or pod.left_at + LATE_S > now:
            return False
        del self.left[uid]
        for one in self.pods.values():
            if not one.shown:
                one.since, one.seats = "", None
        return True

    def books(self, *, trusting: bool, without: Collection[str] = ()) -> Books:
        """What is free. ``trusting``: what nobody can know is taken to be as one would wish. ``without``: as if these
        pods were gone, and the object had said so."""
        self._find_shown(trusting=trusting)
        standing = [pod for uid, pod in self.pods.items() if pod.shown and uid not in without]
        going = [pod for uid, pod in self.pods.items() if pod.shown and uid in without]
        left = self.left.values()
        explained = self._explained([*standing, *going, *left])
        if explained is None:
            books = self._as_reported([*standing, *going, *left], trusting=trusting)
            for pod in going:
                self._give_back(books, pod)
        elif going:
            books = Books(self.topology)
            for pod in (*standing, *left):
                charge(self.topology, books, pod.needs, pod.seats or {}, initializing=not trusting)
        else:
            books = explained
        for uid, pod in self.pods.items():
            if not pod.shown and uid not in without:
                seats = seated(self.topology, books, pod.needs, trusting=trusting)
                if not without:
                    pod.seats = seats
        return books

    # -- which pods the object counts ---------------------------------------------------------------------------------

    def _find_shown(self, *, trusting: bool) -> None:
        version = self.topology.resource_version
        shown = [pod for pod in self.pods.values() if pod.shown]
        waiting = [pod for pod in self.pods.values() if not pod.shown]
        coming = [pod for pod in waiting if not pod.since or pod.since != version]
        found = self._which(shown, coming)
        self.clear = found is not None
        if found is not None:
            gone, came = found
            for uid in list(self.left)[:gone]:
                del self.left[uid]
        elif trusting:
            came = len(coming)
            self.left.clear()
        else:
            came = 0
        for pod in coming[:came]:
            pod.shown = True

    def _which(self, shown: Sequence[PodInside], coming: Sequence[PodInside]) -> tuple[int, int] | None:
        """(how many of those that left the object counts no more, how many of those that came it counts): both in the
        order in which that happened. Of several ways those zones decide, then the one by which most is taken. None:
        its amounts are those of none."""
        taken, base, left = taken_of(self.topology), self._sum(shown), list(self.left.values())
        came = list(_sums(Counter(), [self._sum((pod,)) for pod in coming]))
        for agree in (_equal, _within):
            ways = [
                (gone, count)
                for gone in range(len(left), -1, -1)
                for there in (base + self._sum(left[gone:]),)
                for count in range(len(coming), -1, -1)
                if agree(there + came[count], taken)
            ]
            for gone, count in ways[-MOST_WAYS:] if len(ways) > 1 else ():
                if self._explained([*shown, *coming[:count], *left[gone:]]) is not None:
                    return gone, count
            if ways:
                return ways[-1]
        return None

    def _sum(self, pods: Iterable[PodInside]) -> Counter[str]:
        total: Counter[str] = Counter()
        known = {name for zone in self.topology.zones for name, amount in zone.allocatable.items() if amount}
        for pod in pods:
            for name, amount in lasting(pod.needs).items():
                if name in known:
                    total[name] += amount
        return total

    # -- where they sit -----------------------------------------------------------------------------------------------

    def _explained(self, standing: Sequence[PodInside]) -> Books | None:
        """With these pods on their seats, foreseen or found; None where the object shows something else."""
        topology, books = self.topology, Books(self.topology)
        found: list[tuple[PodInside, Seats]] = []
        for pod in standing:
            if pod.seats is not None:
                charge(topology, books, pod.needs, pod.seats)
                found.append((pod, pod.seats))
        for pod in standing:
            if pod.seats is None:
                seats = seat(topology, books, pod.needs)
                if seats is None:
                    return None
                found.append((pod, seats))
        if not _is_report(topology, [(pod.needs, seats) for pod, seats in found]):
            return None
        for pod, seats in found:
            pod.seats = seats
        return books

    def _as_reported(self, standing: Sequence[PodInside], *, trusting: bool) -> Books:
        """As ``available`` says. What it does not say is taken as the worst of what may be, unless ``trusting``: init
        containers hold their peak in every zone, and zones may share memory that pods larger than a zone use."""
        topology, books = self.topology, Books(self.topology)
        zones = topology.zones
        books.cpus_free = [_left(zone.available, zone.allocatable, CPU) for zone in zones]
        for name in books.memory_free:
            books.memory_free[name] = [_left(zone.available, zone.allocatable, name) for zone in zones]
        for name, free in books.devices_free.items():
            held = sum(lasting(pod.needs)[name] for pod in standing)
            inside = sum(zone.allocatable.get(name, 0) - zone.available.get(name, 0) for zone in zones)
            books.devices_free[name] = [
                *(_left(zone.available, zone.allocatable, name) for zone in zones),
                max(0, free[-1] - max(0, held - inside)),
            ]
        shared = not trusting and any(self._may_span(pod.needs) for pod in standing)
        for index in range(len(zones)):
            if any(free[index] < books.memory_held[name][index] for name, free in books.memory_free.items()):
                books.seats[index] = 1
                if shared:
                    books.groups[index] = 0  # of a group that nobody knows
        for pod in standing if not trusting else ():
            _take_everywhere(books, _unreported(pod.needs))
        return books

    def _may_span(self, needs: PodNeeds) -> bool:
        """Whether memory of the pod may lie in several zones at once."""
        if self.topology.policy in (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT):
            return any(one.memory for one in needs.containers)
        if self.topology.policy is TopologyPolicy.SINGLE_NUMA_NODE:
            return False
        zones = self.topology.zones
        return any(
            size > min((zone.allocatable[name] for zone in zones if name in zone.allocatable), default=0)
            for one in needs.containers
            for name, size in one.memory
        )

    def _give_back(self, books: Books, pod: PodInside) -> None:
        """What the pod would leave, where it is known from where, of what the object still names."""
        for one in pod.seats.values() if pod.seats is not None else ():
            for zone, count in one.cpus.items():
                books.cpus_free[books.positions[zone]] += count
            for block in one.memory:
                if len(block.zones) == 1 and block.type in books.memory_free:
                    books.memory_free[block.type][books.positions[block.zones[0]]] += block.size
            for name, by_zone in one.devices.items():
                for at, count in by_zone.items() if name in books.devices_free else ():
                    books.devices_free[name][-1 if at is None else books.positions[at]] += count


def seated(topology: NodeTopology, books: Books, needs: PodNeeds, *, trusting: bool) -> Seats | None:
    """Seat a pod on what is free; one that the kubelet should have refused is taken off every zone, and its seats are
    unknown: it stands there all the same. A kubelet has no choice where it seats whom; Katalyst's agent has, so unless
    ``trusting`` the pod is taken off every zone that it may be given, as Katalyst's scheduler plug-in does."""
    if topology.source is TopologySource.KATALYST:
        return _expected(topology, books, needs, trusting)
    seats = seat(topology, books, needs)
    if seats is None:
        _take_everywhere(books, lasting(needs) + _unreported(needs))
    return seats


def _expected(topology: NodeTopology, books: Books, needs: PodNeeds, trusting: bool) -> Seats | None:
    wanted = needs.dedicated
    if wanted is None or not wanted.binding:
        return {}
    verdict = admit(topology, books, needs)
    seats = verdict.seats if verdict.refusal is None else None
    zones, sure = ways(topology, books.most or books, wanted)
    if seats is not None and (trusting or sure):
        for one in (books, books.most) if books.most is not None else (books,):
            one.charge(seats.values())
        return seats
    if sure and books.most is not None:
        take_off(books.most, wanted, zones)
    elif not sure and books.most is None:
        books.most = books.copy()
    take_off(books, wanted, zones or range(len(topology.zones)))
    return seats


@lru_cache(maxsize=4096)
def lasting(needs: PodNeeds) -> Counter[str]:
    """What the pod's containers and sidecars hold: what an exporter reports. For reading."""
    total: Counter[str] = Counter()
    for one in needs.containers:
        if one.kind is not ContainerKind.INIT:
            if one.cpus:
                total[CPU] += one.cpus
            for name, amount in (*one.memory, *one.devices):
                total[name] += amount
    return total


def taken_of(topology: NodeTopology) -> Counter[str]:
    """By resource, what the object shows as taken in all zones."""
    taken: Counter[str] = Counter()
    for zone in topology.zones:
        for name, amount in zone.allocatable.items():
            if amount:
                taken[name] += amount - zone.available.get(name, 0)
    return +taken


def _unreported(needs: PodNeeds) -> Counter[str]:
    """What init containers hold beyond the others."""
    cpus, memory, devices = pod_totals(needs)
    return Counter({CPU: cpus, **memory, **devices}) - lasting(needs) if init_names(needs) else Counter()


def _sums(first: Counter[str], others: Iterable[Counter[str]]) -> Iterator[Counter[str]]:
    total = Counter(first)
    yield +total
    for other in others:
        total = total + other
        yield total


def _equal(counted: Counter[str], taken: Counter[str]) -> bool:
    return counted == taken


def _within(counted: Counter[str], taken: Counter[str]) -> bool:
    """Of memory an exporter may show more: some take what lies over several zones off each of them."""
    names = counted.keys() | taken.keys()
    return all(
        counted[name] <= taken[name] if _of_memory(name) else counted[name] == taken[name] for name in names
    ) and any(not _of_memory(name) or counted[name] for name in taken)


def _of_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(HUGEPAGES)


def _left(available: Mapping[str, int], allocatable: Mapping[str, int], name: str) -> int:
    return max(0, min(available.get(name, 0), allocatable.get(name, 0)))


def _is_report(topology: NodeTopology, pods: Iterable[tuple[PodNeeds, Seats]]) -> bool:
    """Whether an exporter would publish this object for pods on these seats, each block of memory taken off its zones
    in order, or whole off each of them."""
    books, whole = Books(topology), Counter[tuple[str, int]]()
    for needs, seats in pods:
        init = init_names(needs)
        shown = [one for name, one in seats.items() if name not in init]
        books.charge(shown)
        for one in shown:
            for block in one.memory:
                whole.update({(block.type, zone): block.size for zone in block.zones})
    zones = topology.zones
    if books.exclusive_cpus and books.cpus_free != [_left(zone.available, zone.allocatable, CPU) for zone in zones]:
        return False
    for name, free in books.devices_free.items():
        if free[:-1] != [_left(zone.available, zone.allocatable, name) for zone in zones]:
            return False
    for name, free in books.memory_free.items() if books.aligned_memory else ():
        there = [_left(zone.available, zone.allocatable, name) for zone in zones]
        off_each = [max(0, zone.allocatable.get(name, 0) - whole[name, zone.id]) for zone in zones]
        if there not in (free, off_each):
            return False
    return True


def _take_everywhere(books: Books, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        free = (
            books.cpus_free if name == CPU else books.memory_free.get(name) if _of_memory(name)
            else books.devices_free.get(name)
        )  # fmt: skip
        if free is not None:
            free[:] = [max(0, one - amount) for one in free]


def may_refuse(topology: NodeTopology) -> bool:
    """Whether a kubelet of this policy refuses anybody whom the node's totals let on: the Topology Manager does where
    it is strict, the Memory Manager always; so does Katalyst's agent."""
    if topology.source is TopologySource.KATALYST:
        return bool(topology.zones)
    if topology.policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE):
        return bool(topology.zones)
    return any(zone.allocatable.get(MEMORY, 0) for zone in topology.zones)


def same_inside(one: NodeTopology, other: NodeTopology) -> bool:
    """Whether two versions of an object say the same."""
    return replace(one, resource_version=other.resource_version) == other
