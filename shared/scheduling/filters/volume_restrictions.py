"""VolumeRestrictions: disks that one pod per node may use, and claims that one pod in the cluster may use.

Source: kube-scheduler 1.36 ``plugins/volumerestrictions/volume_restrictions.go``. Deviation: in a dry run a pod of
another namespace with a claim of the same name does not count (kube-scheduler compares names only, and so might evict
a pod that is not in the way).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from shared.model.pod import Pod
from shared.model.terms.relations import NO_RELATIONS, DiskUse
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable

NAME = "VolumeRestrictions"
DISK_IN_USE = "node(s) had no available disk"
CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
ONCE_PER_POD = "ReadWriteOncePod"
_DISK = (DISK_IN_USE,)


def prepare(state: ClusterState, pod: Pod) -> VolumeRestrictions | Rejection | None:
    """The rule for one pod; a rejection when a claim does not exist; None when it uses nothing restricted."""
    found = prepare_alone(state, pod)
    return None if isinstance(found, VolumeRestrictions) and not found.users and not found.disks else found


def prepare_alone(state: ClusterState, pod: Pod) -> VolumeRestrictions | Rejection | None:
    """The same, also for claims that nobody uses yet, but others of its group may (``adjust``)."""
    relations = pod.relations or NO_RELATIONS
    exclusive = []
    for use in relations.claims:
        if use.ephemeral:
            continue
        key = f"{pod.namespace}/{use.name}"
        claim = state.storage.claims.get(key)
        if claim is None:
            return Rejection(NAME, Code.UNRESOLVABLE, (f'persistentvolumeclaim "{use.name}" not found',))
        if ONCE_PER_POD in claim.access_modes:
            exclusive.append(key)
    state.index.sync()
    users = sum(1 for key in set(exclusive) if state.index.claim_users.get(key))
    if not exclusive and not relations.disks:
        return None
    table = state.table
    standing: dict[int, dict[str, Pod]] = {}
    if relations.disks:
        for node_name, pods in state.index.volume_pods.items():
            row = table.row_of.get(node_name)
            if row is not None:
                standing[row] = dict(pods)
    return VolumeRestrictions(table, relations.disks, frozenset(exclusive), users, standing)


def conflicting(disk: DiskUse, others: Iterable[DiskUse]) -> bool:
    """Whether any of ``others`` is the same disk, unless both only read; two EBS volumes always conflict."""
    for other in others:
        if disk.kind != other.kind or disk.identity != other.identity:
            continue
        if disk.kind == "rbd" and not set(disk.monitors).intersection(other.monitors):
            continue
        if not (disk.read_only and other.read_only):
            return True
    return False


@dataclass(slots=True)
class VolumeRestrictions:
    """Prepared for one pod. ``users``: references to its ``exclusive`` claims; ``standing``: pods with volumes per
    row, kept only where the pod names disks."""

    table: NodeTable
    disks: tuple[DiskUse, ...]
    exclusive: frozenset[str]
    users: int
    standing: dict[int, dict[str, Pod]]
    name: str = NAME

    def mask(self) -> BoolArray:
        """``[rows]``: all or none for a claim in use; else without a conflicting disk."""
        passing: BoolArray = np.full(self.table.rows, self.users <= 0)
        for row in self.standing:
            passing[row] = self.verdict(row) is None
        return passing

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """Evicting whoever uses it resolves both."""
        for pod in self.standing.get(row, {}).values():
            used = (pod.relations or NO_RELATIONS).disks
            if any(conflicting(disk, used) for disk in self.disks):
                return Code.UNSCHEDULABLE, (DISK_IN_USE,)
        return (Code.UNSCHEDULABLE, (CLAIM_IN_USE,)) if self.users > 0 else None

    def tally(self, rows: IntArray) -> dict[str, int]:
        """A disk in use comes first."""
        disks = sum(
            1 for row in rows.tolist() if row in self.standing and self.verdict(row) == (Code.UNSCHEDULABLE, _DISK)
        )
        return {text: count for text, count in ((DISK_IN_USE, disks), (CLAIM_IN_USE, len(rows) - disks)) if count}

    def resolvable(self, rows: IntArray) -> BoolArray:
        """Everywhere."""
        return np.ones(len(rows), np.bool_)

    def adjust(self, pod: Pod, row: int, sign: int) -> None:
        """Count the claims and disks of ``pod``."""
        relations = pod.relations
        if relations is None:
            return
        for use in relations.claims:
            if f"{pod.namespace}/{use.name}" in self.exclusive and not use.ephemeral:
                self.users += sign
        if self.disks and relations.disks:
            there = dict(self.standing.get(row, {}))
            if sign > 0:
                there[pod.uid] = pod
            else:
                there.pop(pod.uid, None)
            self.standing[row] = there

    def copy(self) -> VolumeRestrictions:
        """Rows are replaced when adjusted, never written to."""
        return replace(self, standing=dict(self.standing))
