"""One node's kubelet as far as it admits pods: its Topology, CPU, Memory and Device Managers, and what an exporter of
its zones would publish. The rules are the mesh's own, held to the real managers' verdicts by ``tests/contract``; those
of Katalyst's agent are in ``dedicated_seats.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shared.model.node_topology import ContainerSeat, NodeTopology, PodNeeds, TopologyRefusal, TopologySource
from shared.model.resources import CPU
from shared.scheduling.numa.admission import AdmissionVerdict, admit
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.placed import charge, init_names
from twin.model import dedicated_seats


@dataclass(slots=True)
class Managers:
    """Of a node of this make; what its zones say to be available is not read. ``refused`` counts refusals;
    ``consumers``: of pods by uid, as Katalyst's agent names them."""

    topology: NodeTopology
    refused: int = 0
    consumers: dict[str, str] = field(default_factory=dict)
    _pods: dict[str, tuple[PodNeeds, Mapping[str, ContainerSeat]]] = field(default_factory=dict)

    def admit(self, uid: str, needs: PodNeeds) -> AdmissionVerdict:
        """Let the pod on and seat it, or refuse it."""
        verdict = self._verdict(needs, uid)
        if verdict.refusal is None:
            self._pods[uid] = (needs, verdict.seats)
        else:
            self.refused += 1
        return verdict

    def would_admit(self, needs: PodNeeds) -> bool:
        """Whether such a pod would be let on now."""
        return self._verdict(needs, "").refusal is None

    def _verdict(self, needs: PodNeeds, uid: str) -> AdmissionVerdict:
        if self.topology.source is not TopologySource.KATALYST:
            return admit(self.topology, self._books(), needs)
        if needs.dedicated is None or not needs.dedicated.binding:
            return AdmissionVerdict(None)
        standing = [
            (of.dedicated, seat) for of, seats in self._pods.values() for seat in seats.values() if of.dedicated
        ]  # fmt: skip
        seat = dedicated_seats.seat(self.topology, standing, needs.dedicated, uid)
        if seat is None:
            return AdmissionVerdict(TopologyRefusal.TOPOLOGY_AFFINITY, "the agent has no zones for it")
        return AdmissionVerdict(None, seats={"main": seat})

    def remove(self, uid: str) -> bool:
        """The pod has ended; an unknown uid is fine. Whether it held anything."""
        return self._pods.pop(uid, None) is not None

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def _books(self) -> Books:
        books = Books(self.topology)
        for needs, seats in self._pods.values():
            charge(self.topology, books, needs, seats, initializing=False)
        return books

    def report(self) -> NodeTopology:
        """As an exporter sees it through the podresources API: without init containers. Katalyst's agent names pods."""
        if self.topology.source is TopologySource.KATALYST:
            return replace(self.topology, held=self._held())
        books = Books(self.topology)
        for needs, seats in self._pods.values():
            init = init_names(needs)
            books.charge(seat for name, seat in seats.items() if name not in init)
        zones = []
        for index, zone in enumerate(self.topology.zones):
            available = {}
            for name, amount in zone.allocatable.items():
                if name == CPU:
                    available[name] = books.cpus_free[index]
                elif name in books.memory_free:
                    available[name] = books.memory_free[name][index]
                else:
                    available[name] = books.devices_free[name][index] if name in books.devices_free else amount
            zones.append(replace(zone, available=available))
        return replace(self.topology, zones=tuple(zones))

    def _held(self) -> dict[str, dict[int, dict[str, int]]]:
        held: dict[str, dict[int, dict[str, int]]] = {}
        for uid, (_, seats) in self._pods.items():
            for seat in seats.values():
                of_pod: dict[int, dict[str, int]] = held.setdefault(self.consumers.get(uid, uid), {})
                for zone, cpus in seat.cpus.items():
                    of_pod.setdefault(zone, {})[CPU] = cpus
                for block in seat.memory:
                    of_pod.setdefault(block.zones[0], {})[block.type] = block.size
                for name, by_zone in seat.devices.items():
                    for at, count in by_zone.items():
                        if at is not None:
                            of_pod.setdefault(at, {})[name] = count
        return held
