"""A user's own reward as the goal of a roll-out: ``reward: 1 - nodes_used / nodes``.

The expression that weights were trained by (``--reward``, in their card) is worked out for every feasible node, from
the same features of a placement as in training (``lab/environments/own_reward.py``). What a roll-out
cannot know is no feature here: signals, the twin's hour, and what a plug-in looks at.

Nodes that are alike in all that the expression reads share one evaluation; of more than ``MOST_KINDS`` kinds those that
differ in load alone, and by little, do: what one that reads ``load`` costs does not grow with the nodes. One that tells
hundreds of kinds apart by latency or pods as well is worked out for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.policy.rewards.expression import RewardExpression
from shared.policy.rollout.costs import Costs
from shared.policy.rollout.room import RoomMeasure
from shared.policy.usage.load import node_load
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

PREFIX = "reward:"
MOST_KINDS = 64
"""Beyond, rows that are alike in all else are banded by load, into so many bands."""
MOST_BANDED = 8 * MOST_KINDS
"""Where even these are more kinds than so many, each row has the worth of its own."""

FEATURES = (
    "load", "load_least", "load_mean", "load_most", "candidates", "nodes", "nodes_used", "pods", "pods_most",
    "pods_least", "latency_ms", "latency_soft_ms", "latency_hard_ms", "latency_kept",
)  # fmt: skip
"""What a reward may read, as in training."""


class ExpressionGoal:
    """Costs of nodes by one expression."""

    def __init__(self, text: str) -> None:
        """``text``: after the prefix. Raises ``RewardInvalid``, which names the column."""
        self._worth = RewardExpression(text, FEATURES, field="goal")
        self._read = self._worth.names

    def __call__(self, table: NodeTable, pod_class: PodClass, rows: IntArray, room: RoomMeasure) -> Costs:
        """Minus the worth of each row. Raises ``RewardFailed``: it has no finite value on one of them."""
        load, latency = node_load(table, rows, room.load_parts), table.latency_to(pod_class.latency_target, rows)
        pods = table.requested[PODS_COLUMN]
        live, there = pods[table.live_rows()], pods[rows]
        soft, hard = pod_class.latency_soft_us, pod_class.latency_hard_us
        values = {
            "load_least": float(load.min()),
            "load_mean": float(load.mean()),
            "load_most": float(load.max()),
            "candidates": float(len(rows)),
            "nodes": float(len(live)),
            "pods": float(live.sum() + 1),
            "latency_soft_ms": soft / 1000,
            "latency_hard_ms": hard / 1000,
        }
        least, most = (int(live.min()), int(live.max())) if len(live) else (0, 0)
        alone = int((live == least).sum()) == 1
        of_row = {
            "load": load,
            "nodes_used": int((live > 0).sum()) + (there == 0),
            "pods_most": np.maximum(most, there + 1),
            "pods_least": least + (alone & (there == least)),
            "latency_ms": np.where(latency >= 0, latency / 1000, -1.0),
            "latency_kept": _kept(latency, soft, hard),
        }
        read = {name: column for name, column in of_row.items() if name in self._read}
        first, kind_of = _kinds(len(rows), read.values())
        if len(first) > MOST_KINDS and "load" in read:
            bands = np.searchsorted(np.linspace(load.min(), load.max(), MOST_KINDS + 1)[1:-1], load)
            banded = _kinds(len(rows), {**read, "load": bands}.values())
            if len(banded[0]) <= MOST_BANDED:
                first, kind_of = banded
        told = {name: column[first].astype(np.float64).tolist() for name, column in read.items()}
        costs: list[float] = []
        for kind in range(len(first)):
            for name, column in told.items():
                values[name] = column[kind]
            costs.append(-self._worth(values))
        return np.asarray(costs, np.float64)[kind_of]


def _kinds(rows: int, columns: Iterable[NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """(of each kind the first row, the kind of each row): rows are alike that are equal in every column."""
    code = np.zeros(rows, np.int64)
    for column in columns:
        distinct, places = np.unique(column, return_inverse=True)
        code = np.unique(code * len(distinct) + places, return_inverse=True)[1]
    _, first, kind_of = np.unique(code, return_index=True, return_inverse=True)
    return first, kind_of


def _kept(latency_us: NDArray[Any], soft_us: int, hard_us: int) -> NDArray[np.float64]:
    """1 within the soft limit, 0.5 within the hard one, else 0; no limit is kept, and an unknown latency keeps none."""
    soft, hard = ((latency_us >= 0) & (latency_us <= most) | (not most) for most in (soft_us, hard_us))
    return np.where(soft, 1.0, np.where(hard, 0.5, 0.0))
