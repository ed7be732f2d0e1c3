"""NodeVolumeLimits: a node attaches only so many volumes of each CSI driver.

Source: kube-scheduler 1.36 ``plugins/nodevolumelimits/csi.go``, for CSI volumes behind claims; in-tree volumes that
the API server would translate to CSI are not counted, nor attachments that no pod needs any more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from shared.model.cluster_objects import VolumeClaim
from shared.model.pod import Pod
from shared.scheduling.framework import Code
from shared.scheduling.state.cluster_state import ClusterState, Storage
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable
from shared.scheduling.state.pod_index import PodIndex

NAME = "NodeVolumeLimits"
TOO_MANY = "node(s) exceed max volume count"

Attached = frozenset[tuple[str, str]]
"""(driver, handle) of volumes; one used by several pods is attached once."""


def prepare(state: ClusterState, pod: Pod) -> VolumeLimits | None:
    """The rule for one pod; None when it needs no CSI volume or no node has a limit."""
    if pod.relations is None or not pod.relations.claims or not state.storage.attach_limits:
        return None
    wanted = volumes_of(state.storage, pod)
    if not wanted:
        return None
    if not any(driver in state.storage.attach_limits.drivers for driver, _ in wanted):
        return None
    return VolumeLimits(state.table, state.index, state.storage, wanted, {})


def volumes_of(storage: Storage, pod: Pod) -> Attached:
    """CSI volumes behind the claims of ``pod``; a claim not yet provisioned counts under its own name."""
    found = set()
    for use in pod.relations.claims if pod.relations is not None else ():
        claim = storage.claims.get(f"{pod.namespace}/{use.name}")
        volume = _volume_of(storage, claim) if claim is not None else None
        if volume is not None and all(volume):
            found.add(volume)
    return frozenset(found)


def _volume_of(storage: Storage, claim: VolumeClaim) -> tuple[str, str] | None:
    volume = storage.volume(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return volume.csi
    storage_class = storage.classes.get(claim.class_name)
    return None if storage_class is None else (storage_class.provisioner, claim.key)


@dataclass(slots=True)
class VolumeLimits:
    """Prepared for one pod. ``adjusted``: pods with volumes, by row, where they differ from those that stand; other
    rows are read from the live index, since copying every node's would cost more than judging it."""

    table: NodeTable
    index: PodIndex
    storage: Storage
    wanted: Attached
    adjusted: dict[int, dict[str, Pod]]
    name: str = NAME

    def mask(self) -> BoolArray:
        """``[rows]``: True where the new volumes stay within every limit."""
        passing: BoolArray = np.ones(self.table.rows, np.bool_)
        # elsewhere they fit, even if each claim were a volume of its own
        near = np.flatnonzero(self.storage.attach_limits.least() - self.index.claim_uses() < len(self.wanted))
        for row in (*near.tolist(), *self.adjusted):
            passing[row] = self.verdict(row) is None
        return passing

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """Evicting pods whose volumes then go resolves it."""
        limits = self.storage.attach_limits.of(self.table.names[row])
        if not limits:
            return None
        attached = {volume for pod in self._standing(row).values() for volume in volumes_of(self.storage, pod)}
        used = Counter(driver for driver, _ in attached)
        wanted = Counter(driver for driver, _ in self.wanted - attached)
        if any(driver in limits and used[driver] + count > limits[driver] for driver, count in wanted.items()):
            return Code.UNSCHEDULABLE, (TOO_MANY,)
        return None

    def tally(self, rows: IntArray) -> dict[str, int]:
        """There is one reason."""
        return {TOO_MANY: len(rows)} if len(rows) else {}

    def resolvable(self, rows: IntArray) -> BoolArray:
        """Everywhere."""
        return np.ones(len(rows), np.bool_)

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Count the volumes of ``pod``."""
        if pod.relations is None or not pod.relations.claims:
            return
        there = dict(self._standing(row))
        if sign > 0:
            there[pod.uid] = pod
        else:
            there.pop(pod.uid, None)
        self.adjusted[row] = there

    def copy(self) -> VolumeLimits:
        """Rows are replaced when adjusted, never written to."""
        return replace(self, adjusted=dict(self.adjusted))

    def _standing(self, row: int) -> dict[str, Pod]:
        known = self.adjusted.get(row)
        return self.index.volume_pods.get(self.table.names[row], {}) if known is None else known
