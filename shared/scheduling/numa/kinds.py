"""Kinds of nodes' insides by number: verdicts, and what follows when a pod comes, are worked out once for each kind.

Nodes of one kind have equal zones, policy, scope and amounts free. Kind 0 is of nodes whose kubelets refuse nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.model.node_topology import NodeTopology, PodNeeds, TopologyPolicy, TopologySource
from shared.model.resources import CPU, MEMORY
from shared.scheduling.numa.admission import AdmissionVerdict, admit
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.dedicated import SEAT
from shared.scheduling.numa.inside import seated

MOST_KINDS = 16_384
"""Kinds that are remembered; then all are worked out anew."""
MOST_VERDICTS = 65_536

UNJUDGED = 0


@dataclass(slots=True)
class _Kind:
    """``shape``: all of the object but what is free, as a number."""

    topology: NodeTopology
    shape: int
    books: Books


class ZoneKinds:
    """Those that were seen since the last ``clear``. ``trusting``: as in ``inside.py``."""

    def __init__(self, *, trusting: bool = False) -> None:
        self._trusting = trusting
        self._shapes: dict[object, int] = {}
        self._number: dict[object, int] = {}
        self._kinds: list[_Kind | None] = [None]
        self._empty: dict[int, int] = {}
        """By shape the kind of a node where nobody stands."""
        self._verdicts: dict[tuple[int, PodNeeds], AdmissionVerdict] = {}
        self._next: dict[tuple[int, PodNeeds], int] = {}
        self._gpu_zones: dict[int, list[list[int]]] = {UNJUDGED: []}

    @property
    def full(self) -> bool:
        """Whether it is time to ``clear``."""
        return len(self._kinds) > MOST_KINDS or len(self._verdicts) > MOST_VERDICTS

    def clear(self) -> None:
        """No number means anything any more."""
        for known in (self._shapes, self._number, self._empty, self._verdicts, self._next):
            known.clear()
        self._gpu_zones = {UNJUDGED: []}
        del self._kinds[1:]

    def of(self, topology: NodeTopology, books: Books) -> int:
        """The kind of a node of which this is free."""
        zones = tuple(
            (zone.id, _pairs(zone.capacity), _pairs(zone.allocatable), _pairs(zone.costs)) for zone in topology.zones
        )
        key = (
            topology.policy, topology.scope, zones, _pairs(topology.loose_devices), topology.source,
            tuple(sorted(topology.sockets.items())),
        )  # fmt: skip
        return self._intern(topology, self._shapes.setdefault(key, len(self._shapes)), books)

    def inside(self, kind: int) -> tuple[NodeTopology, Books] | None:
        """An object of that kind, and what is free."""
        found = self._kinds[kind]
        return None if found is None else (found.topology, found.books)

    def verdict(self, kind: int, needs: PodNeeds) -> AdmissionVerdict:
        """What a kubelet of that kind says."""
        known = self._verdicts.get((kind, needs))
        if known is None:
            of = self._kinds[kind]
            known = AdmissionVerdict(None) if of is None else admit(of.topology, of.books, needs)
            self._verdicts[kind, needs] = known
        return known

    def after(self, kind: int, needs: PodNeeds) -> int:
        """What a node of that kind is once such a pod came."""
        known = self._next.get((kind, needs))
        if known is None:
            of = self._kinds[kind]
            if of is None:
                return UNJUDGED
            books = of.books.copy()
            seated(of.topology, books, needs, trusting=self._trusting)
            known = self._next[kind, needs] = self._intern(of.topology, of.shape, books)
        return known

    def filled(self, kind: int, needs: PodNeeds) -> float:
        """How much of what is free in the zones that a pod of dedicated cores would get it takes, 0 to 1: the mean of
        CPUs and memory. 0 where it gets none."""
        of, wanted, seats = self._kinds[kind], needs.dedicated, self.verdict(kind, needs).zones()
        if of is None or wanted is None or SEAT not in seats:
            return 0.0
        free = of.books.free()
        inside = [of.books.positions[zone] for zone in seats[SEAT]]
        parts = [
            min(1.0, amount / there)
            for name, amount in ((CPU, wanted.cpus), (MEMORY, wanted.memory))
            if amount and name in free and (there := sum(free[name][index] for index in inside)) > 0
        ]
        return sum(parts) / len(parts) if parts else 0.0

    def gpu_zones(self, kind: int, gpus: Callable[[str], int]) -> list[list[int]]:
        """Of each zone of a node of that kind what is free of CPU, memory (-1: no zone tells), GPUs, how much of GPUs
        there is, and whether Katalyst's agent lets pods on (1) or the kubelet (0); [] where there are none, or the
        kubelet aligns nobody strictly."""
        known = self._gpu_zones.get(kind)
        if known is None:
            of = self._kinds[kind]
            assert of is not None
            known = self._gpu_zones[kind] = _gpu_zones(of.topology, of.books, gpus)
        return known

    def fits_empty(self, kind: int, needs: PodNeeds) -> bool:
        """Whether a node of that kind would let such a pod on if nobody stood there."""
        of = self._kinds[kind]
        if of is None:
            return True
        empty = self._empty.get(of.shape)
        if empty is None:
            empty = self._empty[of.shape] = self._intern(of.topology, of.shape, Books(of.topology))
        return self.verdict(empty, needs).refusal is None

    def _intern(self, topology: NodeTopology, shape: int, books: Books) -> int:
        key = (shape, books.key())
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._kinds)
            self._kinds.append(_Kind(topology, shape, books))
        return number


_STRICT = frozenset({TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE})


def _gpu_zones(topology: NodeTopology, books: Books, gpus: Callable[[str], int]) -> list[list[int]]:
    if topology.source is TopologySource.KUBELET and topology.policy not in _STRICT:
        return []
    memory, zones = books.memory_free.get(MEMORY), []
    units = {name: unit for name in books.devices_free if (unit := gpus(name))}
    for index, zone in enumerate(topology.zones):
        free = sum(unit * books.devices_free[name][index] for name, unit in units.items())
        there = sum(unit * zone.allocatable.get(name, 0) for name, unit in units.items())
        cpu = 1000 * books.cpus_free[index] if books.exclusive_cpus else -1
        held = memory[index] if memory and books.aligned_memory else -1
        zones.append([cpu, held, free, there, int(topology.source is TopologySource.KATALYST)])
    return zones if any(there for _, _, _, there, _ in zones) else []


def _pairs(amounts: Mapping[Any, int]) -> tuple[tuple[Any, int], ...]:
    return tuple(sorted(amounts.items()))
