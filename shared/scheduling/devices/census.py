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
from itertools import chain
from weakref import WeakKeyDictionary

from msgspec import Struct

from shared.scheduling.devices.fullness import PLAIN
from shared.scheduling.devices.inventory import Inventory, NamedNode
from shared.scheduling.devices.pools import DevicePool, PoolDevice, offered_now
from shared.scheduling.devices.shares import free_parts
from shared.scheduling.devices.taints import barred
from shared.scheduling.devices.usage import DeviceUsage, PoolId

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


def counts_of(pool: DevicePool, usage: DeviceUsage) -> DeviceCounts:
    """The devices of a pool that a node sees."""
    used = [one for one in (*pool.devices, *pool.others) if usage.used(one.id)]
    left = offered_now(pool, used) or {}
    states = Counter(_state(one, usage, left) for one in pool.devices)
    parts = free_parts(pool, usage, PLAIN)
    return DeviceCounts(
        devices=len(pool.devices), free=states["free"], allocated=states["allocated"], tainted=states["tainted"],
        blocked=states["blocked"], whole=len(parts), used=len(parts) - sum(parts),
    )  # fmt: skip


def _state(one: PoolDevice, usage: DeviceUsage, left: Mapping[tuple[str, str], int]) -> str:
    if usage.used(one.id):
        return "allocated"
    if barred(one.device, ()):
        return "tainted"
    takes = (((name, counter), amount) for name, counters in one.device.consumes for counter, amount in counters)
    return "blocked" if any(amount > left.get(counter, 0) for counter, amount in takes) else "free"


class Census:
    """Of all nodes. A pool is counted once, however many nodes see it, and anew when it or its use changed."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._known: WeakKeyDictionary[DevicePool, tuple[int, DeviceCounts]] = WeakKeyDictionary()
        """As of which stamp of its use; until the inventory forgets the pool."""

    def on(self, node: NamedNode) -> list[tuple[PoolId, DeviceCounts]]:
        """What one node reaches, by driver and pool."""
        return [(pool.id, self._counts(pool)) for pool in self._inventory.of(node).pools]

    def drivers(self, nodes: Sequence[NamedNode]) -> dict[str, DeviceCounts]:
        """Of the whole cluster, by driver. What several nodes reach counts once."""
        if self._inventory.empty:
            return {}
        spread = {pool.id: pool for pool in self._inventory.spread()}
        own = (pool for node in nodes for pool in self._inventory.of(node).pools if pool.id not in spread)
        found: dict[str, Counter[DeviceCounts]] = {}
        for pool in chain(own, spread.values()):
            found.setdefault(pool.id[0], Counter())[self._counts(pool)] += 1
        return {driver: summed(list(times.items())) for driver, times in sorted(found.items())}

    def shares(self, nodes: Sequence[NamedNode]) -> dict[str, list[float | None]]:
        """By driver of each node how much of what it reaches is in use; None: it reaches nothing of it."""
        if self._inventory.empty:
            return {}
        found: dict[str, list[float | None]] = {}
        for place, node in enumerate(nodes):
            sums: dict[str, tuple[int, float]] = {}
            for pool in self._inventory.of(node).pools:
                counts = self._counts(pool)
                if counts.devices:
                    whole, used = sums.get(pool.id[0], (0, 0.0))
                    sums[pool.id[0]] = whole + counts.whole, used + counts.used
            for driver, (whole, used) in sums.items():
                found.setdefault(driver, [None] * len(nodes))[place] = round(used / whole, 3) if whole else 0.0
        return dict(sorted(found.items()))

    def _counts(self, pool: DevicePool) -> DeviceCounts:
        usage = self._inventory.usage
        known, stamp = self._known.get(pool), usage.stamps[pool.id]
        if known is None or known[0] != stamp:
            known = self._known[pool] = stamp, counts_of(pool, usage)
        return known[1]
