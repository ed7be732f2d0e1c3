"""Which units are to be told that a limit holds them back: each once, and again when that is not so any more.

    held --newly, so many at a time--> told --look_again: another reason, or other figures after a while--> newly

Units of one shape are held alike, so what they were told is kept, and asked anew, per shape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from shared.model.units.queue import UnitOrder
from shared.scheduling.queues.nodes import Blocked, QueueLine, QueueNode, QueueShape, WaitingUnit
from shared.scheduling.queues.ordering import blocked


class Notices:
    """Of one tree. ``holding``: whether any unit may be held back."""

    def __init__(self) -> None:
        self.holding = False
        self._shapes: dict[QueueShape, None] = {}
        """Shapes with units that were not told yet."""
        self._round: deque[tuple[QueueLine, int]] = deque()
        """Lines that are to be looked at again, and how many shapes of each."""

    @property
    def waiting(self) -> bool:
        """Whether ``newly`` may have something to say."""
        return bool(self._shapes)

    def held(self, shape: QueueShape) -> None:
        """A limit holds the shape back, and in a FIFO line those behind it."""
        self.holding = True
        if shape.line.order is UnitOrder.FIFO:
            self._shapes.update(shape.line.untold)
        elif shape.untold:
            self._shapes[shape] = None

    def add(self, shape: QueueShape) -> None:
        """A unit came that is held back at once."""
        self._shapes[shape] = None

    def newly(self, most: int, now: float) -> list[tuple[WaitingUnit, Blocked]]:
        """Units that are held back and were not told so, or not what it is by now; at most so many, the rest the next
        time."""
        found: list[tuple[WaitingUnit, Blocked]] = []
        while self._shapes and len(found) < most:
            shape = next(iter(self._shapes))
            if (reason := shape.line.reason(shape)) is None:
                del self._shapes[shape]
                continue
            if shape.said is None:
                shape.said, shape.said_at = reason, now
            while shape.untold and len(found) < most:
                key = next(iter(shape.untold))
                del shape.untold[key]
                found.append((shape.units[key], reason))
            if not shape.untold:
                del self._shapes[shape]
                shape.line.untold.pop(shape, None)
        return found

    def look_again(self, nodes: Mapping[str, QueueNode], most: int, now: float, repeat_s: float) -> Iterator[QueueLine]:
        """Ask anew what holds back so many shapes, in turn; the lines in which one is held no longer."""
        if not self._round:
            self._round.extend((node.own, len(node.own.held)) for node in nodes.values() if node.own.held)
            self.holding = bool(self._round)
        while self._round and most > 0:
            line, left = self._round.popleft()
            count = min(left, most)
            most -= count
            if left > count:
                self._round.append((line, left - count))
            if self._ask_anew(line, count, now, repeat_s):
                yield line

    def _ask_anew(self, line: QueueLine, count: int, now: float, repeat_s: float) -> bool:
        first, freed = line.fifo_head(), False
        for shape in list(islice(line.held, count)):
            line.held[shape] = line.held.pop(shape)  # behind those that were asked longer ago
            if (reason := blocked(line, shape.amounts)) is None:
                line.free(shape)
                freed = True
                continue
            line.hold(shape, reason)
            for other in line.shapes.values() if shape is first else (shape,):
                self._compare(other, line.reason(other), now, repeat_s)
        return freed

    def _compare(self, shape: QueueShape, reason: Blocked | None, now: float, repeat_s: float) -> None:
        said = shape.said
        if said is None or reason is None or shape in self._shapes:
            return
        stale = now >= shape.said_at + repeat_s and said.text() != reason.text()
        if stale or said.why != reason.why:
            shape.said, shape.said_at, shape.untold = reason, now, dict.fromkeys(shape.units)
            shape.line.untold[shape] = None
            self._shapes[shape] = None
