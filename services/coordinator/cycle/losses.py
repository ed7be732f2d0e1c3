"""Units that lost a race: how often in a row, and which nodes the binder refused them on.

A lost race is nobody's fault and is tried again at once; but two sides that disagree on "fits" would do so for ever
(Nomad tracks nodes that are rejected too often for the same reason), so after a few in a row the unit backs off.
"""

from __future__ import annotations

from services.coordinator.core.state import State


class ConflictTracker:
    """By pod uid. Entries end when the pod is placed, parked or gone."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._count: dict[str, int] = {}
        self._avoid: dict[str, dict[str, int]] = {}

    def lost(self, uid: str) -> bool:
        """Count one loss. True when there were too many in a row: back off."""
        count = self._count.get(uid, 0) + 1
        if count >= self._state.settings.max_losses:
            self.won(uid)
            return True
        self._count[uid] = count
        return False

    def won(self, uid: str) -> None:
        """The unit's race is over."""
        self._count.pop(uid, None)
        self._avoid.pop(uid, None)

    def avoid(self, uid: str, node: str) -> None:
        """The binder refused this node for the pod: leave it out until its accounting here changes."""
        row = self._state.cache.table.row_of.get(node)
        if row is not None:
            # the unit's own release is still to come and changes the row once: hence the next generation
            self._avoid.setdefault(uid, {})[node] = int(self._state.cache.table.clock) + 1

    def avoids(self, uid: str, node: str) -> bool:
        """Whether the node was refused and has not changed since."""
        nodes = self._avoid.get(uid)
        if nodes is None or node not in nodes:
            return False
        row = self._state.cache.table.row_of.get(node)
        return row is not None and int(self._state.cache.table.stamp[row]) <= nodes[node]
