"""Round trips from this node to what users name, as a median with its spread; which target is tried when. Pure.

A median: one slow answer says nothing about the node, three of the last five do. While nothing changes, more tries tell
more: of the last 5, 10 and 20 the longest window counts whose median agrees with those of all shorter ones, as far as
the scatter between tries explains a difference (Lepski 1991), unless the last three all leave it. So a change beyond
the scatter is seen as soon as by the last five alone. Failed attempts are counted and never take part; a target that
answers nobody any more is told as failing and its old median ends with its samples, or with the window of the last.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, quantiles

from shared.agent.vivaldi import VivaldiRng
from shared.wire.readings import LATENCY_STALE_S, MAX_TARGETS, ProbeTarget, TargetLatency

WINDOWS = (5, 10, 20)
SAMPLES = WINDOWS[0]
"""A change is known when more than half of so many tries are new."""
NEWEST = SAMPLES // 2 + 1
AGREE = 2.0
"""Medians agree that differ by no more than so many standard errors of the shorter window's."""
FORGET_FAILURES = 5
"""Failed attempts in a row after which old samples are no measurement any more."""
MOST_US = 60_000_000


@dataclass(slots=True)
class _Target:
    probed: ProbeTarget
    next_s: float
    samples: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOWS[-1]))
    failures: int = 0
    answered_s: float = -math.inf


class TargetTimes:
    """Of one node."""

    def __init__(self, rng: VivaldiRng) -> None:
        self._rng = rng
        self._targets: dict[str, _Target] = {}

    def follow(self, targets: Sequence[ProbeTarget], now_s: float) -> None:
        """All targets there are now. One that leads elsewhere under its old name begins anew."""
        found: dict[str, _Target] = {}
        for target in targets:
            known = self._targets.get(target.name)
            if known is None or (known.probed.host, known.probed.port) != (target.host, target.port):
                # soon, but not all nodes at once
                known = _Target(target, now_s + self._rng.random() * min(1.0, target.every_ms / 1000))
            known.probed = target
            found[target.name] = known
        self._targets = found

    def due(self, now_s: float, *, most: int = MAX_TARGETS) -> list[ProbeTarget]:
        """What is to be tried now, no more than ``most`` of it, what waits longest first; each counts as tried from
        here on."""
        due = sorted((one for one in self._targets.values() if one.next_s <= now_s), key=lambda one: one.next_s)[:most]
        for target in due:
            target.next_s = now_s + target.probed.every_ms / 1000 * (0.9 + 0.2 * self._rng.random())
        return [target.probed for target in due]

    def next_s(self) -> float | None:
        """When the next one is due; None while there is no target."""
        return min((target.next_s for target in self._targets.values()), default=None)

    def answered(self, name: str, took_s: float, now_s: float) -> None:
        """An attempt came about in so many seconds; one that cannot be is left out."""
        target, took_us = self._targets.get(name), round(took_s * 1e6)
        if target is not None and 0 < took_us <= MOST_US:
            target.samples.append(took_us)
            target.failures = 0
            target.answered_s = now_s

    def failed(self, name: str) -> None:
        """An attempt got no answer in time, or was refused."""
        target = self._targets.get(name)
        if target is None:
            return
        target.failures += 1
        if target.failures >= FORGET_FAILURES:
            target.samples.clear()

    def told(self, now_s: float) -> list[TargetLatency]:
        """What is known of each target; one without a sample, or that has not answered lately, says so by ``samples``
        0."""
        return [_told(name, target, now_s) for name, target in self._targets.items()]


def _told(name: str, target: _Target, now_s: float) -> TargetLatency:
    if not target.samples or now_s - target.answered_s >= LATENCY_STALE_S:
        return TargetLatency(name, 0, 0, 0, min(target.failures, 4096))
    samples = _window(list(target.samples))
    middle = median(samples)
    spread = median(abs(sample - middle) for sample in samples)
    return TargetLatency(name, round(middle), round(spread), len(samples), min(target.failures, 4096))


def _window(samples: list[int]) -> list[int]:
    """The newest samples that are of one level, oldest first."""
    chosen, ranges = samples[-SAMPLES:], list[tuple[float, float]]()
    for size, longer in pairwise(WINDOWS):
        if len(samples) <= size:
            break
        steps = [abs(later - earlier) for earlier, later in pairwise(samples[-longer:])]
        # of normal scatter s: the median step is 0.954 s, a median of n has a standard error of 1.253 s / sqrt(n)
        error = AGREE * 1.253 * median(steps) / 0.954 / math.sqrt(size)
        middle = median(samples[-size:])
        ranges.append((middle - error, middle + error))
        window = samples[-longer:]
        if not all(low <= median(window) <= high for low, high in ranges) or _left(window):
            break
        chosen = window
    return chosen


def _left(window: list[int]) -> bool:
    """Whether the newest tries, more than half of the shortest window, lie all above three quarters of those before
    them, or all below."""
    newest, before = window[-NEWEST:], window[:-NEWEST]
    low, _, high = quantiles(before, n=4)
    return min(newest) > high or max(newest) < low
