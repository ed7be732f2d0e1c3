"""Seconds of one training step, by where the workers stand and how many samples each takes: measured, and between.

What was measured is exact. Between measured points of the local batch it is linear. A placement over more nodes than
were measured one by one is read from the measured pairs of (nodes, workers): linear along equal workers per node, since
that keeps within what was measured. Outside of it nothing is known, and None says so: nothing is extrapolated. That is
what Pollux' simulator does in words (OSDI 2021, section 5.3), which takes a triangulation for the last part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

Placement = tuple[int, ...]
"""Workers on each node that holds any, in ring order."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Step and synchronisation seconds by local batch, in rising order of the batch."""

    local: tuple[float, ...]
    step_s: tuple[float, ...]
    sync_s: tuple[float, ...]

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, float]]) -> Curve:
        """From (local batch, step, synchronisation) in any order; one row per local batch."""
        ordered = sorted(rows)
        return cls(*(tuple(row[at] for row in ordered) for at in range(3)))

    def at(self, local: float) -> tuple[float, float] | None:
        """(step, synchronisation) seconds; None: smaller or larger than measured."""
        if not self.local[0] <= local <= self.local[-1]:
            return None
        after = bisect_left(self.local, local)
        if self.local[after] == local:
            return self.step_s[after], self.sync_s[after]
        before = after - 1
        share = (local - self.local[before]) / (self.local[after] - self.local[before])
        return (
            self.step_s[before] + share * (self.step_s[after] - self.step_s[before]),
            self.sync_s[before] + share * (self.sync_s[after] - self.sync_s[before]),
        )


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over placements of one shape, at the local batches that any of them was measured with."""
    rows = []
    for local in sorted({one for curve in curves for one in curve.local}):
        found = [seconds for curve in curves if (seconds := curve.at(local)) is not None]
        steps, syncs = zip(*found, strict=True)
        rows.append((local, sum(steps) / len(steps), sum(syncs) / len(syncs)))
    return Curve.of(rows)


def ring(placement: Sequence[int]) -> Placement:
    """The same ring of nodes, begun where it reads smallest: rotations of one ring run alike."""
    used = tuple(count for count in placement if count)
    least = min(used, default=0)
    if used.count(least) == len(used):
        return used
    return min(used[at:] + used[:at] for at, count in enumerate(used) if count == least)


@dataclass(frozen=True)
class StepTimes:
    """The measured step times of one model. ``placed``: by ring; ``shaped``: by (nodes, workers)."""

    placed: Mapping[Placement, Curve]
    shaped: Mapping[tuple[int, int], Curve]
    _found: dict[tuple[Placement, float], tuple[float, float] | None] = field(default_factory=dict, compare=False)
    _rings: dict[Placement, Placement] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, placed: Mapping[Placement, Curve], shaped: Mapping[tuple[int, int], Curve]) -> StepTimes:
        """``shaped``: what was measured by shape alone; the shapes of ``placed`` are added by their means."""
        by_shape: dict[tuple[int, int], list[Curve]] = {}
        for placement, curve in placed.items():
            by_shape.setdefault((len(placement), sum(placement)), []).append(curve)
        means = {shape: mean_curve(curves) for shape, curves in by_shape.items()}
        return cls({ring(placement): curve for placement, curve in placed.items()}, {**shaped, **means})

    @cached_property
    def widest(self) -> int:
        """The most workers on one node that were measured."""
        return max(
            [*(max(placement) for placement in self.placed), *(workers // nodes for nodes, workers in self.shaped)]
        )

    @cached_property
    def workers(self) -> dict[int, tuple[int, ...]]:
        """The counts of workers that were measured, by nodes; both rise."""
        counts = sorted({nodes for nodes, _ in self.shaped})
        return {count: tuple(sorted(w for nodes, w in self.shaped if nodes == count)) for count in counts}

    def at(self, placement: Sequence[int], local: float) -> tuple[float, float] | None:
        """(step, synchronisation) seconds of one step; None: not measured, nor between what was.

        A node with more workers than were ever measured on one counts as several full ones.
        """
        key = (tuple(placement), local)
        if key not in self._found:
            if key[0] not in self._rings:
                self._rings[key[0]] = ring(self._split(placement))
            self._found[key] = self._at(self._rings[key[0]], local)
        return self._found[key]

    def _split(self, placement: Sequence[int]) -> list[int]:
        parts: list[int] = []
        for count in placement:
            full, rest = divmod(count, self.widest)
            parts += [self.widest] * full + [rest] * (rest > 0)
        return parts

    def _at(self, placement: Placement, local: float) -> tuple[float, float] | None:
        if not placement:
            return None
        if placement in self.placed:
            return self.placed[placement].at(local)
        counts = list(self.workers)
        nodes = min(len(placement), counts[-1])
        per_node = sum(placement) / nodes
        after = bisect_left(counts, nodes)
        if counts[after] == nodes:
            return self._on(nodes, per_node, local)
        if after == 0:
            return None
        low, high = counts[after - 1], counts[after]
        return _between(self._on(low, per_node, local), self._on(high, per_node, local), (nodes - low) / (high - low))

    def _on(self, nodes: int, per_node: float, local: float) -> tuple[float, float] | None:
        """At ``per_node`` workers on each of a measured count of ``nodes``."""
        measured, wanted = self.workers[nodes], per_node * nodes
        after = bisect_left(measured, wanted)
        if after < len(measured) and measured[after] == wanted:
            return self.shaped[nodes, measured[after]].at(local)
        if after in (0, len(measured)):
            return None
        low, high = measured[after - 1], measured[after]
        share = (wanted - low) / (high - low)
        return _between(self.shaped[nodes, low].at(local), self.shaped[nodes, high].at(local), share)


def _between(
    low: tuple[float, float] | None, high: tuple[float, float] | None, share: float
) -> tuple[float, float] | None:
    """Linear between two corners; where one was not measured with so large a batch, the other alone."""
    if low is None or high is None:
        return low or high
    return low[0] + share * (high[0] - low[0]), low[1] + share * (high[1] - low[1])
