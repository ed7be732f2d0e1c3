"""What a policy does, in figures a person can judge: how often it agrees with another, where it differs, what it costs.

Pure data and the step that makes it from decisions; who drives the cluster model and hands the decisions in is
``shared.experiments.evaluation.worlds.table_run``. Decisions are grouped by ``clusters`` over what the moment looked
like and how full the chosen node was, so that "where it differs" names situations, not pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.experiments.evaluation.behaviour.clusters import k_means

SITUATION = (
    "pod cpu, share of a node",
    "pod memory, share of a node",
    "candidates, share of all nodes",
    "mean requested share",
    "deviation of requested share",
    "chosen node's fullness rank",
)
"""One number each per decision; the rank is 0 for the emptiest candidate, 1 for the fullest, ties in the middle."""
RANK = len(SITUATION) - 1

GROUPS = 4
"""Enough to tell early from late and small from large; more would not be read."""


@dataclass(frozen=True)
class Choice:
    """One decision beside what the baseline would have done in the same state.

    ``situation``: the numbers of ``SITUATION``. ``baseline_rank``: the fullness rank of the baseline's node.
    ``agrees``: the chosen node is among those the baseline scores highest. ``regret``: the baseline's highest score
    less its score of the chosen node, in the baseline's own units.
    """

    situation: tuple[float, ...]
    baseline_rank: float
    agrees: bool
    regret: float


@dataclass(frozen=True)
class Group:
    """Decisions that are alike: ``means`` over ``SITUATION``, and how they compare with the baseline's."""

    count: int
    agreement: float
    baseline_rank: float
    means: tuple[float, ...]


@dataclass(frozen=True)
class Behaviour:
    """A policy beside a baseline. ``costs``: figure -> (the policy's, the baseline's), each from its own run.

    ``groups`` are ordered from the least agreement to the most; ``regret`` is the mean over all choices.
    """

    policy: str
    baseline: str
    decisions: int
    agreement: float
    regret: float
    groups: tuple[Group, ...]
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One object, with the names of the groups' means beside them."""
        return {
            "policy": self.policy,
            "baseline": self.baseline,
            "decisions": self.decisions,
            "agreement": self.agreement,
            "regret": self.regret,
            "groups": [
                {
                    "count": group.count,
                    "agreement": group.agreement,
                    "baseline_rank": group.baseline_rank,
                    "means": dict(zip(SITUATION, group.means, strict=True)),
                }
                for group in self.groups
            ],
            "costs": {name: {"own": own, "baseline": other} for name, (own, other) in self.costs.items()},
        }


def behaviour_of(
    choices: Sequence[Choice], *, policy: str, baseline: str, costs: Mapping[str, tuple[float, float]], seed: int
) -> Behaviour:
    """Sum up ``choices``; ``seed`` draws the first centres of the groups. Raises ``ValueError`` without a choice."""
    if not choices:
        raise ValueError("no decision to sum up")
    points = np.array([choice.situation for choice in choices], np.float64)
    agrees = np.array([choice.agrees for choice in choices])
    ranks = np.array([choice.baseline_rank for choice in choices])
    labels = k_means(points, GROUPS, seed=seed)
    groups = [_group(points, agrees, ranks, labels == label) for label in range(int(labels.max()) + 1)]
    return Behaviour(
        policy,
        baseline,
        len(choices),
        float(agrees.mean()),
        float(np.mean([choice.regret for choice in choices])),
        tuple(sorted(groups, key=lambda group: (group.agreement, -group.count))),
        dict(costs),
    )


def _group(
    points: NDArray[np.float64], agrees: NDArray[np.bool_], ranks: NDArray[np.float64], inside: NDArray[np.bool_]
) -> Group:
    return Group(
        int(inside.sum()),
        float(agrees[inside].mean()),
        float(ranks[inside].mean()),
        tuple(float(value) for value in points[inside].mean(axis=0)),
    )
