"""When somebody is to be looked at again: one time per key, the earliest that was asked for."""

from __future__ import annotations

import heapq


class Due:
    """Times by key."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def later(self, key: str, at: float) -> None:
        """At that time, or sooner where that was asked for before."""
        known = self._at.get(key)
        if known is None or at < known:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def take(self, now: float) -> list[str]:
        """Those whose time has come, in order; they have none any more."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        return found

    def __contains__(self, key: str) -> bool:
        """Whether its time is still to come."""
        return key in self._at

    def next_at(self) -> float | None:
        """When the next one's time comes."""
        return self._heap[0][0] if self._heap else None
