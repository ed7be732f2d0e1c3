"""Readings that stand still: a node's memory and CPU in use are never the same for a minute, so whoever tells so reads
a copy. Pure.

What stands still is left out, as if nobody had told it, and named; it counts again as soon as it moves.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from shared.wire.readings import NodeReading

STILL_S = 60.0
STILL_READINGS = 5
"""Both so long and so many messages."""

_Figures = tuple[int, int, int, int]


@dataclass(slots=True)
class _Seen:
    figures: _Figures
    since_s: float
    times: int = 0


class Still:
    """Of all nodes; of a reading without cpu and memory nothing is said."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, reading: NodeReading, now_s: float) -> str:
        """A line where the node's readings stand still, else ""."""
        node = reading.node
        figures = (reading.cpu_millis, reading.memory_bytes, reading.disk_bytes_s, reading.network_bytes_s)
        if reading.cpu_millis < 0 or reading.memory_bytes < 0:
            self._seen.pop(node, None)
            return ""
        seen = self._seen.get(node)
        if seen is None or seen.figures != figures:
            self._seen[node] = _Seen(figures, now_s)
            return ""
        seen.times += 1
        still_s = now_s - seen.since_s
        if still_s < STILL_S or seen.times < STILL_READINGS:
            return ""
        return f"cpu, memory, disk, network: the same for {still_s:.0f} s; they count again when they change"

    def keep(self, nodes: Container[str]) -> None:
        """Leave out all others."""
        self._seen = {node: seen for node, seen in self._seen.items() if node in nodes}
