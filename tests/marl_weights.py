"""Hand-made weights of marl-dqn whose behaviour is known: for tests that need a good, a terrible or a broken policy."""

from __future__ import annotations

import numpy as np

from shared.policy.marl_features import FEATURES
from shared.policy.weights import Card, WeightsFile, decode, encode


def weights(kind: str = "good", *, version: int = 1) -> WeightsFile:
    """``good``: the node that is least loaded with the pod; ``terrible``: the most loaded; ``broken``: finite weights
    whose values overflow to NaN."""
    array = np.zeros((len(FEATURES), 2), np.float32)
    place = FEATURES.index("requested_above_mean")
    match kind:
        case "good":
            array[place, 1] = -1.0
        case "terrible":
            array[place, 1] = 1.0
        case "broken":
            array[:] = 3e38
    made = WeightsFile(
        {"l0.w": array, "l0.b": np.array([0.0, 1.0], np.float32)},
        Card(policy="marl-dqn", version=version, features=list(FEATURES), trained={"command": "made by hand"}),
    )
    return decode(encode(made), policy="marl-dqn")
