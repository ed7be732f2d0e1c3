"""One node's inside by an object that names its pods (Katalyst's): who has what is read, only newcomers are foreseen.

    unseen --the object names it--> shown --the pod goes--> left --it names it no more, or ``LATE_S``--> (nothing)

Pods of dedicated cores count alone, as Katalyst's scheduler plug-in has it: what others have in a zone is shared. Who
was one of them when the object named it stays one, whatever its annotations say later: its agent read them once. A
consumer that nobody knows counts as one of them too, for it may be a pod that has ended here and not there, and as one
that has its zones alone. A pod counts with what it asks for at least: an object that names less is only half written.
Who came and is not named yet may sit in any zone that its agent may give it (``inside.seated``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from shared.model.node_topology import Dedicated, NodeTopology, PodNeeds
from shared.model.resources import CPU, MEMORY, amount_text
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.dedicated import take_off
from shared.scheduling.numa.inside import LATE_S, PodInside, seated

STRANGER = Dedicated(0, 0, exclusive=True)
"""A consumer that nobody knows."""


@dataclass(slots=True)
class NamedInside:
    """``topology`` with the node's own devices; ``stands``: whether that pod stands here by our accounting;
    ``over``: consumers that left, or that nobody has known, for so long that the object is not believed. ``once``: what
    each consumer was known to ask for, None where its cores are not dedicated. ``doubt``: in what the object
    contradicts itself, or the pods."""

    topology: NodeTopology
    stands: Callable[[str], bool]
    pods: dict[str, PodInside] = field(default_factory=dict)
    left: dict[str, PodInside] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    once: dict[str, Dedicated | None] = field(default_factory=dict)
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
        for uid in [uid for uid in self.once if uid not in topology.held]:
            del self.once[uid]
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
        self.over.discard(uid)
        self.pods[uid] = known
        return known

    def leave(self, uid: str, now: float) -> bool:
        """The pod holds nothing any more. Whether what the object names it with stays taken."""
        pod = self.pods.pop(uid)
        if uid not in self.topology.held:
            return False
        if uid not in self.once:  # it came and went unseen
            self.once[uid] = pod.needs.dedicated
        pod.left_at = now
        self.left[uid] = pod
        return True

    def outlast(self, uid: str, now: float) -> bool:
        """Whether anything is to be judged anew: the pod left ``LATE_S`` ago, or it was a stranger so long. One that
        stands here, and asks for nothing by now, was never gone."""
        pod = self.left.get(uid)
        if pod is not None and pod.left_at + LATE_S > now:
            return False
        self.left.pop(uid, None)
        if uid not in self.topology.held:
            return pod is not None
        if not self.stands(uid):
            self.over.add(uid)
        return True

    def books(self, *, trusting: bool, without: Collection[str] = ()) -> Books:
        """What is free for pods of dedicated cores. ``trusting``: who is not named yet sits where we would seat it, and
        a stranger has what the object says. ``without``: as if these pods were gone."""
        topology, books = self.topology, Books(self.topology)
        counted = [(uid, asked) for uid in topology.held if (asked := self._counted(uid, without)) is not None]
        by_name = {CPU: books.cpus_free, **books.memory_free, **books.devices_free}
        for uid, _ in counted:
            for zone, amounts in topology.held[uid].items():
                for name, amount in amounts.items():
                    if name in by_name:
                        by_name[name][books.positions[zone]] -= amount
        self.doubt = "; ".join([*self._beyond(books), *self._less(counted)])
        for uid, asked in counted:
            self._take_rest(books, by_name, topology.held[uid], asked, trusting=trusting)
        for free in by_name.values():
            free[:] = [max(0, amount) for amount in free]
        for uid, pod in self.pods.items():
            pod.shown = uid in topology.held
            if not pod.shown and uid not in without:
                seats = seated(topology, books, pod.needs, trusting=trusting)
                if not without:
                    pod.seats = seats
        return books

    def _counted(self, uid: str, without: Collection[str]) -> Dedicated | None:
        """What a consumer counts as; None: it does not."""
        pod = self.pods.get(uid) or self.left.get(uid)
        asked = pod.needs.dedicated if pod is not None else None
        before = self.once.get(uid)
        if asked is not None and (before is None or (asked.binding and not asked.unreadable)):
            alone = asked.exclusive or (before is not None and before.exclusive)
            self.once[uid] = msgspec.structs.replace(asked, exclusive=alone)
        elif self.stands(uid):
            self.once.setdefault(uid, None)
        if uid in without or uid in self.over:
            return None
        return self.once.get(uid, STRANGER)

    def _take_rest(
        self, books: Books, by_name: Mapping[str, list[int]], has: Mapping[int, Mapping[str, int]], asked: Dedicated,
        *, trusting: bool,
    ) -> None:  # fmt: skip
        """What the pod asks for beyond what the object names, off each zone of its; of one that has its zones alone all
        that is in them."""
        if asked is STRANGER and trusting:
            return
        zones = [books.positions[zone] for zone in has]
        if asked.exclusive:
            take_off(books, Dedicated(0, 0, exclusive=True), zones)
        short = self._short(has, asked)
        for name, amount in short.items():
            loose = self.topology.loose_devices.get(name, 0)
            there = sum(zone.allocatable.get(name, 0) for zone in self.topology.zones if zone.id in has)
            everywhere = asked.exclusive and amount + _named(has, name) > there
            for index in range(len(self.topology.zones)) if everywhere else zones:
                by_name[name][index] -= max(0, amount - loose)

    def _short(self, has: Mapping[int, Mapping[str, int]], asked: Dedicated) -> dict[str, int]:
        """By resource that zones have, how much less is named than the pod asks for."""
        known = {name for zone in self.topology.zones for name, amount in zone.allocatable.items() if amount}
        wanted = {CPU: asked.cpus, MEMORY: asked.memory, **dict(asked.devices)}
        return {
            name: amount - named
            for name, amount in wanted.items()
            if name in known and (named := _named(has, name)) < amount
        }

    def _less(self, counted: Collection[tuple[str, Dedicated]]) -> Iterator[str]:
        """Pods of which the object names less than they ask for."""
        for uid, asked in counted:
            if CPU in (short := self._short(self.topology.held[uid], asked)):
                yield f"pod {uid} asks for {short[CPU]} CPUs more than it is named with"

    def _beyond(self, books: Books) -> Iterator[str]:
        """Zones of which more is allocated than they have."""
        for index, zone in enumerate(self.topology.zones):
            if books.cpus_free[index] < 0:
                yield f"pods have {-books.cpus_free[index]} CPUs more than zone {zone.id} has"
            for name, free in books.memory_free.items():
                if free[index] < 0:
                    yield f"pods have {amount_text(name, -free[index])} of {name} more than zone {zone.id} has"


def _named(has: Mapping[int, Mapping[str, int]], name: str) -> int:
    return sum(amounts.get(name, 0) for amounts in has.values())
