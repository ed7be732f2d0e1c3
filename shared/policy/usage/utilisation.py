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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.policy.usage.class_usage import BASE, OTHER, PARTS, ClassUsage, FloatArray
from shared.policy.usage.node_use import VIEWS, NodeMeasurement, NodeUseEstimate, nothing
from shared.policy.usage.sample_means import SampleMeans

YOUNG_S = (90.0, 180.0)
"""Ages below which use counts as young."""
OLD_SAMPLE_S = 300.0
"""A sample older than this is as good as none."""
MAX_DELAY_MS = 1e4
GIVEN_UP_AT_ONCE = 32
"""Workloads that no node has, forgotten at once where there is no room for another."""
FEW_NODES = 64
"""Up to so many nodes everything is multiplied out at once; above, only the rows of nodes that changed."""

_PLACES = np.arange(PARTS)


def _masked(unmeasured: int) -> list[bool]:
    return [bool(unmeasured >> place & 1) for place in range(PARTS)]


@dataclass(slots=True)  # not frozen: one is made per pod, and that is five times dearer
class _Pod:
    slot: int
    column: int
    bound_s: float


class UtilisationStore:
    """Per node the last sample and what changed since. ``start_delay_s``: from a binding until a pod shows in samples.

    ``cluster``: means over the whole cluster (``usage.views.summary``) where this store knows only a part; None:
    what it knows is all there is. ``speed``: pods live so many seconds per second of the caller's clock (a twin that
    plays faster than life); ages here are those of the pods. ``mean_s``: how far back samples count
    (``sample_means``), where all samples come here and pods are told; 0: the last one alone.
    """

    def __init__(self, *, start_delay_s: float = 1.0, speed: float = 1.0, mean_s: float = 0.0) -> None:
        self.start_delay_s = start_delay_s / speed
        self.young_s = tuple(age_s / speed for age_s in YOUNG_S)
        self.old_sample_s = OLD_SAMPLE_S / speed
        self.usage = ClassUsage()
        self.means = SampleMeans(self.usage.columns, mean_s)
        self.priorities: dict[str, int] = {}
        """Of the pods of a workload, as far as anybody told; kept by who tells of pods."""
        self.cluster: FloatArray | None = None
        self.now_s = 0.0
        self.changes = 0
        """Counts departures of nodes: a slot that was looked up before is worth nothing after."""
        self._fold_s = self._look_s = -np.inf
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._measured: FloatArray = np.zeros((0, PARTS))
        self._masked: NDArray[np.bool_] = np.zeros((0, PARTS), np.bool_)
        """Parts that a node's last sample does not tell."""
        self._at_s: FloatArray = np.zeros(0)
        self._delay_ms: FloatArray = np.zeros(0)
        self._scale: FloatArray = np.ones((0, PARTS))
        self._pods_known: NDArray[np.int64] = np.zeros(0, np.int64)
        self._count: FloatArray = np.zeros((0, self.usage.columns))
        self._seen: FloatArray = np.zeros((0, self.usage.columns))
        self._young: FloatArray = np.zeros((len(YOUNG_S), 0, self.usage.columns))
        self._pods: dict[str, _Pod] = {}
        self._unseen: dict[int, list[tuple[float, int, int]]] = {}
        self._ageing: list[tuple[float, int, str]] = []
        self._by_pods: FloatArray = np.zeros((0, len(VIEWS), PARTS))
        self._by_use: FloatArray | None = None
        self._stale: set[int] = set()
        """Slots of which anything changed since they were looked at."""
        self.clock = 0
        self._newest = "", OTHER
        """The workload that was asked for last, and its column."""
        self._stamp: NDArray[np.int64] = np.zeros(0, np.int64)

    # --- facts --------------------------------------------------------------------------------------------------

    def slot(self, node: str) -> int:
        """The node's index in this store, made where it is new."""
        slot = self._slots.get(node)
        if slot is None:
            slot = self._free.pop() if self._free else len(self._slots)
            if slot + 1 >= len(self._at_s):  # the last place stays empty: -1 names it
                self._grow(max(8, len(self._at_s)))
            self._slots[node] = slot
            self._stale.add(slot)
        return slot

    def delay(self, node: str, delay_ms: float | None) -> None:
        """The network delay to a node as last measured; None, and one that is impossible: it is not known (0)."""
        if delay_ms is None and node not in self._slots:
            return
        slot = self.slot(node)
        known = delay_ms if delay_ms is not None and 0 <= delay_ms <= MAX_DELAY_MS else 0.0
        if known != self._delay_ms[slot]:
            self._delay_ms[slot] = known
            self._stale.add(slot)

    def limits(self, node: str, scale: FloatArray) -> None:
        """The node's limits [PARTS] in reference nodes (``REFERENCE``); 1 where nobody tells."""
        slot = self.slot(node)  # first: it may grow the arrays
        self._scale[slot] = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
        self._stale.add(slot)

    def begin_anew(self, node: str) -> None:
        """Another machine has the name: samples before its first count for nothing."""
        slot = self._slots.get(node)
        if slot is not None and self._at_s[slot] > -np.inf:
            self.means.begin_anew(slot)
            self._measured[slot], self._at_s[slot] = 0.0, -np.inf
            self._stale.add(slot)

    def measure(self, node: str, values: FloatArray, *, at_s: float, pods: int | None = None) -> None:
        """A sample [PARTS] of a node whose ``limits`` stay, taken ``at_s``; see ``NodeMeasurement`` and
        ``measure_some``."""
        self.measure_some([NodeMeasurement(node, values.tolist(), at_s, None, pods)])

    def measure_some(self, samples: Sequence[NodeMeasurement]) -> None:
        """Samples of some nodes, one each. One older than the node's last, NaN or negative is ignored."""
        taken: list[int] = []
        values: list[Sequence[float]] = []
        times: list[tuple[float, float]] = []
        masks: list[int] = []
        for sample in samples:
            slot = self.slot(sample.node)
            if sample.scale is not None:
                self.limits(sample.node, sample.scale)
            shares = np.array(sample.shares, np.float64)
            if not np.isfinite(shares).all() or (shares < 0).any() or not sample.at_s >= self._at_s[slot]:
                continue
            if sample.pods is not None:
                self._pods_known[slot] = sample.pods
            self._show(slot, sample.at_s)
            taken.append(slot)
            values.append(sample.shares)
            times.append((sample.at_s, sample.at_s if sample.newest_s is None else sample.newest_s))
            masks.append(sample.unmeasured)
        if taken:
            masked = (np.array(masks)[:, None] >> _PLACES & 1).astype(np.bool_)
            shares = np.where(masked, 0.0, np.array(values, np.float64))
            at_s, newest_s = np.array(times).T
            self._take(np.array(taken), shares, at_s, newest_s, masked)

    def measure_all(self, values: FloatArray, *, at_s: float) -> None:
        """Samples [nodes, PARTS] of all nodes known, in the order in which ``slot`` met them, taken at one moment."""
        for slot in list(self._unseen):
            self._show(slot, at_s)
        slots = np.fromiter(self._slots.values(), np.int64, len(self._slots))
        times = np.full(len(slots), at_s)
        self._take(slots, values, times, times, np.zeros(values.shape, np.bool_))

    def bound(self, pod: str, node: str, workload: str, *, now_s: float, requested: FloatArray | None = None) -> None:
        """A pod of ``workload`` was bound. ``requested`` [PARTS]: what it asks for, as shares of a reference node."""
        if pod in self._pods:
            return
        slot = self.slot(node)
        column = self.column(workload, requested)
        self._pods[pod] = _Pod(slot, column, now_s)
        self._count[slot, column] += 1
        self._pods_known[slot] += 1
        self._stale.add(slot)
        if now_s + self.start_delay_s <= self._at_s.item(slot):
            self._seen[slot, column] += 1
            self.means.show(slot, column, now_s + self.start_delay_s)
        else:
            self._await(slot, (now_s + self.start_delay_s, column, 1))
        for window, age_s in enumerate(self.young_s):
            if now_s + age_s > self.now_s:
                self._young[window, slot, column] += 1
                heapq.heappush(self._ageing, (now_s + age_s, window, pod))

    def ended(self, pod: str, *, now_s: float) -> None:
        """A pod that was ``bound`` runs no longer. One that nobody told of is ignored."""
        known = self._pods.pop(pod, None)
        if known is None:
            return
        self._count[known.slot, known.column] -= 1
        self._pods_known[known.slot] -= 1
        self._stale.add(known.slot)
        for window, age_s in enumerate(self.young_s):
            if self.now_s < known.bound_s + age_s:  # it has not aged out of it yet, however late its end is told
                self._young[window, known.slot, known.column] -= 1
        change = (max(now_s, known.bound_s + self.start_delay_s), known.column, -1)
        self._await(known.slot, change)

    def forget(self, nodes: Collection[str]) -> None:
        """These nodes left: what is known of them, and of the pods there, goes; unknown names are fine. What their
        workloads use stays learned."""
        gone = {slot for slot in (self._slots.pop(node, None) for node in nodes) if slot is not None}
        if not gone:
            return
        self.changes += 1
        self._forget_pods({pod for pod, known in self._pods.items() if known.slot in gone})
        for slot in gone:
            self._unseen.pop(slot, None)
            self._measured[slot] = self._delay_ms[slot] = self._count[slot] = self._seen[slot] = 0
            self._young[:, slot] = self._pods_known[slot] = 0
            self._at_s[slot], self._scale[slot], self._masked[slot] = -np.inf, 1.0, False
        self.means.forget(list(gone))
        self._stale |= gone
        self._free.extend(sorted(gone, reverse=True))

    def forget_pods(self) -> None:
        """Who tells of pods begins again: nodes, samples and what was learned stay, and no pod is known any more."""
        self._forget_pods(set(self._pods))
        self._unseen.clear()
        self._pods_known = np.maximum(self._pods_known - self._count.sum(axis=1).astype(np.int64), 0)
        self._count[:], self._seen[:], self._young[:], self.means.shown[:] = 0, 0, 0, 0
        self._by_use = None

    def column(self, workload: str, requested: FloatArray | None = None) -> int:
        """The workload's column in ``usage``, with this store's arrays grown to match. Where all are taken, that
        of a workload that no node has any more."""
        if workload and workload == self._newest[0]:  # as of the pod before: pods come many of a kind
            return self._newest[1]
        if workload and self.usage.full and workload not in self.usage.workloads:
            self._give_up_some()
        column = self.usage.column(workload, requested)
        if column != OTHER:
            self._newest = workload, column
        missing = self.usage.columns - self._count.shape[1]
        if missing:
            self._count, self._seen, self._young = (
                _wider(array, self.usage.columns) for array in (self._count, self._seen, self._young)
            )
            self.means.grow(0, missing)
        return column

    def advance(self, now_s: float) -> None:
        """Let pods age to ``now_s``."""
        self.now_s = now_s
        while self._ageing and self._ageing[0][0] <= now_s:
            _, window, name = heapq.heappop(self._ageing)
            pod = self._pods.get(name)
            if pod is not None:
                self._young[window, pod.slot, pod.column] -= 1
                self._stale.add(pod.slot)
        if now_s >= self._fold_s:
            self._fold_s = now_s + self.old_sample_s
            self._fold(now_s - self.old_sample_s)

    # --- questions ----------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, int]:
        """Slot by node."""
        return self._slots

    def standing(self, node: str) -> dict[str, int]:
        """How many pods of each workload ``bound`` and ``ended`` leave on a node; "" are those beyond all columns."""
        slot = self._slots.get(node)
        if slot is None:
            return {}
        counts, names = self._count[slot], {OTHER: "", **{c: name for name, c in self.usage.workloads.items()}}
        return {names[column]: int(counts[column]) for column in np.flatnonzero(counts).tolist()}

    def look(self, slots: NDArray[np.int64]) -> NodeUseEstimate:
        """The estimate for nodes by slot; a slot below 0 is a node this store never heard of."""
        if not len(self._slots):
            return nothing(len(slots))
        self._multiply()
        scale = self._scale[slots]
        parts = self._by_pods[slots]
        now = self.means.amounts[slots] + parts[:, 0]
        masked = self._masked[slots]
        parts[:, 0] = np.where(masked, parts[:, 1], now) if masked.any() else now
        parts /= scale[:, None]
        np.maximum(parts, 0.0, out=parts)
        return NodeUseEstimate(parts, self.sampled(slots), self._pods_known[slots], self._delay_ms[slots], scale)

    def sampled(self, slots: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool [slots]: whether there is a sample that is not too old."""
        if not len(self._slots):
            return np.zeros(len(slots), np.bool_)
        known: NDArray[np.bool_] = (slots >= 0) & (self.now_s - self._at_s[slots] <= self.old_sample_s)
        return known

    def above(self, slots: NDArray[np.int64], priority: int) -> FloatArray:
        """float64 [slots, PARTS]: what the pods of workloads of a higher priority are expected to use there, as shares
        of each node's limits."""
        columns = self.usage.workloads.items()
        above = np.array([at for name, at in columns if self.priorities.get(name, priority) > priority], np.int64)
        if not len(above) or not len(self._slots):
            return np.zeros((len(slots), PARTS))
        found: FloatArray = self._count[np.ix_(slots, above)] @ self.usage.use[above] / self._scale[slots]
        return found

    def touched(self, slots: NDArray[np.int64], clock: int) -> NDArray[np.bool_]:
        """bool [slots]: whether anything that ``look`` says of them changed after ``clock`` stood there."""
        if not len(self._slots):
            return np.zeros(len(slots), np.bool_)
        self._multiply()
        touched: NDArray[np.bool_] = (slots >= 0) & (self._stamp[slots] > clock)
        return touched

    def samples(self, slots: NDArray[np.int64]) -> FloatArray:
        """float64 [slots, PARTS]: the last samples as they came; zeros for a node never heard of."""
        if not len(self._slots):
            return np.zeros((len(slots), PARTS))
        return np.where((slots >= 0)[:, None], self._measured[slots], 0.0)

    def smoothed(self, node: str, shares: list[float], most: float, unmeasured: int = 0) -> list[float]:
        """What the node's last sample, ``shares`` [PARTS], would have shown with less noise, by those before it; 0 of
        parts that it did not tell, ``most`` at most. Of one that tells other parts (``unmeasured``, by bits) than the
        last that was taken: what it shows."""
        slot = self._slots.get(node)
        if slot is None or not self.means.mean_s or self._masked[slot].tolist() != _masked(unmeasured):
            return shares
        since: FloatArray = (self._seen[slot] - self.means.shown[slot]) @ self.usage.use
        found = np.clip((self.means.amounts[slot] + since) / self._scale[slot], 0.0, most)
        return [0.0 if masked else float(share) for masked, share in zip(self._masked[slot], found, strict=True)]

    # --- inside -------------------------------------------------------------------------------------------------

    def _multiply(self) -> None:
        """Bring ``_by_pods`` up to date: per slot what its pods come to, in each view, in reference nodes."""
        use = self.usage.use
        as_before = self._by_use is use or (self._by_use is not None and _extends(use, self._by_use))
        self._by_use = use
        if as_before and not self._stale:
            return
        changed: Collection[int] = self._slots.values()
        if as_before and len(changed) > FEW_NODES:
            changed = sorted(self._stale)
        slots = np.fromiter(changed, np.int64, len(changed))
        self._stale.clear()
        self.clock += 1
        self._stamp[slots] = self.clock
        count = self._count[slots]
        self._by_pods[slots, 0] = (count - self.means.shown[slots]) @ use
        self._by_pods[slots, 1] = count @ use + use[BASE]
        self._by_pods[slots, 2] = self._young[1, slots] @ use
        self._by_pods[slots, 3] = self._young[0, slots] @ use

    def _give_up_some(self) -> None:
        """Forget workloads that no node has, those first that nobody asked for the longest. Several at once, and not
        again for a while where there are none: looking costs milliseconds at thousands of nodes, and a policy asks for
        each group that it judges."""
        if self.now_s < self._look_s:
            return
        there: NDArray[np.bool_] = (self._count.astype(bool) | self._seen.astype(bool)).any(axis=0)
        waiting = {column for changes in self._unseen.values() for _, column, _ in changes}
        gone = [name for name, column in self.usage.workloads.items() if not there[column] and column not in waiting]
        self._newest = "", OTHER
        self.means.forget_workloads([self.usage.workloads[workload] for workload in gone[:GIVEN_UP_AT_ONCE]])
        for workload in gone[:GIVEN_UP_AT_ONCE]:
            self.usage.forget(workload)
        if not gone:
            self._look_s = self.now_s + self.old_sample_s / 20

    def _await(self, slot: int, change: tuple[float, int, int]) -> None:
        """The slot's next samples do not show the change yet."""
        waiting = self._unseen.get(slot)
        if waiting is None:
            self._unseen[slot] = [change]
        else:
            heapq.heappush(waiting, change)

    def _show(self, slot: int, at_s: float) -> None:
        """What changed on the node until ``at_s`` is in a sample of that moment."""
        waiting = self._unseen.get(slot)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= at_s:
            _, column, sign = heapq.heappop(waiting)
            self._seen[slot, column] += sign
            self._stale.add(slot)
        if not waiting:
            del self._unseen[slot]

    def _fold(self, until_s: float) -> None:
        """Changes until then that no sample has shown are kept as one sum per workload, as of the last of them: where
        nobody measures they would pile up, and a sample from among them would be too old to be looked at."""
        for waiting in self._unseen.values():
            sums: dict[int, tuple[float, int]] = {}
            while waiting and waiting[0][0] <= until_s:
                at_s, column, sign = heapq.heappop(waiting)
                sums[column] = (at_s, sums.get(column, (at_s, 0))[1] + sign)
            for column, (at_s, total) in sums.items():
                if total:
                    heapq.heappush(waiting, (at_s, column, total))
        self._unseen = {slot: waiting for slot, waiting in self._unseen.items() if waiting}

    def _take(
        self, slots: NDArray[np.int64], values: FloatArray, at_s: FloatArray, newest_s: FloatArray,
        masked: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        seen, scale = self._seen[slots], self._scale[slots]
        self._measured[slots] = values
        self.means.take(slots, values * scale, seen, newest_s, masked)
        self._masked[slots] = masked
        self._at_s[slots] = at_s
        self._stale.update(slots.tolist())
        self.usage.learn(seen, values, scale, masked)

    def _forget_pods(self, pods: Collection[str]) -> None:
        for pod in pods:
            del self._pods[pod]
        self._ageing = [entry for entry in self._ageing if entry[2] in self._pods]
        heapq.heapify(self._ageing)

    def _grow(self, by: int) -> None:
        """Room for more nodes; what is not given to any stays empty."""
        self._measured = np.pad(self._measured, ((0, by), (0, 0)))
        self.means.grow(by, 0)
        self._masked = np.pad(self._masked, ((0, by), (0, 0)))
        self._at_s = np.pad(self._at_s, (0, by), constant_values=-np.inf)
        self._delay_ms = np.pad(self._delay_ms, (0, by))
        self._scale = np.pad(self._scale, ((0, by), (0, 0)), constant_values=1.0)
        self._by_pods = np.pad(self._by_pods, ((0, by), (0, 0), (0, 0)))
        self._pods_known = np.pad(self._pods_known, (0, by))
        self._stamp = np.pad(self._stamp, (0, by))
        self._count = np.pad(self._count, ((0, by), (0, 0)))
        self._seen = np.pad(self._seen, ((0, by), (0, 0)))
        self._young = np.pad(self._young, ((0, 0), (0, by), (0, 0)))


def _extends(use: FloatArray, before: FloatArray) -> bool:
    """Whether all that is different is that there are more workloads: then so is what each node's pods come to."""
    return len(use) > len(before) and np.array_equal(use[: len(before)], before)


def _wider(array: FloatArray, columns: int) -> FloatArray:
    """The array with so many columns, zeros in the new ones: of a room that is made larger now and then, since
    workloads come one by one and copying thousands of nodes for each costs milliseconds."""
    room = array.base
    if room is None or room.shape[:-1] != array.shape[:-1] or room.shape[-1] < columns:
        room = np.zeros((*array.shape[:-1], columns + columns // 4), array.dtype)
        room[..., : array.shape[-1]] = array
    wider: FloatArray = room[..., :columns]
    return wider
