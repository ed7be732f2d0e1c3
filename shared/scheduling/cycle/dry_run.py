"""One node as it would be with pods added or taken away: for nominated pods and for preemption.

Works on a table of one row and on copies of the prepared rules, so that the live state, its stamps and generations
stay untouched. Filters are the same ones that judge the cluster.
"""

from __future__ import annotations

from shared.model.constraints import gpu_milli_of
from shared.model.pod import Pod
from shared.scheduling.cycle.conflicts import fits
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.prefilter import Prefiltered
from shared.scheduling.filters import LAST
from shared.scheduling.framework import Rejection
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import NodeTable


class DryRun:
    """The node in ``row``, with the pods that stand there now."""

    def __init__(self, state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered, row: int) -> None:
        self._state = state
        self._row = row
        self._pod = prefiltered.pod
        node = state.table.nodes[row]
        assert node is not None
        self.node_name = node.name
        self._rules = tuple(rule.copy() for rule in prefiltered.rules)
        self._static = _static_rejection(feasibility, prefiltered.pod, row)
        self._table = NodeTable(1)
        self._table.upsert(node)
        self._devices: dict[str, tuple[int, ...]] = {}
        for uid in sorted(state.cache.pods_on(node.name)):
            account = state.cache.accounts[uid]
            self._devices[uid] = account.devices
            self._table.add_usage(0, account.pod_class, account.devices)
        self._local = FeasibilityCache(self._table, profile=feasibility.profile.dynamic)

    def holds(self, pod: Pod) -> bool:
        """Whether the pod stands on the node now."""
        return pod.uid in self._devices

    def add(self, pod: Pod) -> None:
        """As if ``pod`` came to the node."""
        devices = self._devices.get(pod.uid)
        if devices is None:
            devices = self._devices[pod.uid] = self._table.pick_devices(0, gpu_milli_of(pod.pod_class))
        self._table.add_usage(0, pod.pod_class, devices)
        for rule in self._rules:
            rule.adjust(pod, self._row, 1)

    def remove(self, pod: Pod) -> None:
        """As if ``pod``, which is there, left it."""
        self._table.add_usage(0, pod.pod_class, self._devices.get(pod.uid, ()), sign=-1)
        for rule in self._rules:
            rule.adjust(pod, self._row, -1)

    def rejection(self) -> Rejection | None:
        """Why the node would not take the pod; None when it would."""
        if self._static is not None and self._static.plugin != LAST:
            return self._static
        local = self._local.rejection(self._pod.pod_class, 0)
        if local is not None:
            return local
        for rule in self._rules:
            verdict = rule.verdict(self._row)
            if verdict is not None:
                return Rejection(rule.name, *verdict)
        return self._static

    def takes(self) -> bool:
        """Whether every filter passes; the same as no rejection, cheaper."""
        if self._static is not None or not fits(self._local, self._pod.pod_class, 0):
            return False
        return all(rule.verdict(self._row) is None for rule in self._rules)

    def takes_beside_nominated(self) -> bool:
        """Whether it would, both with and without the nominated pods that the pod must yield to."""
        nominated = self._state.nominated_on(self.node_name, self._pod)
        for pod in nominated:
            self.add(pod)
        try:
            if nominated and not self.takes():
                return False
        finally:
            for pod in nominated:
                self.remove(pod)
        return self.takes()


def _static_rejection(feasibility: FeasibilityCache, pod: Pod, row: int) -> Rejection | None:
    """The verdict of the static filters alone, which run before the others, but for the last one."""
    if feasibility.static_verdict(pod.pod_class).mask[row]:
        return None
    return feasibility.rejection(pod.pod_class, row, static_only=True)
