"""Hints of the managers, and the one mask that is made of them (``topologymanager/policy.go``).

A manager names, for a resource, every mask that has enough free, and of each whether it is *preferred*: as small as
any that could hold the request were the node empty. None in place of hints: it does not care. An empty list: it
cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from shared.model.node_topology import TopologyPolicy
from shared.scheduling.numa.masks import Narrower, masks_of, members


class Hint(Struct, frozen=True):
    """``mask`` None: any zone."""

    mask: int | None
    preferred: bool


Hints = Mapping[str, Sequence[Hint] | None]
"""By resource."""


@dataclass(frozen=True, slots=True)
class ZoneAmounts:
    """Of one resource by position of the zone. ``held`` is what could be there at most: what ``minimal`` counts."""

    free: Sequence[int]
    held: Sequence[int]

    def of(self, mask: int) -> int:
        """How much is free in a mask."""
        return sum(self.free[index] for index in members(mask))

    def largest(self, mask: int) -> int:
        """How much a mask holds when nothing is taken."""
        return sum(self.held[index] for index in members(mask))


def countable_hints(
    request: int, amounts: ZoneAmounts, zones: int, passed_on: Sequence[int] = (), *, preferred_only: bool = False
) -> list[Hint]:
    """Of CPUs or of devices of one kind. ``zones``: those that have any; ``passed_on``: by position, what an init
    container of the pod leaves to later ones: a mask that leaves any of it out is none. ``preferred_only``: no other
    hint can make a difference."""
    smallest, found = zones.bit_count(), list[int]()
    kept = [index for index, count in enumerate(passed_on) if count]
    for mask in masks_of(zones):
        if mask.bit_count() < smallest and amounts.largest(mask) >= request:
            smallest = mask.bit_count()
        if preferred_only and mask.bit_count() > smallest:
            break
        if any(not mask >> index & 1 for index in kept):
            continue
        if amounts.of(mask) + sum(passed_on) >= request:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == smallest) for mask in found]


def merged(
    policy: TopologyPolicy, all_hints: Iterable[Hints], every_zone: int, better: Narrower
) -> tuple[int | None, bool]:
    """(mask or None for any, whether it is preferred by all). Restricted and single-numa-node admit preferred ones."""
    lists = [hints for of_manager in all_hints for hints in of_manager.values() if hints is not None]
    single = policy is TopologyPolicy.SINGLE_NUMA_NODE
    if single:
        lists = [[one for one in hints if one.preferred and one.mask and one.mask.bit_count() == 1] for hints in lists]
    possible = all(lists)
    if single and not possible:
        return None, False
    mask, preferred = _best([hints for hints in lists if hints], every_zone, better, possible)
    return (None if single and mask == every_zone else mask), preferred


def _best(lists: Sequence[Sequence[Hint]], every_zone: int, better: Narrower, possible: bool) -> tuple[int, bool]:
    """One hint of each list: the mask that all of them have in common. Preferred where all name the same mask and
    prefer it. ``possible``: no manager said that it cannot be."""
    if possible:
        agreed = (
            {every_zone}
            if not lists
            else set.intersection(*({one.mask for one in hints if one.preferred and one.mask} for hints in lists))
        )
        if agreed:
            return min(agreed, key=better), True
    common = {every_zone}
    for hints in lists:
        common = {mask & one.mask for mask in common for one in hints if one.mask and mask & one.mask}
    if not common:
        return every_zone, False
    enough = max((min(one.mask.bit_count() for one in hints if one.mask) for hints in lists), default=0)
    return min(common, key=lambda mask: (*_from_enough(mask.bit_count(), enough), better(mask))), False


def _from_enough(count: int, enough: int) -> tuple[int, int]:
    """Among masks that nobody prefers: as many zones as the greediest resource needs, else as near to it from below,
    else any larger one."""
    if count == enough:
        return 0, 0
    return (1, -count) if count < enough else (2, 0)
