"""All slices, classes and claims of a cluster, kept so that nodes with equal devices in equal use get one answer.

Slices come and go one by one; what follows from them is made when it is asked for, and again once something that it
was made from has changed: per pool what each kind of node sees of it, per node its pools in order, and the node's
*group*. Nodes are of one group when no rule about devices can tell them apart: devices with the same facts at the same
places, the same of them in use. Names do not count, for a driver names a pool after its node. A pool that is seen in
parts, or that nobody may use, is only ever equal to itself.

A change costs what it touches: a slice of one node, that node; an allocation, the nodes that see its pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from shared.model.devices import Allocation, Device, DeviceClaim, DeviceClass, DeviceSlice, TaintRule
from shared.scheduling.devices.pools import DevicePool, PoolDevice, build, in_order, reaches, relevant
from shared.scheduling.devices.taints import rule_taints
from shared.scheduling.devices.usage import DeviceUsage, PoolId, gives_back
from shared.scheduling.state.node_table import IntArray
from shared.scheduling.state.releases import Release

MOST_GROUPS = 16_384
"""Groups that are told apart, at least, before all are forgotten and made again, with every answer about them."""


class NamedNode(Protocol):
    """A node: its name and labels decide what reaches it."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


@dataclass(slots=True)
class _Slices:
    """The slices of one pool by name, and what they look like from a node that has to look at some of them."""

    by_name: dict[str, DeviceSlice] = field(default_factory=dict)
    views: dict[tuple[str, ...], DevicePool | None] = field(default_factory=dict)
    stamp: int = 0
    nodes: set[str] = field(default_factory=set)
    """Whose group was made from it."""


class NodeDevices(Struct, frozen=True):
    """``pools`` in the order in which they are tried; nodes of equal ``group`` get equal answers."""

    pools: tuple[DevicePool, ...]
    group: int


class _Kept(NamedTuple):
    """The groups of the nodes that were asked about last."""

    nodes: Sequence[NamedNode]
    places: dict[str, int]
    groups: IntArray


class Inventory:
    """See the module. ``classes`` and ``claims`` (by ``namespace/name``) are read by the rules directly."""

    def __init__(self, release: Release = Release.V1_38) -> None:
        self.release = release
        self.usage = DeviceUsage()
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[str, DeviceClaim] = {}
        self.left_over: dict[str, DeviceClaim] = {}
        """By the uid of their pod: claims for extended resources that some attempt to place it has made."""
        self.epoch = 0
        """Counts how often all groups were forgotten."""
        self._slices: dict[str, DeviceSlice] = {}
        self._rules: dict[str, TaintRule] = {}
        self._pools: dict[PoolId, _Slices] = {}
        self._local: dict[str, set[PoolId]] = {}
        """By node: the pools that have a slice of its own."""
        self._spread: set[PoolId] = set()
        """Pools of which any node may see something."""
        self._nodes: dict[str, NodeDevices] = {}
        self._groups: dict[object, int] = {}
        self._kept: _Kept | None = None
        self._stale: set[str] = set()
        """Nodes of ``_kept`` whose group is to be asked for again."""
        self._all_stale = False
        self.touched: set[str] = set()
        """Nodes whose devices, or their use, may be others since whoever reads it took the names out."""
        self.all_touched = True
        self.freed = False
        """Whether anything was given back, shown or assumed, since whoever reads it said no."""

    # --- changes ------------------------------------------------------------------------------------------------------

    def put_slice(self, item: DeviceSlice) -> None:
        """A slice was published, or published anew. One of an older generation is kept: it may be all that a node sees
        until the others are gone, and is passed over by then (``pools.py``)."""
        before = self._slices.get(item.name)
        if before is not None:
            self._drop(before)
        self._slices[item.name] = item
        self._add(item)

    def remove_slice(self, name: str) -> None:
        """A slice is gone."""
        before = self._slices.pop(name, None)
        if before is not None:
            self._drop(before)

    def put_taint_rule(self, rule: TaintRule) -> None:
        """A DeviceTaintRule is there: it may touch any device."""
        self._rules[rule.name] = rule
        self._renew()

    def remove_taint_rule(self, name: str) -> None:
        """It is gone."""
        if self._rules.pop(name, None) is not None:
            self._renew()

    def put_claim(self, claim: DeviceClaim) -> None:
        """A claim was made or changed: what it was given counts, what it no longer has is free."""
        before = self.claims.get(claim.key)
        self.claims[claim.key] = claim
        if before is not None and before.for_extended and self.left_over.get(before.owner) is before:
            del self.left_over[before.owner]
        if claim.for_extended:
            self.left_over[claim.owner] = claim
        had = before.allocation if before is not None else None
        if had == claim.allocation:
            return
        if had is not None:
            self.count(had, -1)
            self.freed |= gives_back(had, claim.allocation)
        if claim.allocation is not None:
            self.count(claim.allocation)

    def remove_claim(self, key: str) -> None:
        """It is gone, and what it was given is free."""
        claim = self.claims.pop(key, None)
        if claim is not None and self.left_over.get(claim.owner) is claim:
            del self.left_over[claim.owner]
        if claim is not None and claim.allocation is not None:
            self.count(claim.allocation, -1)
            self.freed |= gives_back(claim.allocation, None)

    def count(self, allocation: Allocation, sign: int = 1) -> None:
        """An allocation is made or given back, whether its claim says so already or not."""
        for pool in self.usage.count(allocation, sign):
            self._forget_pool(pool)

    def forget_node(self, name: str) -> None:
        """The node is gone, or its labels changed."""
        self._nodes.pop(name, None)
        self._stale.add(name)

    def current(self, pool: PoolId) -> tuple[DeviceSlice, ...]:
        """The slices of a pool's newest generation."""
        entry = self._pools.get(pool)
        slices = entry.by_name.values() if entry is not None else ()
        newest = max((one.generation for one in slices), default=0)
        return tuple(one for one in slices if one.generation == newest)

    @property
    def empty(self) -> bool:
        """Whether no driver publishes anything."""
        return not self._slices

    def spread(self) -> list[DevicePool]:
        """The pools of which several nodes may see something, as who sees all of each."""
        made = (self._view(id_, tuple(self._pools[id_].by_name.values())) for id_ in sorted(self._spread))
        return [pool for pool in made if pool is not None]

    def _view(self, id_: PoolId, slices: tuple[DeviceSlice, ...]) -> DevicePool | None:
        """The pool as who has to look at these slices sees it, the same one while they are."""
        entry, names = self._pools[id_], tuple(one.name for one in slices)
        if names not in entry.views:
            entry.views[names] = build(id_, slices, entry.by_name.values())
        return entry.views[names]

    def published(self, pool: PoolId) -> dict[str, Device]:
        """The devices of a pool by name."""
        return {device.name: device for one in self.current(pool) for device in one.devices}

    # --- what a node has ----------------------------------------------------------------------------------------------

    def of(self, node: NamedNode) -> NodeDevices:
        """The pools of a node, and its group."""
        found = self._nodes.get(node.name)
        if found is None:
            found = self._nodes[node.name] = self._made(node)
        return found

    def seeing(self, pools: Iterable[PoolId]) -> set[str]:
        """The nodes whose devices were made from one of the pools; others do not see it."""
        entries = (self._pools.get(pool) for pool in pools)
        return set[str]().union(*(entry.nodes for entry in entries if entry is not None))

    def groups(self, nodes: Sequence[NamedNode]) -> IntArray:
        """``[len(nodes)]``: the group of each. Kept for the same sequence, of which only what changed is asked
        again."""
        if self._kept is None or self._kept.nodes is not nodes:
            places = {node.name: i for i, node in enumerate(nodes)}
            self._kept = _Kept(nodes, places, np.zeros(len(nodes), np.int64))
            self._all_stale = True
        kept = self._kept
        while self._all_stale or self._stale:
            stale = kept.places if self._all_stale else self._stale
            self._stale, self._all_stale = set(), False
            for name in stale:
                i = kept.places.get(name)
                if i is not None:
                    kept.groups[i] = self.of(nodes[i]).group
        return kept.groups

    def _made(self, node: NamedNode) -> NodeDevices:
        seen: dict[PoolId, DevicePool] = {}
        for id_ in chain(self._local.get(node.name, ()), self._spread):
            entry = self._pools[id_]
            slices = relevant(entry.by_name.values(), node.name, node.labels, self.release)
            if not slices or id_ in seen:
                continue
            entry.nodes.add(node.name)
            pool = self._view(id_, slices)
            if pool is not None and (pool.devices or not pool.usable):
                seen[id_] = pool
        pools = in_order(seen.values())
        key = tuple(self._token(pool, node) for pool in pools)
        # never fewer than the nodes may need, or they would forget each other for ever
        if len(self._groups) >= max(MOST_GROUPS, 2 * len(self._nodes)) and key not in self._groups:
            self.epoch_begins()
        return NodeDevices(pools, self._groups.setdefault(key, len(self._groups)))

    def epoch_begins(self) -> None:
        """Forget which nodes are alike: groups are numbered anew, and what was answered about one is void."""
        self._groups.clear()
        self._forget_all()
        self.epoch += 1

    def _token(self, pool: DevicePool, node: NamedNode) -> object:
        """Equal for pools that no rule can tell apart on two nodes."""
        if not pool.usable or pool.others:
            seen = tuple(one.id for one in pool.devices)
            return pool.id, self._pools[pool.id].stamp, self.usage.stamps[pool.id], seen, _reached(pool.devices, node)
        usage = self.usage
        used = tuple((i, usage.of(one.id)) for i, one in enumerate(pool.devices) if usage.used(one.id))
        free = tuple(sorted(pool.free.items())) if pool.free is not None else None
        return tuple(map(_kind, pool.devices)), free, used, _reached(pool.devices, node)

    # --- keeping it ---------------------------------------------------------------------------------------------------

    def _add(self, item: DeviceSlice) -> None:
        id_ = (item.driver, item.pool)
        self._pools.setdefault(id_, _Slices()).by_name[item.name] = self._tainted(item)
        self._place(id_)

    def _drop(self, item: DeviceSlice) -> None:
        id_ = (item.driver, item.pool)
        del self._pools[id_].by_name[item.name]
        if item.reach.node_name:
            self._local.get(item.reach.node_name, set()).discard(id_)
        self._place(id_)

    def _place(self, id_: PoolId) -> None:
        """Say again which nodes see the pool, and forget what they made of it."""
        entry = self._pools[id_]
        self._spread.discard(id_)
        for one in entry.by_name.values():
            if not one.reach.node_name or (one.counter_sets and self.release is Release.V1_36):
                self._spread.add(id_)
            else:
                self._local.setdefault(one.reach.node_name, set()).add(id_)
                entry.nodes.add(one.reach.node_name)
        entry.views.clear()
        entry.stamp += 1
        if id_ in self._spread:
            self._forget_all()
        self._forget_pool(id_)
        if not entry.by_name:
            del self._pools[id_]

    def _forget_pool(self, id_: PoolId) -> None:
        entry = self._pools.get(id_)
        if entry is not None:
            for name in entry.nodes:
                self._nodes.pop(name, None)
            self._stale |= entry.nodes
            self.touched |= entry.nodes

    def _forget_all(self) -> None:
        self._nodes.clear()
        self._all_stale = self.all_touched = True

    def _tainted(self, item: DeviceSlice) -> DeviceSlice:
        if not self._rules:
            return item
        devices = []
        for device in item.devices:
            more = rule_taints(self._rules.values(), item.driver, item.pool, device.name)
            devices.append(replace(device, taints=(*device.taints, *more)) if more else device)
        return replace(item, devices=tuple(devices))

    def _renew(self) -> None:
        for item in self._slices.values():
            entry = self._pools[item.driver, item.pool]
            entry.by_name[item.name] = self._tainted(item)
            entry.views.clear()
            entry.stamp += 1
        self._forget_all()


def _kind(one: PoolDevice) -> object:
    """All of a device that any rule reads, but where it is."""
    device = one.device
    return one.facts, device.taints, device.consumes, device.binds_to_node, device.bound_on, device.failed_on


def _reached(devices: Iterable[PoolDevice], node: NamedNode) -> tuple[int, ...] | None:
    """Which devices of slices that leave it to the device reach the node; None where no slice does."""
    if not any(one.slice.per_device for one in devices):
        return None
    return tuple(
        i
        for i, one in enumerate(devices)
        if not one.slice.per_device or reaches(one.device.reach, node.name, node.labels)
    )
