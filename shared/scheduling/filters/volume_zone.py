"""VolumeZone: nodes must be in the zone and region that the labels of the pod's bound volumes name.

Source: kube-scheduler 1.36 ``plugins/volumezone/volume_zone.go``. A node with none of these labels takes any volume (a
cluster of one zone).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.model.cluster_objects import PersistentVolume, VolumeClaim
from shared.model.pod import Pod
from shared.scheduling.framework import Code, Rejection, Unmoved
from shared.scheduling.matching.domains import codes_or_absent
from shared.scheduling.state.cluster_state import ClusterState, Storage
from shared.scheduling.state.node_table import ABSENT, BoolArray, IntArray, NodeTable

NAME = "VolumeZone"
WRONG_ZONE = "node(s) had no available volume zone"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
SUCCESSOR = {"failure-domain.beta.kubernetes.io/zone": ZONE, "failure-domain.beta.kubernetes.io/region": REGION}
"""Labels of old volumes, and what nodes carry instead."""

TOPOLOGY_LABELS = (*SUCCESSOR, ZONE, REGION)
SEPARATOR = "__"
"""Between the zones of a volume that lives in several."""


def prepare(state: ClusterState, pod: Pod) -> VolumeZone | Rejection | None:
    """The rule for one pod; a rejection when a claim or its volume cannot be looked up; None without such labels."""
    if pod.relations is None:
        return None
    demands: list[tuple[str, frozenset[str]]] = []
    for use in pod.relations.claims:
        if use.ephemeral:
            continue
        claim = state.storage.claims.get(f"{pod.namespace}/{use.name}")
        if claim is None:
            return Rejection(NAME, Code.UNRESOLVABLE, (f'persistentvolumeclaim "{use.name}" not found',))
        if not claim.volume_name:
            trouble = _not_delayed(state.storage, claim)
            if trouble:
                return Rejection(NAME, Code.UNRESOLVABLE, (trouble,))
            continue
        volume = state.storage.volume(claim.volume_name)
        if volume is None:
            return Rejection(NAME, Code.UNRESOLVABLE, (f'persistentvolume "{claim.volume_name}" not found',))
        demands.extend(_demands(volume))
    return VolumeZone(_mask(state.table, demands)) if demands else None


def _not_delayed(storage: Storage, claim: VolumeClaim) -> str:
    if not claim.class_name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = storage.classes.get(claim.class_name)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{claim.class_name}" not found'
    return "" if storage_class.delayed else "PersistentVolume had no name"


def _demands(volume: PersistentVolume) -> list[tuple[str, frozenset[str]]]:
    """(label, values) a node must have; a label with an empty part is ignored."""
    found = []
    for key in TOPOLOGY_LABELS:
        if key in volume.labels:
            values = [part.strip() for part in volume.labels[key].split(SEPARATOR)]
            if all(values):
                found.append((key, frozenset(values)))
    return found


def _mask(table: NodeTable, demands: list[tuple[str, frozenset[str]]]) -> BoolArray:
    unlabelled: BoolArray = np.ones(table.rows, np.bool_)
    for key in TOPOLOGY_LABELS:
        unlabelled &= codes_or_absent(table, key) == ABSENT
    passing: BoolArray = np.ones(table.rows, np.bool_)
    for key, values in demands:
        holds = _has_value(table, key, values)
        if key in SUCCESSOR:
            lacks = codes_or_absent(table, key) == ABSENT
            holds |= lacks & _has_value(table, SUCCESSOR[key], values)
        passing &= holds
    return passing | unlabelled


def _has_value(table: NodeTable, key: str, values: frozenset[str]) -> BoolArray:
    known = table.label_values.get(key, {})
    return np.isin(codes_or_absent(table, key), [known[value] for value in sorted(values) if value in known])


@dataclass(slots=True)
class VolumeZone(Unmoved):
    """Prepared for one pod. ``passing [rows]``; pods that come or go change nothing."""

    passing: BoolArray
    name: str = NAME

    def mask(self) -> BoolArray:
        """``[rows]``: True where zone and region agree."""
        return self.passing

    def verdict(self, row: int) -> tuple[Code, tuple[str, ...]] | None:
        """Evicting pods does not help."""
        return None if self.passing[row] else (Code.UNRESOLVABLE, (WRONG_ZONE,))

    def tally(self, rows: IntArray) -> dict[str, int]:
        """There is one reason."""
        return {WRONG_ZONE: len(rows)} if len(rows) else {}
