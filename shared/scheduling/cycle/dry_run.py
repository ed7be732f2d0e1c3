"""One node as it would be with pods added or taken away: for nominated pods and for preemption.

Works on a table of one row and on copies of the prepared rules, so that the live state, its stamps and generations
stay untouched. Filters are the same ones that judge the cluster.
"""

from __future__ import annotations

from copy import copy

import numpy as np

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
        self.node_name = state.table.names[row]
        self._rules = tuple(rule.copy() for rule in prefiltered.rules)
        self._static = _static_rejection(feasibility, prefiltered.pod, row)
        self._table = _alone(state.table, row)
        accounts = state.cache.accounts
        self._devices = {uid: accounts[uid].devices for uid in state.cache.pods_on(self.node_name)}
        # What static filters say (`_static`) no pod that comes or goes in thought changes.
        self._local = FeasibilityCache(self._table, profile=feasibility.profile.dynamic)
        self._nominated: list[Pod] = []
        """Those that are counted here now."""
        # but for rules that others satisfy, and filters of the user's own, what fits beside more pods fits beside fewer
        self._monotone = not self._rules and not feasibility.profile.brought

    def holds(self, pod: Pod) -> bool:
        """Whether the pod stands on the node now."""
        return pod.uid in self._devices

    def add(self, pod: Pod) -> None:
        """As if ``pod`` came to the node."""
        # Put back in thought it has the devices that it had: the node must be as it was.
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
        # People are told by whom stands, not by who may come: nominated pods are taken off first.
        self._without_nominated()
        # kube-scheduler's order, by which the first reason is told: static, accounted, the rules, the last filter.
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

    def takes_beside_nominated(self) -> bool:
        """Whether every filter passes, both with and without the nominated pods that the pod must yield to."""
        # Once, and left there: questions follow each other as pods are put back, and each would add them again.
        if not self._nominated:
            self._nominated = self._state.nominated_on(self.node_name, self._pod)
            for pod in self._nominated:
                self.add(pod)
        if self._monotone or not self._nominated:
            return self._takes()
        # Both, as upstream's RunFilterPluginsWithNominatedPods: a rule may be satisfied only by nominated pods, and
        # those may never come.
        beside = self._takes()
        self._without_nominated()
        return beside and self._takes()

    def _takes(self) -> bool:
        """The same as no rejection, cheaper."""
        if self._static is not None or not fits(self._local, self._pod.pod_class, 0):
            return False
        return all(rule.verdict(self._row) is None for rule in self._rules)

    def _without_nominated(self) -> None:
        nominated, self._nominated = self._nominated, []
        for pod in nominated:
            self.remove(pod)


def _static_rejection(feasibility: FeasibilityCache, pod: Pod, row: int) -> Rejection | None:
    """The verdict of the static filters alone, which run before the others, but for the last one."""
    if feasibility.static_verdict(pod.pod_class).mask[row]:
        return None
    return feasibility.rejection(pod.pod_class, row, static_only=True)


def _alone(table: NodeTable, row: int) -> NodeTable:
    """A table of one row of another, with accounting of its own; all else is as there, for reading."""
    one, here = copy(table), slice(row, row + 1)
    name = table.names[row]
    one.rows = one.capacity = 1
    one.names, one.row_of, one.nodes = [name], {name: 0}, [table.nodes[row]]
    one.column_of, one.resource_names = dict(table.column_of), list(table.resource_names)
    one.allocatable, one.requested = table.allocatable[:, here], table.requested[:, here].copy()
    one.score_requested = table.score_requested[:, here].copy()
    one.generation, one.stamp = table.generation[here].copy(), table.stamp[here].copy()
    one.present, one.unschedulable, one.drained = table.present[here], table.unschedulable[here], table.drained[here]
    one.taint_set, one.feature_set = table.taint_set[here], table.feature_set[here]
    one.label_codes = {key: codes[here] for key, codes in table.label_codes.items()}
    one.ports, one.device_free = [table.ports[row]], [table.device_free[row]]
    one.device_max_free, one.device_whole = table.device_max_free[here].copy(), table.device_whole[here].copy()
    one.latency_us = table.latency_us[here]
    one.latencies, one.use = table.latencies.of_rows(np.array((row,))), table.use.of_rows(np.array((row,)))
    return one
