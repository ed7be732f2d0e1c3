"""Sets of zones as bits, in the kubelet's order (``topologymanager/bitmask``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from itertools import combinations

Narrower = Callable[[int], tuple[object, ...]]
"""A key: of two masks the one with the smaller key is the better."""


@lru_cache(maxsize=256)
def masks_of(zones: int) -> tuple[int, ...]:
    """All sets of the zones in ``zones``, smaller ones first, none left out but the empty one."""
    bits = [1 << index for index in range(zones.bit_length()) if zones >> index & 1]
    return tuple(sum(chosen) for size in range(1, len(bits) + 1) for chosen in combinations(bits, size))


@lru_cache(maxsize=4096)
def members(mask: int) -> tuple[int, ...]:
    """The positions in ``mask``, ascending."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)


def mask_of(positions: Iterable[int]) -> int:
    """The set of these positions."""
    return reduce(lambda mask, index: mask | 1 << index, positions, 0)


def narrowest(mask: int) -> tuple[object, ...]:
    """Fewer zones first, then lower ones (``IsNarrowerThan``)."""
    return (mask.bit_count(), mask)


def closest(distances: tuple[tuple[int, ...], ...]) -> Narrower:
    """Fewer zones first, then the shorter mean distance, then lower ones (``prefer-closest-numa-nodes``)."""

    def key(mask: int) -> tuple[object, ...]:
        inside = members(mask)
        mean = sum(distances[one][other] for one in inside for other in inside) / len(inside) ** 2
        return (len(inside), mean, mask)

    return key
