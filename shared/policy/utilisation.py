"""What nodes were last seen to use, and what is known to have changed since: the store a policy reads.

Measurements are late (15 s with a metrics server), so a policy that believed them alone would send every pod of those
15 s to the same node. The store adds what was bound and takes away what ended since the sample, each at what its
workload is expected to use (``class_usage``). It also keeps how much of a node's use is young: nodes may be alike now
and differ once the old pods end. Everything is fed in: ``measure`` from a metrics API, ``bound`` and ``ended`` from a
watch; without ``bound`` and ``ended`` the pods that the node table counts beyond the sample stand for both. Where
nothing was measured a node's row says so. Pure: `now_s` is an argument; no I/O, no clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.policy.class_usage import BASE, PARTS, ClassUsage, FloatArray

YOUNG_S = (90.0, 180.0)
"""Ages below which use counts as young."""
OLD_SAMPLE_S = 300.0
"""A sample older than this is as good as none."""
MAX_DELAY_MS = 1e4


VIEWS = ("now", "modelled", "young", "younger")
"""How a node's use is looked at: sample plus what changed since; from its pods alone, free of a sample's noise; of pods
younger than ``YOUNG_S[1]``; of pods younger than ``YOUNG_S[0]``."""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """One moment's estimate for some nodes.

    ``parts`` float64 [nodes, len(VIEWS), PARTS]: shares of each node's limits; ``known`` bool [nodes]: whether there is
    a sample; ``pods`` int64 [nodes]: how many pods ``parts`` covers; ``delay_ms`` [nodes]; ``scale`` [nodes, PARTS]:
    each node's limits in reference nodes.
    """

    parts: FloatArray
    known: NDArray[np.bool_]
    pods: NDArray[np.int64]
    delay_ms: FloatArray
    scale: FloatArray


@dataclass(frozen=True, slots=True)
class _Pod:
    slot: int
    column: int
    bound_s: float


class UtilisationStore:
    """Per node the last sample and what changed since. ``start_delay_s``: from a binding until a pod shows in samples.

    ``cluster``: means over the whole cluster (``marl_features.summary``) where this store knows only a part; None:
    what it knows is all there is.
    """

    def __init__(self, *, start_delay_s: float = 1.0) -> None:
        self.start_delay_s = start_delay_s
        self.usage = ClassUsage()
        self.cluster: FloatArray | None = None
        self.now_s = 0.0
        self._slots: dict[str, int] = {}
        self._measured: FloatArray = np.zeros((0, PARTS))
        self._at_s: FloatArray = np.zeros(0)
        self._delay_ms: FloatArray = np.zeros(0)
        self._scale: FloatArray = np.ones((0, PARTS))
        self._pods_known: NDArray[np.int64] = np.zeros(0, np.int64)
        self._count: FloatArray = np.zeros((0, self.usage.columns))
        self._seen: FloatArray = np.zeros((0, self.usage.columns))
        self._young: FloatArray = np.zeros((len(YOUNG_S), 0, self.usage.columns))
        self._pods: dict[str, _Pod] = {}
        self._unseen: list[tuple[float, int, int, int]] = []
        self._ageing: list[tuple[float, int, str]] = []

    # --- facts --------------------------------------------------------------------------------------------------

    def slot(self, node: str) -> int:
        """The node's index in this store, made where it is new."""
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = len(self._slots)
            self._grow()
        return slot

    def delay(self, node: str, delay_ms: float) -> None:
        """The network delay to a node as last measured; an impossible one is ignored."""
        slot = self.slot(node)
        if 0 <= delay_ms <= MAX_DELAY_MS:
            self._delay_ms[slot] = delay_ms

    def limits(self, node: str, scale: FloatArray) -> None:
        """The node's limits [PARTS] in reference nodes (``REFERENCE``); 1 where nobody tells."""
        slot = self.slot(node)  # first: it may grow the arrays
        self._scale[slot] = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)

    def measure(self, node: str, values: FloatArray, *, at_s: float, pods: int | None = None) -> None:
        """A sample [PARTS] taken ``at_s``. ``pods``: how many pods the node's table counts at this moment, for a
        caller that tells no bindings. A sample older than the last one, NaN or negative is ignored."""
        slot = self.slot(node)
        if not np.isfinite(values).all() or (values < 0).any() or not at_s >= self._at_s[slot]:
            return
        if pods is not None:
            self._pods_known[slot] = pods
        others = []
        for change in self._unseen:
            if change[1] == slot and change[0] <= at_s:
                self._seen[slot, change[2]] += change[3]
            else:
                others.append(change)
        heapq.heapify(others)
        self._unseen = others
        self._take(np.array([slot]), values[None, :], at_s)

    def measure_all(self, values: FloatArray, *, at_s: float) -> None:
        """Samples [nodes, PARTS] of all nodes known, in the order in which ``slot`` met them, taken at one moment."""
        while self._unseen and self._unseen[0][0] <= at_s:
            _, slot, column, sign = heapq.heappop(self._unseen)
            self._seen[slot, column] += sign
        self._take(np.arange(len(self._slots)), values, at_s)

    def bound(self, pod: str, node: str, workload: str, *, now_s: float, requested: FloatArray | None = None) -> None:
        """A pod of ``workload`` was bound. ``requested`` [PARTS]: what it asks for, as shares of a reference node."""
        if pod in self._pods:
            return
        slot = self.slot(node)
        column = self.column(workload, requested)
        self._pods[pod] = _Pod(slot, column, now_s)
        self._count[slot, column] += 1
        self._young[:, slot, column] += 1
        self._pods_known[slot] += 1
        heapq.heappush(self._unseen, (now_s + self.start_delay_s, slot, column, 1))
        for window, age_s in enumerate(YOUNG_S):
            heapq.heappush(self._ageing, (now_s + age_s, window, pod))

    def ended(self, pod: str, *, now_s: float) -> None:
        """A pod that was ``bound`` runs no longer. One that nobody told of is ignored."""
        known = self._pods.pop(pod, None)
        if known is None:
            return
        self._count[known.slot, known.column] -= 1
        self._pods_known[known.slot] -= 1
        for window, age_s in enumerate(YOUNG_S):
            if now_s < known.bound_s + age_s:
                self._young[window, known.slot, known.column] -= 1
        heapq.heappush(self._unseen, (max(now_s, known.bound_s + self.start_delay_s), known.slot, known.column, -1))

    def column(self, workload: str, requested: FloatArray | None = None) -> int:
        """The workload's column in ``usage``, with this store's arrays grown to match."""
        column = self.usage.column(workload, requested)
        missing = self.usage.columns - self._count.shape[1]
        if missing:
            self._count = np.pad(self._count, ((0, 0), (0, missing)))
            self._seen = np.pad(self._seen, ((0, 0), (0, missing)))
            self._young = np.pad(self._young, ((0, 0), (0, 0), (0, missing)))
        return column

    def advance(self, now_s: float) -> None:
        """Let pods age to ``now_s``."""
        self.now_s = now_s
        while self._ageing and self._ageing[0][0] <= now_s:
            _, window, name = heapq.heappop(self._ageing)
            pod = self._pods.get(name)
            if pod is not None:
                self._young[window, pod.slot, pod.column] -= 1

    # --- questions ----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, int]:
        """Slot by node."""
        return self._slots

    def look(self, slots: NDArray[np.int64]) -> NodeUse:
        """The estimate for nodes by slot; a slot below 0 is a node this store never heard of."""
        if not len(self._slots):
            return _nothing(len(slots))
        use = self.usage.use
        count, scale = self._count[slots], self._scale[slots]
        parts = np.empty((len(slots), len(VIEWS), PARTS))
        parts[:, 0] = self._measured[slots] * scale + (count - self._seen[slots]) @ use
        parts[:, 1] = count @ use + use[BASE]
        parts[:, 2] = self._young[1, slots] @ use
        parts[:, 3] = self._young[0, slots] @ use
        parts /= scale[:, None]
        np.maximum(parts, 0.0, out=parts)
        known = (slots >= 0) & (self.now_s - self._at_s[slots] <= OLD_SAMPLE_S)
        return NodeUse(parts, known, self._pods_known[slots], self._delay_ms[slots], scale)

    def samples(self, slots: NDArray[np.int64]) -> FloatArray:
        """float64 [slots, PARTS]: the last samples as they came; zeros for a node never heard of."""
        if not len(self._slots):
            return np.zeros((len(slots), PARTS))
        return np.where((slots >= 0)[:, None], self._measured[slots], 0.0)

    # --- inside -------------------------------------------------------------------------------------------------

    def _take(self, slots: NDArray[np.int64], values: FloatArray, at_s: float) -> None:
        self._measured[slots] = values
        self._at_s[slots] = at_s
        self.usage.learn(self._seen[slots], values, self._scale[slots])

    def _grow(self) -> None:
        self._measured = np.pad(self._measured, ((0, 1), (0, 0)))
        self._at_s = np.pad(self._at_s, (0, 1), constant_values=-np.inf)
        self._delay_ms = np.pad(self._delay_ms, (0, 1))
        self._scale = np.pad(self._scale, ((0, 1), (0, 0)), constant_values=1.0)
        self._pods_known = np.pad(self._pods_known, (0, 1))
        self._count = np.pad(self._count, ((0, 1), (0, 0)))
        self._seen = np.pad(self._seen, ((0, 1), (0, 0)))
        self._young = np.pad(self._young, ((0, 0), (0, 1), (0, 0)))


def _nothing(nodes: int) -> NodeUse:
    return NodeUse(
        np.zeros((nodes, len(VIEWS), PARTS)), np.zeros(nodes, np.bool_), np.zeros(nodes, np.int64), np.zeros(nodes),
        np.ones((nodes, PARTS)),
    )  # fmt: skip
