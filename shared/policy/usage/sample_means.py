"""What the last samples of each node showed in the mean: their noise is less than that of the last one alone.

A mean of use alone would be late: pods came and went while its samples were taken. So the pods that the samples
showed are averaged by the same weights, and who knows what stands there now adds the difference, at what its pods are
expected to use: free of lag as far as pods are told, free of noise as far as samples are many. What changes in a node
without a pod is followed with the mean's age. An exponential mean: of a sample ``mean_s`` old e^-1 is left. Pure.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shared.policy.usage.class_usage import PARTS, FloatArray

MEAN_S = 30.0
"""Six samples of a sensor, two of a metrics API. How it was chosen: docs/policies/marl-dqn.md."""


class SampleMeans:
    """By slot: ``amounts`` [slots, PARTS] in reference nodes, ``shown`` [slots, columns] pods by workload.

    ``mean_s`` 0: the last sample alone counts.
    """

    def __init__(self, columns: int, mean_s: float) -> None:
        self.mean_s = mean_s
        self.amounts: FloatArray = np.zeros((0, PARTS))
        self.shown: FloatArray = np.zeros((0, columns))
        self._newest_s: FloatArray = np.zeros(0)
        self._masked: NDArray[np.bool_] = np.zeros((0, PARTS), np.bool_)

    def take(
        self, slots: NDArray[np.int64], amounts: FloatArray, seen: FloatArray, newest_s: FloatArray,
        masked: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Samples that show ``amounts`` [samples, PARTS] and ``seen`` [samples, columns], whose newest parts were
        measured ``newest_s``. One that tells other parts than those before begins anew."""
        new = np.ones(len(slots))
        if self.mean_s:
            same = (masked == self._masked[slots]).all(axis=1)
            new[same] = -np.expm1(np.minimum(self._newest_s[slots] - newest_s, 0.0)[same] / self.mean_s)
        self.amounts[slots] += new[:, None] * (amounts - self.amounts[slots])
        self.shown[slots] += new[:, None] * (seen - self.shown[slots])
        self._newest_s[slots], self._masked[slots] = newest_s, masked

    def show(self, slot: int, column: int, since_s: float) -> None:
        """The samples showed a pod since then of which nobody had told."""
        passed_s = self._newest_s.item(slot) - since_s
        whole = not self.mean_s or passed_s == -np.inf  # where the next sample counts alone the mean is of no age
        self.shown[slot, column] += 1.0 if whole else -math.expm1(-max(passed_s, 0.0) / self.mean_s)

    def begin_anew(self, slot: int) -> None:
        """The next sample of it counts alone."""
        self._newest_s[slot] = -np.inf

    def forget(self, slots: list[int]) -> None:
        """Nothing is known of these."""
        self.amounts[slots], self.shown[slots], self._newest_s[slots] = 0.0, 0.0, -np.inf

    def forget_workloads(self, columns: list[int]) -> None:
        """These columns may be given to others; what is left of them in means fades."""
        self.shown[:, columns] = 0.0

    def grow(self, slots: int, columns: int) -> None:
        """Room for so many more. For columns in steps: workloads come one by one, nodes are thousands."""
        rows, wide = self.shown.shape
        room, wider = self.shown.base, wide + columns
        if slots or room is None or room.shape[0] != rows or room.shape[1] < wider:
            room = np.zeros((rows + slots, wider + wider // 4))
            room[:rows, :wide] = self.shown
        self.shown = room[:, :wider]
        if not slots:
            return
        self.amounts = np.pad(self.amounts, ((0, slots), (0, 0)))
        self._newest_s = np.pad(self._newest_s, (0, slots), constant_values=-np.inf)
        self._masked = np.pad(self._masked, ((0, slots), (0, 0)))
