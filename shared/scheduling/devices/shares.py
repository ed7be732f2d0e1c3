"""Devices of any driver as GPUs of which shares are free, and claims as requests for them (``model/gpu_shares.py``).

A device that is whole or given has all of itself free or nothing; of one that several claims share there is what they
left of its capacity; partitions of one device are that device, of which there is what they left of its counters. What a
claim comes to is asked of the first device that its requests may be given: classes and selectors say which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shared.model.devices import DeviceAsk, DeviceClaim
from shared.model.gpu_shares import DriverShare, GpuShares, whole_or_share
from shared.model.resources import MILLI_PER_DEVICE
from shared.scheduling.devices.capacity import Amounts
from shared.scheduling.devices.fullness import left_of_device, left_of_sets, part_of
from shared.scheduling.devices.pools import DevicePool
from shared.scheduling.devices.search.outcomes import SearchEnded
from shared.scheduling.devices.search.wanted import NodeOffer, Place
from shared.scheduling.devices.usage import DeviceUsage


def free_shares(pools: Sequence[DevicePool], usage: DeviceUsage, shares: GpuShares) -> list[int]:
    """What is free of each device of a node, in thousandths; devices in the order of pools and slices."""
    found: list[int] = []
    for pool in pools:
        share = shares.driver(pool.id[0])
        if share.milli and pool.usable:
            for part in free_parts(pool, usage, share):
                found += _pieces(part, share.milli)
    return found


def free_parts(pool: DevicePool, usage: DeviceUsage, share: DriverShare) -> list[float]:
    """0 to 1, of each device that is no partition of another."""
    sets = left_of_sets(pool, usage)
    parts: list[float] = []
    seen: set[str] = set()
    for one in pool.devices:
        names = {name for name, _ in one.device.consumes}
        parts += [sets.get(name, 0.0) for name in sorted(names - seen)]
        seen |= names
        if not names:
            parts.append(left_of_device(one, usage, sets, share))
    return parts


def _pieces(part: float, milli: int) -> list[int]:
    """A device of so many thousandths, as devices of 1000 at most each."""
    free = int(part * milli + 1e-6)
    found = []
    for start in range(0, milli, MILLI_PER_DEVICE):
        found.append(min(MILLI_PER_DEVICE, milli - start, free))
        free -= found[-1]
    return found


def asked_shares(node: NodeOffer, claims: Iterable[DeviceClaim], shares: GpuShares) -> tuple[int, int]:
    """(devices, thousandths of each) that claims without devices ask for, by the devices of one node that has such;
    (0, 0): none of them is a GPU, or the node has none that they may be given."""
    total = 0
    for claim in claims:
        if claim.allocation is None:
            for request in claim.requests:
                total += next(filter(None, (_asked(node, request.name, ask, shares) for ask in request.asks)), 0)
    return whole_or_share(total)


def _asked(node: NodeOffer, request: str, ask: DeviceAsk, shares: GpuShares) -> int:
    """Thousandths of one request, or of one alternative; 0: no device of the node is one for it."""
    try:
        wanted = node.look_up(0, request, ask, alternative=False)
        places = [(p, d) for p, pool in enumerate(node.pools) if pool.usable for d in range(len(pool.devices))]
        place = next((place for place in places if node.selectable(0, wanted, place)), None)
    except SearchEnded:
        return 0
    if place is None:
        return 0
    share = shares.driver(node.pools[place[0]].id[0])
    count = len(wanted.everything) if wanted.everything is not None else ask.count
    return count * int(_part(node, place, node.amounts(wanted, place), share) * share.milli + 0.999)


def _part(node: NodeOffer, place: Place, amounts: Amounts | None, share: DriverShare) -> float:
    pool = node.pools[place[0]]
    device = pool.devices[place[1]].device
    if device.shareable:
        return min(1.0, part_of(device, amounts or (), share))
    whole: Mapping[tuple[str, str], int] = pool.free or {}
    parts = [
        amount / whole[name, counter]
        for name, counters in device.consumes
        for counter, amount in counters
        if whole.get((name, counter))
    ]
    return min(1.0, max(parts)) if parts else 1.0
