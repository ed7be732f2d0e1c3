"""A cluster and one pod as JSON: what ``conclave explain --batch`` reads on each line.

Only shapes; the objects are those of ``objects`` and ``cluster_objects``. Unknown fields are skipped, so that a line
may carry more than is asked for.
"""

from __future__ import annotations

from msgspec import Struct

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
    nodes: list[Node] | None = None
    pods: list[Pod] | None = None
    pdbs: list[PodDisruptionBudget] | None = None
    namespaces: list[PartialObject] | None = None
    services: list[ByLabels] | None = None
    replication_controllers: list[ByLabels] | None = None
    replica_sets: list[BySelector] | None = None
    stateful_sets: list[BySelector] | None = None
    persistent_volumes: list[PersistentVolume] | None = None
    persistent_volume_claims: list[PersistentVolumeClaim] | None = None
    storage_classes: list[StorageClass] | None = None
    csi_nodes: list[CsiNode] | None = None


class Question(Struct, frozen=True):
    """One line of a batch."""

    id: str
    input: ClusterDump
