"""Pools: what of the slices that drivers published one node may be given devices from.

Of the slices that reach a node those of the highest generation count. Where they are not the whole pool, all slices of
the pool are asked: with one of a higher generation anywhere the pool is passed over (its driver is replacing it); with
fewer than ``resourceSliceCount`` it is incomplete. A pool with two devices of one name, or a device that consumes
counters nobody offers, is invalid. From neither kind is a device given.

Slices with counters belong to every node in 1.36. That makes ``All`` fail everywhere while one node's partitionable
pool is being republished (mended by kubernetes#141898): now those of a pool that does not reach a node do not count.

Source: kube-scheduler 1.36 ``structured/internal/incubating/pools_incubating.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from shared.model.devices import Device, DeviceSlice, Reach
from shared.scheduling.devices.cel.selectors import Facts, facts_of
from shared.scheduling.devices.search import counters
from shared.scheduling.devices.usage import PoolId
from shared.scheduling.matching.selectors import node_matches
from shared.scheduling.state.releases import Release


class PoolDevice(Struct, frozen=True, gc=False):
    """A device in its slice."""

    device: Device
    facts: Facts
    slice: DeviceSlice
    id: tuple[str, str, str]

    @property
    def reach(self) -> Reach:
        """Which nodes reach it."""
        return self.device.reach if self.slice.per_device else self.slice.reach


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DevicePool:
    """What one node sees of a pool. ``devices`` in the order in which they are tried; ``others``: devices of slices
    that do not reach the node, and share its counters. ``waits``: some device has binding conditions."""

    id: PoolId
    devices: tuple[PoolDevice, ...] = ()
    others: tuple[PoolDevice, ...] = ()
    free: counters.Free | None = None
    incomplete: bool = False
    invalid: str = ""
    waits: bool = False

    @property
    def usable(self) -> bool:
        """Whether devices of it may be given."""
        return not self.incomplete and not self.invalid


def reaches(reach: Reach, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node may use what has this reach."""
    if reach.node_name:
        return reach.node_name == name
    if reach.all_nodes:
        return True
    return reach.terms is not None and node_matches(name, labels, reach.terms)


def relevant(
    slices: Iterable[DeviceSlice], name: str, labels: Mapping[str, str], release: Release
) -> tuple[DeviceSlice, ...]:
    """The slices of one pool that the node has to look at; none: the pool is nothing to it."""
    slices = tuple(slices)
    reaching = tuple(one for one in slices if _reaches(one, name, labels))
    if release is Release.V1_36 or reaching:
        return tuple(one for one in slices if one.counter_sets or one in reaching)
    return ()


def _reaches(one: DeviceSlice, name: str, labels: Mapping[str, str]) -> bool:
    if one.reach.said:
        return reaches(one.reach, name, labels)
    return one.per_device and any(reaches(device.reach, name, labels) for device in one.devices)


def build(id_: PoolId, seen: tuple[DeviceSlice, ...], all_slices: Iterable[DeviceSlice]) -> DevicePool | None:
    """The pool as a node sees it that has to look at ``seen``; None: it is being replaced."""
    generation = max(one.generation for one in seen)
    # by name, also since slices may differ about the count: which one is believed must not depend on who came first
    seen = tuple(sorted((one for one in seen if one.generation == generation), key=lambda one: one.name))
    rest: tuple[DeviceSlice, ...] = ()
    if len(seen) != seen[0].count:
        all_slices = tuple(all_slices)
        if any(one.generation > generation for one in all_slices):
            return None
        current = tuple(one for one in all_slices if one.generation == generation)
        if len(current) != seen[0].count:
            return DevicePool(id_, incomplete=True)
        rest = tuple(one for one in current if one not in seen)
    return _valid(id_, seen, rest)


def _valid(id_: PoolId, seen: tuple[DeviceSlice, ...], rest: tuple[DeviceSlice, ...]) -> DevicePool:
    devices = _devices(one for one in seen if not one.counter_sets)
    names = [one.device.name for one in devices]
    if len(set(names)) != len(names):
        return DevicePool(id_, invalid=f"duplicate device name {next(one for one in names if names.count(one) > 1)}")
    free, problem = counters.offered(seen)
    others = _devices(rest)
    problem = problem or counters.unknown(free, (one.device for one in (*devices, *others)))
    if problem:
        return DevicePool(id_, invalid=problem)
    waits = any(one.device.bound_on is not None for one in devices)
    return DevicePool(id_, devices, others, free or None, waits=waits)


def _devices(slices: Iterable[DeviceSlice]) -> tuple[PoolDevice, ...]:
    return tuple(
        PoolDevice(device, facts_of(one.driver, device), one, (one.driver, one.pool, device.name))
        for one in slices
        for device in one.devices
    )


def in_order(pools: Iterable[DevicePool]) -> tuple[DevicePool, ...]:
    """By driver and name; those with binding conditions last."""
    return tuple(sorted(pools, key=lambda pool: (pool.waits and pool.usable, pool.id)))


def offered_now(pool: DevicePool, used: Iterable[PoolDevice]) -> counters.Free | None:
    """What is left of the pool's counters when these of its devices are in use; None where it has none."""
    if pool.free is None:
        return None
    free = dict(pool.free)
    for one in used:
        counters.take(free, one.device)
    return free
