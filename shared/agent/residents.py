"""Which workloads stand on the agent's nodes, as the coordinator tells it, into the store that policies read.

A level told as changes: pods by number, workloads by number. What is heard twice changes nothing; whatever breaks the
order (another epoch, another term) drops all of it, and the coordinator tells everything anew. Losing it costs the
estimate of what is young and what is on its way, never a decision.

Not its job: accounting (``replica.py``), knowing names: a workload is a digest here.
"""

from __future__ import annotations

import numpy as np

from shared.agent.replica import Replica
from shared.policy.usage.class_usage import BASE, OTHER, PARTS, REFERENCE, FloatArray
from shared.policy.usage.utilisation import UtilisationStore
from shared.wire import residents as wire

NO_WORKLOAD = ("", np.zeros(PARTS))


class ResidentsFeed:
    """Fills ``store``."""

    def __init__(self, store: UtilisationStore) -> None:
        self._store = store
        self._workloads: dict[int, tuple[str, FloatArray]] = {}

    def take(self, told: wire.Residents, replica: Replica, now_s: float) -> None:
        """Take over what changed. Pods on slots that are not here, and of unknown workloads, are left out or counted
        without one. ``now_s``: seconds of the clock that ages are taken from."""
        if told.anew:
            self.drop()
        for name in told.workloads:
            self._workloads[name.id] = (name.key.hex(), _requested(name))
            if name.priority is not None:
                self._store.priorities[name.key.hex()] = name.priority
        store, names, row_of_slot = self._store, replica.table.names, replica.row_of_slot
        for pod in told.stands:
            row = row_of_slot.get(pod.slot)
            if row is not None:
                workload, requested = self._workloads.get(pod.workload, NO_WORKLOAD)
                since_s = now_s - pod.age_ms / 1000
                store.bound(str(pod.number), names[row], workload, now_s=since_s, requested=requested)
        for number in told.ended:
            store.ended(str(number), now_s=now_s)
        for learned in told.uses:
            column = self._column(learned.id)
            if len(learned.shares) == PARTS and (column != OTHER or learned.id == OTHER):
                store.usage.teach(column, np.array(learned.shares), learned.evidence)

    def workload(self, number: int) -> str:
        """The workload's name here; "" for one that was not told, and for 0."""
        return self._workloads.get(number, NO_WORKLOAD)[0]

    def estimates(self, most: int) -> dict[str, list[float]]:
        """Per workload (its digest) what one pod is expected to use [PARTS], as shares of a reference node."""
        usage = self._store.usage
        known = list(usage.workloads.items())[:most]
        return {workload: [round(share, 5) for share in usage.use[column].tolist()] for workload, column in known}

    def _column(self, number: int) -> int:
        """The column that a lesson is about: its number says, or its workload; ``OTHER`` too for one beyond all
        columns here, whose lesson is not that of all the others."""
        if number in (BASE, OTHER):
            return number
        workload, requested = self._workloads.get(number, NO_WORKLOAD)
        return self._store.column(workload, requested)

    def drop(self) -> None:
        """Forget pods and numbers; what workloads were learned to use stays."""
        self._workloads.clear()
        self._store.priorities.clear()
        self._store.forget_pods()


def _requested(name: wire.WorkloadName) -> FloatArray:
    """[PARTS]: what one pod requests, as shares of a reference node."""
    shares = np.zeros(PARTS)
    shares[:2] = name.cpu_millis / REFERENCE[0], name.memory_bytes / REFERENCE[1]
    return shares
