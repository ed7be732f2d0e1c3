"""What a goal that single moves serve tells of a cluster: its measure, and what a pod's leaving or coming changes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.rebalance.residents import Resident

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class GoalMeasure(Protocol):
    """A sum over nodes, of which less is nearer to the goal. ``unit``: of its value, for people; ``least_gain``: of a
    move that is worth a disturbance, unless somebody says otherwise."""

    unit: str
    least_gain: float

    def value(self) -> float:
        """As the cluster stands now."""
        ...

    def kind(self, resident: Resident) -> Hashable:
        """Pods of one kind change a node alike by coming to it."""
        ...

    def leaving(self, residents: Sequence[Resident]) -> Floats:
        """By how much the value grows if each alone left the node that it stands on."""
        ...

    def coming(self, resident: Resident, rows: Rows) -> Floats:
        """By how much it grows if the pod came to each of these rows; anything where there is no room."""
        ...

    def moved(self, resident: Resident, rows: Rows) -> None:
        """The pod has left the first row and come to the second."""
        ...
