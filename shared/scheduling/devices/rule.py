"""DynamicResources as a rule of the cycle: which nodes give a pod the devices that it claims, as things stand."""

from __future__ import annotations

import numpy as np

from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.devices.dynamic_resources import NAME, WEIGHT, PodDevices, Unblock, normalised
from shared.scheduling.devices.search.tried import TriedDevices
from shared.scheduling.framework import Code, Rejection, Unmoved
from shared.scheduling.matching.selectors import terms_mask
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
        self._state = state
        self._table = state.table
        self._mask: BoolArray | None = None

    def mask(self) -> BoolArray:
        """``[rows]``: True where the pod gets its devices."""
        if self._mask is None:
            self._mask = np.zeros(self._table.rows, np.bool_)
            nodes, rows = self._devices.nodes()
            if len(nodes):
                self._mask[rows] = self._claimed.mask(nodes, lambda terms: terms_mask(self._table, terms)[rows])
        return self._mask

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """kube-scheduler's reason; evicting pods resolves none."""
        found = self._claimed.rejection(self._node(row))
        return None if found is None else (found.code, found.reasons)

    def tally(self, rows: IntArray) -> dict[str, int]:
        """One reason for each row."""
        nodes, there = self._devices.nodes()
        return dict(self._claimed.tally(nodes, np.searchsorted(there, rows)))

    def fails(self, mask: BoolArray) -> bool:
        """Whether the question itself fails on a node of ``mask [rows]``: a selector cannot be evaluated, say. Then no
        node takes the pod, as in kube-scheduler: its answer would depend on which nodes are asked."""
        nodes, rows = self._devices.nodes()
        return bool((self._claimed.fails(nodes) & mask[rows]).any())

    def scores(self, rows: IntArray) -> IntArray | None:
        """``[len(rows)]``, weighted: how early the alternatives come that each gives; None: it has none."""
        if not any(request.alternatives for claim in self._claimed.claims for request in claim.requests):
            return None
        return WEIGHT * np.array(normalised([self._claimed.score(self._node(row)) for row in rows.tolist()]), np.int64)

    def refuses_any(self) -> bool:
        """Whether a node that is not there yet would be refused too."""
        return self._claimed.refuses_any

    def ask_all(self, mask: BoolArray) -> None:
        """Judge every node of ``mask [rows]``, those that pass all filters before this."""
        for row in np.flatnonzero(mask).tolist():
            self.verdict(row)

    def unblock(self) -> Unblock:
        """What may be taken back so that some node takes the pod: of claims that keep it from a node that was asked."""
        return self._claimed.unblock()

    def of_members(self, uids: frozenset[str]) -> MembersDevices:
        """The same, beside members of a group that are placed in thought."""
        return MembersDevices(self._devices, self._claimed, self._state, uids, TriedDevices())

    def _node(self, row: int) -> Node:
        node = self._table.nodes[row]
        assert node is not None
        return node


class MembersDevices(DynamicResources):
    """Of members that are placed together: what one is given the next does not get, and a claim that several of them
    name is where the first of them is. Pods of no concern, members to be evicted among them, give back nothing."""

    def __init__(
        self, devices: ClaimedDevices, claimed: PodDevices, state: ClusterState, uids: frozenset[str],
        tried: TriedDevices,
    ) -> None:  # fmt: skip
        super().__init__(devices, claimed.with_others(tried), state)
        self._alone = claimed
        self._uids = uids
        self._tried = tried

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """A member is given what it claims, or gives it back."""
        if pod.asks is None or pod.uid not in self._uids:
            return
        if sign < 0:
            self._tried.take_back(pod.uid)
        else:
            found = self._devices.prepare(pod)
            if isinstance(found, PodDevices):
                wanting = [claim.key for claim in found.claims if claim.allocation is None]
                given = found.with_others(self._tried).allocations(self._node(row), self._devices.new_share)
                wanting += [claim.key for claim, _ in given if claim.for_extended]
                self._tried.give(pod.uid, wanting, {claim.key: allocation for claim, allocation in given})
        self._claimed, self._mask = self._alone.with_others(self._tried), None

    def refuses_any(self) -> bool:
        """As things stand: what the others get in thought might be somewhere else."""
        return self._alone.refuses_any

    def copy(self) -> MembersDevices:
        """One with members of its own."""
        return MembersDevices(self._devices, self._alone, self._state, self._uids, self._tried.copy())
