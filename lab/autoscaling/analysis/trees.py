"""A small decision tree for each agent (service): what it does, in a form that people can read. Pure.

The tree (CART, scikit-learn, at most four questions deep) learns the policy's steps from the policy's own inputs on one
set of seeds; its fidelity is the share of decisions on other seeds in which it takes the policy's step. Most steps are
0, so the share that "always hold" would get stands beside it, and the fidelity where the policy moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lab.autoscaling.analysis.trajectories import Trajectory
from shared.autoscaling.networks.features import FEATURES, Floats, features

DEPTH = 4
LEAST_LEAF = 5
"""Decisions that a leaf stands for, at least."""


class Tree(Struct, frozen=True, kw_only=True):
    """Shares are 0 to 1. ``moving`` None: the policy never moved. ``text``: the questions, indented; below each the
    steps where it holds, below its ``else`` the others."""

    service: str
    fidelity: float
    always_hold: float
    moving: float | None
    leaves: int
    text: str


def trees(taught: Sequence[Trajectory], asked: Sequence[Trajectory]) -> list[Tree]:
    """One tree per service, learned from ``taught``, judged on ``asked``."""
    services = list(taught[0].moments[0].signals)
    return [_tree(name, _decisions(taught, name, at), _decisions(asked, name, at)) for at, name in enumerate(services)]


def fidelity(found: Sequence[Tree]) -> float:
    """Mean over agents: each made as many decisions."""
    return float(np.mean([one.fidelity for one in found]))


def _tree(service: str, taught: tuple[Floats, NDArray[np.int64]], asked: tuple[Floats, NDArray[np.int64]]) -> Tree:
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0).fit(*taught)
    rows, steps = asked
    right = model.predict(rows) == steps
    moves = steps != 0
    lines = _lines(model.tree_, model.classes_.tolist(), 0)
    return Tree(
        service=service,
        fidelity=float(right.mean()),
        always_hold=float((~moves).mean()),
        moving=float(right[moves].mean()) if moves.any() else None,
        leaves=(len(lines) + 2) // 3,
        text="\n".join(lines),
    )


def _lines(tree: Any, steps: Sequence[int], node: int) -> list[str]:
    """A node and what is below it; a question whose answers all end in the same step is not asked."""
    if tree.children_left[node] < 0:
        return [f"{steps[int(tree.value[node][0].argmax())]:+d}"]
    below, above = (_lines(tree, steps, int(side[node])) for side in (tree.children_left, tree.children_right))
    if below == above and len(below) == 1:
        return below
    question = f"{FEATURES[tree.feature[node]]} <= {tree.threshold[node]:.2f}"
    return [question, *(f"  {line}" for line in below), "else", *(f"  {line}" for line in above)]


def _decisions(episodes: Sequence[Trajectory], service: str, at: int) -> tuple[Floats, NDArray[np.int64]]:
    moments = [moment for episode in episodes for moment in episode.moments]
    rows = features(np.array([moment.inputs[at] for moment in moments]))
    return rows, np.array([moment.steps[service] for moment in moments], np.int64)
