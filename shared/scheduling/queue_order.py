"""In which order pending units are taken while no Queue objects say who goes, and whose backoff ends when.

Three heaps. An item is good while its unit still is in that place at that version: a unit that moves leaves its items
behind, which are passed over when they come up.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry, QueuedGroup

Unit = Entry | QueuedGroup

Line = tuple[int, int, int, str]
"""Priority (highest first), arrival, version and name of a unit."""


class PriorityOrder:
    """By priority, then arrival. ``entries`` and ``groups``: the queue's, by uid and by key."""

    def __init__(self, entries: Mapping[str, Entry], groups: Mapping[str, QueuedGroup]) -> None:
        self._entries = entries
        self._groups = groups
        self._active: list[Line] = []
        self._early: list[Line] = []
        self.backing_off: list[tuple[float, int, str]] = []
        """When a backoff ends, first first; what is not there any more included."""

    def line_up(self, unit: Unit) -> None:
        """It is active."""
        heapq.heappush(self._active, _line(unit))

    def go_early(self, unit: Unit) -> None:
        """Its backoff goes on, and it is taken before the end once nobody of its priority or above is active."""
        heapq.heappush(self._early, _line(unit))

    def back_off(self, unit: Unit) -> None:
        """It is active again when its backoff ends."""
        heapq.heappush(self.backing_off, (unit.ready_at, unit.version, name_of(unit)))

    def take(self) -> Unit | None:
        """The next unit, which stands in no line any more."""
        active = self._top(self._active, Place.ACTIVE)
        early = self._top(self._early, Place.BACKOFF) if self._early else None
        if early is None or (active is not None and _rank(self._early[0]) >= _rank(self._active[0])):
            if active is not None:
                heapq.heappop(self._active)
            return active
        heapq.heappop(self._early)
        return early

    def has_any(self) -> bool:
        """Whether ``take`` would give anything."""
        if self._active and self._top(self._active, Place.ACTIVE) is not None:
            return True
        return bool(self._early) and self._top(self._early, Place.BACKOFF) is not None

    def ended(self, now: float) -> Iterator[Unit]:
        """Units whose backoff is over."""
        while self.backing_off and self.backing_off[0][0] <= now:
            _, version, name = heapq.heappop(self.backing_off)
            unit = self._entries.get(name) or self._groups.get(name)
            if unit is not None and unit.version == version and unit.place is Place.BACKOFF:
                yield unit

    def next_ready_at(self) -> float | None:
        """When the next backoff ends; None when nothing backs off."""
        while self.backing_off:
            at, version, name = self.backing_off[0]
            unit = self._entries.get(name) or self._groups.get(name)
            if unit is not None and unit.version == version and unit.place is Place.BACKOFF:
                return at
            heapq.heappop(self.backing_off)
        return None

    def forget_active(self) -> None:
        """Somebody else says the order from now on, or it is told anew."""
        self._active.clear()

    def standing(self) -> dict[Place, set[tuple[int, str]]]:
        """Version and name of all that is in line, by place; what is not there any more included."""
        active = {(version, name) for _, _, version, name in self._active}
        return {Place.ACTIVE: active, Place.BACKOFF: {(version, name) for _, version, name in self.backing_off}}

    def _top(self, heap: list[Line], place: Place) -> Unit | None:
        """The first unit of a heap that still is where it says."""
        while heap:
            _, _, version, name = heap[0]
            unit = self._entries.get(name) or self._groups.get(name)  # see ``name_of``
            if unit is not None and unit.version == version and unit.place is place:
                return unit
            heapq.heappop(heap)
        return None


def _line(unit: Unit) -> Line:
    if isinstance(unit, Entry):
        return -unit.pod.priority, unit.arrival, unit.version, unit.pod.uid
    return -unit.priority, unit.arrival, unit.version, unit.key


def name_of(unit: Unit) -> str:
    """A pod's uid, a group's key: a key has a colon, and a uid none."""
    return unit.pod.uid if isinstance(unit, Entry) else unit.key


def _rank(line: Line) -> tuple[int, bool]:
    """By what a unit leaves its backoff while others are active: its priority, and whether it goes ahead."""
    return line[0], line[1] >= 0
