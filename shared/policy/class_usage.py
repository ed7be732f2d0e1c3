"""What a pod of each workload really uses, learned from nodes' measurements alone.

A node's use is the sum of what its pods use: y = base + sum over workloads c of n_c u_c. Each sample of a node (the
counts n of that moment, the use y) is one equation; the u_c are its ridge regression with the requests as the prior
mean, so a workload never seen counts by its requests and a few samples outweigh them. Only past measurements enter.
A node that is full to the brim tells too little about demand and is left out. Pure; refuses to forget a workload while
there is room and counts all beyond ``LIMIT`` as one.

Source: Bishop, Pattern Recognition and Machine Learning (2006), section 3.3.1, with a Gaussian prior.
"""

from __future__ import annotations

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

    @property
    def columns(self) -> int:
        """How many columns there are, with ``BASE`` and ``OTHER``."""
        return len(self._prior)

    def column(self, workload: str, requested: FloatArray | None = None) -> int:
        """The column of a workload, made where it is new with ``requested`` [PARTS] as its prior mean."""
        if not workload:
            return OTHER
        column = self._columns.get(workload)
        if column is None:
            if len(self._columns) >= LIMIT:
                return OTHER
            column = self._columns[workload] = self.columns
            self._prior = np.vstack((self._prior, np.zeros(PARTS) if requested is None else requested))
            self._gram = np.pad(self._gram, ((0, 1), (0, 1)))
            self._moment = np.pad(self._moment, ((0, 1), (0, 0)))
            self._use = None
        return column

    def learn(self, counts: FloatArray, measured: FloatArray, scale: FloatArray) -> None:
        """Samples: ``counts`` [nodes, columns] of running pods, ``measured`` [nodes, PARTS] at the same moment as
        shares of each node's limits, ``scale`` [nodes, PARTS] of these limits in reference nodes."""
        clear = measured.max(axis=1) < CENSORED
        if not clear.any():
            return
        rows = counts[clear]
        rows[:, BASE] = 1.0
        self._gram += rows.T @ rows
        self._moment += rows.T @ (measured[clear] * scale[clear])
        if self._gram[BASE, BASE] > MOST_WEIGHT:
            self._gram *= 0.5
            self._moment *= 0.5
        self._use = None

    @property
    def use(self) -> FloatArray:
        """float64 [columns, PARTS], never negative: expected use of one pod as shares of a reference node."""
        if self._use is None:
            system = self._gram + PRIOR_WEIGHT * np.eye(self.columns)
            self._use = np.maximum(np.linalg.solve(system, self._moment + PRIOR_WEIGHT * self._prior), 0.0)
        return self._use

    def evidence(self, column: int) -> float:
        """0..1: how much of the estimate is measured rather than requested."""
        seen = float(self._gram[column, column])
        return seen / (seen + PRIOR_WEIGHT)
