"""Pods with the sources of their volumes that scheduling does not read: who may move a pod looks at them.

A pod that is moved loses what it keeps on its node. Lists and watches that decide placements skip these fields.
"""

from __future__ import annotations

from msgspec import Struct, field

from shared.kube import cluster_objects, objects
from shared.kube.objects import Json
from shared.kube.resources import Resource


class EmptySource(Json, frozen=True):
    """A source whose fields nobody reads: that it is there is enough."""


class SourcedVolume(objects.Volume, frozen=True):
    empty_dir: EmptySource | None = None
    host_path: EmptySource | None = None

    @property
    def local(self) -> bool:
        """Whether it lies on the node itself."""
        return self.empty_dir is not None or self.host_path is not None


class StandingSpec(objects.PodSpec, frozen=True):
    volumes: list[SourcedVolume] | None = None  # type: ignore[assignment]


class SourcedPod(objects.KubePod, frozen=True):
    spec: StandingSpec = field(default_factory=StandingSpec)


STANDING_PODS = Resource("Pod", "", "v1", "pods", True, SourcedPod)


class StandingCluster(cluster_objects.ClusterObjects, frozen=True):
    """A dump of a cluster, whose pods tell where their volumes lie."""

    pods: list[SourcedPod] | None = None  # type: ignore[assignment]


class CapturedStanding(Struct, frozen=True):
    """A pod of a twin file; seconds since the capture's start."""

    pod: SourcedPod
    arrived_s: float
    started_s: float | None = None
    ended_s: float | None = None


class CapturedState(Struct, frozen=True):
    """Of a twin file (``conclave twin capture``) what its last moment is made of. ``series``: by node and part."""

    schema: int
    started_at: str
    length_s: float
    nodes: list[objects.KubeNode]
    pods: list[CapturedStanding]
    series: dict[str, dict[str, list[float | None]]] = {}
