"""Deep Sets layers as the paper writes them, to hold the buffered ones of the product to."""

from __future__ import annotations

import numpy as np

from shared.policy.networks import Floats, Params


def deep_sets(params: Params, x: Floats, layers: int) -> Floats:
    """``y_i = x_i W + max(x) G + b``, ReLU between; float32 ``[candidates, inputs]`` to ``[candidates, outputs]``."""
    for index in range(layers):
        pooled = x.max(-2, keepdims=True)
        x = x @ params[f"l{index}.w"] + pooled @ params[f"l{index}.g"] + params[f"l{index}.b"]
        x = np.maximum(x, np.float32(0)) if index < layers - 1 else x
    return x
