"""How many devices there are, and what is the matter with each: for people, who ask per driver, pool and node.

    published --somebody has it, or a part of it--> allocated
              --a taint bars who does not tolerate it--> tainted
              --other partitions have what it would take of its counters--> blocked
              --else--> free

A device is in one state, the first that holds. Of a pool that cannot be used (incomplete, invalid) no device counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from shared.scheduling.devices.fullness import PLAIN
from shared.scheduling.devices.inventory import Inventory, Named
from shared.scheduling.devices.pools import Pool, PoolDevice, offered_now
from shared.scheduling.devices.shares import free_parts
from shared.scheduling.devices.taints import barred
from shared.scheduling.devices.usage import PoolId, Usage
from shared.scheduling.state.node_table import IntArray

STATES = ("free", "allocated", "tainted", "blocked")


class DeviceCounts(Struct, frozen=True, kw_only=True):
    """So many devices, each in one state. ``whole``: those that are no partition of another, ``used`` of them in use:
    of one that is shared or partitioned that part."""

    devices: int = 0
    free: int = 0
    allocated: int = 0
    tainted: int = 0
    blocked: int = 0
    whole: int = 0
    used: float = 0.0

    @property
    def share(self) -> float:
        """How much is in use, 0 to 1."""
        return self.used / self.whole if self.whole else 0.0


def summed(counts: Sequence[tuple[DeviceCounts, int]]) -> DeviceCounts:
    """Each so many times."""
    fields = DeviceCounts.__struct_fields__
    return DeviceCounts(**{name: sum(times * getattr(one, name) for one, times in counts) for name in fields})


def counts_of(pool: Pool, usage: Usage) -> DeviceCounts:
    """The devices of a pool that a node sees."""
    used = [one for one in (*pool.devices, *pool.others) if usage.used(one.id)]
    left = offered_now(pool, used) or {}
    states = Counter(_state(one, usage, left) for one in pool.devices)
    parts = free_parts(pool, usage, PLAIN)
    return DeviceCounts(
        devices=len(pool.devices), free=states["free"], allocated=states["allocated"], tainted=states["tainted"],
        blocked=states["blocked"], whole=len(parts), used=len(parts) - sum(parts),
    )  # fmt: skip


def _state(one: PoolDevice, usage: Usage, left: Mapping[tuple[str, str], int]) -> str:
    if usage.used(one.id):
        return "allocated"
    if barred(one.device, ()):
        return "tainted"
    takes = (((name, counter), amount) for name, counters in one.device.consumes for counter, amount in counters)
    return "blocked" if any(amount > left.get(counter, 0) for counter, amount in takes) else "free"


class Census:
    """Of all nodes. Nodes of one group have equal devices in equal use: each group is counted once, and kept."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._epoch = 0
        self._known: dict[int, tuple[DeviceCounts, ...]] = {}
        """By group: of each pool that its nodes reach."""

    def on(self, node: Named) -> list[tuple[PoolId, DeviceCounts]]:
        """What one node reaches, by driver and pool."""
        pools = self._inventory.of(node).pools
        return [(pool.id, counts_of(pool, self._inventory.usage)) for pool in pools]

    def drivers(self, nodes: Sequence[Named]) -> dict[str, DeviceCounts]:
        """Of the whole cluster, by driver. What several nodes reach counts once."""
        if self._inventory.empty:
            return {}
        spread = {pool.id: pool for pool in self._inventory.spread()}
        times: Counter[tuple[int, tuple[str, ...]]] = Counter()
        for node, group in zip(nodes, self._groups(nodes).tolist(), strict=True):
            pools = self._inventory.of(node).pools
            if pools:  # of a pool that is counted by itself no driver is named
                times[group, tuple("" if pool.id in spread else pool.id[0] for pool in pools)] += 1
        found: dict[str, list[tuple[DeviceCounts, int]]] = {}
        for (group, names), count in times.items():
            for driver, counts in zip(names, self._known[group], strict=True):
                if driver:
                    found.setdefault(driver, []).append((counts, count))
        for (driver, _), pool in spread.items():
            found.setdefault(driver, []).append((counts_of(pool, self._inventory.usage), 1))
        return {driver: summed(each) for driver, each in sorted(found.items())}

    def shares(self, nodes: Sequence[Named]) -> dict[str, list[float | None]]:
        """By driver of each node how much of what it reaches is in use; None: it reaches nothing of it."""
        if self._inventory.empty:
            return {}
        found: dict[str, list[float | None]] = {}
        kept: dict[int, dict[str, float]] = {}
        for place, group in enumerate(self._groups(nodes).tolist()):
            shares = kept.get(group)
            if shares is None:
                each: dict[str, list[tuple[DeviceCounts, int]]] = {}
                for pool, counts in zip(self._inventory.of(nodes[place]).pools, self._known[group], strict=True):
                    each.setdefault(pool.id[0], []).append((counts, 1))
                totals = {driver: summed(counts) for driver, counts in each.items()}
                shares = kept[group] = {driver: one.share for driver, one in totals.items() if one.devices}
            for driver, share in shares.items():
                found.setdefault(driver, [None] * len(nodes))[place] = round(share, 3)
        return dict(sorted(found.items()))

    def _groups(self, nodes: Sequence[Named]) -> IntArray:
        """The group of each node, all of them counted."""
        groups = self._inventory.groups(nodes)
        there, firsts = np.unique(groups, return_index=True)
        if self._epoch != self._inventory.epoch or len(self._known) > 2 * len(there):
            self._epoch, self._known = self._inventory.epoch, {}
        for group, first in zip(there.tolist(), firsts.tolist(), strict=True):
            if group not in self._known:
                self._known[group] = tuple(counts for _, counts in self.on(nodes[first]))
        return groups
