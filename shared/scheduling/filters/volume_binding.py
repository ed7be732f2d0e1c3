"""VolumeBinding: nodes must reach the pod's bound volumes, and find or make those it waits for.

Source: kube-scheduler 1.36 ``plugins/volumebinding``. A claim that is to be bound at once but is not yet, that is lost,
being deleted or made for another pod, rejects the pod whatever the node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.model.cluster_objects import VolumeClaim
from shared.model.pod import Pod
from shared.model.terms.relations import ClaimUse
from shared.scheduling.framework import Code, Rejection, Unmoved
from shared.scheduling.matching.volumes import affinity_mask, provisioning_mask, unmatched_claims, usable_volumes
from shared.scheduling.state.cluster_state import ClusterState, Storage
from shared.scheduling.state.node_table import BoolArray, IntArray, NodeTable

NAME = "VolumeBinding"
UNREACHABLE = "node(s) didn't match PersistentVolume's node affinity"
NOT_FOUND = "node(s) didn't find available persistent volumes to bind"
VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


def prepare(state: ClusterState, pod: Pod) -> VolumeBinding | Rejection | None:
    """The rule for one pod; a rejection when a claim cannot be used anywhere; None when it has no claims."""
    if pod.relations is None or not pod.relations.claims:
        return None
    bound, delayed, immediate = [], [], False
    for use in pod.relations.claims:
        claim = state.storage.claims.get(f"{pod.namespace}/{use.name}")
        if claim is None:
            text = f'persistentvolumeclaim "{use.name}" not found'
            if use.ephemeral:
                text = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
            return Rejection(NAME, Code.UNRESOLVABLE, (text,))
        trouble = _unusable(claim, use, pod)
        if trouble:
            return Rejection(NAME, Code.UNRESOLVABLE, (trouble,))
        storage_class = state.storage.classes.get(claim.class_name)
        if claim.bound:
            bound.append(claim)
        elif storage_class is not None and storage_class.delayed and not claim.volume_name:
            delayed.append(claim)
        else:
            immediate = True
    if immediate:
        return Rejection(NAME, Code.UNRESOLVABLE, (UNBOUND,))
    return _judge(state.table, state.storage, bound, delayed)


def _unusable(claim: VolumeClaim, use: ClaimUse, pod: Pod) -> str:
    if claim.lost:
        return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{claim.volume_name}"'
    if claim.deleting:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    if use.ephemeral and claim.owner_pod != pod.name:
        return f'PVC "{claim.key}" was not created for pod "{pod.key}" (pod is not owner)'
    return ""


def _judge(table: NodeTable, storage: Storage, bound: list[VolumeClaim], delayed: list[VolumeClaim]) -> VolumeBinding:
    reached: BoolArray = np.ones(table.rows, np.bool_)
    gone: BoolArray = np.zeros(table.rows, np.bool_)
    for claim in bound:
        volume = storage.volume(claim.volume_name)
        if volume is None:
            gone = reached.copy()  # nodes rejected for an earlier claim keep that reason
            break
        reached &= affinity_mask(table, volume.affinity)
    return VolumeBinding(table, reached, gone, _found(table, storage, delayed))


def _found(table: NodeTable, storage: Storage, delayed: list[VolumeClaim]) -> BoolArray:
    """``[rows]``: every delayed claim finds a volume on the node, or one can be made for it there."""
    passing: BoolArray = np.ones(table.rows, np.bool_)
    if not delayed:
        return passing
    makeable = {
        name: provisioning_mask(table, storage.classes.get(name)) for name in {claim.class_name for claim in delayed}
    }
    matching = []
    for claim in sorted(delayed, key=lambda c: c.storage_bytes):
        if not claim.selected_node:
            matching.append(claim)
            continue
        selected: BoolArray = np.zeros(table.rows, np.bool_)
        row = table.row_of.get(claim.selected_node)
        if row is not None:
            selected[row] = True
        passing &= selected & makeable[claim.class_name]
    usable = {claim.key: usable_volumes(claim, storage.volumes_of_class(claim.class_name)) for claim in matching}
    reachable = {
        volume.name: affinity_mask(table, volume.affinity) for volumes in usable.values() for volume in volumes
    }
    choice: BoolArray = np.zeros(table.rows, np.bool_)
    for mask in reachable.values():
        choice |= mask
    everything_made: BoolArray = np.ones(table.rows, np.bool_)
    for claim in matching:
        everything_made &= makeable[claim.class_name]
    for row in np.flatnonzero(passing & choice & ~everything_made).tolist():
        unmatched = unmatched_claims(matching, usable, reachable, row)
        passing[row] = all(makeable[claim.class_name][row] for claim in unmatched)
    return passing & (choice | everything_made)


@dataclass(slots=True)
class VolumeBinding(Unmoved):
    """Prepared for one pod, ``[rows]`` each. ``reached``: all bound volumes; ``gone``: a bound volume does not exist;
    ``found``: volumes for the claims that wait. Pods that come or go change nothing."""

    table: NodeTable
    reached: BoolArray
    gone: BoolArray
    found: BoolArray
    name: str = NAME

    def mask(self) -> BoolArray:
        """``[rows]``: True where every claim can be used."""
        return self.reached & ~self.gone & self.found

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """All reasons; evicting pods resolves none."""
        holds = ((self.reached[row], UNREACHABLE), (self.found[row], NOT_FOUND), (not self.gone[row], VOLUME_GONE))
        reasons = tuple(text for holding, text in holds if not holding)
        return (Code.UNRESOLVABLE, reasons) if reasons else None

    def tally(self, rows: IntArray) -> dict[str, int]:
        """Every reason of each row."""
        counts = (
            (UNREACHABLE, int((~self.reached[rows]).sum())),
            (NOT_FOUND, int((~self.found[rows]).sum())),
            (VOLUME_GONE, int(self.gone[rows].sum())),
        )
        return {text: count for text, count in counts if count}
