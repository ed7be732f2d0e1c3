"""Evolution strategies on the policy's weights: the reward is the GPU share allocated at the end of an episode.

Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to RL", 2017, sections 2 and 2.1: antithetic
pairs, here both of a pair on the same trace, nodes and seed. The value learned from episodes sums nodes as if they did
not compete; the search corrects what that leaves out. Deviations: noise and steps are scaled per layer, the gradient is
normalised by its running size instead of by ranks, and differences are cut at one percentage point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.learner.frag.fit import scales_of

Floats = NDArray[np.float64]
Play = Callable[[Floats], float]

NOISE = 0.05
"""Standard deviation of a trial, relative to the layer's weights."""
RATE = 0.015
"""Length of a step, relative likewise."""
PAIRS = 8
MOMENTUM, SIZE_MEMORY = 0.9, 0.99
AVERAGE_MEMORY = 0.97
CUT = 1.0
"""Percentage points: beyond this a difference counts no more, so that one odd trace cannot decide a step."""


class Search:
    """Weights under search. ``weights``: where it stands; ``average``: the running mean of where it stood."""

    def __init__(self, weights: Floats, seed: int) -> None:
        self.weights = weights.copy()
        self.average = weights.copy()
        self.steps = 0
        self.rng = np.random.default_rng(seed)
        self._scales = scales_of(weights)
        self._momentum = np.zeros_like(weights)
        self._size = 0.0

    def step(self, draw: Callable[[np.random.Generator], Play]) -> float:
        """One step on ``PAIRS`` episodes from ``draw``; returns the mean difference within a pair, in points."""
        gradient = np.zeros_like(self.weights)
        spread = 0.0
        for _ in range(PAIRS):
            play = draw(self.rng)
            noise = self.rng.standard_normal(len(self.weights))
            shift = noise * self._scales * NOISE
            difference = play(self.weights + shift) - play(self.weights - shift)
            gradient += float(np.clip(difference, -CUT, CUT)) * noise
            spread += abs(difference)
        gradient /= PAIRS
        self.steps += 1
        self._momentum = MOMENTUM * self._momentum + (1 - MOMENTUM) * gradient
        self._size = SIZE_MEMORY * self._size + (1 - SIZE_MEMORY) * float((gradient**2).mean())
        momentum = self._momentum / (1 - MOMENTUM**self.steps)
        size = np.sqrt(self._size / (1 - SIZE_MEMORY**self.steps)) + 1e-9
        self.weights = self.weights + RATE * momentum / size * self._scales
        self.average = AVERAGE_MEMORY * self.average + (1 - AVERAGE_MEMORY) * self.weights
        return spread / PAIRS

    def get_state(self) -> dict[str, Any]:
        """Everything needed to go on exactly; plain values and arrays."""
        return {
            "weights": self.weights,
            "average": self.average,
            "steps": self.steps,
            "scales": self._scales,
            "momentum": self._momentum,
            "size": self._size,
            "rng": _plain(self.rng.bit_generator.state),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Search:
        """The search that ``get_state`` was asked of."""
        search = cls(np.asarray(state["weights"]), 0)
        search.average = np.asarray(state["average"])
        search.steps = int(state["steps"])
        search._scales = np.asarray(state["scales"])
        search._momentum = np.asarray(state["momentum"])
        search._size = float(state["size"])
        search.rng.bit_generator.state = _numbers(state["rng"])
        return search


def _plain(value: Any) -> Any:
    """Numbers beyond 64 bits as text: a checkpoint cannot hold them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return f"int:{value}" if isinstance(value, int) else value


def _numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    return int(value.removeprefix("int:")) if isinstance(value, str) and value.startswith("int:") else value
