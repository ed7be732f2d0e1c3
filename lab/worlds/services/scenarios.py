"""The five scenarios: which disturbances an episode meets, drawn from its seed, as strong as ``intensity`` says.

    scenario    intensity x means
    bottleneck  for some minutes each call to one service that is no entry costs 1 + x times the work
    ddos        for a minute or so x - 1 times the genuine requests come on top of them (so 8 is "8x"), at an entry
    failures    every minute or so each replica fails with probability x: it crashes, or hangs
    pressure    for some minutes neighbours of a higher priority take the share x of a node's cpu
    mixed       all four, each with x times ``MIXED``: what one episode of a bad day has

The paper names the five and gives no numbers (learning.md a); lengths and gaps are ours. ``FROZEN`` holds the intensity
of the mixed scenario that was calibrated once (docs/autoscaling-twin.md, "Calibration").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.topology import ServiceGraph
from shared.errors import ConfigError

EVENT_STREAM = 21
FROZEN = Path(__file__).with_name("calibrated.json")
CALM_S = 90.0
"""Nothing happens before."""
DEFAULTS = {"bottleneck": 1.0, "ddos": 4.0, "failures": 0.1, "pressure": 0.5, "mixed": 1.0}
"""Intensities where nobody says; that of ``mixed`` is in ``FROZEN``."""
SCENARIOS = tuple(DEFAULTS)
MIXED = {"bottleneck": 0.15, "ddos": 0.25, "failures": 0.14, "pressure": 0.1}
"""What each part of ``mixed`` is at x = 1; of ddos what comes on top."""
HANG_S = (300.0, 900.0)
"""Until a replica that hangs is restarted: nobody gave it a liveness probe, and somebody comes to look."""
Rng = np.random.Generator


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was frozen: the intensity of ``mixed``, and which HPA settings were the best of the grid there."""

    intensity: float
    hpa: dict[str, Any] = {}
    success: float = 0.0
    command: str = ""


@lru_cache(maxsize=1)
def calibration() -> Calibration:
    """What is frozen in the package."""
    return msgspec.json.decode(FROZEN.read_bytes(), type=Calibration)


def intensity_of(scenario: str) -> float:
    """How strong a scenario is where nobody says."""
    return calibration().intensity if scenario == "mixed" else DEFAULTS[scenario]


def check_scenario(scenario: str, intensity: float) -> None:
    """Raises ``ConfigError`` for a scenario that is not known or a strength that means nothing."""
    if scenario not in DEFAULTS:
        raise ConfigError(f"scenario: {scenario!r} is not known; choose one of {', '.join(SCENARIOS)}")
    low, high = {"ddos": (1.0, 100.0), "failures": (0.0, 1.0), "pressure": (0.0, 1.0)}.get(scenario, (0.0, 20.0))
    if not low <= intensity <= high:
        raise ConfigError(f"intensity: {intensity} is out of range for {scenario}; give {low:g} to {high:g}")


def events_of(
    scenario: str, topology: ServiceGraph, seconds: int, seed: int, intensity: float
) -> tuple[Disturbance, ...]:
    """The episode's disturbances, in order of time. Raises ``ConfigError`` as ``check_scenario`` does."""
    check_scenario(scenario, intensity)
    parts = {scenario: intensity}
    if scenario == "mixed":
        parts = {name: amount * intensity for name, amount in MIXED.items()}
    elif scenario == "ddos":
        parts = {"ddos": intensity - 1.0}
    found: list[Disturbance] = []
    for name, amount in parts.items():
        rng = np.random.default_rng([seed, EVENT_STREAM, SCENARIOS.index(name)])
        limit = 1.0 if name in ("failures", "pressure") else amount
        found += MAKERS[name](topology, seconds, rng, min(amount, limit))
    return tuple(sorted(found, key=lambda event: (event.since_s, event.kind, event.target)))


def _stretches(seconds: int, rng: Rng, gap_s: tuple[float, float], long_s: tuple[float, float]) -> Iterator[Any]:
    """(since_s, until_s) one after the other, whole seconds."""
    at = CALM_S * rng.uniform(0.5, 1.5)
    while at < seconds - 30:
        end = at + rng.uniform(*long_s)
        yield float(int(at)), float(int(end))
        at = end + rng.uniform(*gap_s)


def _bottleneck(topology: ServiceGraph, seconds: int, rng: Rng, amount: float) -> list[Disturbance]:
    inner = [name for name in topology.order if name not in topology.entries] or list(topology.order)
    return [
        Disturbance(
            DisturbanceKind.DEARER, since, until, amount * rng.uniform(0.7, 1.3), inner[int(rng.integers(len(inner)))]
        )
        for since, until in _stretches(seconds, rng, (90.0, 240.0), (120.0, 240.0))
    ]


def _ddos(topology: ServiceGraph, seconds: int, rng: Rng, amount: float) -> list[Disturbance]:
    entries = list(topology.entries)
    return [
        Disturbance(DisturbanceKind.SURGE, since, until, amount, entries[int(rng.integers(len(entries)))])
        for since, until in _stretches(seconds, rng, (120.0, 300.0), (45.0, 90.0))
    ]


def _failures(topology: ServiceGraph, seconds: int, rng: Rng, amount: float) -> list[Disturbance]:  # noqa: ARG001
    return [
        Disturbance(DisturbanceKind.FAILURES, since, float(int(since + rng.uniform(*HANG_S))), amount)
        for since, _ in _stretches(seconds, rng, (30.0, 90.0), (1.0, 2.0))
    ]


def _pressure(topology: ServiceGraph, seconds: int, rng: Rng, amount: float) -> list[Disturbance]:
    nodes = [
        f"{node.name}-{copy + 1}" if node.count > 1 else node.name
        for node in topology.nodes
        for copy in range(node.count)
    ]
    return [
        Disturbance(DisturbanceKind.PRESSURE, since, until, amount, nodes[int(rng.integers(len(nodes)))])
        for since, until in _stretches(seconds, rng, (120.0, 300.0), (180.0, 300.0))
    ]


MAKERS: dict[str, Callable[[ServiceGraph, int, Rng, float], list[Disturbance]]] = {
    "bottleneck": _bottleneck,
    "ddos": _ddos,
    "failures": _failures,
    "pressure": _pressure,
}
