"""A cluster and one pod as JSON: what ``conclave explain --batch`` reads on each line.

Only shapes; the objects are those of ``objects`` and ``cluster_objects``. Unknown fields are skipped, so that a line
may carry more than is asked for.
"""

from __future__ import annotations

from msgspec import Struct, field

from shared.kube.cluster_objects import (
    ByLabels,
    BySelector,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    StorageClass,
)
from shared.kube.objects import Json, Node, PartialObject, Pod


class ClusterDump(Json, frozen=True):
    """``pod`` is the one asked about; ``pods`` are all others, in whatever state."""

    pod: Pod
    nodes: list[Node] = []
    pods: list[Pod] = []
    pdbs: list[PodDisruptionBudget] = []
    namespaces: list[PartialObject] = []
    services: list[ByLabels] = []
    replication_controllers: list[ByLabels] = []
    replica_sets: list[BySelector] = []
    stateful_sets: list[BySelector] = []
    persistent_volumes: list[PersistentVolume] = []
    persistent_volume_claims: list[PersistentVolumeClaim] = []
    storage_classes: list[StorageClass] = []
    csi_nodes: list[CsiNode] = []


class Question(Struct, frozen=True):
    """One line of a batch."""

    id: str
    input: ClusterDump = field()
