"""A user's own reward as the goal of a roll-out: ``reward: 1 - nodes_used / nodes``.

The expression that weights were trained by (``--reward``, in their card) is worked out for every feasible node, from
the same features of a placement as in training (``lab/environments/own_reward.py``). What a roll-out
cannot know is no feature here: signals, the twin's hour, and what a plug-in looks at.

Nodes that are alike in all that an expression can read share one evaluation; of more than ``MOST_KINDS`` kinds those
next to each other in load do, so that a sample costs the same on 100 nodes and on 10,000.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.policy.rewards.expression import Expression
from shared.policy.rollout.costs import Costs, load_of
from shared.policy.rollout.room import Room
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

PREFIX = "reward:"
MOST_KINDS = 64

FEATURES = (
    "load", "load_least", "load_mean", "load_most", "candidates", "nodes", "nodes_used", "pods", "pods_most",
    "pods_least", "latency_ms", "latency_soft_ms", "latency_hard_ms", "latency_kept",
)  # fmt: skip
"""What a reward may read, as in training."""


class ExpressionGoal:
    """Costs of nodes by one expression."""

    def __init__(self, text: str) -> None:
        """``text``: after the prefix. Raises ``RewardInvalid``, which names the column."""
        self._worth = Expression(text, FEATURES, field="goal")

    def __call__(self, table: NodeTable, pod_class: PodClass, rows: IntArray, room: Room) -> Costs:  # noqa: ARG002
        """Minus the worth of each row. Raises ``RewardFailed``: it has no finite value on one of them."""
        load, latency = load_of(table, rows), table.latency_to(pod_class.latency_target, rows)
        pods = table.requested[PODS_COLUMN]
        live = pods[table.live_rows()]
        first, kind_of = _kinds(load, pods[rows], latency)
        if len(first) > MOST_KINDS:
            bands = np.searchsorted(np.linspace(load.min(), load.max(), MOST_KINDS + 1)[1:-1], load)
            first, kind_of = _kinds(bands)
        kinds = zip(load[first].tolist(), pods[rows][first].tolist(), latency[first].tolist(), strict=True)
        soft, hard = pod_class.latency_soft_us, pod_class.latency_hard_us
        same = {
            "load_least": float(load.min()),
            "load_mean": float(load.mean()),
            "load_most": float(load.max()),
            "candidates": float(len(rows)),
            "nodes": float(len(live)),
            "pods": float(live.sum() + 1),
            "latency_soft_ms": soft / 1000,
            "latency_hard_ms": hard / 1000,
        }
        used, least, most = int((live > 0).sum()), int(live.min(initial=0)), int(live.max(initial=0))
        fewest = int((live == least).sum())
        costs = [
            -self._worth(
                {
                    **same,
                    "load": float(there),
                    "nodes_used": float(used + (count == 0)),
                    "pods_most": float(max(most, count + 1)),
                    "pods_least": float(least + (fewest == 1 and count == least)),
                    "latency_ms": microseconds / 1000 if microseconds >= 0 else -1.0,
                    "latency_kept": _kept(microseconds, soft, hard),
                }
            )
            for there, count, microseconds in kinds
        ]
        return np.asarray(costs, np.float64)[kind_of]


def _kinds(*columns: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """(of each kind the first row, the kind of each row): rows are alike that are equal in every column."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        distinct, places = np.unique(column, return_inverse=True)
        code = np.unique(code * len(distinct) + places, return_inverse=True)[1]
    _, first, kind_of = np.unique(code, return_index=True, return_inverse=True)
    return first, kind_of


def _kept(latency_us: float, soft_us: int, hard_us: int) -> float:
    """1 within the soft limit, 0.5 within the hard one, else 0; no limit is kept, and an unknown latency keeps none."""
    if not soft_us or 0 <= latency_us <= soft_us:
        return 1.0
    return 0.5 if not hard_us or 0 <= latency_us <= hard_us else 0.0
