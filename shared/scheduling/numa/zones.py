"""The zones of all nodes, and which nodes a kubelet's managers let a pod on: verdicts by *kind*, not by node.

    the node's object, pods that stand there --> what is free (``inside.py``) --> kind --a pod's needs--> verdict, kind

Nodes of one kind have equal zones, policy, scope and amounts free, so one of them is asked for all, and what a pod
leaves behind is a kind too: in a burst on like nodes nothing is worked out twice. Kind 0 has no object, or one by which
no kubelet refuses anybody.

A kubelet that refuses all the same is believed: the node is not tried for such pods until its object changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from shared.model.node_topology import NodeTopology, PodNeeds, TopologyPolicy
from shared.model.resources import MEMORY
from shared.scheduling.numa.admission import Verdict, admit
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.inside import Inside, Seats, Standing, seated
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.scheduling.state.zones_port import News

MOST_KINDS = 16_384
"""Kinds that are remembered; then all are worked out anew."""
MOST_VERDICTS = 65_536
MOST_NEEDS = 1024
"""Pods' needs of which it is remembered which kinds take them."""

UNJUDGED = 0

MOST_MOVED = 4096
"""Changes of kinds that are remembered for the masks made before them."""


@dataclass(slots=True)
class _Kind:
    """``shape``: all of the object but what is free, as a number."""

    topology: NodeTopology
    shape: int
    books: Books


class _Mask(NamedTuple):
    """``seen``: how many of the moves of its ``epoch`` are in it."""

    mask: BoolArray
    epoch: int
    seen: int


class NodeZones:
    """See the module. ``version`` counts all changes. ``trusting``: what nobody can know is taken as one would wish,
    not as the worst. ``news``: what people are to be told, taken by ``take_news``."""

    def __init__(self, cache: ClusterCache, *, trusting: bool = False) -> None:
        self._cache = cache
        self._table = cache.table
        self.trusting = trusting
        self.version = 0
        self.topologies: dict[str, NodeTopology] = {}
        self._inside: dict[str, Inside] = {}
        self._unread: set[str] = set()
        self._devices: Counter[str] = Counter()
        """In how many objects a device has a zone."""
        self._refused: dict[PodNeeds, dict[str, str]] = {}
        """By the pod's needs and the node: why its kubelet refused such a pod."""
        self._shapes: dict[object, int] = {}
        self._number: dict[object, int] = {}
        self._kinds: list[_Kind | None] = [None]
        self._verdicts: dict[tuple[int, PodNeeds], Verdict] = {}
        self._next: dict[tuple[int, PodNeeds], int] = {}
        self._masks: dict[PodNeeds, _Mask] = {}
        self._epoch = 0
        self._moved: list[int] = []
        """Rows that changed their kind in this epoch, in order."""
        self._of_node: dict[str, int] = {}
        self._stale: set[str] = set()
        self._rows: IntArray = np.zeros(0, np.int64)
        self._rows_at = -1
        self._told: dict[str, str] = {}
        self._news: list[News] = []

    # --- what the API server shows ----------------------------------------------------------------------------------

    def put(self, name: str, topology: NodeTopology) -> NodeTopology | None:
        """The object of a node as it is now; what it was before, None if it is new."""
        before = self.topologies.get(name)
        if before == topology:
            return before
        self.topologies[name] = topology
        inside = self._inside.get(name)
        if before is not None and same_inside(before, topology):
            if inside is not None:
                inside.topology = replace(inside.topology, resource_version=topology.resource_version)
                if not inside.settled:
                    self._touch(name)
            return before
        self.version += 1
        if before is not None:
            self._count_devices(before, -1)
        self._count_devices(topology, 1)
        self._pardon(name)
        if not may_refuse(topology):
            self._forget_inside(name)
        elif inside is not None:
            self._show(name)
        else:
            self._unread.add(name)
        return before

    def drop(self, name: str) -> None:
        """The object is gone; an unknown name is fine."""
        before = self.topologies.pop(name, None)
        if before is not None:
            self.version += 1
            self._count_devices(before, -1)
            self._pardon(name)
            self._told.pop(name, None)
            self._forget_inside(name)

    def node_changed(self, name: str) -> None:
        """The node came, went, or has other amounts: its devices may be others."""
        if name in self._inside:
            self._show(name)
        if self._refused and name not in self.topologies:
            self._pardon(name)

    def _pardon(self, name: str) -> None:
        """What the node's kubelet refused may be tried there again."""
        for needs in [needs for needs, nodes in self._refused.items() if name in nodes]:
            self.version += 1
            self._rejudge()
            del self._refused[needs][name]
            if not self._refused[needs]:
                del self._refused[needs]

    def _count_devices(self, topology: NodeTopology, sign: int) -> None:
        for name in {name for zone in topology.zones for name in zone.capacity if "/" in name}:
            self._devices[name] += sign
            if not self._devices[name]:
                del self._devices[name]

    def _forget_inside(self, name: str) -> None:
        self._unread.discard(name)
        if self._inside.pop(name, None) is not None:
            self._stale.discard(name)
            self._set(name, UNJUDGED)

    def _show(self, name: str) -> None:
        self._inside[name].show(self._with_node(self.topologies[name], name))
        self._touch(name)

    def _touch(self, name: str) -> None:
        self.version += 1
        self._stale.add(name)

    def _with_node(self, topology: NodeTopology, name: str) -> NodeTopology:
        row = self._table.row_of.get(name)
        node = self._table.nodes[row] if row is not None else None
        return topology if node is None else topology.with_node(node.allocatable)

    # --- who stands where -------------------------------------------------------------------------------------------

    def count(self, uid: str, node_name: str, needs: PodNeeds) -> None:
        """A pod stands on the node from now on, bound or assumed."""
        inside = self._inside.get(node_name)
        if inside is None:
            return
        self.version += 1
        if node_name in self._stale:  # where it sits depends on who is there by now
            self._stale.discard(node_name)
            self._judge(node_name)
        pod = inside.pods[uid] = Standing(needs, inside.topology.resource_version)
        kind = self._of_node[node_name]
        pod.seats = self._seats(kind, needs)
        self._set(node_name, self._after(kind, needs))

    def uncount(self, uid: str, node_name: str) -> None:
        """The pod stands there no longer."""
        inside = self._inside.get(node_name)
        if inside is not None and uid in inside.pods:
            inside.leave(uid)
            self._touch(node_name)
        if self._refused and node_name not in self.topologies:
            self._pardon(node_name)

    def refused(self, node_name: str, needs: PodNeeds, reason: str) -> None:
        """The node's kubelet refused such a pod."""
        if node_name in self._table.row_of:
            self.version += 1
            self._rejudge()
            self._refused.setdefault(needs, {})[node_name] = reason
            self._news.append(("kubelet_refused", node_name, reason))

    # --- verdicts ---------------------------------------------------------------------------------------------------

    def concerns(self, needs: PodNeeds) -> bool:
        """Whether some node's kubelet may refuse such a pod, by what objects say or since one has."""
        if needs in self._refused:
            return True
        if not self._inside and not self._unread:
            return False
        return any(
            one.cpus or one.memory or any(name in self._devices for name, _ in one.devices) for one in needs.containers
        )

    def mask(self, needs: PodNeeds) -> BoolArray:
        """``[rows]``: True where the managers let such a pod on, as everything stands now. For reading only."""
        kinds = self.kinds()
        known = self._masks.get(needs)
        if known is None or known.epoch != self._epoch:
            if len(self._masks) >= MOST_NEEDS:
                self._masks.clear()
            mask = self._judged(needs, kinds)
        elif known.seen == len(self._moved):
            return known.mask
        else:
            mask = known.mask.copy()
            for row in self._moved[known.seen :]:
                mask[row] = self.verdict(int(kinds[row]), needs).refusal is None
        for name in self._refused.get(needs, ()):
            if name in self._table.row_of:
                mask[self._table.row_of[name]] = False
        self._masks[needs] = _Mask(mask, self._epoch, len(self._moved))
        return mask

    def _judged(self, needs: PodNeeds, kinds: IntArray) -> BoolArray:
        there, which = np.unique(kinds, return_inverse=True)
        admitted = [self.verdict(kind, needs).refusal is None for kind in there.tolist()]
        return np.array(admitted, np.bool_)[which] if len(kinds) else np.zeros(0, np.bool_)

    def _rejudge(self) -> None:
        """No mask holds any more."""
        self._epoch += 1
        self._moved.clear()

    def verdict(self, kind: int, needs: PodNeeds) -> Verdict:
        """What a kubelet of that kind says."""
        known = self._verdicts.get((kind, needs))
        if known is None:
            of = self._kinds[kind]
            known = Verdict(None) if of is None else admit(of.topology, of.books, needs)
            self._verdicts[kind, needs] = known
        return known

    def kind_of(self, row: int) -> int:
        """The node's."""
        return int(self.kinds()[row])

    def kind_with(self, row: int, came: Iterable[PodNeeds], went: Collection[str]) -> int:
        """What the node would be of with these pods besides, and without those."""
        name = self._table.names[row]
        kind, inside = self.kind_of(row), self._inside.get(name)
        if inside is None:
            return UNJUDGED
        if not inside.pods.keys().isdisjoint(went):
            books = inside.books(trusting=self.trusting, without=went)
            kind = self._intern(inside.topology, self._shape(inside.topology), books)
        for needs in came:
            kind = self._after(kind, needs)
        return kind

    def when_empty(self, row: int, needs: PodNeeds) -> bool:
        """Whether the node would let such a pod on if nobody stood there."""
        inside = self._inside.get(self._table.names[row])
        if inside is None:
            return True
        empty = self._intern(inside.topology, self._shape(inside.topology), Books(inside.topology))
        return self.verdict(empty, needs).refusal is None

    def refusal_at(self, row: int, needs: PodNeeds) -> str:
        """Why the node's kubelet refused such a pod; "": it did not."""
        return self._refused.get(needs, {}).get(self._table.names[row], "")

    def inside(self, name: str) -> tuple[NodeTopology, Books] | None:
        """For people: the node's object, and what is free by our accounting."""
        row = self._table.row_of.get(name)
        found = self._kinds[self.kind_of(row)] if row is not None else None
        return None if found is None else (found.topology, found.books)

    # --- kinds ------------------------------------------------------------------------------------------------------

    def kinds(self) -> IntArray:
        """``[rows]``: of each node's row its kind. For reading only."""
        if self._unread:
            unread, self._unread = self._unread, set()
            for name in sorted(unread):
                self._read(name)
        if self._stale:
            stale, self._stale = self._stale, set()
            if len(self._kinds) > MOST_KINDS or len(self._verdicts) > MOST_VERDICTS:
                stale = self._forget_kinds()
            for name in sorted(stale):
                self._judge(name)
        table = self._table
        if self._rows_at != table.static_stamp or len(self._rows) != table.rows:
            self._rows_at = table.static_stamp
            self._rows = np.array([self._of_node.get(name, UNJUDGED) for name in table.names], np.int64)
            self._rejudge()
        return self._rows

    def _read(self, name: str) -> None:
        """The first time that anybody asks: whoever stands there by now may be in the object."""
        topology = self._with_node(self.topologies[name], name)
        inside = self._inside[name] = Inside(topology)
        accounts = (self._cache.accounts[uid] for uid in sorted(self._cache.pods_on(name)))
        for account in sorted(accounts, key=lambda one: one.assumed_at if one.assumed_at is not None else -1.0):
            if (needs := account.pod_class.needs) is not None:
                inside.pods[account.uid] = Standing(needs)
        self._stale.add(name)

    def _judge(self, name: str) -> None:
        inside = self._inside[name]
        books = inside.books(trusting=self.trusting)
        self._set(name, self._intern(inside.topology, self._shape(inside.topology), books))
        doubt = "" if inside.clear else "its amounts are not those of the pods that stand there"
        if doubt != self._told.get(name, ""):
            self._told[name] = doubt
            if doubt:
                self._news.append(("node_topology_unclear", name, doubt))

    def _set(self, name: str, kind: int) -> None:
        if kind:
            self._of_node[name] = kind
        else:
            self._of_node.pop(name, None)
        row = self._table.row_of.get(name)
        if row is not None and row < len(self._rows) and self._rows_at == self._table.static_stamp:
            self._rows[row] = kind
            self._moved.append(row)
            if len(self._moved) > MOST_MOVED:
                self._rejudge()

    def _seats(self, kind: int, needs: PodNeeds) -> Seats | None:
        verdict = self.verdict(kind, needs)
        return verdict.seats if verdict.refusal is None else None

    def _after(self, kind: int, needs: PodNeeds) -> int:
        known = self._next.get((kind, needs))
        if known is None:
            of = self._kinds[kind]
            if of is None:
                return UNJUDGED
            books = of.books.copy()
            seated(of.topology, books, needs)
            known = self._next[kind, needs] = self._intern(of.topology, of.shape, books)
        return known

    def _shape(self, topology: NodeTopology) -> int:
        zones = tuple(
            (zone.id, _pairs(zone.capacity), _pairs(zone.allocatable), _pairs(zone.costs)) for zone in topology.zones
        )
        key = topology.policy, topology.scope, zones, _pairs(topology.loose_devices)
        return self._shapes.setdefault(key, len(self._shapes))

    def _intern(self, topology: NodeTopology, shape: int, books: Books) -> int:
        key = (shape, books.key())
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self._kinds)
            self._kinds.append(_Kind(topology, shape, books))
        return number

    def _forget_kinds(self) -> set[str]:
        for known in (self._shapes, self._number, self._verdicts, self._next, self._masks, self._of_node):
            known.clear()
        del self._kinds[1:]
        self._rows_at = -1
        return set(self._inside)

    # --- for people -------------------------------------------------------------------------------------------------

    def take_news(self) -> list[News]:
        """What people are to be told since this was last asked."""
        news, self._news = self._news, []
        return news

    def validate(self) -> Iterator[str]:
        """What is broken; nothing while all is well."""
        for name, inside in self._inside.items():
            there = {uid for uid in self._cache.pods_on(name) if self._cache.accounts[uid].pod_class.needs is not None}
            if inside.pods.keys() != there:
                yield f"zones-pods: who is counted in the zones of {name} is not who stands there"
            if name not in self._stale and self._of_node.get(name) is None:
                yield f"zones-kinds: {name} is of no kind"


def may_refuse(topology: NodeTopology) -> bool:
    """Whether a kubelet of this policy refuses anybody whom the node's totals let on: the Topology Manager does where
    it is strict, the Memory Manager always."""
    if topology.policy in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE):
        return bool(topology.zones)
    return any(zone.allocatable.get(MEMORY, 0) for zone in topology.zones)


def same_inside(one: NodeTopology, other: NodeTopology) -> bool:
    """Whether two versions of an object say the same."""
    return replace(one, resource_version=other.resource_version) == other


def _pairs(amounts: Mapping[Any, int]) -> tuple[tuple[Any, int], ...]:
    return tuple(sorted(amounts.items()))
