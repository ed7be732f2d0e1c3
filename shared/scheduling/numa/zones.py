"""The zones of all nodes, and which nodes a kubelet's managers let a pod on: verdicts by *kind*, not by node.

    the node's object, pods that stand there --> what is free (``inside.py``) --> kind --a pod's needs--> verdict, kind

Nodes of one kind have equal zones, policy, scope and amounts free, so one of them is asked for all, and what a pod
leaves behind is a kind too: in a burst on like nodes nothing is worked out twice. Kind 0 has no object, or one by which
no kubelet refuses anybody.

A kubelet that refuses all the same is believed for a while (``refusals.py``), where its node has an object.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shared.model.node_topology import ContainerSeat, NodeTopology, PodNeeds, TopologySource
from shared.scheduling.numa.admission import AdmissionVerdict
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.inside import LATE_S, Inside, PodInside, Seats, may_refuse, same_inside
from shared.scheduling.numa.kinds import UNJUDGED, ZoneKinds
from shared.scheduling.numa.named import NamedInside
from shared.scheduling.numa.placed import init_names
from shared.scheduling.numa.refusals import NEVER, Refusals
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.node_table import BoolArray, IntArray
from shared.scheduling.state.zones_port import News

TWICE = "it has a NodeResourceTopology too; its CustomNodeResource counts"

MOST_NEEDS = 1024
"""Pods' needs of which it is remembered which kinds take them."""

MOST_MOVED = 4096
"""Changes of kinds that are remembered for the masks made before them."""


class _Mask(NamedTuple):
    """``seen``: how many of the moves of its ``epoch`` are in it."""

    mask: BoolArray
    epoch: int
    seen: int


class NodeZones:
    """See the module. ``version`` counts all changes. ``trusting``: what nobody can know is taken as one would wish,
    not as the worst. ``gpus``: thousandths of a GPU that a unit of a resource is, for policies that see nodes' zones by
    the table; None: nobody looks. ``news``: what people are to be told, taken by ``take_news``."""

    def __init__(
        self, cache: ClusterCache, *, trusting: bool = False, gpus: Callable[[str], int] | None = None
    ) -> None:
        self._cache = cache
        self._table = cache.table
        self.trusting = trusting
        self._gpus = gpus
        self.version = 0
        self.topologies: dict[str, NodeTopology] = {}
        self.heard: dict[str, float] = {}
        """When each object was told of last."""
        self._inside: dict[str, Inside | NamedInside] = {}
        self._unread: set[str] = set()
        self._katalyst: set[str] = set()
        """Nodes of either whose object is Katalyst's."""
        self._beside: dict[str, NodeTopology] = {}
        """NodeResourceTopologies of nodes that Katalyst tells of too, whose object counts."""
        self._devices: Counter[str] = Counter()
        """In how many objects a device has a zone."""
        self._refusals = Refusals()
        self.now = 0.0
        """Set by whoever owns this before it hands anything over; at ``wake_at`` it calls ``advance``."""
        self.wake_at = NEVER
        """When something changes by time alone."""
        self._due: list[tuple[float, str, str]] = []
        """When a pod that left a node (uid "": the node's object, which is gone) is not counted any longer."""
        self._strangers: set[tuple[str, str]] = set()
        """Nodes and consumers that do not stand there, and are looked at again."""
        self._gone: dict[str, float] = {}
        """Nodes whose object is gone and counts still, and since when."""
        self._kinds = ZoneKinds(trusting=trusting)
        self._masks: dict[PodNeeds, _Mask] = {}
        self._epoch = 0
        self._moved: list[int] = []
        """Rows that changed their kind in this epoch, in order."""
        self._of_node: dict[str, int] = {}
        self._stale: set[str] = set()
        self._rows: IntArray = np.zeros(0, np.int64)
        self._rows_at = -1
        self._told: dict[str, str] = {}
        self.news: dict[tuple[str, str], str] = {}
        """By event and node; only a leader takes them."""

    # --- what the API server shows ----------------------------------------------------------------------------------

    def put(self, name: str, topology: NodeTopology) -> NodeTopology | None:
        """The object of a node as it is now; what counted before, None if none did. Where a node has one of either
        kind, Katalyst's counts: its agent lets pods on."""
        before = self.topologies.get(name)
        if before is not None and before.source is not topology.source:
            if topology.source is TopologySource.KUBELET:
                if name not in self._beside and name not in self._gone:
                    self._tell_twice(name)
                self._beside[name] = topology
                return before
            if name not in self._gone:  # else it is deleted, and counted as what was said last
                self._beside[name] = before
                self._tell_twice(name)
            self._drop(name)
            before = None
        self._gone.pop(name, None)
        self.heard[name] = self.now
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
        if self._refusals.changed(name, self.now):
            self._rejudge()
        if not may_refuse(topology):
            self._forget_inside(name)
        elif inside is not None:
            self._show(name)
        else:
            self._unread.add(name)
            if topology.source is TopologySource.KATALYST:
                self._katalyst.add(name)
        return before

    def _tell_twice(self, name: str) -> None:
        self.news["node_topology_twice", name] = TWICE

    def drop(self, name: str, source: TopologySource = TopologySource.KUBELET) -> None:
        """The object is gone or cannot be read; an unknown name is fine. Its kubelet is there still: while the node is,
        the object counts for ``LATE_S`` more, for an exporter that is installed anew, or one bad value; then a
        NodeResourceTopology that stood back counts."""
        known = self.topologies.get(name)
        if known is None or known.source is not source:
            self._beside.pop(name, None)
            return
        if name in self._inside and name in self._table.row_of:
            if name not in self._gone:
                self._gone[name] = self.now
                self._forget_later(name, "")
                self.news["node_topology_gone", name] = f"what it said last counts for {LATE_S:.0f} s more"
            return
        self._expire(name)

    def _expire(self, name: str) -> None:
        """The object counts no more; one that stood back does."""
        self._drop(name)
        if (beside := self._beside.pop(name, None)) is not None:
            self.put(name, beside)

    def _drop(self, name: str) -> None:
        self._gone.pop(name, None)
        before = self.topologies.pop(name, None)
        self.heard.pop(name, None)
        if before is not None:
            self.version += 1
            self._count_devices(before, -1)
            if self._refusals.drop(name):
                self._rejudge()
            self._told.pop(name, None)
            for event in ("node_topology_gone", "node_topology_unclear"):
                self.news.pop((event, name), None)
            self._forget_inside(name)

    def advance(self, now: float) -> list[str]:
        """It is ``now``: nodes that may take pods by that which they did not take before."""
        self.now = now
        if now < self.wake_at:
            return []
        changed = self._refusals.advance(now)
        if changed:
            self.version += 1
            self._rejudge()
        while self._due and self._due[0][0] <= now:
            _, name, uid = heapq.heappop(self._due)
            inside = self._inside.get(name)
            if not uid:
                if name in self._gone and self._gone[name] + LATE_S <= now:
                    self._expire(name)
                    changed.append(name)
            elif inside is not None:
                self._strangers.discard((name, uid))
                if inside.outlast(uid, now):
                    self._touch(name)
                changed.append(name)  # else it was read in the object meanwhile, of which nobody was told
        self.wake_at = min(self._refusals.wake_at, self._due[0][0] if self._due else NEVER)
        return changed

    def _forget_later(self, name: str, uid: str) -> None:
        heapq.heappush(self._due, (self.now + LATE_S, name, uid))
        self.wake_at = min(self.wake_at, self._due[0][0])

    def node_changed(self, name: str) -> None:
        """The node came, went, or has other amounts: its devices may be others."""
        if name in self._gone and name not in self._table.row_of:
            self._expire(name)
        if name in self._inside:
            self._show(name)

    def _count_devices(self, topology: NodeTopology, sign: int) -> None:
        for name in {name for zone in topology.zones for name in zone.capacity if "/" in name}:
            self._devices[name] += sign
            if not self._devices[name]:
                del self._devices[name]

    def _forget_inside(self, name: str) -> None:
        self._unread.discard(name)
        self._katalyst.discard(name)
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

    def count(self, uid: str, node_name: str, needs: PodNeeds, *, assumed: bool) -> None:
        """A pod stands on the node from now on, bound or assumed."""
        inside = self._inside.get(node_name)
        if inside is None:
            return
        self.version += 1
        if node_name in self._stale:  # where it sits depends on who is there by now
            self._stale.discard(node_name)
            self._judge(node_name)
        pod = inside.come(uid, needs, assumed=assumed)
        if pod.shown or not assumed:  # it may be in the object
            self._touch(node_name)
            return
        kind = self._of_node[node_name]
        pod.seats = self._seats(kind, needs)
        self._set(node_name, self._kinds.after(kind, needs))

    def uncount(self, uid: str, node_name: str) -> None:
        """The pod stands there no longer."""
        inside = self._inside.get(node_name)
        if inside is not None and uid in inside.pods:
            if inside.leave(uid, self.now):
                self._forget_later(node_name, uid)
            self._touch(node_name)

    def left(self, node_name: str) -> Collection[str]:
        """Uids of pods that are gone, but what they held counts as taken still."""
        inside = self._inside.get(node_name)
        if inside is None or not inside.left:
            return ()
        self.kinds()  # it may be read in the object by now that they are gone
        return inside.left.keys()

    def sits(self, uid: str, node_name: str) -> bool:
        """Whether the node's managers let the pod on, which stands there by our accounting, as everything is now."""
        if node_name not in self._inside and node_name not in self._unread:
            return True
        self.kinds()
        pod = self._inside[node_name].pods.get(uid)
        return pod is None or pod.shown or pod.seats is not None

    def refused(self, node_name: str, needs: PodNeeds, reason: str) -> None:
        """The node's kubelet refused such a pod. Of nodes without an object nothing is learnt."""
        known = node_name in self._inside or node_name in self._unread
        if known and self._refusals.add(node_name, needs, reason, self.now):
            self.version += 1
            self._rejudge()
            self.wake_at = min(self.wake_at, self._refusals.wake_at)
            self.news["kubelet_refused", node_name] = reason

    # --- verdicts ---------------------------------------------------------------------------------------------------

    def concerns(self, needs: PodNeeds) -> bool:
        """Whether some node's kubelet may refuse such a pod, by what objects say or since one has."""
        there = len(self._inside) + len(self._unread)
        if not there:
            return False
        if needs in self._refusals or (needs.of_katalyst and self._katalyst):
            return True
        return there > len(self._katalyst) and any(
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
        for row in self.refused_at(needs):
            mask[row] = False
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

    def verdict(self, kind: int, needs: PodNeeds) -> AdmissionVerdict:
        """What a kubelet of that kind says."""
        return self._kinds.verdict(kind, needs)

    def filled(self, kind: int, needs: PodNeeds) -> float:
        """How much of what is free in the zones that a pod of dedicated cores would get it takes, 0 to 1."""
        return self._kinds.filled(kind, needs)

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
            kind = self._kinds.of(inside.topology, books)
        for needs in came:
            kind = self._kinds.after(kind, needs)
        return kind

    def fits_empty(self, kind: int, needs: PodNeeds) -> bool:
        """Whether a node of that kind would let such a pod on if nobody stood there."""
        return self._kinds.fits_empty(kind, needs)

    def refusal_at(self, row: int, needs: PodNeeds) -> str:
        """Why the node's kubelet refused such a pod lately; "": it did not."""
        return self._refusals.reason(self._table.names[row], needs)

    def refused_at(self, needs: PodNeeds) -> list[int]:
        """Rows of the nodes whose kubelets refused such a pod lately."""
        row_of = self._table.row_of
        return [row_of[name] for name in self._refusals.nodes(needs) if name in row_of]

    def inside(self, name: str) -> tuple[NodeTopology, Books] | None:
        """For people: the node's object, and what is free by our accounting."""
        row = self._table.row_of.get(name)
        return self._kinds.inside(self.kind_of(row)) if row is not None else None

    def newcomers(self, name: str) -> list[ContainerSeat]:
        """For people: where those sit, in thought, that stand on the node and that its object does not show."""
        inside = self._inside.get(name)
        pods = inside.pods.values() if inside is not None else ()
        return [
            seat
            for pod in pods
            if not pod.shown and pod.seats
            for container, seat in pod.seats.items()
            if container not in init_names(pod.needs)
        ]

    def doubts(self, name: str) -> list[str]:
        """For people: in what the node's object is not believed, or another one contradicts it."""
        gone = f"it is gone; what it said last counts for {LATE_S:.0f} s" if name in self._gone else ""
        twice = TWICE if name in self._beside else ""
        return [one for one in (self._told.get(name, ""), gone, twice) if one]

    # --- kinds ------------------------------------------------------------------------------------------------------

    def kinds(self) -> IntArray:
        """``[rows]``: of each node's row its kind. For reading only."""
        if self._unread:
            unread, self._unread = self._unread, set()
            for name in sorted(unread):
                self._read(name)
        if self._stale:
            stale, self._stale = self._stale, set()
            if self._kinds.full:
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
        inside = self._inside[name] = self._inside_of(topology)
        accounts = (self._cache.accounts[uid] for uid in sorted(self._cache.pods_on(name)))
        for account in sorted(accounts, key=lambda one: one.assumed_at if one.assumed_at is not None else -1.0):
            if (needs := account.pod_class.needs) is not None:
                inside.pods[account.uid] = PodInside(needs)
        self._stale.add(name)

    def _inside_of(self, topology: NodeTopology) -> Inside | NamedInside:
        if topology.source is TopologySource.KUBELET:
            return Inside(topology)
        accounts, node = self._cache.accounts, topology.node

        def stands(uid: str) -> bool:
            account = accounts.get(uid)
            return account is not None and account.node_name == node

        return NamedInside(topology, stands)

    def _judge(self, name: str) -> None:
        inside = self._inside[name]
        books = inside.books(trusting=self.trusting)
        self._set(name, self._kinds.of(inside.topology, books))
        doubt = inside.doubt
        if isinstance(inside, NamedInside):
            for uid in inside.strangers():
                if (name, uid) not in self._strangers:  # whose pod may be told of only after the object
                    self._strangers.add((name, uid))
                    self._forget_later(name, uid)
        if doubt != self._told.get(name, ""):
            self._told[name] = doubt
            if doubt:
                self.news["node_topology_unclear", name] = doubt

    def _set(self, name: str, kind: int) -> None:
        if kind:
            self._of_node[name] = kind
        else:
            self._of_node.pop(name, None)
        row = self._table.row_of.get(name)
        if row is not None and self._gpus is not None and (self._devices or row in self._table.zones_free):
            self._table.set_zones(row, self._kinds.gpu_zones(kind, self._gpus))
        if row is not None and row < len(self._rows) and self._rows_at == self._table.static_stamp:
            self._rows[row] = kind
            self._moved.append(row)
            if len(self._moved) > MOST_MOVED:
                self._rejudge()

    def _seats(self, kind: int, needs: PodNeeds) -> Seats | None:
        verdict = self.verdict(kind, needs)
        return verdict.seats if verdict.refusal is None else None

    def _forget_kinds(self) -> set[str]:
        self._kinds.clear()
        self._masks.clear()
        self._of_node.clear()
        self._rows_at = -1
        return set(self._inside)

    # --- for people -------------------------------------------------------------------------------------------------

    def take_news(self) -> list[News]:
        """What people are to be told since this was last asked."""
        news = [(event, name, why) for (event, name), why in self.news.items()]
        self.news.clear()
        return news

    def validate(self) -> Iterator[str]:
        """What is broken; nothing while all is well."""
        for name, inside in self._inside.items():
            there = {uid for uid in self._cache.pods_on(name) if self._cache.accounts[uid].pod_class.needs is not None}
            if inside.pods.keys() != there:
                yield f"zones-pods: who is counted in the zones of {name} is not who stands there"
            if name not in self._stale and self._of_node.get(name) is None:
                yield f"zones-kinds: {name} is of no kind"
