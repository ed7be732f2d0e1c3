"""What was requested of each node a moment ago, to hold measurements against, which tell of a moment ago. Pure.

    rows whose accounting changed --> per node, what was requested from when on --at--> what a measurement shows

Only while a policy looks at use: else nothing here runs. Of what came before anybody looked nothing is known: a
measurement of then is taken to show all that stood there when somebody began to, or stands there now.
"""

from __future__ import annotations

from collections import deque

from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable
from shared.wire.bounds import MAX_COUNT

KEPT_S = 120.0
"""So far back it is known; a part of a measurement is no older than a minute beside its node's newest."""
TOGETHER_S = 1.0
"""Changes of one node within so long are one, and so long a pod takes from its binding until it shows in readings. It
bounds what is kept of a node, however many pods come and go there."""

_Then = tuple[float, int, int]
"""From when on, and how many milli-cores and bytes are requested."""


class RequestedThen:
    """``follow`` each turn; ``stop`` when no policy looks any more."""

    def __init__(self) -> None:
        self._stamp = self._static = -1
        self._of: dict[str, deque[_Then]] = {}

    def follow(self, table: NodeTable, now_s: float) -> None:
        """Take over what is requested now."""
        if self._static != table.static_stamp:
            self._static = table.static_stamp
            for name in [name for name in self._of if name not in table.row_of]:
                del self._of[name]
        for row in table.changed_since(self._stamp).tolist():
            if name := table.names[row]:
                self._note(self._of.setdefault(name, deque()), now_s, *_requested(table, row))
        self._stamp = table.clock

    def stop(self) -> None:
        """Forget everything."""
        self._of.clear()
        self._stamp = self._static = -1

    def at(self, table: NodeTable, row: int, at_s: float) -> tuple[int, int]:
        """(milli-cores, bytes) that the pods request which a measurement of that moment shows."""
        found = _requested(table, row)
        for since_s, *then in reversed(self._of.get(table.names[row], ())):
            found = then[0], then[1]
            if since_s + TOGETHER_S <= at_s:
                break
        return found

    @staticmethod
    def _note(kept: deque[_Then], now_s: float, cpu: int, memory: int) -> None:
        if kept and kept[-1][1:] == (cpu, memory):
            return
        if kept and len(kept) > 1 and now_s - kept[-1][0] < TOGETHER_S:
            kept[-1] = (kept[-1][0], cpu, memory)
        else:
            kept.append((now_s, cpu, memory))
        while len(kept) > 1 and kept[1][0] <= now_s - KEPT_S:
            kept.popleft()


def _requested(table: NodeTable, row: int) -> tuple[int, int]:
    cpu, memory = int(table.requested[CPU_COLUMN, row]), int(table.requested[MEMORY_COLUMN, row])
    return min(max(0, cpu), MAX_COUNT), min(max(0, memory), MAX_COUNT)  # else the wire refuses the offer
