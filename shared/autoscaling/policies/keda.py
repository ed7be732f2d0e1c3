"""``keda``: event-driven scaling in KEDA's manner, through the HPA's rule as KEDA really does it. Own code.

Triggers (requests that wait, requests that arrive) become External metrics by AverageValue of an HPA, cpu a Resource
metric. KEDA itself polls the triggers, falls back when they fail, and alone goes to zero and comes back from it: from
zero when a trigger is active, to zero when none has been for the cool-down. Source: KEDA 2.x, "Scaling Deployments,
StatefulSets & Custom Resources" and "ScaledObject specification", https://keda.sh/docs/latest/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from shared.autoscaling.hpa.convert_spec import behavior_from_api, external_metric, utilization_metric
from shared.autoscaling.hpa.model import CPU, Behavior, HpaController, HpaMetric
from shared.autoscaling.hpa.objects import BehaviorSpec
from shared.autoscaling.hpa.values import milli_units
from shared.autoscaling.observation import Decision, ScalingObservation, ServiceObservation
from shared.autoscaling.policies.hpa import NotNegative, Percent, Positive, Share, Sync
from shared.autoscaling.policies.scaled import SYNC_S, Beat, ServiceHpa, usable
from shared.errors import ConfigError

QUEUE, ARRIVALS = "queue", "arrivals"
QUEUE_LAG = 10.0
"""The default lag of KEDA's queue scalers."""


class KedaFallback(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """``fallback`` of a ScaledObject: what a trigger asks for once it failed more often than this in a row."""

    replicas: Annotated[int, Meta(ge=0)]
    failure_threshold: Annotated[int, Meta(ge=0)] = 3
    behavior: Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"] = "static"

    def wanted(self, current: int) -> int:
        """So many replicas, with ``current`` of them now."""
        match self.behavior:
            case "static":
                return self.replicas
            case "currentReplicas":
                return current
            case "currentReplicasIfHigher":
                return max(current, self.replicas)
            case "currentReplicasIfLower":
                return min(current, self.replicas)


Targets = Positive | dict[str, Positive] | None
"""For each replica, of every service or by service; None, or a service that is not named: no such trigger."""


class KedaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ScaledObject for every service; defaults are KEDA's own."""

    queue: Targets | UnsetType = UNSET
    """Requests that wait, for each replica. Not said: ``QUEUE_LAG`` where no other trigger is named, else no such
    trigger, for an API server keeps no null by which it could be left out."""
    arrivals: Targets = None
    """Requests per second, for each replica."""
    cpu: Percent | None = None
    """``averageUtilization`` of a cpu trigger."""
    activation: NotNegative = 0.0
    """A trigger is active above this."""
    polling_s: Positive = 30.0
    """How often triggers are read; between two readings the last one holds (``useCachedMetrics``)."""
    cooldown_s: NotNegative = 300.0
    """So long without an active trigger, and a service that may have none goes to zero."""
    fallback: KedaFallback | None = None
    behavior: BehaviorSpec | None = None
    """``horizontalPodAutoscalerConfig.behavior``, in the API's form."""
    tolerance: Share = 0.1
    sync_s: Sync = SYNC_S

    @property
    def queues(self) -> Targets:
        """The target of the trigger by requests that wait."""
        if self.queue is not UNSET:
            return self.queue
        return QUEUE_LAG if self.arrivals is None and self.cpu is None else None


class KedaPolicy:
    """Every service by itself, as if each had a ScaledObject of these settings."""

    name = "keda"
    Settings = KedaSettings

    def __init__(self, settings: KedaSettings = KedaSettings()) -> None:  # noqa: B008 - frozen
        if settings.queues is None and settings.arrivals is None and settings.cpu is None:
            raise ConfigError("policy keda: there is no trigger; give queue, arrivals or cpu")
        self.metrics = () if settings.cpu is None else (utilization_metric(CPU, settings.cpu),)
        """What the HPA's rule reads for itself."""
        self._settings = settings
        self._behavior = None if settings.behavior is None else behavior_from_api(settings.behavior)
        self.reset(0)

    def reset(self, seed: int) -> None:  # noqa: ARG002 - the protocol's
        """Begin anew. Nothing is drawn, so ``seed`` decides nothing."""
        self._poll, self._sync = Beat(self._settings.polling_s), Beat(self._settings.sync_s)
        self._services: dict[str, _ScaledObject] = {}

    def needs(self, service: str) -> frozenset[str]:
        """What its triggers read; cpu is the HPA's own."""
        triggers = {QUEUE: self._settings.queues, ARRIVALS: self._settings.arrivals}
        return frozenset(name for name, targets in triggers.items() if _for(service, targets) is not None)

    def decide(self, seen: ScalingObservation) -> Decision:
        """The replicas of each service; one without a trigger is not named."""
        polled, synced = self._poll.due(seen.now), self._sync.due(seen.now)
        wanted: dict[str, int] = {}
        for name, service in seen.services.items():
            one = self._services.get(name)
            if one is None:
                one = self._services[name] = _ScaledObject(name, self._settings, self._behavior)
            if not one.has_triggers:
                continue
            one.note(service)
            if polled:
                one.poll(service, seen.now)
            wanted[name] = one.replicas(service, seen.now, synced=synced)
        return wanted


class _ScaledObject:
    """One service's ScaledObject and the HPA that belongs to it."""

    def __init__(self, name: str, settings: KedaSettings, behavior: Behavior | None) -> None:
        targets = {QUEUE: _for(name, settings.queues), ARRIVALS: _for(name, settings.arrivals)}
        self._targets = {trigger: target for trigger, target in targets.items() if target is not None}
        metrics: list[HpaMetric] = [
            external_metric(trigger, milli_units(target)) for trigger, target in self._targets.items()
        ]
        if settings.cpu is not None:
            metrics.append(utilization_metric(CPU, settings.cpu))
        self._metrics, self._settings, self._behavior = tuple(metrics), settings, behavior
        self._hpa = ServiceHpa(HpaController(tolerance=settings.tolerance))
        self._values: dict[str, float] = {}
        self._failures = dict.fromkeys(self._targets, 0)
        self._active_s: float | None = None

    @property
    def has_triggers(self) -> bool:
        return bool(self._metrics)

    def note(self, service: ServiceObservation) -> None:
        """What became of what was said last."""
        self._hpa.note(service)

    def poll(self, service: ServiceObservation, now: float) -> None:
        """Read every trigger. A cpu trigger never makes a service active: at zero nothing uses any."""
        readings = {QUEUE: service.queue, ARRIVALS: service.arrivals}
        for trigger in self._targets:
            value = usable(readings[trigger])
            if value is None:
                self._failures[trigger] += 1
                self._values.pop(trigger, None)
                continue
            self._failures[trigger], self._values[trigger] = 0, value
            if value > self._settings.activation:
                self._active_s = now

    def replicas(self, service: ServiceObservation, now: float, *, synced: bool) -> int:
        """What it asks for now."""
        if self._active_s is None and service.replicas > 0:
            self._active_s = now  # met while it ran: the cool-down begins here
        if synced or self._hpa.said is None:
            self._hpa.reconcile(
                service, now, metrics=self._metrics, behavior=self._behavior, external=self._external(service.replicas)
            )
        if service.replicas == 0:
            return self._from_zero(service)
        if service.bounds.minimum == 0 and self._cooled_down(now):
            return 0
        return self._hpa.said or service.replicas  # 0: its last look was before the service came back from zero

    def _cooled_down(self, now: float) -> bool:
        """Whether no trigger has been active for so long. One that cannot be read may be; cpu alone never tells."""
        if not self._targets or any(self._failures.values()) or self._active_s is None:
            return False
        return now - self._active_s >= self._settings.cooldown_s

    def _from_zero(self, service: ServiceObservation) -> int:
        """To the minimum when a trigger is active; to the fall-back's replicas when none can be read."""
        if any(value > self._settings.activation for value in self._values.values()):
            return max(1, service.bounds.minimum)
        fallback = self._settings.fallback
        if fallback is not None and any(self._given_up(trigger) for trigger in self._targets):
            return service.bounds.clamp(fallback.wanted(0))
        return 0

    def _given_up(self, trigger: str) -> bool:
        fallback = self._settings.fallback
        return fallback is not None and self._failures[trigger] > fallback.failure_threshold

    def _external(self, current: int) -> Mapping[str, float]:
        """Totals by trigger: what was read, or what makes the rule ask for the fall-back's replicas."""
        found = dict(self._values)
        fallback = self._settings.fallback
        if fallback is not None:
            for trigger, target in self._targets.items():
                if self._given_up(trigger):
                    found[trigger] = fallback.wanted(current) * target
        return found


def _for(name: str, targets: Targets) -> float | None:
    return targets.get(name) if isinstance(targets, dict) else targets
