"""``jobs-dl2``: DL2's network (Peng et al., TPDS 2021): an MLP over a window of jobs, asked again and again until void.

Actions and state: ``increments``. The best allowed action is taken; nothing is drawn. Which models have an input of
their own, and how long the window is, follow from the weights and their card.
"""

from __future__ import annotations

import numpy as np

from shared.errors import ConfigError
from shared.jobs.observation import Decision, Observation
from shared.jobs.policies.learned.increments import KINDS, OF_JOB, Increments
from shared.policy.networks import layer_count, mlp, mlp_fault
from shared.policy.weights import WeightsFile

NAME = "jobs-dl2"
TYPE = "type "
"""Before a model's name, among the card's features."""
FORBIDDEN = np.float32(-1e9)


def features_of(types: list[str]) -> list[str]:
    """The names of a slot's inputs, in order, for the card."""
    return [f"{TYPE}{name}" for name in types] + list(OF_JOB)


class Dl2:
    """See the module; no weights are shipped. ``ConfigError``: weights of another shape."""

    name = NAME

    def __init__(self, file: WeightsFile) -> None:
        self._params = file.arrays
        self._types = [one.removeprefix(TYPE) for one in file.card.features if one.startswith(TYPE)]
        self._layers = layer_count(file.arrays)
        fault = mlp_fault(file.arrays)
        if not fault:
            outputs, inputs = file.arrays[f"l{self._layers - 1}.w"].shape[1], file.arrays["l0.w"].shape[0]
            self._window = (outputs - 1) // KINDS
            wanted = self._window * (len(self._types) + len(OF_JOB))
            if inputs != wanted or outputs != KINDS * self._window + 1:
                fault = f"{inputs} inputs and {outputs} actions are no window of {len(self._types)} types"
        if fault:
            raise ConfigError(f"weights of {file.title}: {fault}; train again")

    def reset(self, seed: int) -> None:
        """Nothing is remembered, nothing drawn."""

    def decide(self, seen: Observation) -> Decision:
        """Increments until void."""
        increments = Increments([seen], window=self._window, types=self._types)
        while increments.active[0]:
            logits = mlp(self._params, increments.inputs(), self._layers)
            increments.give(np.where(increments.mask(), logits, FORBIDDEN).argmax(axis=1))
        return increments.decision(0)
