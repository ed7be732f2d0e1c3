"""``predictive``: the demand that is coming, by season and trend, beside what the HPA sees now. Own code.

The demand of a service in cores is forecast (``holt_winters``) for as far ahead as a replica needs to become ready; the
greatest forecast on the way becomes an External metric of an HPA whose other metric is cpu utilisation. The larger
proposal counts, so a wrong forecast costs replicas and never takes away what the HPA would give; its windows and
policies hold for both. Where arrivals are known, they are forecast instead and counted in cores by what a request has
cost of late: cores stop growing when a service is overloaded, arrivals do not.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shared.autoscaling.hpa.convert_spec import behavior_from_api, external_metric, utilization_metric
from shared.autoscaling.hpa.model import CPU, HpaController
from shared.autoscaling.hpa.objects import BehaviorSpec
from shared.autoscaling.hpa.values import milli_units
from shared.autoscaling.observation import Decision, ScalingObservation, ServiceObservation
from shared.autoscaling.policies.holt_winters import HoltWinters, Smoothing
from shared.autoscaling.policies.hpa import Percent, Positive, Share, Sync
from shared.autoscaling.policies.scaled import SYNC_S, Beat, ServiceHpa, usable
from shared.errors import ConfigError

FORECAST = "forecast"
Rate = Annotated[float, Meta(ge=0, le=1)]
COST_RATE = 0.2
"""How fast the cost of a request follows what is measured."""


class PredictiveSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is forecast, how far, and the HPA's target."""

    target: Percent = 80
    """Percent of the cpu request, now and in the forecast."""
    step_s: Positive = 30.0
    """Readings of so long are averaged to one value of the series."""
    season_s: Positive = 86_400.0
    """A day; until one has passed, trend alone is forecast."""
    horizon_s: Positive = 120.0
    """How far ahead: what a new replica needs to become ready, and a reconciliation more."""
    level: Rate = 0.5
    trend: Rate = 0.1
    season: Rate = 0.3
    damping: Rate = 0.9
    behavior: BehaviorSpec | None = None
    tolerance: Share = 0.1
    sync_s: Sync = SYNC_S


MAX_STEPS = 240
"""Forecasts of one decision: it is made for all services on one thread, and is to take milliseconds."""


class PredictivePolicy:
    """Every service by itself. ``ConfigError``: a horizon of too many steps."""

    name = "predictive"
    Settings = PredictiveSettings

    def __init__(self, settings: PredictiveSettings = PredictiveSettings()) -> None:  # noqa: B008 - frozen
        if settings.horizon_s > MAX_STEPS * settings.step_s:
            raise ConfigError(
                f"policy predictive: horizon_s is more than {MAX_STEPS} times step_s; lower it, or raise step_s"
            )
        self.metrics = (utilization_metric(CPU, settings.target),)
        """What the HPA's rule reads for itself."""
        self._settings = settings
        self._behavior = None if settings.behavior is None else behavior_from_api(settings.behavior)
        self.reset(0)

    def reset(self, seed: int) -> None:  # noqa: ARG002 - the protocol's
        """Begin anew. Nothing is drawn, so ``seed`` decides nothing."""
        self._beat = Beat(self._settings.sync_s)
        self._demands: dict[str, _Demand] = {}
        self._hpas: dict[str, ServiceHpa] = {}

    def needs(self, service: str) -> frozenset[str]:  # noqa: ARG002 - the protocol's
        """Cores are what it forecasts; arrivals make it better, and may be missing."""
        return frozenset({CPU})

    def decide(self, seen: ScalingObservation) -> Decision:
        """The replicas of each service. One at zero replicas is left there: a hand put it there."""
        due = self._beat.due(seen.now)
        flags = HpaController(tolerance=self._settings.tolerance)
        for name, service in seen.services.items():
            demand = self._demands.get(name)
            if demand is None:
                demand = self._demands[name] = _Demand(self._settings)
            demand.observe(service, seen.now)
            hpa = self._hpas.setdefault(name, ServiceHpa(flags))
            hpa.note(service)
            if due or hpa.said is None:
                self._reconcile(hpa, service, demand, seen.now)
        return {name: hpa.said for name, hpa in self._hpas.items() if name in seen.services and hpa.said is not None}

    def _reconcile(self, hpa: ServiceHpa, service: ServiceObservation, demand: _Demand, now: float) -> None:
        metrics, external = [utilization_metric(CPU, self._settings.target)], {}
        request, cores = usable(service.requests.get(CPU)), demand.coming()
        if request and cores is not None and usable(service.usage.get(CPU)) is not None:
            per_replica = max(1, milli_units(request * self._settings.target / 100))
            metrics.append(external_metric(FORECAST, per_replica))
            external[FORECAST] = cores
        hpa.reconcile(service, now, metrics=tuple(metrics), behavior=self._behavior, external=external)


class _Demand:
    """The series of one service: of arrivals where they are told, else of cores; and what a request costs."""

    def __init__(self, settings: PredictiveSettings) -> None:
        self._step_s = settings.step_s
        self._steps = max(1, round(settings.horizon_s / settings.step_s))
        season = round(settings.season_s / settings.step_s)
        rates = Smoothing(level=settings.level, trend=settings.trend, season=settings.season, damping=settings.damping)
        self._of_arrivals = HoltWinters(season if season > 1 else 0, rates)
        self._of_cores = HoltWinters(season if season > 1 else 0, rates)
        self._period: int | None = None
        self._arrivals: list[float] = []
        self._cores: list[float] = []
        self._cost: float | None = None

    def observe(self, service: ServiceObservation, now: float) -> None:
        """Take a moment in; what was measured in a period becomes one value when the period is over."""
        period = int(now // self._step_s)
        if self._period is not None and period != self._period:
            for series, values in ((self._of_arrivals, self._arrivals), (self._of_cores, self._cores)):
                if values:
                    series.observe(sum(values) / len(values))
                    values.clear()
        self._period = period
        usage, arrivals, served = usable(service.usage.get(CPU)), usable(service.arrivals), usable(service.served)
        if arrivals is not None:
            self._arrivals.append(arrivals)
        if usage is None or not service.ready:
            return
        cores = usage * service.ready
        self._cores.append(cores)
        if served:
            cost = cores / served
            self._cost = cost if self._cost is None else self._cost + COST_RATE * (cost - self._cost)

    def coming(self) -> float | None:
        """The most cores that are forecast within the horizon; None while nothing is known."""
        if self._of_arrivals.ready and self._cost is not None:
            return self._cost * self._peak(self._of_arrivals)
        return self._peak(self._of_cores) if self._of_cores.ready else None

    def _peak(self, series: HoltWinters) -> float:
        return max(0.0, *(series.forecast(step) for step in range(1, self._steps + 1)))
