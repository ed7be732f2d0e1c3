"""Goal ``latency``: pods whose limit of latency is broken where they stand come to nodes that keep it.

Measure: over pods, by how many milliseconds the node's latency, as last measured, is beyond the hard limit (where there
is none, the soft one). A node whose latency is not known is beyond a strict limit by the limit itself, of others it
is taken to keep it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from shared.model.constraints import PodClass
from shared.rebalance.goals.measure import Floats, Rows
from shared.rebalance.residents import Resident
from shared.rebalance.trial import ClusterTrial

MICROSECONDS = 1000.0


class KeptLatency:
    """``residents``: all whose limits count."""

    unit = "ms beyond limits"
    least_gain = 1.0

    def __init__(self, trial: ClusterTrial, residents: Sequence[Resident]) -> None:
        self._trial = trial
        self._limited = [one for one in residents if _limit(one.replacement.pod_class)]

    def value(self) -> float:
        """Summed over pods."""
        return float(-self.leaving(self._limited).sum()) if self._limited else 0.0

    def kind(self, resident: Resident) -> Hashable:
        """Equal classes."""
        return resident.replacement.pod_class

    def leaving(self, residents: Sequence[Resident]) -> Floats:
        """See ``GoalMeasure``."""
        found = np.zeros(len(residents))
        for index, one in enumerate(residents):
            if _limit(one.replacement.pod_class) and (row := self._trial.row(one.uid)) >= 0:
                found[index] = -self._excess(one.replacement.pod_class, np.array([row]))[0]
        return found

    def coming(self, resident: Resident, rows: Rows) -> Floats:
        """See ``GoalMeasure``."""
        return self._excess(resident.replacement.pod_class, rows)

    def moved(self, resident: Resident, rows: Rows) -> None:
        """Latencies are the nodes'."""

    def _excess(self, pod_class: PodClass, rows: Rows) -> Floats:
        limit = _limit(pod_class)
        if not limit:
            return np.zeros(len(rows))
        measured = self._trial.table.newest_latency(pod_class.latency_target, rows)
        unknown = limit if pod_class.latency_strict else 0
        found: Floats = np.where(measured < 0, unknown, np.maximum(measured - limit, 0)) / MICROSECONDS
        return found


def _limit(pod_class: PodClass) -> int:
    return pod_class.latency_hard_us or pod_class.latency_soft_us
