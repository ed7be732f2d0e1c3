"""Goal ``load``: what nodes really use comes near to the same share everywhere.

Measure: over nodes, weighted by size, the squared distance of the node's use from the cluster's, for CPU and memory.
What a pod uses moves with it. Where a pod's use was not measured it is its part of its node's, by requests; where a
node's was not, what is requested there. A node of the mean size that is 10 points off counts 0.01 for a resource.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from shared.rebalance.goals.measure import Floats, Rows
from shared.rebalance.residents import Resident
from shared.rebalance.trial import ClusterTrial
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN

KINDS_A_DOUBLING = 4
"""Pods whose uses differ by less than a quarter of a doubling are taken for alike where nodes are compared."""


class EvenLoad:
    """``used``: by node (milli-cores, bytes) measured."""

    unit = "mean squared distance from the cluster's use"
    least_gain = 0.0005

    def __init__(
        self, trial: ClusterTrial, residents: Sequence[Resident], used: Mapping[str, tuple[float, float]]
    ) -> None:
        table, self._trial = trial.table, trial
        columns = [CPU_COLUMN, MEMORY_COLUMN]
        self._capacity: Floats = table.allocatable[columns, : table.rows].astype(np.float64)
        self._capacity[:, ~table.present[: table.rows]] = 0.0
        requested: Floats = table.score_requested[:, : table.rows].astype(np.float64)
        self._use = requested.copy()
        for name, amounts in used.items():
            if name in table.row_of:
                self._use[:, table.row_of[name]] = amounts
        part = self._use / np.maximum(requested, 1.0)
        self._of: dict[str, Floats] = {}
        for one in residents:
            if one.use is not None:
                self._of[one.uid] = np.array(one.use, np.float64)
            elif (row := trial.row(one.uid)) >= 0:
                asked = np.array((one.pod.pod_class.score_cpu_millis, one.pod.pod_class.score_memory_bytes), np.float64)
                self._of[one.uid] = asked * np.minimum(part[:, row], 4.0)
        total = np.maximum(self._capacity.sum(1, keepdims=True), 1.0)
        self._mean = self._use.sum(1, keepdims=True) / total
        self._scale = total / max(1, int((self._capacity[0] > 0).sum()))

    def value(self) -> float:
        """Summed over nodes."""
        return float(self._at(self._use, np.arange(self._use.shape[1])).sum())

    def kind(self, resident: Resident) -> Hashable:
        """Equal classes of about equal use."""
        use = self._of.get(resident.uid)
        levels = () if use is None else tuple(np.round(np.log2(np.maximum(use, 1.0)) * KINDS_A_DOUBLING).tolist())
        return resident.replacement.pod_class, levels

    def leaving(self, residents: Sequence[Resident]) -> Floats:
        """See ``GoalMeasure``."""
        rows = np.array([self._trial.row(one.uid) for one in residents], np.int64)
        mine = np.array([self._of[one.uid] for one in residents], np.float64).reshape(-1, 2).T
        here = self._use[:, rows]
        return self._at(here - mine, rows) - self._at(here, rows)

    def coming(self, resident: Resident, rows: Rows) -> Floats:
        """See ``GoalMeasure``."""
        here = self._use[:, rows]
        return self._at(here + self._of[resident.uid][:, None], rows) - self._at(here, rows)

    def moved(self, resident: Resident, rows: Rows) -> None:
        """See ``GoalMeasure``."""
        mine = self._of[resident.uid]
        self._use[:, rows[0]] -= mine
        self._use[:, rows[1]] += mine

    def _at(self, use: Floats, rows: Rows) -> Floats:
        capacity = self._capacity[:, rows]
        share = use / np.maximum(capacity, 1.0)
        found: Floats = (capacity / self._scale * (share - self._mean) ** 2).sum(0)
        return found
