"""Typed structs of the Kubernetes JSON: the fields a scheduler reads, nothing else.

Field names are camelCase on the wire. Unknown fields are skipped; a quantity stays a string here and is parsed in
``shared.kube.pods.convert``, so that one bad quantity spoils one pod and not a list.
"""

from __future__ import annotations

from msgspec import Struct, field


class Json(Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Base: immutable, camelCase."""


class OwnerReference(Json, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Json, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: int | None = None
    owner_references: list[OwnerReference] | None = None


class PartialObject(Json, frozen=True):
    """Any object: its metadata only."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


Quantities = dict[str, str | int | float]
"""Quantities by resource name; YAML and some clients send bare numbers."""


class ResourceRequirements(Json, frozen=True):
    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(Json, frozen=True):
    container_port: int = 0
    host_port: int | None = None
    host_ip: str | None = field(name="hostIP", default=None)
    protocol: str | None = None


class ExitCodes(Json, frozen=True):
    """Decides nothing here; kept so that a captured pod is a valid one."""

    operator: str | None = None
    values: list[int] | None = None


class ContainerRestartRule(Json, frozen=True):
    action: str | None = None
    exit_codes: ExitCodes | None = None


class Container(Json, frozen=True):
    name: str = ""
    image: str | None = None
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] | None = None


class KubeToleration(Json, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class NodeSelectorRequirement(Json, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Json, frozen=True):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Json, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Json, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm | None = None


class KubeNodeAffinity(Json, frozen=True):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class LabelSelectorRequirement(Json, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class KubeLabelSelector(Json, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class PodAffinityTerm(Json, frozen=True):
    topology_key: str = ""
    label_selector: KubeLabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: KubeLabelSelector | None = None


class WeightedPodAffinityTerm(Json, frozen=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Json, frozen=True):
    """``podAffinity`` or ``podAntiAffinity``."""

    required: list[PodAffinityTerm] | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[WeightedPodAffinityTerm] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Json, frozen=True):
    node_affinity: KubeNodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Json, frozen=True):
    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: KubeLabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimVolumeSource(Json, frozen=True):
    claim_name: str = ""


class GcePersistentDisk(Json, frozen=True):
    pd_name: str = ""
    read_only: bool | None = None


class AwsElasticBlockStore(Json, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class IscsiVolume(Json, frozen=True):
    iqn: str = ""
    read_only: bool | None = None


class RbdVolume(Json, frozen=True):
    monitors: list[str] | None = None
    pool: str | None = None
    image: str = ""
    read_only: bool | None = None


class EphemeralVolume(Json, frozen=True):
    """Present for a generic ephemeral volume: its claim is named after pod and volume."""


class Volume(Json, frozen=True):
    """Only the sources that scheduling reads."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    iscsi: IscsiVolume | None = None
    rbd: RbdVolume | None = None


class SchedulingGate(Json, frozen=True):
    name: str = ""


class PodResourceClaim(Json, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Json, frozen=True):
    pod_group_name: str | None = None


class PodSpec(Json, frozen=True):
    node_name: str | None = None
    scheduler_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[KubeToleration] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    priority: int | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    preemption_policy: str | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_group: PodSchedulingGroup | None = None


class PodCondition(Json, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class ContainerWaiting(Json, frozen=True):
    reason: str | None = None
    message: str | None = None


class ContainerRunning(Json, frozen=True):
    started_at: str | None = None


class ContainerTerminated(Json, frozen=True):
    exit_code: int = 0
    reason: str | None = None
    message: str | None = None
    finished_at: str | None = None


class ContainerState(Json, frozen=True):
    """For who asks how a container does: ``ContainerStatus`` leaves it unread, since it decides no placement."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class PodResourceClaimStatus(Json, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Json, frozen=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Json, frozen=True):
    request_mappings: list[ContainerExtendedResourceRequest] | None = None
    resource_claim_name: str = ""


class ContainerStatus(Json, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None


class PodStatus(Json, frozen=True):
    phase: str | None = None
    reason: str | None = None
    conditions: list[PodCondition] | None = None
    nominated_node_name: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
    start_time: str | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class KubePod(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class Identity(Json, frozen=True):
    """Who an object is, and no more of its metadata."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""


class PlacedSpec(Json, frozen=True):
    node_name: str | None = None


class PlacedStatus(Json, frozen=True):
    phase: str | None = None


class KubePlacedPod(Json, frozen=True):
    """Where a pod is: all that a comparison of every pod with our accounting reads."""

    metadata: Identity = field(default_factory=Identity)
    spec: PlacedSpec = field(default_factory=PlacedSpec)
    status: PlacedStatus = field(default_factory=PlacedStatus)


class KubeTaint(Json, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Json, frozen=True):
    unschedulable: bool | None = None
    taints: list[KubeTaint] | None = None


class ContainerImage(Json, frozen=True):
    names: list[str] | None = None
    size_bytes: int | None = None


class NodeCondition(Json, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class NodeStatus(Json, frozen=True):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[NodeCondition] | None = None
    images: list[ContainerImage] | None = None
    declared_features: list[str] | None = None


class KubeNode(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)
