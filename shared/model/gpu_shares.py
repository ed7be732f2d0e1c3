"""What of a cluster counts as a GPU, and as how much of one: the mapping by which placement policies see devices.

    nvidia.com/gpu=1000, nvidia.com/gpu.shared=250, gpu.example.com:memory=1000, nic.example.com=0

A name with a slash is a resource of a device plugin: one unit is so many thousandths of a device. Any other is a DRA
driver: one of its devices is so many thousandths, of which a claim has the part that it takes of the ``:capacity``
named, of the one it takes most of where none is, or of the counters that partitions share. 0: no GPU. A driver that is
not named has devices of 1000, and an ``nvidia.com/mig-3g.40gb`` that is not is three sevenths of a device. Values above
1000 are several devices in one.
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
_MIG = re.compile(r"nvidia\.com/mig-([1-7])g\.", re.ASCII)
_MIG_SLICES = 7


class GpuShares(Struct, frozen=True, gc=False):
    """``resources``: thousandths of one unit, by name; ``drivers``: those that are not as any other."""

    resources: tuple[tuple[str, int], ...] = ()
    drivers: tuple[tuple[str, DriverShare], ...] = ()

    def driver(self, name: str) -> DriverShare:
        """Of one driver."""
        return next((share for known, share in self.drivers if known == name), _PLAIN)

    def asked(self, requests: Sequence[tuple[str, int]]) -> tuple[int, int]:
        """(devices, thousandths of each) that requests for resources come to; (0, 0): no GPU."""
        return whole_or_share(sum(amount * self.unit(name) for name, amount in requests))

    def unit(self, resource: str) -> int:
        """Thousandths of a device that one unit of a resource is; 0: it is no GPU."""
        for name, milli in self.resources:
            if name == resource:
                return milli
        slices = _MIG.match(resource)
        return MILLI_PER_DEVICE * int(slices[1]) // _MIG_SLICES if slices is not None else 0


def offered(units: Sequence[int], allocatable: Sequence[int], free: Sequence[int]) -> list[int]:
    """What is free of each device, of so many units there are and are free; ``units``: thousandths of each kind. Which
    device a unit is of nobody knows: the free ones are taken for as close together as they can be."""
    found: list[int] = []
    for milli, there, left in zip(units, allocatable, free, strict=True):
        found += _devices(there * milli, max(0, min(left, there)) * milli)
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
    return GpuShares(tuple(resources.items()), tuple(drivers.items()))


DEFAULT = parse_gpu_shares(DEFAULT_TEXT)
