"""What is foreseen of one node: by how much its use rose within a lead, at the same minute of past hours. Pure.

Much of what comes at once comes by the clock: cron, top-of-the-hour traffic. Who is asked to leave when it is measured
is gone a grace later, and it is there by then. So for each of ``BINS`` parts of an hour the rise over the next
``lead_s`` is kept, learned as the hours pass: one that is higher counts at once and whole, one that is lower as far as
the one before has faded (``FADE``), so that what came once is forgotten over the day and what comes every other hour
is not.

    sample --its part of the hour--> waits ``lead_s`` for what comes --rise--> that part's --an hour later--> foreseen

It only ever adds to what is taken. No service has it: on days that were played it cost more work than it was worth
(``docs/tidal.md``).
"""

from __future__ import annotations

from array import array
from collections import deque

from services.coordinator.lending.window import GAP_S, Pair

HOUR_S = 3600.0
BIN_S = 15.0
"""How often metrics come at most."""
BINS = round(HOUR_S / BIN_S)
FADE = 0.9
"""Of a rise that did not come again so much counts after an hour: half of it after seven."""

LEAST = 0.08
"""Of what the node has: what rises by less is not foreseen. Each small rise would send somebody away every quarter of a
minute, where it comes and where it does not; the threshold is there for those (``bench.parts.tidal_foresight``)."""

_NOTHING: Pair = (0.0, 0.0)


class Foresight:
    """Rises of CPU and memory; ``lead_s`` 0: nothing is foreseen, or kept."""

    def __init__(self, lead_s: float, fade: float = FADE) -> None:
        self._lead_s, self._fade = lead_s, fade
        self._open: deque[tuple[float, Pair, Pair]] = deque()
        """(begin of the part of an hour, what was taken then, the most since) while its lead lasts."""
        self._last = _NOTHING
        parts = BINS if lead_s else 0
        self._cpu, self._memory = array("f", bytes(4 * parts)), array("f", bytes(4 * parts))
        self._learned = array("i", bytes(4 * parts))
        """By part of an hour: how much they rose, and in which hour that was learned. 3 kB a node."""

    def add(self, now_s: float, taken: Pair) -> None:
        """What is taken now."""
        if not self._lead_s:
            return
        if self._open and now_s - self._open[-1][0] > GAP_S + BIN_S:
            self._open.clear()  # what came meanwhile is not known to have come at once
        part = int(now_s // BIN_S)
        if self._open:  # parts without a sample of their own went on as before
            at, last = int(self._open[-1][0] // BIN_S) + 1, self._last
            self._open += [(between * BIN_S, last, last) for between in range(at, part)]
        self._open = deque((at_s, then, _most(most, taken)) for at_s, then, most in self._open)
        if not self._open or self._open[-1][0] < part * BIN_S:
            self._open.append((part * BIN_S, taken, taken))
        self._last = taken
        while self._open and self._open[0][0] <= now_s - self._lead_s:
            at_s, then, most = self._open.popleft()
            rise = _most((most[0] - then[0], most[1] - then[1]), self._known(at_s, fresh_h=0))
            at = int(at_s // BIN_S) % BINS
            (self._cpu[at], self._memory[at]), self._learned[at] = rise, int(at_s // HOUR_S)

    def ahead(self, now_s: float, capacity: Pair) -> Pair:
        """By how much more may be taken within the lead, of a node that has so much."""
        if not self._lead_s:
            return _NOTHING
        cpu, memory = self._known(now_s, fresh_h=1)
        return cpu * (cpu >= LEAST * capacity[0]), memory * (memory >= LEAST * capacity[1])

    def _known(self, at_s: float, *, fresh_h: int) -> Pair:
        """The rise of that part of an hour, as far as it has not faded; after ``fresh_h`` hours it is whole."""
        at = int(at_s // BIN_S) % BINS
        part = self._fade ** max(0, int(at_s // HOUR_S) - self._learned[at] - fresh_h)
        return self._cpu[at] * part, self._memory[at] * part


def _most(one: Pair, other: Pair) -> Pair:
    return max(one[0], other[0]), max(one[1], other[1])
