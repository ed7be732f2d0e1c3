"""What an episode of a service graph was worth, in figures. All percentages are 0 to 100.

The paper names most of them and defines none (learning.md a); these are our definitions, and docs/autoscaling-twin.md
has them for readers. Only genuine requests count: an attacker's are a load, nobody's loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import NDArray

from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.topology import ServiceGraph
from lab.worlds.services.world import WorldSeconds

WINDOW_S = 10
GOOD = 0.9
"""Share answered well from which a window counts as available, and a surge as overcome."""
REVERSAL_S = 300.0
"""A change of direction counts as oscillation within this time."""
RESILIENCE_WEIGHT = 0.2
METRICS = (
    "success", "latency_compliance", "pending", "recovery_s", "availability", "replica_hours", "oscillation", "reward",
)  # fmt: skip
LESS_IS_BETTER = frozenset({"pending", "recovery_s", "replica_hours", "oscillation"})
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """A decision that changed what a service asks for."""

    at_s: float
    service: str
    change: int


def figures(
    seconds: WorldSeconds, events: Sequence[Disturbance], scalings: Sequence[Scaling], topology: ServiceGraph
) -> dict[str, float]:
    """Every one of ``METRICS``; ``recovery_s`` is NaN for an episode without a surge."""
    offered, answered = np.array(seconds.offered), np.array(seconds.answered)
    in_time, waiting, served = np.array(seconds.in_time), np.array(seconds.waiting), np.array(seconds.served)
    whole = max(float(offered.sum()), 1e-9)
    length = len(offered)
    return {
        "success": 100.0 * float(answered.sum()) / whole,
        "latency_compliance": 100.0 * float(in_time.sum()) / whole,
        "pending": 100.0 * float(waiting.sum()) / max(float((waiting + served).sum()), 1e-9),
        "recovery_s": _recovery_s(offered, answered, events),
        "availability": 100.0 * float(np.mean(_shares(offered, answered) >= GOOD)) if length else 100.0,
        "replica_hours": sum(seconds.pods) / 3600.0,
        "oscillation": _reversals(scalings) / max(length / 3600.0, 1e-9) / len(topology.services),
        "reward": 100.0 * float(np.mean(resilience(seconds, topology, 0, length))) if length else 0.0,
    }


def resilience(seconds: WorldSeconds, topology: ServiceGraph, first: int, until: int) -> Floats:
    """Operational resilience of each second, 0 to 1 (the paper's ``or`` with equal weights): success, share of pods
    that work, how far the latency is below twice its objective, entries that answer, and calls served of those that
    the genuine requests come to."""
    offered, answered = np.array(seconds.offered[first:until]), np.array(seconds.answered[first:until])
    expected = offered * sum(topology.visits().values())
    latency = np.array(seconds.latency_s[first:until]) / (2.0 * topology.objectives.latency_s)
    pods = np.maximum(np.array(seconds.pods[first:until], np.float64), 1.0)
    parts = (
        _share(answered, offered),
        1.0 - np.minimum(np.array(seconds.failed_pods[first:until]) / pods, 1.0),
        1.0 - np.minimum(latency, 1.0),
        np.array(seconds.entries_up[first:until]),
        _share(np.array(seconds.served[first:until]), expected),
    )
    total: Floats = RESILIENCE_WEIGHT * np.sum(parts, axis=0)
    return total


def finite(values: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    """The figures that every seed has."""
    return {name: tuple(series) for name, series in values.items() if not any(isnan(value) for value in series)}


def _share(part: Floats, whole: Floats) -> Floats:
    """part / whole, at most 1; 1 where nothing was to be done."""
    found: Floats = np.minimum(np.divide(part, whole, out=np.ones_like(whole), where=whole > 0), 1.0)
    return found


def _shares(offered: Floats, answered: Floats) -> Floats:
    """Share answered well, by windows."""
    starts = np.arange(0, len(offered), WINDOW_S)
    return _share(np.add.reduceat(answered, starts), np.add.reduceat(offered, starts))


def _recovery_s(offered: Floats, answered: Floats, events: Sequence[Disturbance]) -> float:
    """Mean over surges of the seconds from the onset to the end of the bad stretch that begins in the surge: while the
    share answered well over the last 10 s is below 90 %. 0 for a surge that nobody noticed; at most to the next one."""
    length = len(offered)
    surges = [event for event in events if event.kind is DisturbanceKind.SURGE and event.since_s < length]
    if not surges:
        return float("nan")
    kernel = np.ones(WINDOW_S)
    trailing = _share(np.convolve(answered, kernel)[:length], np.convolve(offered, kernel)[:length])
    bad = trailing < GOOD
    onsets = [int(event.since_s) for event in surges]
    lasted: list[float] = []
    for event, onset, following in zip(surges, onsets, [*onsets[1:], length], strict=True):
        within = np.flatnonzero(bad[onset : min(int(event.until_s), following)])
        if not len(within):
            lasted.append(0.0)
            continue
        first = onset + int(within[0])
        over = np.flatnonzero(~bad[first:following])
        lasted.append(float((first + int(over[0]) if len(over) else following) - onset))
    return float(np.mean(lasted))


def _reversals(scalings: Sequence[Scaling]) -> int:
    last: dict[str, Scaling] = {}
    count = 0
    for one in scalings:
        before = last.get(one.service)
        if before is not None and before.change * one.change < 0 and one.at_s - before.at_s <= REVERSAL_S:
            count += 1
        last[one.service] = one
    return count
