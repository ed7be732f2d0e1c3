"""How much GPU any scheduler could have allocated of the pods submitted: linear programmes whose optimum is a bound.

**The relaxation.** Nodes alike (same model, devices, CPU, memory) are one *type*. Take what any scheduler has placed in
the end and count: ``x[c, t]`` pods of class c on nodes of type t, ``y[p]`` devices that hold the shares of pattern p (a
multiset of shares that fits one device). These counts satisfy

    sum_t x[c, t]                     <= submitted[c]                nothing is placed that was not submitted
    sum_c cpu[c] x[c, t]              <= CPU of type t               likewise memory, GPU; x = 0 where an empty node
                                                                     of t has no room for c
    sum_{c of share v, t} x[c, t]     <= sum_p y[p] count[p, v]      each share lies on one device
    sum_p y[p] + whole devices taken  <= devices                     a device holds shares, or one pod alone

since each sums inequalities that hold node by node, or device by device. The programme drops what is left (that pods
are whole, which node of a type takes them, on which type a pattern is), so its optimum is no less than what was placed.
It knows every pod in advance and may turn pods away: ``may_refuse``.

**No refusals.** A scheduler of the experiment places every pod that any node has room for. Let r be a class (the
*probe*) and tau the first moment at which a pod of r was turned away (the end if none was). Before tau every pod of r
was placed. At tau no node had room for r; nothing departs, so none has later, nor for any class that needs at least as
much of everything (``dominates``). With a <= tau <= b therefore

    placed[r] >= arrivals of r before a            placed[d] <= arrivals of d before b, for each d that dominates r

is added. The greatest optimum over intervals that cover 0..N is a bound for every such scheduler, and the least of
several probes' is one too. Intervals are split, the one with the greatest optimum first, until that no longer helps.

Solved by HiGHS (scipy's ``linprog``). Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, vstack

from lab.evaluation.results import ResultMetric
from shared.errors import ConclaveError
from shared.model.gpu import ANY_MODEL, GpuRequest, Ints
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.rehearsal.submission import GpuNodes, GpuPods, submission

Floats = NDArray[np.float64]
TOLERANCE = 0.02
"""Percent of all GPUs: intervals are no longer split when that can lower the bound by no more."""
MOST_SPLITS = 40
MOST_PATTERNS = 50_000
BOUND = "bound"
"""Stands among the policies of a result."""
INFEASIBLE = 2
"""Of ``linprog``'s statuses."""


class BoundFailed(ConclaveError):
    """The solver gave no optimum: there is no bound to tell."""

    code = "bound_failed"


@dataclass(frozen=True, slots=True)
class GpuBound:
    """In percent of all GPUs, for one order of submission."""

    may_refuse: float
    """No scheduler allocates more, one that knows all pods in advance and turns away whom it likes included."""
    places_all: float
    """No scheduler that places every pod for which some node has room allocates more."""


def metrics_of_bounds(found: Sequence[GpuBound], prefix: str = "") -> dict[str, ResultMetric]:
    """The figures of ``BOUND``, one value per seed: ``allocated_130`` and ``may_refuse_130``, percent of all GPUs."""
    return {
        f"{prefix}allocated_130": ResultMetric.of([one.places_all for one in found]),
        f"{prefix}may_refuse_130": ResultMetric.of([one.may_refuse for one in found]),
    }


def gpu_bound(programme: GpuProgramme, pods: GpuPods, seed: int) -> GpuBound:
    """The bounds for the pods that ``seed`` submits. Raises ``BoundFailed``."""
    of = pods.of[submission(pods, programme.nodes.capacity, seed)]
    submitted = np.bincount(of, minlength=len(pods.classes))
    free = programme.solve(submitted)
    probe = probe_of(pods.classes, submitted)
    if probe is None:
        return GpuBound(free, free)
    covered = np.array([dominates(request, pods.classes[probe]) for request in pods.classes])

    def optimum(first: int, last: int) -> float:
        """Over all schedulers that first turn the probe away at a moment in ``first``..``last``."""
        most = np.where(covered, np.bincount(of[:last], minlength=len(covered)), submitted)
        least = np.where(np.arange(len(covered)) == probe, np.bincount(of[:first], minlength=len(covered)), 0)
        return programme.solve(most, least)

    return GpuBound(free, min(free, greatest(optimum, len(of))))


def greatest(optimum: Callable[[int, int], float], last: int) -> float:
    """No less than ``optimum(m, m)`` for any m of 0..``last``; ``optimum`` of an interval bounds all moments in it.

    At most ``TOLERANCE`` too much, unless ``MOST_SPLITS`` come first.
    """
    waiting = [(-optimum(0, last), 0, last)]
    reached = -np.inf
    for _ in range(MOST_SPLITS):
        worst, begin, end = waiting[0]
        if -worst - reached <= TOLERANCE or begin == end:
            break
        heapq.heappop(waiting)
        middle = (begin + end) // 2
        reached = max(reached, optimum(middle, middle))
        for part in ((begin, middle), (middle + 1, end)):
            heapq.heappush(waiting, (-optimum(*part), *part))
    return -waiting[0][0]


def probe_of(classes: Sequence[GpuRequest], submitted: Ints) -> int | None:
    """The class of shares that asks for most GPU; None where none is shared. Any class gives a bound; this one leaves
    the most behind on its devices."""
    asked = [int(count) * request.gpu * request.shared for request, count in zip(classes, submitted, strict=True)]
    return int(np.argmax(asked)) if any(asked) else None


def dominates(more: GpuRequest, less: GpuRequest) -> bool:
    """Whether every node, in any state, that has room for ``more`` has room for ``less``."""
    if more.cpu < less.cpu or more.memory < less.memory or not _subset(more.models, less.models):
        return False
    if not less.devices:
        return True
    if less.shared:
        return bool(more.devices) and more.milli >= less.milli
    return not more.shared and more.devices >= less.devices


def maximal_patterns(values: Sequence[int], room: int) -> Iterator[tuple[int, ...]]:
    """How many shares of each of ``values`` (ascending) lie on one device of ``room`` when none more fits."""

    def fill(index: int, left: int) -> Iterator[tuple[int, ...]]:
        value = values[index]
        if index == 0:
            yield (left // value,)
            return
        for count in range(left // value + 1):
            for rest in fill(index - 1, left - count * value):
                yield (*rest, count)

    for pattern in fill(len(values) - 1, room):
        used = sum(value * count for value, count in zip(values, pattern, strict=True))
        if room - used < values[0]:
            yield pattern


def _subset(models: int, others: int) -> bool:
    return others == ANY_MODEL or (models != ANY_MODEL and models & ~others == 0)


def _patterns(values: Ints) -> tuple[Ints, Ints]:
    """int64 ``[values]``, the shares as patterns take them, and int64 ``[patterns, shares]``.

    With more than ``MOST_PATTERNS`` the shares are rounded down, which lets more of them on a device: still a bound.
    """
    grain = 1
    while True:
        rounded = np.maximum(values // grain * grain, 1)
        kinds = np.unique(rounded)
        found = []
        for pattern in maximal_patterns(kinds.tolist(), MILLI_PER_DEVICE):
            found.append(pattern)
            if len(found) > MOST_PATTERNS:
                break
        else:
            return rounded, np.array(found, np.int64)
        grain = max(10, grain * 2)


@dataclass(frozen=True)
class GpuProgramme:
    """The relaxation for one node list and the classes of one pod list; how many there are is given to ``solve``."""

    nodes: GpuNodes
    classes: tuple[GpuRequest, ...]
    patterned: bool = True
    """Off: the shares on the devices need not fit them one by one, only in sum. To show what the patterns are for."""

    def solve(self, most: Ints, least: Ints | None = None) -> float:
        """The optimum in percent of all GPUs; -inf where nothing satisfies the rows. Raises ``BoundFailed``.

        ``most``, ``least``: int64 ``[classes]``, how many pods of each class are placed at most and at least.
        """
        rows, limits = self._rows
        of_class, _ = self._pairs
        worth = np.zeros(rows.shape[1])
        worth[: len(of_class)] = self._gpu[of_class] * 100 / self.nodes.capacity
        bounds = np.concatenate([most, limits]).astype(float)
        if least is not None and least.any():
            asked = np.flatnonzero(least)
            rows, bounds = vstack([rows, -rows[asked]]), np.concatenate([bounds, -least[asked].astype(float)])
        found = linprog(-worth, A_ub=rows, b_ub=bounds, method="highs")
        if found.status == INFEASIBLE:
            return -np.inf
        if found.status:
            raise BoundFailed(f"bound: the solver ended with {found.message!r}; leave --bound out")
        return float(-found.fun)

    @cached_property
    def _types(self) -> tuple[Ints, Ints]:
        """int64 ``[types, 4]``: model, devices, CPU, memory; and ``[types]``: how many nodes are of it."""
        states = self.nodes.states
        table = np.stack([states.model, states.devices, states.cpu_total, states.memory_total], axis=1)
        types, counts = np.unique(table, axis=0, return_counts=True)
        return types, counts

    @cached_property
    def _gpu(self) -> Ints:
        """int64 ``[classes]``: thousandths of a device."""
        return np.array([request.gpu for request in self.classes], np.int64)

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints]:
        """The class and the type of each variable x: where an empty node of the type has room for the class."""
        fits = [
            [
                request.cpu <= cpu and request.memory <= memory and request.devices <= devices
                and _subset(1 << model, request.models)
                for model, devices, cpu, memory in self._types[0].tolist()
            ]
            for request in self.classes
        ]  # fmt: skip
        of_class, of_type = np.nonzero(np.array(fits, np.bool_))
        return of_class.astype(np.int64), of_type.astype(np.int64)

    @cached_property
    def _rows(self) -> tuple[csr_array, Floats]:
        """The rows, each at most its limit: first one per class (limits are ``solve``'s), then per type CPU, memory
        and GPU, then those of the patterns. Columns: a pair of ``_pairs`` each, then a pattern each."""
        of_class, of_type = self._pairs
        types, counts = self._types
        pairs = np.arange(len(of_class))
        amounts = np.array([(one.cpu, one.memory, one.gpu) for one in self.classes], np.int64)
        parts = [(of_class, pairs, np.ones(len(pairs)))]
        for number, amount in enumerate(amounts.T):
            parts.append((len(self.classes) + number * len(types) + of_type, pairs, amount[of_class].astype(float)))
        room = types[:, [2, 3, 1]] * counts[:, None] * (1, 1, MILLI_PER_DEVICE)
        limits = [room.T.ravel().astype(float)]
        if self.patterned:
            more, limit = self._pattern_rows(len(self.classes) + 3 * len(types))
            parts += more
            limits.append(limit)
        row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        return coo_array((value, (row, column))).tocsr(), np.concatenate(limits)

    def _pattern_rows(self, first: int) -> tuple[list[tuple[Ints, Ints, Floats]], Floats]:
        """From row ``first`` on: every share lies in a pattern, and devices hold a pattern or one pod alone."""
        of_class, _ = self._pairs
        pairs = np.arange(len(of_class))
        share = np.array([request.shared for request in self.classes], np.bool_)[of_class]
        if not share.any():
            return [], np.zeros(0)
        milli = np.array([request.milli for request in self.classes], np.int64)[of_class]
        rounded, patterns = _patterns(np.unique(milli[share]))
        kinds = np.unique(rounded)
        kind = np.searchsorted(kinds, rounded[np.searchsorted(np.unique(milli[share]), milli[share])])
        which, value = np.nonzero(patterns)
        alone = ~share & (self._gpu[of_class] > 0)
        devices, every = first + len(kinds), np.arange(len(patterns))
        rows = [
            (first + kind, pairs[share], np.ones(len(kind))),
            (first + value, len(pairs) + which, -patterns[which, value].astype(float)),
            (np.full(alone.sum(), devices), pairs[alone], self._gpu[of_class[alone]] / MILLI_PER_DEVICE),
            (np.full(len(every), devices), len(pairs) + every, np.ones(len(every))),
        ]
        total = float(self.nodes.states.devices.sum())
        return rows, np.append(np.zeros(len(kinds)), total)
