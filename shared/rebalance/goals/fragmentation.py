"""Goal ``fragmentation``: idle GPU that pods could use, and elsewhere nodes whose CPU and memory run out together.

Measure: of nodes with GPUs FGD's (``shared/policy/frag/fragmentation.py``), in devices, over the pods that stand and
wait; of others the standard deviation between the shares of CPU and memory that are requested (Koordinator's resource
imbalance), where anything stands there. GPUs are those of ``shared/policy/frag/view.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from shared.model.constraints import PodClass
from shared.model.gpu import GpuRequest, GpuStates, fullest
from shared.model.gpu_shares import DEFAULT, GpuShares
from shared.model.pod import Pod
from shared.model.resources import CPU, MEMORY, MILLI_PER_DEVICE
from shared.policy.frag.fragmentation import Meeting, typical_demand
from shared.policy.frag.view import GpuView, asked_of, mask_of, model_codes, models_named
from shared.rebalance.goals.measure import Floats, Rows
from shared.rebalance.residents import Resident
from shared.rebalance.trial import ClusterTrial
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN

MIB = 1 << 20
AT_ONCE = 4096
"""States that meet the demand together: more would only take memory."""


class Fragments:
    """``pods``: those that the demand is taken over."""

    unit = "GPUs in fragments, and imbalance"
    least_gain = 0.02

    def __init__(self, trial: ClusterTrial, pods: Iterable[Pod], shares: GpuShares = DEFAULT) -> None:
        table = trial.table
        self._trial, self._shares = trial, shares
        self._requests: dict[PodClass, GpuRequest] = {}
        self._models, codes = model_codes(table)
        self._model = np.where(codes < 0, len(self._models), codes)
        view = GpuView(table, shares)
        self._count = view.devices()
        self._count[~table.present[: table.rows]] = 0
        self._width = max(int(self._count.max(initial=0)), 1)
        self._totals = table.allocatable[[CPU_COLUMN, MEMORY_COLUMN], : table.rows].astype(np.int64)
        self._cpu, self._memory = np.zeros(table.rows, np.int64), np.zeros(table.rows, np.int64)
        self._free = np.zeros((table.rows, self._width), np.int64)
        classes = Counter(self.request(pod.pod_class) for pod in pods)
        self._meeting: Meeting | None = None
        if self._count.any() and classes:
            self._meeting = Meeting(typical_demand(list(classes), np.array(list(classes.values()), np.int64)))
        self._worth = np.zeros(table.rows)
        self._take_over(np.arange(table.rows))

    def value(self) -> float:
        """Summed over nodes."""
        return float(self._worth.sum())

    def kind(self, resident: Resident) -> Hashable:
        """Equal classes."""
        return resident.replacement.pod_class

    def leaving(self, residents: Sequence[Resident]) -> Floats:
        """See ``GoalMeasure``."""
        rows = np.array([self._trial.row(one.uid) for one in residents], np.int64)
        cpu, memory, free = self._cpu[rows], self._memory[rows], self._free[rows]
        for index, one in enumerate(residents):
            request = self.request(one.pod.pod_class)
            cpu[index] += request.cpu
            memory[index] += _bytes(one.pod.pod_class)
            for device in self._held(one, rows[index], request):
                free[index, device] += request.milli
        return self._values(rows, cpu, memory, free) - self._worth[rows]

    def coming(self, resident: Resident, rows: Rows) -> Floats:
        """See ``GoalMeasure``."""
        request = self.request(resident.replacement.pod_class)
        cpu, memory, free = self._cpu[rows] - request.cpu, self._memory[rows].copy(), self._free[rows]
        memory -= _bytes(resident.replacement.pod_class)
        fits = np.ones(len(rows), np.bool_)
        if request.shared:
            device = fullest(self._states(rows, cpu, free), request)
            fits = free[np.arange(len(rows)), device] >= request.milli
            free[np.arange(len(rows))[fits], device[fits]] -= request.milli
        elif request.devices:
            whole = free == MILLI_PER_DEVICE
            fits = whole.sum(1) >= request.devices
            free[whole & (whole.cumsum(1) <= request.devices)] = 0
        found = np.full(len(rows), np.inf)
        fits &= (cpu >= 0) & (memory >= 0)
        found[fits] = self._values(rows[fits], cpu[fits], memory[fits], free[fits]) - self._worth[rows[fits]]
        return found

    def moved(self, resident: Resident, rows: Rows) -> None:  # noqa: ARG002
        """See ``GoalMeasure``."""
        self._take_over(rows)

    def _take_over(self, rows: Rows) -> None:
        """As the table says by now."""
        table = self._trial.table
        view = GpuView(table, self._shares)
        free = self._totals[:, rows] - table.requested[[CPU_COLUMN, MEMORY_COLUMN]][:, rows]
        self._cpu[rows], self._memory[rows] = free
        for row in rows.tolist():
            if self._count[row]:
                here = view.free(row)
                self._free[row, : len(here)] = here
        self._worth[rows] = self._values(rows, self._cpu[rows], self._memory[rows], self._free[rows])

    def _values(self, rows: Rows, cpu: Rows, memory: Rows, free: Rows) -> Floats:
        found = np.zeros(len(rows))
        gpu = np.flatnonzero(self._count[rows] > 0)
        if self._meeting is not None:
            for start in range(0, len(gpu), AT_ONCE):
                some = gpu[start : start + AT_ONCE]
                states = self._states(rows[some], cpu[some], free[some])
                found[some] = self._meeting.fragment(states) / MILLI_PER_DEVICE
        others = np.flatnonzero(self._count[rows] == 0)
        has = self._totals[:, rows[others]]
        used = (has - np.stack((cpu[others], memory[others]))) / np.maximum(has, 1)
        found[others] = np.abs(used[0] - used[1]) / 2.0  # the standard deviation of two
        return found

    def _states(self, rows: Rows, cpu: Rows, free: Rows) -> GpuStates:
        nothing = np.zeros(len(rows), np.int64)
        return GpuStates(cpu, nothing, free, self._count[rows], self._model[rows], self._totals[0, rows], nothing)

    def request(self, pod_class: PodClass) -> GpuRequest:
        """What pods of the class ask for of GPUs."""
        found = self._requests.get(pod_class)
        if found is None:
            found = self._requests[pod_class] = self._request_of(pod_class)
        return found

    def _request_of(self, pod_class: PodClass) -> GpuRequest:
        devices, milli = asked_of(pod_class, self._shares)
        models = mask_of(models_named(pod_class), self._models)
        return GpuRequest(dict(pod_class.requests).get(CPU, 0), 0, devices, milli, models)

    def _held(self, resident: Resident, row: int, request: GpuRequest) -> Sequence[int]:
        """The devices that the pod holds; where nobody tells, the fullest ones."""
        known = self._trial.devices(resident.uid)
        if known or not request.devices:
            return [device for device in known if device < self._width]
        order = np.argsort(self._free[row, : self._count[row]], kind="stable")
        return [int(device) for device in order[: request.devices]]


def _bytes(pod_class: PodClass) -> int:
    return dict(pod_class.requests).get(MEMORY, 0)
