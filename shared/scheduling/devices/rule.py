"""DynamicResources as a rule of the cycle: which nodes give a pod the devices that it claims, as things stand."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.devices.dynamic_resources import NAME, WEIGHT, PodDevices, Unblock, normalised
from shared.scheduling.framework import Code, Rejection, Unmoved
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray

UNREAD = Rejection(NAME, Code.UNRESOLVABLE, ("no slices, classes and claims are known here",))


def prepare(state: ClusterState, pod: Pod) -> DynamicResources | Rejection | None:
    """See ``shared.scheduling.framework``."""
    if pod.asks is None:
        return None
    devices = state.devices
    if not isinstance(devices, ClaimedDevices):
        return UNREAD
    found = devices.prepare(pod)
    return found if found is None or isinstance(found, Rejection) else DynamicResources(devices, found, state)


class DynamicResources(Unmoved):
    """Prepared for one pod. Pods that come or go change nothing: devices are free when their claims say so."""

    name = NAME

    def __init__(self, devices: ClaimedDevices, claimed: PodDevices, state: ClusterState) -> None:
        self._devices = devices
        self._claimed = claimed
        self._table = state.table
        self._mask: BoolArray | None = None

    def mask(self) -> BoolArray:
        """``[rows]``: True where the pod gets its devices."""
        if self._mask is None:
            self._mask = np.zeros(self._table.rows, np.bool_)
            nodes, rows = self._devices.nodes()
            if len(nodes):
                self._mask[rows] = self._claimed.mask(nodes)
        return self._mask

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """kube-scheduler's reason; evicting pods resolves none."""
        found = self._claimed.rejection(self._node(row))
        return None if found is None else (found.code, found.reasons)

    def tally(self, rows: IntArray) -> dict[str, int]:
        """One reason for each row."""
        found = Counter[str]()
        for row in rows.tolist():
            verdict = self.verdict(row)
            found.update(verdict[1] if verdict is not None else ())
        return dict(found)

    def fails(self, mask: BoolArray) -> bool:
        """Whether the question itself fails on a node of ``mask [rows]``: a selector cannot be evaluated, say. Then no
        node takes the pod, as in kube-scheduler: its answer would depend on which nodes are asked."""
        refusing = np.flatnonzero(mask & ~self.mask())
        return any((found := self.verdict(row)) is not None and found[0] is Code.ERROR for row in refusing.tolist())

    def scores(self, rows: IntArray) -> IntArray | None:
        """``[len(rows)]``, weighted: how early the alternatives come that each gives; None: it has none."""
        if not any(request.alternatives for claim in self._claimed.claims for request in claim.requests):
            return None
        return WEIGHT * np.array(normalised([self._claimed.score(self._node(row)) for row in rows.tolist()]), np.int64)

    def ask_all(self, mask: BoolArray) -> None:
        """Judge every node of ``mask [rows]``, those that pass all filters before this."""
        for row in np.flatnonzero(mask).tolist():
            self.verdict(row)

    def unblock(self) -> Unblock:
        """What may be taken back so that some node takes the pod: of claims that keep it from a node that was asked."""
        return self._claimed.unblock()

    def _node(self, row: int) -> Node:
        node = self._table.nodes[row]
        assert node is not None
        return node
