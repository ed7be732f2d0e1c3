"""One node's inside by an object that names its pods (Katalyst's): who has what is read, only newcomers are seated.

    unseen --the object names it--> shown --the pod goes--> left --it names it no more, or ``LATE_S``--> (nothing)

Pods of dedicated cores count alone, as Katalyst's scheduler plug-in has it: what others have in a zone is shared. A
consumer that nobody knows counts as one of them until the object drops it, for it may be a pod that has ended here and
not there. Who came and is not named yet is seated on what is left (``dedicated.py``), in the order of coming.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from shared.model.node_topology import NodeTopology, PodNeeds
from shared.model.resources import CPU, amount_text
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.inside import LATE_S, PodInside, seated


@dataclass(slots=True)
class NamedInside:
    """``topology`` with the node's own devices; ``stands``: whether that pod stands here by our accounting;
    ``over``: consumers that left so long ago that the object is not believed. ``doubt``: in what the object
    contradicts itself."""

    topology: NodeTopology
    stands: Callable[[str], bool]
    pods: dict[str, PodInside] = field(default_factory=dict)
    left: dict[str, PodInside] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    doubt: str = ""

    @property
    def settled(self) -> bool:
        """Whether one more version that says the same says nothing new: it names its pods."""
        return True

    def show(self, topology: NodeTopology) -> None:
        """A newer object, or the node has other devices."""
        self.topology = topology
        for uid in [uid for uid in self.left if uid not in topology.held]:
            del self.left[uid]
        self.over &= topology.held.keys()

    def strangers(self) -> list[str]:
        """Consumers that do not stand here."""
        return [uid for uid in self.topology.held if not self.stands(uid) and uid not in self.left]

    def come(self, uid: str, needs: PodNeeds, *, assumed: bool) -> PodInside:  # noqa: ARG002
        """The pod stands here. ``assumed``: for the other kind of inside; here the object says who is in it."""
        known = self.left.pop(uid, None)
        if known is None or known.needs != needs:
            known = PodInside(needs)
        known.shown = uid in self.topology.held
        self.pods[uid] = known
        return known

    def leave(self, uid: str, now: float) -> bool:
        """The pod holds nothing any more. Whether what the object names it with stays taken."""
        pod = self.pods.pop(uid)
        if uid not in self.topology.held:
            return False
        pod.left_at = now
        self.left[uid] = pod
        return True

    def outlast(self, uid: str, now: float) -> bool:
        """Whether anything is to be judged anew: the pod left ``LATE_S`` ago, or it was a stranger."""
        pod = self.left.get(uid)
        if pod is None:
            return uid in self.topology.held
        if pod.left_at + LATE_S > now:
            return False
        del self.left[uid]
        self.over.add(uid)
        return True

    def books(self, *, trusting: bool, without: Collection[str] = ()) -> Books:  # noqa: ARG002
        """What is free for pods of dedicated cores. ``trusting``: for the other kind of inside. ``without``: as if
        these pods were gone."""
        topology, books = self.topology, Books(self.topology)
        for uid, has in topology.held.items():
            if self._counts(uid, without):
                self._take(books, uid, has)
        self.doubt = "; ".join(self._beyond(books))
        for free in (books.cpus_free, *books.memory_free.values(), *books.devices_free.values()):
            free[:] = [max(0, amount) for amount in free]
        for uid, pod in self.pods.items():
            pod.shown = uid in topology.held and uid not in self.over
            if not pod.shown and uid not in without and pod.needs.dedicated is not None:
                seats = seated(topology, books, pod.needs)
                if not without:
                    pod.seats = seats
            elif not pod.shown:
                pod.seats = {}
        return books

    def _counts(self, uid: str, without: Collection[str]) -> bool:
        if uid in without or uid in self.over:
            return False
        pod = self.pods.get(uid) or self.left.get(uid)
        return pod.needs.dedicated is not None if pod is not None else not self.stands(uid)

    def _take(self, books: Books, uid: str, has: Mapping[int, Mapping[str, int]]) -> None:
        pod = self.pods.get(uid) or self.left.get(uid)
        alone = pod is not None and pod.needs.dedicated is not None and pod.needs.dedicated.exclusive
        by_name = {CPU: books.cpus_free, **books.memory_free, **books.devices_free}
        for zone, amounts in has.items():
            index = books.positions[zone]
            for name, amount in amounts.items():
                if name in by_name:
                    by_name[name][index] -= amount
            for free in (books.cpus_free, *books.memory_free.values()) if alone else ():
                free[index] = min(0, free[index])

    def _beyond(self, books: Books) -> Iterator[str]:
        """Zones of which more is allocated than they have."""
        for index, zone in enumerate(self.topology.zones):
            if books.cpus_free[index] < 0:
                yield f"pods have {-books.cpus_free[index]} CPUs more than zone {zone.id} has"
            for name, free in books.memory_free.items():
                if free[index] < 0:
                    yield f"pods have {amount_text(name, -free[index])} of {name} more than zone {zone.id} has"
