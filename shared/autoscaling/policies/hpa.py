"""``hpa``: what a HorizontalPodAutoscaler would do, by the very code of ``shared.autoscaling.hpa``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from shared.autoscaling.hpa.convert_spec import behavior_from_api, metrics_from_api, utilization_metric
from shared.autoscaling.hpa.model import CPU, HpaController, HpaOutcome
from shared.autoscaling.hpa.objects import BehaviorSpec, MetricSpec
from shared.autoscaling.observation import Decision, ScalingObservation
from shared.autoscaling.policies.scaled import SYNC_S, Beat, ServiceHpa

Percent = Annotated[int, Meta(ge=1, le=10_000)]
Share = Annotated[float, Meta(ge=0, le=10)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Window = Annotated[float, Meta(ge=0, le=3600)]
"""As the API server bounds ``stabilizationWindowSeconds``."""
Sync = Annotated[float, Meta(gt=0, le=3600)]


class HpaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The object's spec and the controller's flags; defaults are Kubernetes' own."""

    resource: str = CPU
    """Whose utilisation decides."""
    target: Percent = 80
    """``averageUtilization``: percent of what the pods request."""
    metrics: Annotated[list[MetricSpec], Meta(max_length=16)] | None = None
    """``spec.metrics`` in the API's form, in place of ``resource`` and ``target``; the largest proposal counts."""
    behavior: BehaviorSpec | None = None
    """``spec.behavior`` in the API's form, such as ``{"scaleDown": {"stabilizationWindowSeconds": 60}}``."""
    tolerance: Share = 0.1
    down_window_s: Window = 300.0
    """The controller's window for scaling down where ``behavior`` names none."""
    cpu_initialization_s: Window = 300.0
    """So long after its start the cpu of a pod that is not Ready, or was not when it was sampled, does not count."""
    initial_readiness_s: Window = 30.0
    """A pod that was Ready within this of its start, and is not now, counts; one that never was does not."""
    scale_to_zero: bool = False
    """The gate HPAScaleToZero: with a minimum of 0 and an Object or External metric it goes to zero and comes back."""
    sync_s: Sync = SYNC_S
    """How often a service is looked at; in between the last answer holds."""


class HpaPolicy:
    """Every service by itself, as if each had an HPA of these settings."""

    name = "hpa"
    Settings = HpaSettings

    def __init__(self, settings: HpaSettings = HpaSettings()) -> None:  # noqa: B008 - frozen
        self.metrics = (
            (utilization_metric(settings.resource, settings.target),)
            if settings.metrics is None
            else metrics_from_api(settings.metrics, "metrics")
        )
        """What the rule reads for itself."""
        self._behavior = None if settings.behavior is None else behavior_from_api(settings.behavior)
        self._flags = HpaController(
            tolerance=settings.tolerance,
            down_window_s=settings.down_window_s,
            cpu_initialization_s=settings.cpu_initialization_s,
            initial_readiness_s=settings.initial_readiness_s,
            scale_to_zero=settings.scale_to_zero,
        )
        self._sync_s = settings.sync_s
        self.reset(0)

    def needs(self, service: str) -> frozenset[str]:  # noqa: ARG002 - the protocol's
        """Nothing but what the rule reads for itself (``metrics``)."""
        return frozenset()

    @property
    def outcomes(self) -> Mapping[str, HpaOutcome]:
        """By service, its last reconciliation."""
        return {name: one.outcome for name, one in self._services.items() if one.outcome is not None}

    def reset(self, seed: int) -> None:  # noqa: ARG002 - the protocol's
        """Begin anew. Nothing is drawn, so ``seed`` decides nothing."""
        self._beat = Beat(self._sync_s)
        self._services: dict[str, ServiceHpa] = {}

    def decide(self, seen: ScalingObservation) -> Decision:
        """The replicas of each service. One at zero replicas is left there: a hand put it there."""
        due = self._beat.due(seen.now)
        for name, service in seen.services.items():
            one = self._services.setdefault(name, ServiceHpa(self._flags))
            one.note(service)
            if due or one.said is None:
                one.reconcile(service, seen.now, metrics=self.metrics, behavior=self._behavior)
        return {
            name: one.said for name, one in self._services.items() if name in seen.services and one.said is not None
        }
