"""``jobs-dl2``: DL2's way (Peng et al., TPDS 2021), asked again and again until void, by a network that jobs share.

Actions and state: ``increments``. DL2's own network is an MLP over a window of jobs: what it learns of one place in the
window it does not know of the others. Here Deep Sets layers (Zaheer et al., NeurIPS 2017, section 3.1) see each job and
the mean of all, and say four numbers of each: a worker, a server, both, and its part of void, which is the mean of the
parts. So any number of jobs is served. The best allowed action is taken; nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shared.errors import ConfigError
from shared.jobs.observation import Decision, JobsObservation
from shared.jobs.policies.learned.increments import KINDS, OF_JOB, Floats, Increments
from shared.policy.networks import deep_sets_shapes, layer_count
from shared.policy.weights import WeightsFile, shipped_beside

NAME = "jobs-dl2"
TYPE = "type "
"""Before a model's name, among the card's features."""
FORBIDDEN = np.float32(-1e9)
OUTPUTS = KINDS + 1
"""Of a job: its three actions, and its part of void."""


def features_of(types: list[str]) -> list[str]:
    """The names of a job's inputs, in order, for the card."""
    return [f"{TYPE}{name}" for name in types] + list(OF_JOB)


def shapes_of(types: int, hidden: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The arrays of a network for so many types with these hidden layers."""
    return deep_sets_shapes([types + len(OF_JOB), *hidden, OUTPUTS])


def layered(params: Mapping[str, Floats], inputs: Floats, layers: int) -> tuple[Floats, Floats]:
    """float32 [runs, jobs, inputs] to what the layers say of each job, float32 [runs, jobs, outputs], and 1.0 where
    there is a job, float32 [runs, jobs, 1]."""
    present = (inputs[..., -1:] > 0).astype(np.float32)
    parts = present / np.maximum(present.sum(axis=1, keepdims=True), np.float32(1))
    x = inputs
    for at in range(layers):
        pooled = (x * parts).sum(axis=1, keepdims=True)
        x = x @ params[f"l{at}.w"] + (pooled @ params[f"l{at}.g"] + params[f"l{at}.b"])
        if at < layers - 1:
            x = np.maximum(x, np.float32(0))
    return x, present


def answer(params: Mapping[str, Floats], inputs: Floats, layers: int) -> Floats:
    """float32 [runs, jobs, inputs] to the logits of the actions, float32 [runs, 3 · jobs + 1]."""
    x, present = layered(params, inputs, layers)
    void = (x[..., KINDS] * present[..., 0]).sum(axis=1) / np.maximum(present.sum(axis=(1, 2)), np.float32(1))
    found: Floats = np.concatenate((x[..., :KINDS].reshape(len(x), -1), void[:, None]), axis=1)
    return found


class Dl2:
    """See the module. ``weights`` None: those that are shipped. ``ConfigError``: weights of another shape."""

    name = NAME

    def __init__(self, weights: WeightsFile | None = None) -> None:
        file = weights if weights is not None else shipped_beside(__file__, NAME)
        self._params = file.arrays
        self._types = [one.removeprefix(TYPE) for one in file.card.features if one.startswith(TYPE)]
        self._layers = layer_count(file.arrays)
        hidden = tuple(file.arrays[f"l{at}.w"].shape[1] for at in range(self._layers - 1))
        found = {name: array.shape for name, array in file.arrays.items()}
        if found != shapes_of(len(self._types), hidden):
            raise ConfigError(
                f"weights of {file.title}: arrays {found} are no network over jobs of {len(self._types)} types; "
                "train again"
            )

    def reset(self, seed: int) -> None:
        """Nothing is remembered, nothing drawn."""

    def decide(self, seen: JobsObservation) -> Decision:
        """Increments until void, over all jobs that there are."""
        increments = Increments([seen], window=max(len(seen.jobs), 1), types=self._types)
        while increments.active[0]:
            mask = increments.mask()
            only_void = not mask[0, :-1].any()
            logits = np.zeros(mask.shape) if only_void else answer(self._params, increments.inputs(), self._layers)
            increments.give(np.where(mask, logits, FORBIDDEN).argmax(axis=1))
        return increments.decision(0)
