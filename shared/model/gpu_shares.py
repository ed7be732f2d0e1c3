"""What of a cluster counts as a GPU, and as how much of one: the mapping by which placement policies see devices.

    nvidia.com/gpu=1000, nvidia.com/gpu.shared=250, gpu.example.com:memory=1000, nic.example.com=0

A name with a slash is a resource of a device plugin: one unit is so many thousandths of a device. Any other is a DRA
driver: one of its devices is so many thousandths, of which a claim has the part that it takes of the ``:capacity``
named, of the one it takes most of where none is, or of the counters that partitions share. 0: no GPU. A driver that is
not named has devices of 1000. Values above 1000 are several devices in one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from shared.errors import ConfigError
from shared.model.resources import MILLI_PER_DEVICE

DEFAULT_TEXT = "nvidia.com/gpu=1000, amd.com/gpu=1000"
MOST_MILLI = 64_000
_ENTRY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9._/]*)(?::([A-Za-z0-9._/-]+))?=([0-9]{1,5})", re.ASCII)


class DriverShare(Struct, frozen=True, gc=False):
    """A DRA driver's. ``capacity`` "": the one that is taken most of."""

    milli: int = MILLI_PER_DEVICE
    capacity: str = ""


_PLAIN = DriverShare()


class GpuShares(Struct, frozen=True, gc=False):
    """``resources``: thousandths of one unit, by name; ``drivers``: those that are not as any other."""

    resources: tuple[tuple[str, int], ...] = ()
    drivers: tuple[tuple[str, DriverShare], ...] = ()

    def driver(self, name: str) -> DriverShare:
        """Of one driver."""
        return next((share for known, share in self.drivers if known == name), _PLAIN)

    def asked(self, requests: Sequence[tuple[str, int]]) -> tuple[int, int]:
        """(devices, thousandths of each) that requests for resources come to; (0, 0): no GPU."""
        amounts = dict(requests)
        total = sum(milli * amounts.get(name, 0) for name, milli in self.resources)
        return whole_or_share(total)

    def offered(self, allocatable: Sequence[int], free: Sequence[int]) -> list[int]:
        """What is free of each device, of units there are and units free, in the order of ``resources``. Which device a
        unit is of nobody knows: the free ones are taken for as close together as they can be."""
        found: list[int] = []
        for (_, milli), units, left in zip(self.resources, allocatable, free, strict=True):
            found += _devices(units * milli, max(0, min(left, units)) * milli)
        return found


def _devices(capacity: int, free: int) -> list[int]:
    """So much free of so much capacity, as devices."""
    count = -(-capacity // MILLI_PER_DEVICE)
    whole, rest = divmod(free, MILLI_PER_DEVICE)
    found = [MILLI_PER_DEVICE] * whole + ([rest] if rest else [])
    return found + [0] * (count - len(found))


def whole_or_share(milli: int) -> tuple[int, int]:
    """So many thousandths as a request is counted: a share of one device, or whole devices."""
    if milli < MILLI_PER_DEVICE:
        return int(milli > 0), milli
    return -(-milli // MILLI_PER_DEVICE), MILLI_PER_DEVICE


@lru_cache(maxsize=64)
def parse_gpu_shares(text: str) -> GpuShares:
    """The mapping in a setting. Raises ``ConfigError`` that names the entry."""
    resources: dict[str, int] = {}
    drivers: dict[str, DriverShare] = {}
    for entry in filter(None, (one.strip() for one in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(
                f"gpu_shares: {entry[:80]!r} is not RESOURCE=THOUSANDTHS or DRIVER[:CAPACITY]=THOUSANDTHS; write for"
                " instance nvidia.com/gpu=1000 or gpu.example.com:memory=1000"
            )
        name, capacity, milli = match[1], match[2] or "", int(match[3])
        if milli > MOST_MILLI:
            raise ConfigError(f"gpu_shares: {entry}: more than {MOST_MILLI} thousandths; give 1000 for a whole device")
        if name in resources or name in drivers:
            raise ConfigError(f"gpu_shares: {name} is there twice; drop one of the two")
        if "/" not in name:
            drivers[name] = DriverShare(milli, capacity)
        elif capacity:
            raise ConfigError(f"gpu_shares: {entry}: a resource has no capacities; drop :{capacity}")
        else:
            resources[name] = milli
    counted = tuple((name, milli) for name, milli in resources.items() if milli)
    return GpuShares(counted, tuple(drivers.items()))


DEFAULT = parse_gpu_shares(DEFAULT_TEXT)
