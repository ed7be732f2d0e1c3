"""Partitionable devices: what devices take from counters that their pool shares out among all of them.

A device fits while every counter of its pool, not only those it names, still covers what is taken from it. Source:
kube-scheduler 1.36 ``structured/internal/incubating`` (checkAvailableCounters).
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.model.devices import Device, DeviceSlice

Free = dict[tuple[str, str], int]
"""What is left, by (counter set, counter); below 0 where a slice was changed under its users."""


def offered(slices: Iterable[DeviceSlice]) -> tuple[Free, str]:
    """All counters of a pool, or why there are none that can be used."""
    found: Free = {}
    names: set[str] = set()
    for one in slices:
        for name, counters in one.counter_sets:
            if name in names:
                return {}, f"duplicate counter set name {name}"
            names.add(name)
            found.update({(name, counter): amount for counter, amount in counters})
    return found, ""


def unknown(free: Free, devices: Iterable[Device]) -> str:
    """What some device consumes that its pool does not offer, in words; "" for nothing."""
    sets = {name for name, _ in free}
    for device in devices:
        for name, counters in device.consumes:
            if name not in sets:
                return f"counter set {name} not found"
            for counter, _ in counters:
                if (name, counter) not in free:
                    return f"counter {counter} not found in counter set {name}"
    return ""


def take(free: Free, device: Device, sign: int = 1) -> None:
    """The device is used (1) or given back (-1)."""
    for name, counters in device.consumes:
        for counter, amount in counters:
            key = (name, counter)
            if key in free:
                free[key] -= sign * amount


def overdrawn(free: Free) -> bool:
    """Whether more is taken of some counter than there is."""
    return any(amount < 0 for amount in free.values())
