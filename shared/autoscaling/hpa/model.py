"""What the rule reads and what it says: numbers and names, nothing of the API's JSON.

Times are seconds of one clock, durations seconds, every quantity an integer number of thousandths (milli-units),
rounded up as ``resource.Quantity.MilliValue`` does it, memory too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from shared.model.terms.labels import LabelSelector

Json = Mapping[str, Any]

CPU = "cpu"


class MetricSource(StrEnum):
    """Where a metric comes from (``spec.metrics[].type``)."""

    RESOURCE = "Resource"
    CONTAINER_RESOURCE = "ContainerResource"
    PODS = "Pods"
    OBJECT = "Object"
    EXTERNAL = "External"


class Aim(StrEnum):
    """What a metric is compared with (``target.type``)."""

    UTILIZATION = "Utilization"
    VALUE = "Value"
    AVERAGE_VALUE = "AverageValue"


class ObjectRef(NamedTuple):
    """What a metric describes, as the custom metrics API addresses it; the version decides nothing."""

    group: str
    kind: str
    name: str


class Fallback(Struct, frozen=True):
    """What an external metric asks for once it has failed for so long (KEP-5679, gate HPAExternalMetricFallback)."""

    replicas: int
    failing_s: float


class HpaMetric(Struct, frozen=True, kw_only=True):
    """One entry of ``spec.metrics``. ``amount`` is the target: percent of requests, or milli-units; above 0."""

    source: MetricSource
    name: str
    aim: Aim
    amount: int
    container: str = ""
    described: ObjectRef | None = None
    selector: LabelSelector | None = None
    """Which series count; None: every series of that name."""
    selector_text: str = "nil"
    """The selector as events of the real controller write it."""
    fallback: Fallback | None = None
    shown: Json = {}
    """How ``status.currentMetrics`` names the metric; ``current`` is added."""

    @property
    def question(self) -> tuple[str, ...]:
        """What is asked of an API for it; two metrics with the same question get the same answer."""
        return (self.source, self.name, *(self.described or ()), self.selector_text)


class ScalingPolicy(NamedTuple):
    """At most so many pods, or percent, within so many seconds."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: int


class ScalingRules(Struct, frozen=True):
    """``behavior.scaleUp`` or ``behavior.scaleDown``."""

    policies: tuple[ScalingPolicy, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"
    window_s: int | None = None
    """Stabilisation; None: the controller's flag, for scaling down only."""
    tolerance: float | None = None
    """None: the controller's."""

    @property
    def longest_s(self) -> int:
        """The longest period of its policies."""
        return max((policy.period_s for policy in self.policies), default=0)


class Behavior(Struct, frozen=True):
    """``spec.behavior``: both directions, defaults filled in."""

    up: ScalingRules
    down: ScalingRules


DEFAULT_UP = ScalingRules((ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15)), window_s=0)
DEFAULT_DOWN = ScalingRules((ScalingPolicy("Percent", 100, 15),))
"""What the API server fills in where ``behavior`` is given in part (``pkg/apis/autoscaling/v2/defaults.go``)."""


class HpaObjectSpec(Struct, frozen=True, kw_only=True):
    """A HorizontalPodAutoscaler's spec."""

    namespace: str = "default"
    minimum: int = 1
    maximum: int
    metrics: tuple[HpaMetric, ...]
    behavior: Behavior | None = None


class HpaController(Struct, frozen=True, kw_only=True):
    """Flags and feature gates of the controller manager, with its defaults."""

    tolerance: float = 0.1
    down_window_s: float = 300.0
    cpu_initialization_s: float = 300.0
    initial_readiness_s: float = 30.0
    scale_to_zero: bool = False
    configurable_tolerance: bool = True
    external_fallback: bool = False


class ScaleSubresource(Struct, frozen=True):
    """The target's scale subresource. ``error``: it could not be read, and nothing else of it counts."""

    replicas: int
    status_replicas: int
    selector: str
    error: str = ""


class ContainerFacts(NamedTuple):
    """A container or sidecar, and its requests by resource."""

    name: str
    requests: Mapping[str, int]


NEVER_S = float("-inf")


class PodFacts(Struct, frozen=True, kw_only=True):
    """What of a pod the rule reads."""

    name: str
    labels: Mapping[str, str] = {}
    phase: str = "Running"
    deleting: bool = False
    ready: str = ""
    """Status of its Ready condition: True, False, Unknown; "" without one."""
    ready_since_s: float = NEVER_S
    """When that condition last changed its status."""
    start_s: float | None = None
    containers: tuple[ContainerFacts, ...] = ()
    pod_requests: Mapping[str, int] | None = None
    """What the scheduler counts for it, where the pod itself has requests; else None."""


class PodUsage(Struct, frozen=True):
    """A PodMetrics object: what each container used, averaged over the ``window_s`` that ended at ``at_s``."""

    pod: str
    labels: Mapping[str, str]
    at_s: float
    window_s: float
    containers: tuple[tuple[str, Mapping[str, int]], ...]


class CustomSeries(Struct, frozen=True):
    """One value of the custom metrics API."""

    described: ObjectRef
    namespace: str
    name: str
    labels: Mapping[str, str]
    value: int
    at_s: float = 0.0
    window_s: float = 60.0


class ExternalSeries(Struct, frozen=True):
    """One value of the external metrics API."""

    name: str
    labels: Mapping[str, str]
    value: int


class MetricAnswers(Struct, frozen=True, kw_only=True):
    """What the three metrics APIs hold. An error: that API does not answer, whatever it holds."""

    resource: tuple[PodUsage, ...] = ()
    custom: tuple[CustomSeries, ...] = ()
    external: tuple[ExternalSeries, ...] = ()
    resource_error: str = ""
    custom_error: str = ""
    external_error: str = ""
    asked: Mapping[tuple[str, ...], tuple[CustomSeries, ...] | tuple[ExternalSeries, ...] | str] = {}
    """By a metric's ``question``, what its API answered to just that, or why it did not: a real API has chosen the
    series itself. Where a question is here, ``custom`` and ``external`` are not looked at for it."""


class TargetSeen(Struct, frozen=True):
    """What one target shows at one moment: all that a reconciliation reads beside the object. ``others``: selectors
    of other autoscalers' targets in the namespace, where pods are found by labels alone."""

    scale: ScaleSubresource
    pods: tuple[PodFacts, ...]
    answers: MetricAnswers
    others: tuple[str, ...] = ()


class ScalingCondition(NamedTuple):
    """``status`` is True or False; ``message`` is for people."""

    status: str
    reason: str
    message: str = ""


class HpaObjectStatus(Struct, frozen=True, kw_only=True):
    """``status`` of the object. ``metrics`` is ``currentMetrics``; None: none were read in the last reconciliation."""

    current: int = 0
    desired: int = 0
    conditions: Mapping[str, ScalingCondition] = {}
    metrics: tuple[Json, ...] | None = None
    last_scale_s: float | None = None


class Recommendation(NamedTuple):
    """What the metrics asked for, before bounds and behaviour."""

    replicas: int
    at_s: float


class ScaleEvent(NamedTuple):
    """The scale was changed by so many replicas, counted positive in both directions."""

    change: int
    at_s: float


class Memory(Struct, frozen=True, kw_only=True):
    """What the controller keeps between two reconciliations of one object."""

    status: HpaObjectStatus = HpaObjectStatus()
    recommendations: tuple[Recommendation, ...] | None = None
    """None: this controller has not seen the object yet."""
    ups: tuple[ScaleEvent, ...] = ()
    downs: tuple[ScaleEvent, ...] = ()
    failing_since: Mapping[int, float] = {}
    """By index in ``spec.metrics``: since when an external metric with a fall-back fails."""


class Proposal(Struct, frozen=True, kw_only=True):
    """What one metric alone asks for, before bounds and behaviour; ``replicas`` None: it failed, for ``reason``."""

    replicas: int | None = None
    reason: str = ""
    problem: str = ""
    title: str = ""
    """What is "above target" in the event of a rescale."""
    current: Json | None = None
    """Its entry in ``status.currentMetrics``; None: it has no value to show."""


class HpaOutcome(Struct, frozen=True, kw_only=True):
    """One reconciliation. ``replicas`` is ``spec.replicas`` of the scale afterwards; ``scaled``: to be written."""

    replicas: int
    scaled: bool
    rescale_reason: str
    reason: str
    """The reason that tells most: of AbleToScale, the bounds, ScalingActive, ScalingLimited, in this order."""
    error: str
    """"" or what the reconciliation returned as an error; with several metrics it may have scaled all the same."""
    proposals: tuple[Proposal, ...] | None
    """In the order of ``spec.metrics``, also where no metric decides; None: the pods cannot be told."""
    memory: Memory

    @property
    def status(self) -> HpaObjectStatus:
        """The object's status afterwards."""
        return self.memory.status
