"""When somebody is to be looked at again: one time per key, the earliest that was asked for."""

from __future__ import annotations

import heapq

FORGOTTEN_KEPT = 64
"""Times of those that were forgotten, which are not swept out yet."""


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

    def take(self, now: float, most: int | None = None) -> list[str]:
        """Those whose time has come, in order, and so many at most; they have none any more."""
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now and (most is None or len(found) < most):
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        return found

    def forget(self, key: str) -> None:
        """It has no time any more; an unknown one is fine."""
        if self._at.pop(key, None) is not None and len(self._heap) > 2 * len(self._at) + FORGOTTEN_KEPT:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def __contains__(self, key: str) -> bool:
        """Whether its time is still to come."""
        return key in self._at

    def next_at(self) -> float | None:
        """When the next one's time comes."""
        return self._heap[0][0] if self._heap else None
