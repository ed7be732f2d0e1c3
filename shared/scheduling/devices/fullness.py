"""Which part of a device is still free.

Of one that claims share, what they left of its capacity; of partitions, what is left of the counters of the device that
they are parts of; of any other, all or nothing.
"""

from __future__ import annotations

from shared.model.devices import Device
from shared.model.gpu_shares import DriverShare
from shared.scheduling.devices.capacity import Amounts
from shared.scheduling.devices.pools import DevicePool, PoolDevice, offered_now
from shared.scheduling.devices.usage import DeviceUsage

PLAIN = DriverShare()


def left_of_sets(pool: DevicePool, usage: DeviceUsage) -> dict[str, float]:
    """Of each set of counters of a pool, which part of the scarcest counter is left."""
    if pool.free is None:
        return {}
    left = offered_now(pool, (one for one in (*pool.devices, *pool.others) if usage.used(one.id))) or {}
    found: dict[str, float] = {}
    for (name, counter), amount in pool.free.items():
        if amount > 0:
            found[name] = min(found.get(name, 1.0), max(0, left[name, counter]) / amount)
    return found


def left_of_device(one: PoolDevice, usage: DeviceUsage, sets: dict[str, float], share: DriverShare = PLAIN) -> float:
    """Of one device; of a partition, of the devices that it is a part of."""
    if one.device.consumes:
        return min(sets.get(name, 0.0) for name, _ in one.device.consumes)
    if not one.device.shareable:
        return 0.0 if usage.used(one.id) else 1.0
    used = usage.consumed.get(one.id)
    return 1.0 - min(1.0, part_of(one.device, tuple(used.items()), share)) if used is not None else 1.0


def part_of(device: Device, amounts: Amounts, share: DriverShare = PLAIN) -> float:
    """Which part of a device such amounts are: of the capacity that is meant, or of the one that is taken most of."""
    values = {name: capacity.value for name, capacity in device.capacity if _meant(name, share)}
    return max((amount / values[name] for name, amount in amounts if values.get(name)), default=0.0)


def _meant(name: str, share: DriverShare) -> bool:
    return share.capacity in ("", name, name.rpartition("/")[2])
