"""The kinds beside pods and nodes that scheduling rules read: where they are served, and what the model makes of each.

Pure. An object that cannot be used raises ``ObjectError`` on conversion, which is the reader's to report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.kube import cluster_objects as kube
from shared.kube import device_objects, pod_groups
from shared.kube.nodes.katalyst import CUSTOM_NODE_RESOURCES, topology_of_katalyst
from shared.kube.nodes.latency_targets import LATENCY_TARGETS, latency_target_from_api
from shared.kube.nodes.node_topology import NODE_TOPOLOGIES, NODE_TOPOLOGIES_V1ALPHA1, topology_from_api
from shared.kube.objects import ObjectMeta, PartialObject
from shared.kube.pods import convert_devices as devices
from shared.kube.queues import QUEUES, queue_from_api
from shared.kube.reservations import RESERVATIONS, reserve_pod_from_api
from shared.kube.resources import NAMESPACES, Resource
from shared.model.cluster_objects import EndingNamespace


@dataclass(frozen=True, slots=True)
class SchedulingKind:
    """One kind. ``convert``: the model's object of what the API server serves; raises ``ObjectError``. ``older``: the
    kind's earlier versions, for servers that do not have it in ``resource``'s. ``full_name``: named with its group,
    where another kind has the same plural. ``kept``: one that cannot be read any more stays as it was, since others
    would be given what it holds; else it counts as gone.
    """

    resource: Resource[Any]
    convert: Callable[[Any], object | None]
    older: tuple[Resource[Any], ...] = ()
    full_name: bool = False
    kept: bool = False

    @property
    def name(self) -> str:
        """The plural, with the group where ``full_name``: names the kind in events and logs."""
        return self.resource.name if self.full_name else self.resource.plural

    def key(self, meta: ObjectMeta) -> str:
        """``namespace/name``, or the name of a kind without namespaces."""
        return f"{meta.namespace or ''}/{meta.name}" if self.resource.namespaced else meta.name


def _labels(namespace: PartialObject) -> dict[str, str]:
    labels = namespace.metadata.labels or {}
    return labels if namespace.metadata.deletion_timestamp is None else EndingNamespace(labels)


def _workload(kind: str, group: str, plural: str, type_: type[Any]) -> SchedulingKind:
    resource = Resource(kind, group, "v1", plural, True, type_)
    return SchedulingKind(resource, lambda item: kube.workload_from_api(item, resource.api_version, kind))


CLAIMS = SchedulingKind(
    Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", True, kube.PersistentVolumeClaim),
    kube.claim_from_api,
)
VOLUMES = SchedulingKind(
    Resource("PersistentVolume", "", "v1", "persistentvolumes", False, kube.KubePersistentVolume), kube.volume_from_api
)
STORAGE_CLASSES = SchedulingKind(
    Resource("StorageClass", "storage.k8s.io", "v1", "storageclasses", False, kube.KubeStorageClass),
    kube.storage_class_from_api,
)
CSI_NODES = SchedulingKind(
    Resource("CSINode", "storage.k8s.io", "v1", "csinodes", False, kube.CsiNode), kube.csi_limits_from_api
)


def _device_kind(kind: str, plural: str, type_: type[Any], convert: Callable[[Any], object]) -> SchedulingKind:
    resource = Resource(kind, "resource.k8s.io", "v1", plural, plural == "resourceclaims", type_)
    return SchedulingKind(resource, convert, kept=plural == "resourceclaims")


def _taint_rules(version: str) -> Resource[Any]:
    return Resource(
        "DeviceTaintRule", "resource.k8s.io", version, "devicetaintrules", False, device_objects.DeviceTaintRule
    )


DEVICE_CLAIMS = _device_kind("ResourceClaim", "resourceclaims", device_objects.ResourceClaim, devices.claim_from_api)

DEVICE_KINDS = (
    _device_kind("DeviceClass", "deviceclasses", device_objects.KubeDeviceClass, devices.class_from_api),
    _device_kind("ResourceSlice", "resourceslices", device_objects.ResourceSlice, devices.slice_from_api),
    DEVICE_CLAIMS,
    SchedulingKind(
        _taint_rules("v1"), devices.taint_rule_from_api, older=(_taint_rules("v1beta2"), _taint_rules("v1alpha3"))
    ),
)
"""What rules about devices read: coordinator's and binder's, where the API server serves them (1.34; taint rules from
1.37, before that where their gate is on)."""

STORAGE_KINDS = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES)
"""What volume rules read."""

ZONE_KINDS = (
    SchedulingKind(NODE_TOPOLOGIES, topology_from_api, older=(NODE_TOPOLOGIES_V1ALPHA1,)),
    SchedulingKind(CUSTOM_NODE_RESOURCES, topology_of_katalyst),
)
"""What the rule of nodes' zones reads, where an exporter's definition was applied, or Katalyst's."""

_NODE_RULES_KINDS = (*STORAGE_KINDS, *DEVICE_KINDS, *ZONE_KINDS)

NATIVE_GROUPS = SchedulingKind(pod_groups.PODGROUPS, pod_groups.native_group, older=(pod_groups.PODGROUPS_V1ALPHA2,))

BINDER_KINDS = (*_NODE_RULES_KINDS, NATIVE_GROUPS)
"""What the binder reads beside pods and nodes: of pod groups, which claims of devices their members share."""

SCHEDULING_KINDS = (
    *_NODE_RULES_KINDS,
    SchedulingKind(NAMESPACES, _labels),
    _workload("Service", "", "services", kube.ByLabels),
    _workload("ReplicationController", "", "replicationcontrollers", kube.ByLabels),
    _workload("ReplicaSet", "apps", "replicasets", kube.BySelector),
    _workload("StatefulSet", "apps", "statefulsets", kube.BySelector),
    SchedulingKind(
        Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, kube.PodDisruptionBudget),
        kube.budget_from_api,
    ),
)
"""Everything that any rule reads: the coordinator's."""

PLUGINS_GROUPS = SchedulingKind(pod_groups.PLUGINS_PODGROUPS, pod_groups.plugins_group, full_name=True)
JOBS = SchedulingKind(pod_groups.JOBS, pod_groups.job_group)

QUEUE_KIND = SchedulingKind(QUEUES, queue_from_api)
"""Queue objects: the coordinator's, where their definition was applied."""

LATENCY_TARGET_KIND = SchedulingKind(LATENCY_TARGETS, latency_target_from_api)
"""What agents try the latency of: the coordinator's, where its definition was applied."""

RESERVATION_KIND = SchedulingKind(RESERVATIONS, reserve_pod_from_api)
"""Room that is kept: coordinator's and binder's, where its definition was applied; each is told as its reserve pod."""

GROUP_KINDS = (NATIVE_GROUPS, PLUGINS_GROUPS, JOBS)
"""What pods are grouped by: the coordinator's too. None of them is served by every cluster."""
