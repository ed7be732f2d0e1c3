"""The two network shapes that are run here: a ReLU MLP (placement), and Deep Sets layers (training jobs run these).

Agents need no torch: training exports arrays by name, and numpy must give what torch gave, within 1e-5. Nothing here
holds state or weights of its own; ``weights`` checks the arrays before any of this runs.

Deep Sets (Zaheer et al., NeurIPS 2017, section 3.1) replaces each layer by one that treats every candidate alike and
adds the set's pooled features, ``y_i = x_i W + pool(x) G + b``. Reordering the candidates reorders the answers and
changes nothing else, and the same arrays serve any number of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
BLOCK = 256
"""Rows that go through all layers together: what is between two layers then stays in a core's cache."""
Params = Mapping[str, Floats]
Float = TypeVar("Float", np.float32, np.float64)


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


def mlp_fault(params: Params) -> str:
    """What keeps the arrays from being one MLP, its layers fitting each other; empty: nothing does."""
    count = layer_count(params)
    if not count:
        return "there is no array 'l0.w'"
    sizes = [params["l0.w"].shape[0]] + [params[f"l{index}.w"].shape[-1] for index in range(count)]
    wanted = mlp_shapes(sizes)
    for name in sorted({*wanted, *params}):
        found = tuple(params[name].shape) if name in params else None
        if found != wanted.get(name):
            return f"array {name!r} is {found or 'missing'}, the layers need {wanted.get(name, 'none')}"
    return ""


def deep_sets_shapes(sizes: list[int], prefix: str = "") -> dict[str, tuple[int, ...]]:
    """The arrays' shapes of Deep Sets layers with ``sizes`` = [inputs, hidden ..., outputs]: an MLP's and ``.g``."""
    shapes = mlp_shapes(sizes, prefix)
    for index, (into, out) in enumerate(pairwise(sizes)):
        shapes[f"{prefix}l{index}.g"] = (into, out)
    return shapes


def mlp(params: Mapping[str, NDArray[Float]], x: NDArray[Float], layers: int, prefix: str = "") -> NDArray[Float]:
    """A ReLU MLP, linear at the end.

    ``x`` ``[..., inputs]`` to ``[..., outputs]``, all float32 or all float64; arrays ``<prefix>l<i>.w`` [in, out] and
    ``.b`` [out], as torch's ``Linear`` with its weight transposed.
    """
    if x.ndim == 2 and len(x) > BLOCK:
        blocks = [mlp(params, x[start : start + BLOCK], layers, prefix) for start in range(0, len(x), BLOCK)]
        return np.concatenate(blocks)
    for index in range(layers):
        x = x @ params[f"{prefix}l{index}.w"] + params[f"{prefix}l{index}.b"]
        if index < layers - 1:
            x = np.maximum(x, np.float32(0))
    return x
