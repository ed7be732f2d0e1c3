"""``hpa``: what a HorizontalPodAutoscaler on one resource would do, by the very code of ``shared.autoscaling.hpa``."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shared.autoscaling.hpa.convert_spec import behavior_from_api, utilization_metric
from shared.autoscaling.hpa.model import CPU, Controller
from shared.autoscaling.hpa.objects import BehaviorSpec
from shared.autoscaling.observation import Decision, Observation
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
    behavior: BehaviorSpec | None = None
    """``spec.behavior`` in the API's form, such as ``{"scaleDown": {"stabilizationWindowSeconds": 60}}``."""
    tolerance: Share = 0.1
    down_window_s: Window = 300.0
    """The controller's window for scaling down where ``behavior`` names none."""
    sync_s: Sync = SYNC_S
    """How often a service is looked at; in between the last answer holds."""


class HpaPolicy:
    """Every service by itself, as if each had an HPA of these settings."""

    name = "hpa"
    Settings = HpaSettings

    def __init__(self, settings: HpaSettings = HpaSettings()) -> None:  # noqa: B008 - frozen
        self._metrics = (utilization_metric(settings.resource, settings.target),)
        self._behavior = None if settings.behavior is None else behavior_from_api(settings.behavior)
        self._flags = Controller(tolerance=settings.tolerance, down_window_s=settings.down_window_s)
        self._sync_s = settings.sync_s
        self.reset(0)

    def reset(self, seed: int) -> None:  # noqa: ARG002 - the protocol's
        """Begin anew. Nothing is drawn, so ``seed`` decides nothing."""
        self._beat = Beat(self._sync_s)
        self._services: dict[str, ServiceHpa] = {}

    def decide(self, seen: Observation) -> Decision:
        """The replicas of each service. One at zero replicas is left there: a hand put it there."""
        due = self._beat.due(seen.now)
        for name, service in seen.services.items():
            one = self._services.setdefault(name, ServiceHpa(self._flags))
            if due or one.said is None:
                one.reconcile(service, seen.now, metrics=self._metrics, behavior=self._behavior)
        return {
            name: one.said for name, one in self._services.items() if name in seen.services and one.said is not None
        }
