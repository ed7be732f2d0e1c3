"""Typed structs of the kinds beside pods and nodes that scheduling reads, and their conversion to the model. Pure.

Fields as in ``objects``: camelCase on the wire, unknown ones skipped, quantities as strings. A bad field spoils its
object only (``ObjectError``).
"""

from __future__ import annotations

from msgspec import Struct, field

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.device_objects import DeviceTaintRule, KubeDeviceClass, ResourceClaim, ResourceSlice
from shared.kube.objects import (
    Json,
    KubeLabelSelector,
    KubeNode,
    KubePod,
    NodeSelector,
    ObjectMeta,
    PartialObject,
    Quantities,
    ResourceRequirements,
)
from shared.kube.pod_groups import PluginsPodGroup, PodGroupV1alpha2
from shared.kube.pods.convert import owner_of, requirements_of
from shared.kube.pods.convert_relations import selector_from_api
from shared.model import cluster_objects as model
from shared.model.constraints import SelectorTerm
from shared.model.resources import parse_amount
from shared.model.terms.labels import selector_of_labels

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class VolumeClaimSpec(Json, frozen=True):
    access_modes: list[str] | None = None
    selector: KubeLabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None


class PhaseStatus(Json, frozen=True):
    phase: str | None = None


class PersistentVolumeClaim(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: VolumeClaimSpec = field(default_factory=VolumeClaimSpec)
    status: PhaseStatus = field(default_factory=PhaseStatus)


class VolumeClaimRef(Json, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiSource(Json, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Json, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Json, frozen=True):
    capacity: Quantities | None = None
    access_modes: list[str] | None = None
    claim_ref: VolumeClaimRef | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class KubePersistentVolume(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PhaseStatus = field(default_factory=PhaseStatus)


class TopologyRequirement(Json, frozen=True):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Json, frozen=True):
    match_label_expressions: list[TopologyRequirement] | None = None


class KubeStorageClass(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class CsiAllocatable(Json, frozen=True):
    count: int | None = None


class CsiNodeDriver(Json, frozen=True):
    name: str = ""
    allocatable: CsiAllocatable | None = None


class CsiNodeSpec(Json, frozen=True):
    drivers: list[CsiNodeDriver] | None = None


class CsiNode(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CsiNodeSpec = field(default_factory=CsiNodeSpec)


class LabelsSelectorSpec(Json, frozen=True):
    """Services and ReplicationControllers select by plain labels."""

    selector: dict[str, str] | None = None


class SelectorSpec(Json, frozen=True):
    selector: KubeLabelSelector | None = None


class ByLabels(Json, frozen=True):
    """A Service or a ReplicationController."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LabelsSelectorSpec = field(default_factory=LabelsSelectorSpec)


class BySelector(Json, frozen=True):
    """A ReplicaSet or a StatefulSet."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: SelectorSpec = field(default_factory=SelectorSpec)


class BudgetStatus(Json, frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: SelectorSpec = field(default_factory=SelectorSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)


def claim_from_api(claim: PersistentVolumeClaim) -> model.VolumeClaim:
    """Raises ``ObjectError`` for a request that is no quantity."""
    meta, spec = claim.metadata, claim.spec
    annotations = meta.annotations or {}
    owner_kind, owner_name = owner_of(meta)[1:]
    asked = spec.resources.requests if spec.resources is not None and spec.resources.requests else {}
    return model.VolumeClaim(
        key=_key(meta),
        uid=meta.uid,
        volume_name=spec.volume_name or "",
        class_name=annotations.get(BETA_CLASS, spec.storage_class_name or ""),
        storage_bytes=_storage(asked, "spec.resources.requests[storage]"),
        access_modes=frozenset(spec.access_modes or ()),
        volume_mode=spec.volume_mode or "Filesystem",
        selector=selector_from_api(spec.selector, "spec.selector"),
        bind_completed=BIND_COMPLETED in annotations,
        lost=claim.status.phase == "Lost",
        deleting=meta.deletion_timestamp is not None,
        selected_node=annotations.get(SELECTED_NODE, ""),
        owner_pod=owner_name if owner_kind == "Pod" else "",
        resource_version=meta.resource_version,
    )


def volume_from_api(volume: KubePersistentVolume) -> model.PersistentVolume:
    """Raises ``ObjectError`` for a capacity that is no quantity."""
    meta, spec = volume.metadata, volume.spec
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    affinity = None
    if required is not None:
        affinity = tuple(
            SelectorTerm(requirements_of(term.match_expressions), requirements_of(term.match_fields))
            for term in required.node_selector_terms or ()
        )
    ref = spec.claim_ref
    return model.PersistentVolume(
        name=meta.name,
        labels=meta.labels or {},
        class_name=(meta.annotations or {}).get(BETA_CLASS, spec.storage_class_name or ""),
        capacity_bytes=_storage(spec.capacity or {}, "spec.capacity[storage]"),
        access_modes=frozenset(spec.access_modes or ()),
        volume_mode=spec.volume_mode or "Filesystem",
        claim=(f"{ref.namespace}/{ref.name}", ref.uid) if ref is not None else None,
        affinity=affinity,
        available=volume.status.phase == "Available",
        deleting=meta.deletion_timestamp is not None,
        csi=(spec.csi.driver, spec.csi.volume_handle) if spec.csi is not None else None,
        resource_version=meta.resource_version,
    )


def storage_class_from_api(item: KubeStorageClass) -> model.StorageClass:
    """The storage class."""
    return model.StorageClass(
        name=item.metadata.name,
        provisioner=item.provisioner,
        delayed=item.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(
            tuple((e.key, tuple(e.values or ())) for e in term.match_label_expressions or ())
            for term in item.allowed_topologies or ()
        ),
    )


def csi_limits_from_api(node: CsiNode) -> dict[str, int]:
    """Volumes that may be attached to the node, by driver; a driver without a limit is absent."""
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers or ()
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def workload_from_api(item: ByLabels | BySelector, api_version: str, kind: str) -> model.Workload:
    """Raises ``ObjectError`` for an unusable selector."""
    if isinstance(item, ByLabels):
        labels = item.spec.selector
        selector = selector_of_labels(labels) if labels is not None else None
    else:
        selector = selector_from_api(item.spec.selector, "spec.selector")
    return model.Workload(api_version, kind, item.metadata.namespace or "", item.metadata.name, selector)


def budget_from_api(item: PodDisruptionBudget) -> model.DisruptionBudget:
    """Raises ``ObjectError`` for an unusable selector."""
    return model.DisruptionBudget(
        namespace=item.metadata.namespace or "",
        name=item.metadata.name,
        selector=selector_from_api(item.spec.selector, "spec.selector"),
        allowed=item.status.disruptions_allowed,
        disrupted=frozenset(item.status.disrupted_pods or ()),
    )


def _key(meta: api.ObjectMeta) -> str:
    return f"{meta.namespace or ''}/{meta.name}"


def _storage(amounts: Quantities, where: str) -> int:
    quantity = amounts.get("storage")
    if quantity is None:
        return 0
    try:
        return parse_amount("storage", quantity)
    except ValueError as error:
        raise ObjectError(str(error), field=where) from error


class ClusterObjects(Json, frozen=True):
    """Everything that scheduling rules read, each kind as a list."""

    nodes: list[KubeNode] | None = None
    pods: list[KubePod] | None = None
    pdbs: list[PodDisruptionBudget] | None = None
    namespaces: list[PartialObject] | None = None
    services: list[ByLabels] | None = None
    replication_controllers: list[ByLabels] | None = None
    replica_sets: list[BySelector] | None = None
    stateful_sets: list[BySelector] | None = None
    persistent_volumes: list[KubePersistentVolume] | None = None
    persistent_volume_claims: list[PersistentVolumeClaim] | None = None
    storage_classes: list[KubeStorageClass] | None = None
    csi_nodes: list[CsiNode] | None = None
    resource_slices: list[ResourceSlice] | None = None
    device_classes: list[KubeDeviceClass] | None = None
    resource_claims: list[ResourceClaim] | None = None
    device_taint_rules: list[DeviceTaintRule] | None = None


class ClusterDump(ClusterObjects, frozen=True, kw_only=True):
    """``pod`` is the one asked about; ``pods`` are all others, in whatever state."""

    pod: KubePod


class AskedInput(ClusterObjects, frozen=True, kw_only=True):
    """With ``pod``: a question about that one, ``pods`` are all others. Without: about all pending ones of ``pods``,
    and what ``cycles`` scheduling cycles do to them."""

    pod: KubePod | None = None
    pod_groups: list[PodGroupV1alpha2] | None = None
    plugins_pod_groups: list[PluginsPodGroup] | None = None
    cycles: int = 1


class ObjectQuestion(Struct, frozen=True):
    """One line of a batch."""

    id: str
    input: AskedInput
