"""What was requested of each node a moment ago, to hold measurements against, which tell of a moment ago. Pure.

    rows whose accounting changed --> per node, what was requested from when on --at--> what a measurement shows

Only while a policy looks at use: else nothing here runs. Of what came before anybody looked nothing is known: a
measurement of then is taken to show all that stood there when somebody began to, or stands there now.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, NodeTable
from shared.wire.bounds import MAX_COUNT

KEPT_S = 120.0
"""So far back it is known; a part of a measurement is no older than a minute beside its node's newest."""
SHOWN_S = 30.0
"""So long a pod takes from its binding until readings show all that it uses: it starts, its image is pulled, and a
reading is a mean over its last seconds. Until then it counts by its requests on top, twice rather than not at all."""
TOGETHER_S = 1.0
"""Changes of one node within so long are one. It bounds what is kept of a node, however many pods come and go there."""


class _Then(NamedTuple):
    """From when on so many milli-cores and bytes are requested, and what has left up to then since it is followed."""

    since_s: float
    cpu: int
    memory: int
    left_cpu: int = 0
    left_memory: int = 0


class RequestedThen:
    """``follow`` each turn; ``stop`` when no policy looks any more. ``speed``: pods live so many seconds in one."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self._shown_s = SHOWN_S / speed
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
        """(milli-cores, bytes) that the pods request, plainly or of what is lent, which a measurement of that moment
        shows: those that had been there for ``SHOWN_S`` and had not left."""
        kept = self._of.get(table.names[row])
        if not kept:
            return _requested(table, row)
        shown, newest = (
            next((one for one in reversed(kept) if one.since_s <= until_s), kept[0])
            for until_s in (at_s - self._shown_s, at_s)
        )
        left_cpu, left_memory = newest.left_cpu - shown.left_cpu, newest.left_memory - shown.left_memory
        return max(0, shown.cpu - left_cpu), max(0, shown.memory - left_memory)

    @staticmethod
    def _note(kept: deque[_Then], now_s: float, cpu: int, memory: int) -> None:
        if not kept:
            kept.append(_Then(now_s, cpu, memory))
            return
        last = kept[-1]
        if (last.cpu, last.memory) == (cpu, memory):
            return
        since_s = now_s
        if len(kept) > 1 and now_s - last.since_s < TOGETHER_S:
            since_s = kept.pop().since_s
        left = last.left_cpu + max(0, last.cpu - cpu), last.left_memory + max(0, last.memory - memory)
        kept.append(_Then(since_s, cpu, memory, *left))
        while len(kept) > 1 and kept[1].since_s <= now_s - KEPT_S:
            kept.popleft()


def _requested(table: NodeTable, row: int) -> tuple[int, int]:
    cpu, memory = int(table.requested[CPU_COLUMN, row]), int(table.requested[MEMORY_COLUMN, row])
    lent_cpu, lent_memory = table.lent_columns
    cpu += sum(int(table.requested[column, row]) for column in lent_cpu)
    memory += sum(int(table.requested[column, row]) for column in lent_memory)
    return min(max(0, cpu), MAX_COUNT), min(max(0, memory), MAX_COUNT)  # else the wire refuses the offer
