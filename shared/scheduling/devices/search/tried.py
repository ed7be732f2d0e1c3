"""Devices given in thought: to members of a group that are placed on a fork of the accounting, each beside those before
it. What lives is read and never changed, so that a trial may be given up at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from shared.model.devices import Allocation, DeviceClaim
from shared.scheduling.devices.pools import DevicePool
from shared.scheduling.devices.usage import DeviceUsage


class TriedDevices:
    """``given``: by claim, what it was given and to how many members; of several that share one the first decides."""

    def __init__(self) -> None:
        self.given: dict[str, tuple[Allocation, int]] = {}
        self._usage = DeviceUsage()
        self._keys: dict[str, tuple[str, ...]] = {}

    def copy(self) -> TriedDevices:
        """One that goes on from here."""
        other = TriedDevices()
        other.given, other._keys = dict(self.given), dict(self._keys)
        for allocation, _ in self.given.values():
            other._usage.count(allocation)
        return other

    def give(self, uid: str, claims: Iterable[str], allocations: dict[str, Allocation]) -> None:
        """A member is placed. ``claims``: those of its claims that have nothing but in thought."""
        keys = []
        for key in claims:
            known = self.given.get(key)
            allocation = allocations.get(key) if known is None else known[0]
            if allocation is None:
                continue
            if known is None:
                self._usage.count(allocation)
            self.given[key] = allocation, 1 + (known[1] if known is not None else 0)
            keys.append(key)
        self._keys[uid] = tuple(keys)

    def take_back(self, uid: str) -> None:
        """The member is placed no more."""
        for key in self._keys.pop(uid, ()):
            allocation, holders = self.given.pop(key)
            if holders > 1:
                self.given[key] = allocation, holders - 1
            else:
                self._usage.count(allocation, -1)

    def shown_in(self, claim: DeviceClaim, pod_uid: str) -> DeviceClaim:
        """The claim as a pod finds it that is still to be placed: its own has nothing yet, as those of its likes."""
        known = self.given.get(claim.key)
        if known is None or claim.owner == pod_uid or claim.allocation is not None:
            return claim
        return replace(claim, allocation=known[0])

    def touches(self, pools: Sequence[DevicePool]) -> tuple[object, ...]:
        """What was given of these pools: nothing of most."""
        stamps = self._usage.stamps
        return tuple((pool.id, stamps[pool.id]) for pool in pools if pool.id in stamps) if stamps else ()

    def beside(self, usage: DeviceUsage, pools: Sequence[DevicePool]) -> DeviceUsage:
        """What is in use of these pools, with what was given here."""
        both = DeviceUsage()
        for pool in pools:
            for one in (*pool.devices, *pool.others):
                for part in (usage, self._usage):
                    both.add(part, one.id)
        return both

    @property
    def pools(self) -> Iterable[tuple[str, str]]:
        """Those of which something was given."""
        return self._usage.stamps
