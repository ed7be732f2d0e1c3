"""The envelope of a policy: the range of each of its inputs in episodes of the kind that it was trained on. Pure.

Its best steps are played, not those that it tried while it learned: live it does nothing else. The drift guard compares
with it (``shared/autoscaling/safety/drift.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from lab.autoscaling.episode import Setup, play
from shared.autoscaling.networks.features import FEATURES
from shared.autoscaling.networks.karma import KarmaPolicy
from shared.autoscaling.observation import Decision, ScalingObservation

DIGITS = 4


class _Ranging:
    """A policy whose inputs' smallest and largest values are kept."""

    def __init__(self, policy: KarmaPolicy) -> None:
        self.name, self._policy = policy.name, policy
        self.low, self.high = np.full(len(FEATURES), np.inf), np.full(len(FEATURES), -np.inf)

    def reset(self, seed: int) -> None:
        self._policy.reset(seed)

    def decide(self, seen: ScalingObservation) -> Decision:
        wanted = self._policy.decide(seen)
        rows = self._policy.eyes.inputs
        self.low, self.high = np.minimum(self.low, rows.min(axis=0)), np.maximum(self.high, rows.max(axis=0))
        return wanted


def envelope(
    policy: KarmaPolicy, episodes: Iterable[tuple[Setup, int]], *, tick: Callable[[], None] = lambda: None
) -> dict[str, tuple[float, float]]:
    """By input: smallest and largest value in the episodes, (what is played, seed) each; at least one of them."""
    ranging = _Ranging(policy)
    for setup, seed in episodes:
        play(setup, ranging, seed, tick=tick)
    pairs = zip(FEATURES, ranging.low.tolist(), ranging.high.tolist(), strict=True)
    return {name: (_short(low), _short(high)) for name, low, high in pairs}


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
