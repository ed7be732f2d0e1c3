"""Whether items have room in zones at once, each as a whole in one of them: a small exact search.

What may lie over several zones needs no seat: it takes of what is left over of all of them, whoever sits where, so it
is held against the total alone. First the cheap ways are tried, in a loop over the items: all where they sat before and
who is new where there is room; then the largest first. Only where neither finds a seating all are gone through, depth
first, until one is found, there is none, or ``MOST_TRIES`` seats were tried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.audit.rules import Amounts, add

MOST_TRIES = 4_000
"""Seats tried in one search; source: our own choice, some 40 ms of CPU with eight zones. Few searches need any: the
cheap ways come first."""

Key = Hashable


@dataclass(frozen=True, slots=True)
class ZoneItem:
    """What sits together. ``spread``: more than one zone may give it; ``zone``: the only one that it may be in;
    ``alone``: nobody else is there."""

    key: Key
    amounts: tuple[tuple[str, int], ...]
    spread: bool = False
    zone: int | None = None
    alone: bool = False


def seated(zones: Sequence[Amounts], items: Sequence[ZoneItem], before: dict[Key, int]) -> bool | None:
    """Whether some seating has room for all; None: not found out. ``before``: who sat where when last one was found, by
    the items' keys; the one that is found takes its place."""
    total: Amounts = {}
    for zone in zones:
        add(total, zone)
    wanted: Amounts = {}
    for item in items:
        add(wanted, dict(item.amounts))
    if any(value > total.get(name, 0) for name, value in wanted.items()):
        return False
    apart = [item for item in items if not item.spread]
    there = [item for item in apart if before.get(item.key, len(zones)) < len(zones)]
    if there:
        new = _largest_first([item for item in apart if before.get(item.key, len(zones)) >= len(zones)], total)
        if (found := _first_fit(zones, [*there, *new], before)) is not None:
            return _keep(found, before)
    apart = _largest_first(apart, total)
    if (found := _first_fit(zones, apart, {})) is not None:
        return _keep(found, before)
    fits, found = _Search(zones, apart).run()
    return _keep(found, before) if fits else fits


def _keep(found: Mapping[Key, int], before: dict[Key, int]) -> bool:
    before.clear()
    before.update(found)
    return True


def _largest_first(items: Sequence[ZoneItem], total: Amounts) -> list[ZoneItem]:
    """Those that have no choice first."""

    def size(item: ZoneItem) -> tuple[bool, bool, float]:
        shares = (value / total[name] for name, value in item.amounts if value)
        return item.zone is None, not item.alone, -max(shares, default=0.0)

    return sorted(items, key=size)


class _Zones:
    """What is free in each, and who is there."""

    def __init__(self, zones: Sequence[Amounts]) -> None:
        self.free = [dict(zone) for zone in zones]
        self._there, self._alone = [0] * len(zones), [0] * len(zones)

    def has_room(self, item: ZoneItem, place: int) -> bool:
        if (item.zone is not None and item.zone != place) or self._alone[place] or (item.alone and self._there[place]):
            return False
        free = self.free[place]
        return all(free.get(name, 0) >= value for name, value in item.amounts)

    def put(self, item: ZoneItem, place: int, sign: int = 1) -> None:
        free = self.free[place]
        for name, value in item.amounts:
            free[name] = free.get(name, 0) - sign * value
        self._there[place] += sign
        self._alone[place] += sign * item.alone

    def gist(self, place: int) -> tuple[object, ...]:
        """Zones of the same one are alike for whoever comes next."""
        return tuple(self.free[place].items()), self._there[place] > 0, self._alone[place] > 0


def _first_fit(zones: Sequence[Amounts], items: Sequence[ZoneItem], before: Mapping[Key, int]) -> dict[Key, int] | None:
    state, found = _Zones(zones), dict[Key, int]()
    for item in items:
        first = before.get(item.key)
        order = range(len(zones)) if first is None or first >= len(zones) else (first, *range(len(zones)))
        place = next((place for place in order if state.has_room(item, place)), None)
        if place is None:
            return None
        state.put(item, place)
        found[item.key] = place
    return found


class _Search:
    """Depth first, in the order of the items, by a stack of its own: a node may have more of them than Python lets
    calls lie in each other. Zones that are alike are tried once."""

    def __init__(self, zones: Sequence[Amounts], items: Sequence[ZoneItem]) -> None:
        self._state, self._items, self._places = _Zones(zones), items, range(len(zones))

    def run(self) -> tuple[bool | None, dict[Key, int]]:
        """Whether there is a seating, None: not found out; and the one that was found."""
        items, state, left = self._items, self._state, MOST_TRIES
        if not items:
            return True, {}
        open_ = [self._seats(items[0])]
        seats: list[int] = []
        while open_:
            if len(seats) == len(open_):  # what followed of the last seat is gone through
                state.put(items[len(open_) - 1], seats.pop(), -1)
            place = next(open_[-1], None)
            if place is None:
                open_.pop()
                continue
            left -= 1
            if left < 0:
                return None, {}
            state.put(items[len(open_) - 1], place)
            seats.append(place)
            if len(seats) == len(items):
                return True, {item.key: place for item, place in zip(items, seats, strict=True)}
            open_.append(self._seats(items[len(open_)]))
        return False, {}

    def _seats(self, item: ZoneItem) -> Iterator[int]:
        """Where the item may sit. Whatever is put between two of them is taken away again before the second."""
        tried: set[tuple[object, ...]] = set()
        for place in self._places:
            if self._state.has_room(item, place) and (gist := self._state.gist(place)) not in tried:
                tried.add(gist)
                yield place
