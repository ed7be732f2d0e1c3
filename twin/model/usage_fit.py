"""Estimates what pods use from what nodes used: the sum over a node's pods, plus what the node uses by itself.

A capture says how much each node used, not each pod. Pods of one owner use alike, so for every part

    seen[node, t] = base[node] + sum over groups g of count[g, node, t] * use[g] + noise

is solved for ``base`` and ``use``, both >= 0, by least squares drawn a little towards the pods' requests: a group that
is always there together with another cannot be told apart from it, and then the requests decide. Solved by cyclic
coordinate descent, whose steps are exact for one unknown at a time (non-negative least squares; Franc, Hlavac, Navara,
"Sequential coordinate-wise algorithm for the NNLS problem", CAIP 2005). Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PULL = 1e-3
"""Weight of the requests, as a share of the mean square of a column: enough to decide what the data leave open."""
MAX_ROUNDS = 2_000
SETTLED = 1e-9


def fit(counts: Array, seen: Array, prior: Array) -> tuple[Array, Array]:
    """(``base`` [nodes, parts], ``use`` [groups, parts]).

    ``counts`` [groups, nodes, steps]: how many of a group's pods ran; ``seen`` [nodes, steps, parts], NaN where nothing
    was measured; ``prior`` [groups, parts]: what is believed without evidence. A part that was never measured keeps the
    prior, and a base of 0.
    """
    groups, nodes, steps = counts.shape
    base, use = np.zeros((nodes, seen.shape[2])), np.array(prior, np.float64)
    own = np.kron(np.eye(nodes), np.ones((steps, 1)))  # [nodes * steps, nodes]: which rows are a node's
    design = np.hstack([own, counts.reshape(groups, nodes * steps).T])
    for part in range(seen.shape[2]):
        wanted = seen[:, :, part].reshape(-1)
        known = ~np.isnan(wanted)
        if not known.any():
            continue
        expected = np.concatenate([np.zeros(nodes), prior[:, part]])
        found = non_negative(design[known], wanted[known], expected)
        base[:, part], use[:, part] = found[:nodes], found[nodes:]
    return base, use


def non_negative(design: Array, wanted: Array, expected: Array) -> Array:
    """The x >= 0 that makes ``|design x - wanted|^2 + sum of w (x - expected)^2`` least, ``w`` by ``PULL``."""
    gram, right = design.T @ design, design.T @ wanted
    weight = np.maximum(np.diag(gram) * PULL, 1e-12)
    gram = gram + np.diag(weight)
    right = right + weight * expected
    x = np.maximum(expected, 0.0)
    slope = gram @ x - right
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-12)
    for _ in range(MAX_ROUNDS):
        largest = 0.0
        for at in range(len(x)):
            step = max(x[at] - slope[at] / gram[at, at], 0.0) - x[at]
            if step:
                x[at] += step
                slope += gram[:, at] * step
                largest = max(largest, abs(step))
        if largest < SETTLED * scale:
            break
    return x
