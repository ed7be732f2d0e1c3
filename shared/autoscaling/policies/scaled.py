"""The HPA's rule over what a policy sees: one object per service, its memory, and when it is its turn.

Where an observation has what the rule reads, pod by pod, that decides, and the answer is the controller's to the last
rounding. Of a twin, which tells pods in counts, pods are made: the ready ones used the mean, those that start and those
that no node has taken are unready. So a service of which no pod is ready, or of which nothing is measured, is one whose
metric fails: it keeps its replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from shared.autoscaling.hpa.model import (
    Behavior,
    ContainerFacts,
    ExternalSeries,
    HpaController,
    HpaMetric,
    HpaObjectSpec,
    HpaOutcome,
    Memory,
    MetricAnswers,
    PodFacts,
    PodUsage,
    ScaleEvent,
    ScaleSubresource,
    ScalingCondition,
    TargetSeen,
)
from shared.autoscaling.hpa.rule import TO_ZERO, reconcile
from shared.autoscaling.hpa.values import milli_units
from shared.autoscaling.observation import ServiceObservation

SYNC_S = 15.0
"""How often the controller manager looks at an object (``--horizontal-pod-autoscaler-sync-period``)."""
_LABELS = {"service": "this"}
_SELECTOR = "service=this"
_CONTAINER = "main"


def usable(reading: float | None) -> float | None:
    """None for a reading that is none: missing, not a number, infinite, negative."""
    return reading if reading is not None and math.isfinite(reading) and reading >= 0 else None


class Beat:
    """Says once in every ``period_s`` that it is time; of several moments within one period, at the first."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._last: int | None = None

    def due(self, now: float) -> bool:
        """Whether ``now`` lies in a period that has not been counted yet."""
        period = math.floor(now / self._period_s)
        if period == self._last:
            return False
        self._last = period
        return True


class ServiceHpa:
    """One service's HorizontalPodAutoscaler, and what its controller remembers. ``outcome``: the last reconciliation,
    None before the first."""

    def __init__(self, flags: HpaController) -> None:
        self._flags = flags
        self._memory = Memory()
        self.outcome: HpaOutcome | None = None
        self._events: tuple[tuple[ScaleEvent, ...], tuple[ScaleEvent, ...]] = ((), ())
        self._done = False

    @property
    def said(self) -> int | None:
        """The replicas of the last reconciliation; None before the first."""
        return None if self.outcome is None else self.outcome.replicas

    def note(self, seen: ServiceObservation) -> None:
        """Take in whether what was said came about; to be told at each decision, also where none is made."""
        self._done = self._done or self.said in (seen.replicas, seen.scaled_to)

    def reconcile(
        self,
        seen: ServiceObservation,
        now: float,
        *,
        metrics: tuple[HpaMetric, ...],
        behavior: Behavior | None,
        external: Mapping[str, float] | None = None,
    ) -> HpaOutcome:
        """One reconciliation. ``external``: totals by name of metric, in place of what the API told; one that is absent
        fails.

        An HPA has at least one replica unless it may scale to zero; who else does it does it beside the HPA, as KEDA.
        """
        self.note(seen)
        if self.outcome is not None and not self._done:
            # what was said was not done: then it is no scale event either
            self._memory = replace(self._memory, ups=self._events[0], downs=self._events[1])
        if self.outcome is None and seen.asleep:
            status = replace(self._memory.status, conditions={TO_ZERO: ScalingCondition("True", "ScaledToZero")})
            self._memory = replace(self._memory, status=status)
        self._events, self._done = (self._memory.ups, self._memory.downs), False
        least = 0 if self._flags.scale_to_zero else 1
        spec = HpaObjectSpec(
            minimum=max(least, seen.bounds.minimum),
            maximum=max(1, seen.bounds.maximum),
            metrics=metrics,
            behavior=behavior,
        )
        sight = seen.seen or _made_up(seen, now)
        answers = sight.answers
        if external is not None:
            told = tuple(ExternalSeries(name, {}, milli_units(value)) for name, value in external.items())
            answers = replace(answers, external=told)
        self.outcome = reconcile(
            spec, self._memory, sight.scale, sight.pods, answers, now, flags=self._flags, others=sight.others
        )
        self._memory = self.outcome.memory
        return self.outcome


def _made_up(seen: ServiceObservation, now: float) -> TargetSeen:
    """Pods as the counts tell them."""
    pods, usages = _pods_of(seen, now)
    scale = ScaleSubresource(seen.replicas, seen.ready + seen.starting + seen.pending, _SELECTOR)
    return TargetSeen(scale, pods, MetricAnswers(resource=usages))


def _pods_of(seen: ServiceObservation, now: float) -> tuple[tuple[PodFacts, ...], tuple[PodUsage, ...]]:
    requests = {name: milli_units(amount) for name, amount in seen.requests.items() if usable(amount)}
    containers = (ContainerFacts(_CONTAINER, requests),)
    used = {name: milli_units(value) for name, reading in seen.usage.items() if (value := usable(reading)) is not None}
    ready = [
        PodFacts(name=f"ready-{index}", labels=_LABELS, ready="True", start_s=float("-inf"), containers=containers)
        for index in range(seen.ready)
    ]
    starting = [
        PodFacts(name=f"starting-{index}", labels=_LABELS, ready="False", start_s=now, containers=containers)
        for index in range(seen.starting)
    ]
    pending = [
        PodFacts(name=f"pending-{index}", labels=_LABELS, phase="Pending", containers=containers)
        for index in range(seen.pending)
    ]
    measured = ((_CONTAINER, used),)
    usages = [PodUsage(pod.name, _LABELS, now, 0.0, measured) for pod in (*ready, *starting)] if used else []
    return (*ready, *starting, *pending), tuple(usages)
