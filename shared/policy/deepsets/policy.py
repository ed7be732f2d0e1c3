"""The learned policies ``ee``, ``lb`` and ``el``: a Deep Sets Q-network over the candidates, in numpy.

One set of weights ranks any number of nodes, and reordering the nodes reorders the scores. The network sees feasible
rows only; it cannot choose another. ``el`` also says *reject* where a node's latency breaks the pod's hard limit: the
coordinator then takes such a node only if every feasible one is rejected, since a pod with any feasible node must be
placed. Scores are rounded to ``SCORE_STEP``, so that nodes that look alike tie exactly, whatever the order in which
float sums were taken; how ties fall is the ranker's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES, WITHIN_HARD, node_features
from shared.policy.networks import deep_sets_shapes, layer_count
from shared.policy.observation import Observation, Rng, Verdicts
from shared.policy.weights import WeightsFile

Floats = NDArray[np.float32]

DEEP_SETS_POLICIES = ("ee", "lb", "el")

SCORE_STEP = 1e-4
"""Scores are multiples of this; the network's float32 sums differ by less when their order does."""


class DeepSetsNetwork:
    """The forward pass with buffers that are kept: Q per candidate, equal to torch within 1e-5."""

    def __init__(self, weights: WeightsFile) -> None:
        arrays, card = weights.arrays, weights.card
        layers = layer_count(arrays)
        if not layers or tuple(card.features) != FEATURES:
            raise ConfigError(
                f"weights of {card.policy}: made for inputs {card.features}, this version gives {list(FEATURES)};"
                " train again"
            )
        sizes = [FEATURE_COUNT] + [len(arrays[f"l{index}.b"]) for index in range(layers)]
        expected = deep_sets_shapes(sizes)
        found = {name: array.shape for name, array in arrays.items()}
        if found != expected or sizes[-1] != 1:
            raise ConfigError(f"weights of {card.policy}: arrays {found} are no Deep Sets Q-network; train again")
        self._layers = [
            (
                np.ascontiguousarray(arrays[f"l{index}.w"]),
                np.ascontiguousarray(arrays[f"l{index}.g"]),
                np.ascontiguousarray(arrays[f"l{index}.b"]),
            )
            for index in range(layers)
        ]
        self._sizes = sizes
        self._buffers: list[Floats] = []
        self._room = 0

    def inputs(self, candidates: int) -> Floats:
        """The buffer to write features into: float32 ``[candidates, features]``, valid until the next call."""
        if candidates > self._room:
            self._room = max(2 * self._room, candidates, 64)
            self._buffers = [np.empty((self._room, size), np.float32) for size in self._sizes]
        return self._buffers[0][:candidates]

    def q_values(self, x: Floats) -> Floats:
        """Q float32 ``[candidates]`` for features ``x`` (at least one candidate); valid until the next call."""
        count = len(x)
        if count > self._room:
            self.inputs(count)
        for index, (own, pooled, bias) in enumerate(self._layers):
            out = self._buffers[index + 1][:count]
            shift = np.maximum.reduce(x, axis=0) @ pooled
            shift += bias
            np.matmul(x, own, out=out)
            out += shift
            if index < len(self._layers) - 1:
                np.maximum(out, 0, out=out)
            x = out
        return x[:, 0]


class DeepSetsPolicy:
    """``ee``, ``lb`` or ``el`` from a weights file."""

    row_local = False
    goals: ClassVar[Mapping[str, str]] = {"ee": "nodes", "lb": "balance", "el": "latency"}
    """What each is for, by which a roll-out compares it."""

    def __init__(self, weights: WeightsFile) -> None:
        if weights.card.policy not in DEEP_SETS_POLICIES:
            raise ConfigError(
                f"weights of {weights.card.policy}: not a Deep Sets policy; choose one of {list(DEEP_SETS_POLICIES)}"
            )
        self.name = weights.card.policy
        self.version = weights.card.version
        self.network = DeepSetsNetwork(weights)

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:  # noqa: ARG002
        """Q per candidate (``el``: the logit of taking it), rounded; ``el`` rejects what breaks the hard limit."""
        rows, pod_class = observation.rows, observation.pod_class
        if not len(rows):
            return Verdicts(np.empty(0))
        x = node_features(observation.table, pod_class, rows, self.network.inputs(len(rows)))
        score = self.network.q_values(x).astype(np.float64)
        score /= SCORE_STEP
        np.rint(score, out=score)
        score *= SCORE_STEP
        accept = x[:, WITHIN_HARD] > 0 if self.name == "el" and pod_class.latency_hard_us else None
        return Verdicts(score, accept)
