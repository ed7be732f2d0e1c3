"""Which gangs have waited for room for too long, and whose turn it is to have nodes kept for them.

    tried in vain --``gang_patience_s``--> over --the most important, then the oldest--> its turn --tried in vain--> ...

The pause doubles with each turn of a group in which nobody ended: what never ends is not waited for (ADR 0025).
"""

from __future__ import annotations

from services.coordinator.core.due import Due
from services.coordinator.core.state import CoordinatorState

MOST_DOUBLINGS = 6
"""Of the pause: with a minute of patience it is an hour at most."""


class Patience:
    """Groups that find no room."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self._in_vain: dict[str, int] = {}
        """By group that waits, its turns in a row in which nobody ended."""
        self._due = Due()
        self._over: dict[str, None] = {}

    def waits(self, key: str) -> None:
        """The group was tried in vain."""
        patience_s = self._state.settings.gang_patience_s
        if patience_s and key not in self._over:
            in_vain = self._in_vain.setdefault(key, 0)
            self._due.later(key, self._state.now + patience_s * 2.0 ** min(in_vain, MOST_DOUBLINGS))

    def later(self, key: str, after_s: float) -> None:
        """Not now: its turn comes after so long at the earliest."""
        self._due.later(key, self._state.now + after_s)

    def over(self, key: str, *, helped: bool) -> None:
        """The group's turn is over; ``helped``: somebody ended in it."""
        if key in self._in_vain:
            self._in_vain[key] = 0 if helped else self._in_vain[key] + 1

    def forget(self, key: str) -> None:
        """The group does not wait any more; an unknown one is fine."""
        self._in_vain.pop(key, None)
        self._over.pop(key, None)

    def next(self) -> str:
        """The group whose turn it is, "" where there is none; its next comes after it was tried in vain again."""
        groups, over = self._state.queue.groups, self._over
        over.update((key, None) for key in self._due.take(self._state.now) if key in self._in_vain)
        if not self._state.settings.gang_patience_s:
            over.clear()
        waiting = [(-groups[key].priority, groups[key].arrival, key) for key in over if key in groups]
        if not waiting:
            over.clear()
            return ""
        first = min(waiting)[2]
        if (turns := self._state.queue.turns) is not None:
            first = turns.foremost(groups[key] for _, _, key in waiting)
        del over[first]
        return first

    def wake_at(self) -> float | None:
        """When a group has waited for too long; some may have already."""
        return self._state.now if self._over else self._due.next_at()
