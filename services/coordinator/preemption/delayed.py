"""For whom nobody is asked to leave yet, so that an autoscaler may add a node first (``preemption_delay``).

    parked, has waited for less than its priority's delay --told so--> delayed --the time is over--> woken, tried again

The time counts from when the unit was first seen, without what its gang or a quota held it: for a gang from when its
first member might have been tried. A new leader counts again from when it began. What a queue takes back is its own,
and waits for nothing.
"""

from __future__ import annotations

from services.coordinator.core.due import Due
from services.coordinator.core.state import CoordinatorState

AT_ONCE = 256
"""Units that are tried again in one turn: those that came together are over together."""


class Delayed:
    """One term's, by a lone pod's uid, or a pod group's key."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._due = Due()

    @property
    def wanted(self) -> bool:
        """Whether anybody has to wait."""
        return bool(self._state.settings.preemption_delays.steps)

    def __contains__(self, unit: str) -> bool:
        """Whether it was delayed, and its time is still to come."""
        return unit in self._due

    def forget(self, unit: str) -> None:
        """It is placed or gone, or need not wait; an unknown one is fine."""
        self._due.forget(unit)

    def until_over(self, unit: str) -> str:
        """Why nobody is asked to leave yet for one that is parked, which is tried again once that is over; "" where
        somebody may be."""
        state = self._state
        queued, entry = state.queue.groups.get(unit), state.queue.entries.get(unit)
        entries = list(queued.members.values()) if queued is not None else [entry] if entry is not None else []
        if not self.wanted or not entries or any(one.pod.nominated_node for one in entries):
            return ""  # none, or it has been its turn, perhaps with a leader before
        priority = queued.priority if queued is not None else entries[0].pod.priority
        delay_s = state.settings.preemption_delays.of(priority)
        over_at = max(state.started_at, min(one.first_seen + one.held_s for one in entries)) + delay_s
        if state.now >= over_at:
            return ""
        self._due.later(unit, over_at)
        return f"nobody is evicted before it has waited {delay_s:g}s, in which a node may be added."

    def step(self) -> None:
        """Those whose time is over are tried again, so many at once."""
        state = self._state
        for unit in self._due.take(state.now, AT_ONCE):
            queued = state.queue.groups.get(unit)
            state.queue.wake(next(iter(queued.members)) if queued is not None else unit, state.now)

    def wake_at(self) -> float | None:
        """When the next one's is."""
        return self._due.next_at()
