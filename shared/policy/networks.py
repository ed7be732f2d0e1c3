"""The two network shapes that agents run, in numpy: a ReLU MLP, and Deep Sets over the candidates.

Agents need no torch: training exports arrays by name, and these functions must give what torch gave, within 1e-5. They
hold no state and no weights of their own; ``weights`` checks the arrays before any of this runs.

Deep Sets (Zaheer et al., NeurIPS 2017, section 3.1) replaces each layer by one that treats every candidate alike and
adds the set's pooled features, ``y_i = x_i W + pool(x) G + b``. Reordering the candidates reorders the answers and
changes nothing else, and the same arrays serve any number of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Params = Mapping[str, Floats]
Pool = Literal["mean", "max"]


def layer_count(params: Params, prefix: str = "") -> int:
    """How many layers ``<prefix>l0``, ``<prefix>l1``, ... the arrays hold."""
    count = 0
    while f"{prefix}l{count}.w" in params:
        count += 1
    return count


def mlp_shapes(sizes: list[int], prefix: str = "") -> dict[str, tuple[int, ...]]:
    """The arrays' shapes of an MLP with ``sizes`` = [inputs, hidden ..., outputs]; for ``weights.decode``."""
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (into, out) in enumerate(pairwise(sizes)):
        shapes[f"{prefix}l{index}.w"] = (into, out)
        shapes[f"{prefix}l{index}.b"] = (out,)
    return shapes


def is_mlp(params: Params) -> bool:
    """Whether the arrays are an MLP's and nothing else, each layer taking what the one before gives."""
    layers = layer_count(params)
    if not layers or any(f"l{index}.b" not in params for index in range(layers)) or params["l0.w"].ndim != 2:
        return False
    sizes = [params["l0.w"].shape[0], *(params[f"l{index}.b"].size for index in range(layers))]
    return {name: array.shape for name, array in params.items()} == mlp_shapes(sizes)


def deep_sets_shapes(sizes: list[int], prefix: str = "") -> dict[str, tuple[int, ...]]:
    """The arrays' shapes of Deep Sets layers with ``sizes`` = [inputs, hidden ..., outputs]: an MLP's and ``.g``."""
    shapes = mlp_shapes(sizes, prefix)
    for index, (into, out) in enumerate(pairwise(sizes)):
        shapes[f"{prefix}l{index}.g"] = (into, out)
    return shapes


def mlp(params: Params, x: Floats, layers: int, prefix: str = "") -> Floats:
    """A ReLU MLP, linear at the end.

    ``x`` float32 ``[..., inputs]`` to float32 ``[..., outputs]``; arrays ``<prefix>l<i>.w`` [in, out] and ``.b`` [out],
    as torch's ``Linear`` with its weight transposed.
    """
    for index in range(layers):
        x = x @ params[f"{prefix}l{index}.w"] + params[f"{prefix}l{index}.b"]
        if index < layers - 1:
            x = np.maximum(x, np.float32(0))
    return x


def deep_sets(
    params: Params,
    x: Floats,
    layers: int,
    *,
    mask: NDArray[np.bool_] | None = None,
    pool: Pool = "mean",
    prefix: str = "",
) -> Floats:
    """Permutation-equivariant layers with ReLU between them, linear at the end.

    ``x`` float32 ``[..., candidates, inputs]`` to float32 ``[..., candidates, outputs]``. ``mask`` bool
    ``[..., candidates]``: only these are pooled; what comes out for the others means nothing. Arrays: an MLP's, and
    ``<prefix>l<i>.g`` [in, out] for the pooled features.
    """
    for index in range(layers):
        pooled = _pooled(x, mask, pool)
        own = x @ params[f"{prefix}l{index}.w"]
        x = own + (pooled @ params[f"{prefix}l{index}.g"] + params[f"{prefix}l{index}.b"])
        if index < layers - 1:
            x = np.maximum(x, np.float32(0))
    return x


def _pooled(x: Floats, mask: NDArray[np.bool_] | None, pool: Pool) -> Floats:
    """The set's features, float32 ``[..., 1, inputs]``; zeros for an empty set."""
    if x.shape[-2] == 0:
        return np.zeros((*x.shape[:-2], 1, x.shape[-1]), np.float32)
    if mask is None:
        return np.asarray(x.mean(-2, keepdims=True) if pool == "mean" else x.max(-2, keepdims=True), np.float32)
    shown = mask[..., None]
    if pool == "mean":
        count = np.maximum(shown.sum(-2, keepdims=True, dtype=np.float32), np.float32(1))
        return np.asarray(np.where(shown, x, np.float32(0)).sum(-2, keepdims=True) / count, np.float32)
    best = np.where(shown, x, np.float32(-np.inf)).max(-2, keepdims=True)
    return np.asarray(np.where(np.isfinite(best), best, np.float32(0)), np.float32)
