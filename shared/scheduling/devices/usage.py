"""Which devices are in use, and how much of those that are shared: from the allocations of all claims.

Devices given with admin access count as free. Every change bumps the stamp of the device's pool, so that what was
reckoned from it is reckoned again, and nothing else is. ``count`` takes any allocation, whoever knows of it: the API
server's, or one that is assumed.
"""

from __future__ import annotations

from collections import Counter

from shared.model.devices import Allocation

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""

PoolId = tuple[str, str]
"""(driver, pool)."""


class DeviceUsage:
    """``exclusive``: how many hold a device for themselves. ``shares``: how many share it. ``consumed``: what those
    take, by capacity; a device is in it where at least one share says how much."""

    def __init__(self) -> None:
        self.exclusive: Counter[DeviceId] = Counter()
        self.shares: Counter[DeviceId] = Counter()
        self.consumed: dict[DeviceId, Counter[str]] = {}
        self.stamps: Counter[PoolId] = Counter()
        self._telling: Counter[DeviceId] = Counter()

    def count(self, allocation: Allocation, sign: int = 1) -> set[PoolId]:
        """The allocation is made (1) or given back (-1); the pools that it touches."""
        pools: set[PoolId] = set()
        for result in allocation.results:
            if result.admin:
                continue
            pools.add((result.driver, result.pool))
            if not result.share:
                _add(self.exclusive, result.id, sign)
                continue
            _add(self.shares, result.id, sign)
            if result.consumed:
                _add(self._telling, result.id, sign)
                total = self.consumed.setdefault(result.id, Counter())
                for name, amount in result.consumed:
                    total[name] += sign * amount
                if result.id not in self._telling:
                    del self.consumed[result.id]
        for pool in pools:
            self.stamps[pool] += 1
        return pools

    def add(self, other: DeviceUsage, device: DeviceId) -> None:
        """What another has of a device is in use here too."""
        for mine, more in ((self.exclusive, other.exclusive), (self.shares, other.shares)):
            if device in more:
                mine[device] += more[device]
        if device in other.consumed:
            self.consumed.setdefault(device, Counter()).update(other.consumed[device])

    def used(self, device: DeviceId) -> bool:
        """Whether anybody has it, alone or shared."""
        return device in self.exclusive or device in self.shares

    def of(self, device: DeviceId) -> object:
        """All that is known of its use; equal where no rule can tell two devices apart by it."""
        consumed = tuple(sorted(self.consumed[device].items())) if device in self.consumed else None
        return device in self.exclusive, device in self.shares, consumed


def gives_back(before: Allocation, after: Allocation | None) -> bool:
    """Whether a claim that had ``before`` and has ``after`` uses less of any device. Who shares a device may have
    another name in each: what counts is how many share it and what they take."""
    had, has = DeviceUsage(), DeviceUsage()
    had.count(before)
    if after is not None:
        has.count(after)
    if had.exclusive - has.exclusive or had.shares - has.shares:
        return True
    return any(amounts - has.consumed.get(device, Counter()) for device, amounts in had.consumed.items())


def _add(counter: Counter[DeviceId], device: DeviceId, sign: int) -> None:
    counter[device] += sign
    if counter[device] <= 0:
        del counter[device]
