"""What a choice is worth, so that two policies can be compared on the same decision without acting on both.

A *goal* gives each feasible node a cost (``costs.py``): what the cluster would look like with the pod there. The
*value* of a choice is where it lies between the worst and the best feasible node: 1 the best, 0 the worst. So a
window's mean value has one meaning in any cluster, and does not drown in what the choice cannot change. Sampled
decisions where the goal tells no node from another say nothing and are left out.

Both policies are measured by the same goal: the operator's, else the one that the candidate is for (``goal_of`` in
``policy/registry.py``), else ``neutral``; and by ``neutral`` beside it. ``neutral`` adds the two ways in which a
placement may harm what comes later, both as shares of the cluster, so both of the order of one pod's share of it:

    neutral = imbalance of the nodes with the pod there (``balance``) + room that the pod takes (``policy.room``)

Counterfactual: it looks one placement ahead, at what the pod requests, not at usage that nobody has measured yet. Loads
are those that policies go by (``usage.load``): else one that goes by measured use would lose for what it is made for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.policy.rewards.expression import RewardInvalid
from shared.policy.rollout import costs
from shared.policy.rollout.costs import Costs
from shared.policy.rollout.expression_goal import PREFIX, ExpressionGoal
from shared.policy.rollout.room import RoomMeasure
from shared.scheduling.state.node_table import IntArray, NodeTable

Goal = Callable[[NodeTable, PodClass, IntArray, RoomMeasure], Costs]
"""(table, class, feasible rows, room) to the cost of each row, lower is better."""

NEUTRAL = "neutral"
CARD = "card"
"""In settings: the goal that the candidate is for."""

INDIFFERENT = 1e-9
"""Costs closer together than this count as equal."""

GOALS: Mapping[str, Goal] = {
    NEUTRAL: lambda table, pod_class, rows, room: (
        costs.balance(table, pod_class, rows, room.load_parts) + room.taken(table, pod_class, rows)
    ),
    "balance": lambda table, pod_class, rows, room: costs.balance(table, pod_class, rows, room.load_parts),
    "gpus": lambda table, pod_class, rows, room: room.gpus_taken(table, pod_class, rows),
    "joules": lambda table, pod_class, rows, room: costs.watts(table, pod_class, rows, room.power),
    "latency": lambda table, pod_class, rows, _: costs.latency(table, pod_class, rows),
    "nodes": lambda table, pod_class, rows, room: costs.nodes(table, pod_class, rows, room.load_parts),
    "packing": lambda table, pod_class, rows, room: costs.packing(table, pod_class, rows, room.load_parts),
    "room": lambda table, pod_class, rows, room: room.taken(table, pod_class, rows),
}
"""By the name that a card, or an operator, gives."""


class GoalUnknown(ConfigError):
    """There is no such goal, or an expression that a roll-out cannot work out. The message names the remedy."""

    code = "goal_unknown"


@lru_cache(maxsize=64)
def goal_named(name: str) -> Goal:
    """The goal of that name, or the expression after ``reward:``. Raises ``GoalUnknown``."""
    if name in GOALS:
        return GOALS[name]
    if name.startswith(PREFIX):
        try:
            return ExpressionGoal(name.removeprefix(PREFIX))
        except RewardInvalid as error:
            raise GoalUnknown(f"{error}; or compare by another one with --goal") from None
    raise GoalUnknown(f"goal: {name!r} is not known; choose one of {', '.join(GOALS)}, or {PREFIX} EXPRESSION")


def known_goal(name: str) -> bool:
    """Whether there is such a goal."""
    try:
        goal_named(name)
    except GoalUnknown:
        return False
    return True


def values(costs: Costs) -> Costs | None:
    """The value of choosing each candidate, 0 to 1; None where they are all the same."""
    if not len(costs):
        return None
    best, worst = costs.min(), costs.max()
    if not worst - best > INDIFFERENT:
        return None
    return np.asarray((worst - costs) / (worst - best), np.float64)
