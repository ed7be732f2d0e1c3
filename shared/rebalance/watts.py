"""What nodes draw by their power curves, unused ones being turned off; without GPUs: their use moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.model.power import NodeWatts, PowerCurves
from shared.policy.power import model_of, node_watts
from shared.rebalance.goals.measure import Floats
from shared.scheduling.state.node_table import CPU_COLUMN, BoolArray, NodeTable


@dataclass(frozen=True, slots=True)
class DrawnPower:
    """``curves``: one per row."""

    table: NodeTable
    curves: tuple[NodeWatts, ...]

    def of_rows(self, idle: bool = False) -> Floats:
        """``[rows]``: watts as requested now; ``idle``: with nothing requested, but turned on."""
        rows = self.table.rows
        cores = self.table.allocatable[CPU_COLUMN, :rows] / 1000.0
        used = np.zeros(rows) if idle else self.table.requested[CPU_COLUMN, :rows] / 1000.0
        found, there = np.zeros(rows), np.zeros(rows, np.bool_)
        for curve in dict.fromkeys(self.curves):
            of = np.array([one is curve or one == curve for one in self.curves], np.bool_)
            found[of] = node_watts(curve, used[of], cores[of], there[of])
        return found

    def drawn(self, used: BoolArray) -> float:
        """In all, of the rows in use."""
        return float(self.of_rows()[used].sum())


def drawn_power(table: NodeTable, power: PowerCurves) -> DrawnPower:
    """Of every row by its labels."""
    nodes = table.nodes[: table.rows]
    curves = tuple(power.of_node(*(({}, "") if node is None else (node.labels, model_of(node)))) for node in nodes)
    return DrawnPower(table, curves)
