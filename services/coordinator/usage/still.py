"""Readings that stand still: a node's memory and CPU in use are never the same for a minute, so whoever tells so reads
a copy. Pure.

What stands still is left out, as if nobody had told it, and named; it counts again as soon as it moves.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

STILL_S = 60.0
STILL_READINGS = 5
"""Both so long and so many messages."""


@dataclass(slots=True)
class _Seen:
    figures: tuple[int, ...]
    since_s: float
    times: int = 0


class Still:
    """Of all nodes that one source tells of."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, node: str, figures: Sequence[int], now_s: float) -> float:
        """For how many seconds the node's figures, cpu and memory first, stand still; 0: they do not, or one of these
        two is below 0, not known."""
        told = tuple(figures)
        if min(told[:2]) < 0:
            self._seen.pop(node, None)
            return 0.0
        seen = self._seen.get(node)
        if seen is None or seen.figures != told:
            self._seen[node] = _Seen(told, now_s)
            return 0.0
        seen.times += 1
        still_s = now_s - seen.since_s
        return 0.0 if still_s < STILL_S or seen.times < STILL_READINGS else still_s

    def keep(self, nodes: Container[str]) -> None:
        """Leave out all others."""
        self._seen = {node: seen for node, seen in self._seen.items() if node in nodes}


def still_line(parts: str, still_s: float) -> str:
    """For people."""
    return f"{parts}: the same for {still_s:.0f} s; they count again when they change"
