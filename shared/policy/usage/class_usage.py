"""What a pod of each workload really uses, learned from nodes' measurements alone.

A node's use is the sum of what its pods use: y = base + sum over workloads c of n_c u_c. Each sample of a node (the
counts n of that moment, the use y) is one equation; the u_c are its ridge regression with the requests as the prior
mean, so a workload never seen counts by its requests and a few samples outweigh them. Only past measurements enter.
A node that is full to the brim tells too little about demand and is left out. One that sees a part of the nodes only
is told what who sees all has learned (``teach``), and then learns nothing itself: one node's counts of several
workloads hardly tell them apart. Pure; refuses to forget a workload while there is room, and counts all beyond
``LIMIT`` as one unless its holder forgets some that are gone (``forget``).

Source: Bishop, Pattern Recognition and Machine Learning (2006), section 3.3.1, with a Gaussian prior.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PARTS = 4
"""cpu, memory, disk writes, network: shares of a reference node's limits."""
REFERENCE = (4000.0, 8e9, 1e7, 1e7)
"""The reference node, targets T3's worker: cpu millis, memory bytes, disk write bytes/s, network bits/s."""
BASE = 0
"""Column of what a node uses without any pod of ours."""
OTHER = 1
"""Column of all workloads beyond ``LIMIT`` and of pods whose workload nobody told."""
LIMIT = 256
PRIOR_WEIGHT = 0.05
"""Equations that the prior is worth."""
MOST_WEIGHT = 20_000.0
"""Evidence above which the past counts half: what a workload uses may change."""
CENSORED = 0.98
"""A part measured above this share is cut off by the limit: its sample is not used."""


class ClassUsage:
    """``use`` float64 [columns, PARTS] per workload. Columns are given out by ``column``."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._prior: FloatArray = np.zeros((OTHER + 1, PARTS))
        self._gram: FloatArray = np.zeros((OTHER + 1, OTHER + 1))
        self._moment: FloatArray = np.zeros((OTHER + 1, PARTS))
        self._use: FloatArray | None = None
        self._free: list[int] = []
        self._taught: dict[int, tuple[FloatArray, float]] = {}

    @property
    def columns(self) -> int:
        """How many columns there are, with ``BASE`` and ``OTHER``."""
        return len(self._prior)

    @property
    def workloads(self) -> Mapping[str, int]:
        """Column by workload, the one asked for last at the end."""
        return self._columns

    def column(self, workload: str, requested: FloatArray | None = None) -> int:
        """The column of a workload, made where it is new with ``requested`` [PARTS] as its prior mean."""
        if not workload:
            return OTHER
        column = self._columns.pop(workload, None)
        if column is None:
            if self.full:
                return OTHER
            column = self._free.pop() if self._free else self._grown()
            self._prior[column] = 0.0 if requested is None else requested
            self._use = None
        self._columns[workload] = column  # as the last one asked for
        return column

    @property
    def full(self) -> bool:
        """Whether a new workload would be counted as ``OTHER``."""
        return len(self._columns) >= LIMIT

    def forget(self, workload: str) -> None:
        """A workload that no node has: its column may be given to another, what was learned of others beside it stays.

        Its use is integrated out of the equations (Bishop, 2.3.2: the Schur complement), not cut out of them: sums that
        it was part of go on telling about the others as much as they can.
        """
        column = self._columns.pop(workload)
        others, weight = self._gram[:, column].copy(), self._gram[column, column] + PRIOR_WEIGHT
        others[column] = 0.0
        known = self._moment[column] + PRIOR_WEIGHT * self._prior[column]
        self._gram -= np.outer(others, others) / weight
        self._moment -= np.outer(others, known) / weight
        self._gram[column, :] = self._gram[:, column] = 0.0
        self._moment[column] = self._prior[column] = 0.0
        self._taught.pop(column, None)
        self._free.append(column)
        self._use = None

    def _grown(self) -> int:
        """A new column at the end."""
        self._prior = np.pad(self._prior, ((0, 1), (0, 0)))
        self._gram = np.pad(self._gram, ((0, 1), (0, 1)))
        self._moment = np.pad(self._moment, ((0, 1), (0, 0)))
        return self.columns - 1

    def teach(self, column: int, use: FloatArray, evidence: float) -> None:
        """What a pod of a workload uses [PARTS], as somebody learned who sees more; ``evidence`` 0..1."""
        self._taught[column] = (np.maximum(use, 0.0), min(max(evidence, 0.0), 1.0))
        self._use = None

    def learn(
        self, counts: FloatArray, measured: FloatArray, scale: FloatArray, masked: NDArray[np.bool_] | None = None
    ) -> None:
        """Samples: ``counts`` [nodes, columns] of running pods, ``measured`` [nodes, PARTS] at the same moment as
        shares of each node's limits, ``scale`` [nodes, PARTS] of these limits in reference nodes. Of parts that are
        ``masked`` nothing is learned: they count as what is expected of their pods already."""
        if self._taught:
            return
        clear = measured.max(axis=1) < CENSORED
        if not clear.any():
            return
        rows = counts[clear]
        rows[:, BASE] = 1.0
        amounts = measured[clear] * scale[clear]
        if masked is not None and (hidden := masked[clear]).any():
            amounts = np.where(hidden, rows @ self.use, amounts)
        self._gram += rows.T @ rows
        self._moment += rows.T @ amounts
        if self._gram[BASE, BASE] > MOST_WEIGHT:
            self._gram *= 0.5
            self._moment *= 0.5
        self._use = None

    @property
    def use(self) -> FloatArray:
        """float64 [columns, PARTS], never negative: expected use of one pod as shares of a reference node."""
        if self._use is None and self._taught:
            self._use = self._prior.copy()
            for column, (use, _) in self._taught.items():
                self._use[column] = use
        elif self._use is None:
            system = self._gram + PRIOR_WEIGHT * np.eye(self.columns)
            self._use = np.maximum(np.linalg.solve(system, self._moment + PRIOR_WEIGHT * self._prior), 0.0)
        return self._use

    def evidence(self, column: int) -> float:
        """0..1: how much of the estimate is measured rather than requested."""
        if self._taught:
            return self._taught[column][1] if column in self._taught else 0.0
        seen = float(self._gram[column, column])
        return seen / (seen + PRIOR_WEIGHT)
