"""What no rearrangement of the pods that stand could do better: bounds beside ``conclave rebalance``. Pure; HiGHS.

**Fewest nodes** (``fewest_nodes``): a mixed-integer programme over pods alike and nodes, ``x[c, n]`` whole, ``y[n]`` in
use or not; amounts and which nodes a class may come to. Its optimum is exact for pods whose rules look at no others.

**Least fragment** (``least_fragment``): a linear programme over nodes alike (type ``t``), whose optimum is a bound:

    sum_t x[c, t] = pods of class c                          all stay placed; CPU, memory and GPU of each type suffice
    y[t] >= shares of t / 1000, shares over a half of t      devices in part given away hold what shares take, and two
                                                             shares over a half are on two devices
    u[m, t] <= 1000 (devices - whole ones taken - y[t])      of a typical pod of whole devices: what it could use
    u[m, t] <= 1000 devices - GPU taken                      of a typical share
    u[m, t] <= 1000 devices of a node * CPU free of t / CPU of m     so many nodes at most have the CPU for it

F is the idle GPU less what typical pods could use of it, by frequency; each line sums what holds node by node, so no
placement has less. Pods are not whole there, and any number of them may move.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array

from lab.bounds.gpu_bound import BoundFailed
from shared.model.gpu import GpuRequest, GpuStates, Ints
from shared.model.resources import MILLI_PER_DEVICE
from shared.policy.frag.fragmentation import TypicalDemand

Floats = NDArray[np.float64]


def fewest_nodes(
    asked: Ints, counts: Ints, has: Ints, allowed: NDArray[np.bool_], time_limit_s: float = 60.0
) -> tuple[int, bool]:
    """(nodes in use at the least, whether that is the optimum and no mere bound). ``asked [classes, resources]``,
    ``counts [classes]``, ``has [nodes, resources]``, ``allowed [classes, nodes]``. Raises ``BoundFailed``."""
    classes, nodes = len(counts), len(has)
    size = classes * nodes
    rows: list[Floats] = []
    low: list[float] = []
    high: list[float] = []
    for of_class in range(classes):
        row = np.zeros(size + nodes)
        row[of_class * nodes : (of_class + 1) * nodes] = 1.0
        rows.append(row)
        low.append(float(counts[of_class]))
        high.append(float(counts[of_class]))
    for node in range(nodes):
        for resource in range(has.shape[1]):
            row = np.zeros(size + nodes)
            row[np.arange(classes) * nodes + node] = asked[:, resource]
            row[size + node] = -float(has[node, resource])
            rows.append(row / max(1.0, float(has[node, resource])))
            low.append(-np.inf)
            high.append(0.0)
    most = np.concatenate((np.where(allowed, counts[:, None], 0).reshape(-1), np.ones(nodes)))
    cost = np.concatenate((np.zeros(size), np.ones(nodes)))
    found = milp(
        cost, constraints=LinearConstraint(np.array(rows), low, high), integrality=np.ones(size + nodes),
        bounds=Bounds(0, most), options={"time_limit": time_limit_s},
    )  # fmt: skip
    if found.mip_dual_bound is None:
        raise BoundFailed("the solver gave no bound")
    least = int(np.ceil(found.mip_dual_bound - 1e-6))
    return least, found.x is not None and round(float(found.fun)) == least


def least_fragment(states: GpuStates, classes: Sequence[GpuRequest], counts: Ints, demand: TypicalDemand) -> float:
    """Devices: no placement of all these pods on these nodes, empty as ``states``, has less in fragments. Raises
    ``BoundFailed``."""
    kinds, of = np.unique(
        np.stack((states.model, states.devices, states.cpu_total, states.memory_total), 1), axis=0, return_inverse=True
    )
    many = np.bincount(of.reshape(-1))
    return _Fragment(kinds, many, classes, counts, demand).solve()


class _Fragment:
    """The programme. Columns: x by class and type, y by type, u by typical pod and type."""

    def __init__(
        self, kinds: Ints, many: Ints, classes: Sequence[GpuRequest], counts: Ints, demand: TypicalDemand
    ) -> None:
        self._kinds, self._many, self._classes, self._demand = kinds, many, classes, demand
        self._types, self._counts = len(kinds), counts
        self._entries: list[tuple[int, int, float]] = []
        self._most: list[float] = []

    def solve(self) -> float:
        """The bound, in devices."""
        kinds, many, types, demand = self._kinds, self._many, self._types, self._demand
        count, typical = len(self._classes), len(demand)
        xs, ys = count * types, types
        upper = np.full(xs + ys + typical * types, np.inf)
        for number, request in enumerate(self._classes):
            for t in range(types):
                if request.devices and request.models >= 0 and not (request.models >> int(kinds[t, 0])) & 1:
                    upper[number * types + t] = 0.0
                if request.devices > kinds[t, 1] or request.cpu > kinds[t, 2] or request.memory > kinds[t, 3]:
                    upper[number * types + t] = 0.0
        asks = [(c.cpu, c.memory, c.gpu) for c in self._classes]
        for t in range(types):
            devices, cpu, memory = (float(kinds[t, column] * many[t]) for column in (1, 2, 3))
            for place, most in ((0, cpu), (1, memory), (2, devices * MILLI_PER_DEVICE)):
                self._row({c * types + t: asks[c][place] for c in range(count)}, most)
            whole = {c * types + t: q.devices for c, q in enumerate(self._classes) if q.devices and not q.shared}
            shares = {c * types + t: q.milli / MILLI_PER_DEVICE for c, q in enumerate(self._classes) if q.shared}
            large = {c * types + t: 1.0 for c, q in enumerate(self._classes) if q.shared and 2 * q.milli > 1000}
            self._row({**shares, xs + t: -1.0}, 0.0)
            self._row({**large, xs + t: -1.0}, 0.0)
            self._row({**whole, xs + t: 1.0}, devices)
            for m in range(typical):
                u = xs + ys + m * types + t
                accepted = demand.models[m] < 0 or (int(demand.models[m]) >> int(kinds[t, 0])) & 1
                if not demand.devices[m] or not accepted or demand.devices[m] > kinds[t, 1]:
                    upper[u] = 0.0
                    continue
                if demand.milli[m] >= MILLI_PER_DEVICE:
                    self._row({**whole, xs + t: 1.0, u: 1.0}, devices)
                else:
                    gpu = {c * types + t: q.gpu / MILLI_PER_DEVICE for c, q in enumerate(self._classes) if q.gpu}
                    self._row({**gpu, u: 1.0}, devices)
                if demand.cpu[m]:
                    each = float(kinds[t, 1]) / float(demand.cpu[m])
                    self._row({**{c * types + t: asks[c][0] * each for c in range(count)}, u: 1.0}, cpu * each)
        cost = np.zeros(len(upper))
        for m in range(typical):
            cost[xs + ys + m * types : xs + ys + (m + 1) * types] = -demand.frequency[m]
        row, column, value = zip(*self._entries, strict=True)
        matrix = coo_array((value, (row, column)), shape=(len(self._most), len(upper))).tocsr()
        equal = coo_array((np.ones(xs), (np.arange(xs) // types, np.arange(xs))), shape=(count, len(upper))).tocsr()
        found = linprog(
            cost, A_ub=matrix, b_ub=self._most, A_eq=equal, b_eq=self._counts.astype(float),
            bounds=np.stack((np.zeros(len(upper)), upper), 1), method="highs",
        )  # fmt: skip
        if found.x is None:
            raise BoundFailed(f"the solver gave no optimum: {found.message}")
        total = float((kinds[:, 1] * many).sum())
        idle = total - sum(int(n) * q.gpu for n, q in zip(self._counts, self._classes, strict=True)) / MILLI_PER_DEVICE
        return idle + float(found.fun)

    def _row(self, entries: dict[int, float], most: float) -> None:
        number = len(self._most)
        self._entries += [(number, column, float(value)) for column, value in entries.items() if value]
        self._most.append(most)
