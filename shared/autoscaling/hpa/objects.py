"""The API's JSON as the rule needs it: ``autoscaling/v2``, pods, the three metrics APIs, one line of a batch.

Fields as in ``shared.kube.objects``: camelCase, unknown ones skipped, quantities as strings; what they mean is worked
out in ``convert``.
"""

from __future__ import annotations

from msgspec import Struct, field

from shared.kube.objects import Json, KubeLabelSelector, KubePod, ObjectMeta, Quantities

Quantity = str | int | float


class CrossReference(Json, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class MetricTarget(Json, frozen=True):
    type: str = ""
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricIdentifier(Json, frozen=True):
    name: str = ""
    selector: KubeLabelSelector | None = None


class ResourceSource(Json, frozen=True):
    """Of a Resource or, with ``container``, of a ContainerResource metric."""

    name: str = ""
    container: str = ""
    target: MetricTarget = field(default_factory=MetricTarget)


class ExternalFallback(Json, frozen=True):
    replicas: int = 0
    failure_duration_seconds: int = 180


class SeriesSource(Json, frozen=True):
    """Of a Pods, an Object or an External metric."""

    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    target: MetricTarget = field(default_factory=MetricTarget)
    described_object: CrossReference | None = None
    fallback: ExternalFallback | None = None


class MetricSpec(Json, frozen=True):
    type: str = ""
    resource: ResourceSource | None = None
    container_resource: ResourceSource | None = None
    pods: SeriesSource | None = None
    object: SeriesSource | None = None
    external: SeriesSource | None = None


class PolicyRule(Json, frozen=True):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class RulesSpec(Json, frozen=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: list[PolicyRule] | None = None
    tolerance: Quantity | None = None


class BehaviorSpec(Json, frozen=True):
    scale_up: RulesSpec | None = None
    scale_down: RulesSpec | None = None


class HpaSpec(Json, frozen=True):
    max_replicas: int
    scale_target_ref: CrossReference | None = None
    min_replicas: int | None = None
    metrics: list[MetricSpec] | None = None
    behavior: BehaviorSpec | None = None


class HpaCondition(Json, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class HpaStatus(Json, frozen=True):
    current_replicas: int | None = None
    desired_replicas: int | None = None
    conditions: list[HpaCondition] | None = None


class HorizontalPodAutoscaler(Json, frozen=True):
    spec: HpaSpec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: HpaStatus | None = None


class ContainerUsage(Json, frozen=True):
    name: str = ""
    usage: Quantities | None = None


class PodMetrics(Json, frozen=True):
    """``metrics.k8s.io``."""

    timestamp: str
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    window: str = "0s"
    containers: list[ContainerUsage] | None = None


class MetricValue(Json, frozen=True):
    """``custom.metrics.k8s.io``."""

    value: Quantity
    described_object: CrossReference = field(default_factory=CrossReference)
    metric: MetricIdentifier = field(default_factory=MetricIdentifier)
    timestamp: str | None = None
    window_seconds: int | None = None


class ExternalMetricValue(Json, frozen=True):
    """``external.metrics.k8s.io``."""

    value: Quantity
    metric_name: str = ""
    metric_labels: dict[str, str] | None = None


class CaseScale(Json, frozen=True):
    """The scale subresource. ``error``: why it cannot be read."""

    replicas: int
    status_replicas: int = 0
    selector: str = ""
    error: str | None = None


class CaseMetrics(Json, frozen=True):
    """What the metrics APIs hold; with an error they answer nothing."""

    resource: list[PodMetrics] | None = None
    custom: list[MetricValue] | None = None
    external: list[ExternalMetricValue] | None = None
    resource_error: str | None = None
    custom_error: str | None = None
    external_error: str | None = None


class CaseStep(Json, frozen=True):
    """One reconciliation."""

    at: str
    scale: CaseScale
    pods: list[KubePod] | None = None
    metrics: CaseMetrics | None = None
    scaled_by_hand: bool = False


class CaseController(Json, frozen=True):
    """Flags of the controller manager, as it takes them; None: its default."""

    tolerance: float | None = None
    downscale_stabilization_window: str | None = None
    cpu_initialization_period: str | None = None
    initial_readiness_delay: str | None = None


class OtherSelector(Json, frozen=True):
    name: str = ""
    selector: str = ""


class CaseInput(Json, frozen=True):
    hpa: HorizontalPodAutoscaler
    steps: list[CaseStep]
    controller: CaseController | None = None
    feature_gates: dict[str, bool] | None = None
    other_hpa_selectors: list[OtherSelector] | None = field(name="otherHPASelectors", default=None)


class HpaCase(Struct, frozen=True):
    """One line of a batch: an object and what happens to it, step by step."""

    id: str
    input: CaseInput
