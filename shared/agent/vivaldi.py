"""Network coordinates: where a node stands, so that the delay between any two follows from two of them. Pure.

    delay(a, b) = |position a - position b| + height a + height b        [ms, round trip]

Source: Dabek, Cox, Kaashoek, Morris, "Vivaldi: A Decentralized Network Coordinate System", SIGCOMM 2004: the adaptive
timestep of section 3.3 (c_e = c_c = 0.25) and the height vectors of section 5.4. Samples go through a filter first,
the median of a peer's last few (Ledlie, Gardner, Seltzer, "Network Coordinates in the Wild", NSDI 2007): one
slow answer moves nobody. Departures: each sample is followed by a few steps against peers remembered, since a probe
costs more than arithmetic; errors are relative to at least ``FLOOR_MS``; a step is bounded, so that a peer that lies
moves a node by a bounded amount, and a peer is never believed to be surer than ``LEAST_ERROR``.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import median
from typing import Protocol

DIMENSIONS = 3
C_ERROR = C_STEP = 0.25
LEAST_HEIGHT_MS = 0.005
MOST_MS = 10_000.0
"""No delay, and no part of a coordinate, is above it."""
LEAST_RTT_MS = 0.001
MOST_ERROR = 1.5
FLOOR_MS = 10.0
"""Errors are relative to at least so much: a tenth of it, 1 ms, is as near as anybody asks; without it the nodes of
one rack, a fraction of a millisecond apart, would never let an error settle."""
LEAST_ERROR = 0.02
MOST_STEP_MS = 50.0
"""How far one sample may move a node; from nowhere to 500 ms away are ten samples."""
FILTER = 5
"""Samples of one peer whose median counts."""
MOST_PEERS = 64
"""Peers whose last samples are kept; those heard least recently go."""
RELAXED = 6
"""Steps that follow each sample, against peers that answered before."""


class VivaldiRng(Protocol):
    """Where draws come from (``random.Random``)."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Coordinate:
    """``at`` [DIMENSIONS] and ``height`` in ms of round trip; ``error``: relative error of its estimates, as far as it
    knows (1: it knows nothing)."""

    at: tuple[float, ...] = (0.0,) * DIMENSIONS
    height: float = LEAST_HEIGHT_MS
    error: float = MOST_ERROR

    @property
    def usable(self) -> bool:
        """Whether all of it is finite and within bounds: what a peer tells is checked by it."""
        return (
            len(self.at) == DIMENSIONS
            and all(math.isfinite(x) and abs(x) <= MOST_MS for x in self.at)
            and math.isfinite(self.height)
            and 0.0 <= self.height <= MOST_MS
            and math.isfinite(self.error)
            and 0.0 <= self.error <= MOST_ERROR
        )


def delay_ms(one: Coordinate, other: Coordinate) -> float:
    """The round trip between two nodes as their coordinates have it."""
    return math.dist(one.at, other.at) + one.height + other.height


@dataclass(slots=True)
class _Peer:
    """The last round trips to a peer and their median, and where it said it stood."""

    rtts: deque[float]
    coordinate: Coordinate
    rtt_ms: float


class Vivaldi:
    """One node's coordinate. ``rng`` tells apart nodes that stand on the same spot."""

    def __init__(self, rng: VivaldiRng, here: Coordinate | None = None) -> None:
        self.here = here or Coordinate()
        self.samples = 0
        """Taken in so far."""
        self._rng = rng
        self._recent: OrderedDict[Hashable, _Peer] = OrderedDict()

    def take(self, peer: Hashable, rtt_ms: float, theirs: Coordinate) -> bool:
        """One answered probe of a peer that said where it stands. False, and nothing changes, for what cannot be."""
        if not LEAST_RTT_MS <= rtt_ms <= MOST_MS or not theirs.usable:
            return False
        self._remember(peer, rtt_ms, theirs)
        self._step(self._recent[peer].rtt_ms, theirs)
        peers = list(self._recent.values())
        for _ in range(min(RELAXED, len(peers) - 1)):
            other = peers[int(self._rng.random() * len(peers))]
            self._step(other.rtt_ms, other.coordinate)
        self.samples += 1
        return True

    def known(self, peer: Hashable) -> float | None:
        """The filtered round trip to a peer that was probed; None for any other."""
        recent = self._recent.get(peer)
        return recent.rtt_ms if recent is not None else None

    def forget(self, peer: Hashable) -> None:
        """The peer is gone: where it stood, and how far it was, is of no time that still counts."""
        self._recent.pop(peer, None)

    def _remember(self, peer: Hashable, rtt_ms: float, theirs: Coordinate) -> None:
        recent = self._recent.get(peer)
        if recent is None:
            recent = self._recent[peer] = _Peer(deque(maxlen=FILTER), theirs, rtt_ms)
            if len(self._recent) > MOST_PEERS:
                self._recent.popitem(last=False)
        self._recent.move_to_end(peer)
        recent.rtts.append(rtt_ms)
        recent.coordinate, recent.rtt_ms = theirs, median(recent.rtts)

    def _step(self, rtt_ms: float, theirs: Coordinate) -> None:
        here, distance = self.here, math.dist(self.here.at, theirs.at)
        weight = here.error / (here.error + max(theirs.error, LEAST_ERROR))
        heights = here.height + theirs.height
        short = rtt_ms - distance - heights
        off = abs(short) / max(rtt_ms, FLOOR_MS)
        error = here.error + C_ERROR * weight * (off - here.error)
        force = max(-MOST_STEP_MS, min(MOST_STEP_MS, C_STEP * weight * short))
        # the unit vector of (x, h) in the space with heights has the length |x| + h_here + h_theirs (section 5.4)
        if distance > 1e-9:
            step = force / (distance + heights)
            moved = [a + step * (a - b) for a, b in zip(here.at, theirs.at, strict=True)]
        else:
            step = force / max(heights, 1e-9)
            moved = [a + force * d for a, d in zip(here.at, self._anywhere(), strict=True)]
        at = tuple([max(-MOST_MS, min(MOST_MS, x)) for x in moved])
        height = min(MOST_MS, max(LEAST_HEIGHT_MS, here.height + step * heights))
        self.here = Coordinate(at, height, min(MOST_ERROR, max(LEAST_ERROR, error)))

    def _anywhere(self) -> list[float]:
        while True:
            drawn = [2 * self._rng.random() - 1 for _ in range(DIMENSIONS)]
            length = math.hypot(*drawn)
            if 0.05 < length <= 1:
                return [x / length for x in drawn]
