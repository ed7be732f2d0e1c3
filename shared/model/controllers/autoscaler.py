"""A ``ResilientAutoscaler`` as its service sees it: which services, which bounds, which policy, on whose word.

Replicas are whole numbers, times are seconds. What the object says that cannot be used is in ``problems``; while there
is one, nothing of the object is acted upon.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct


class ScalerMode(Enum):
    """How far the service may go, from looking on to writing."""

    OBSERVE = "observe"
    """Decides and shows nothing but what it saw and decided for itself."""
    RECOMMEND = "recommend"
    """Says what it would ask for, beside what is."""
    ACT_ON_BOUNDS = "act-on-hpa-bounds"
    """Sets ``minReplicas`` and ``maxReplicas`` of the HorizontalPodAutoscaler that is there."""
    ACT_ON_SCALE = "act-on-scale"
    """Writes the scale subresource."""

    @property
    def acts(self) -> bool:
        """Whether it writes anything but statuses."""
        return self in (ScalerMode.ACT_ON_BOUNDS, ScalerMode.ACT_ON_SCALE)


class ForeignWriter(Enum):
    """What is done about replicas that somebody else wrote, once a grace is over."""

    HOLD = "hold"
    """Too few are risen over; nothing is lowered until a new go."""
    CORRECT = "correct"
    """They count as our own: what is applied again and again decides nothing."""


class ScalingSignal(Enum):
    """What is measured of a service; the values are ``ServiceObservation``'s fields."""

    CPU = "cpu"
    MEMORY = "memory"
    ARRIVALS = "arrivals"
    SERVED = "served"
    FAILED = "failed"
    LATENCY = "latency_s"
    QUEUE = "queue"


class SourceKind(Enum):
    """Who is asked for a signal."""

    RESOURCE = "Resource"
    """metrics.k8s.io: the mean over ready pods."""
    PODS = "Pods"
    """custom.metrics.k8s.io: the sum over the service's pods (latency: the largest)."""
    OBJECT = "Object"
    """custom.metrics.k8s.io, of one object of the namespace."""
    EXTERNAL = "External"
    """external.metrics.k8s.io: the sum over the series that the selector picks (latency: the largest)."""
    PROMETHEUS = "Prometheus"
    """An instant query whose answer is one number."""


class ServiceSignalSource(Struct, frozen=True, kw_only=True):
    """Where one signal of one service comes from. ``scale``: its unit in ours (0.001 for milliseconds)."""

    kind: SourceKind
    metric: str = ""
    query: str = ""
    selector: str = ""
    object_resource: str = ""
    """Plural of the object's kind, with its group where it has one: ``services``, ``ingresses.networking.k8s.io``."""
    object_name: str = ""
    scale: float = 1.0


class TargetRef(Struct, frozen=True):
    """What is scaled: any kind with a scale subresource."""

    api_version: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class ScalingTarget(Struct, frozen=True, kw_only=True):
    """One service of the graph. ``hpa``: the HorizontalPodAutoscaler whose bounds are set; "": the one there is."""

    name: str
    ref: TargetRef
    minimum: int
    maximum: int
    calls: tuple[str, ...] = ()
    hpa: str = ""
    sources: Mapping[ScalingSignal, ServiceSignalSource] = {}


class ScalerLimits(Struct, frozen=True, kw_only=True):
    """How fast a service may change, and how old a reading may be.

    In ``up_period_s`` it grows by the larger of ``up_pods`` and ``up_percent`` of what it began with; down likewise.
    """

    up_pods: int = 4
    up_percent: int = 100
    up_period_s: float = 15.0
    down_pods: int = 1
    down_percent: int = 10
    down_period_s: float = 60.0
    stale_after_s: float = 60.0
    fail_over_s: float = 60.0
    """So long after a change of leader nothing is made smaller."""
    nodes_grow: bool = False
    """A cluster autoscaler adds nodes for pods that wait: the room on today's nodes limits nothing."""


class Go(Struct, frozen=True):
    """An operator's word: ``digest`` is of what he approved, ``at`` when (his own text; two differ in it)."""

    by: str = ""
    digest: str = ""
    at: str = ""


class Autoscaler(Struct, frozen=True, kw_only=True):
    """One object. ``document``: its spec as JSON-able data, which the approval's digest is made of."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    mode: ScalerMode = ScalerMode.OBSERVE
    policy: str = "hpa"
    seed: int = 0
    policy_settings: Mapping[str, object] = {}
    rule_settings: Mapping[str, object] = {}
    """Of HPA's rule, which the safeguards and the kill switch go by; also the policy's where that is ``hpa``."""
    plain_hpa: bool = False
    """The kill switch: HPA's rule decides in the policy's place."""
    paused: bool = False
    foreign_writer: ForeignWriter = ForeignWriter.HOLD
    targets: tuple[ScalingTarget, ...] = ()
    latency_objective_s: float | None = None
    success_objective: float | None = None
    cost_limit: float | None = None
    canary_services: int = 100
    canary_time: int = 100
    limits: ScalerLimits = ScalerLimits()
    go: Go = Go()
    document: Mapping[str, object] = {}
    problems: tuple[str, ...] = ()
    written: Mapping[str, object] = {}
    """The status as the API server has it."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """The edges of the graph."""
        return tuple((target.name, callee) for target in self.targets for callee in target.calls)
