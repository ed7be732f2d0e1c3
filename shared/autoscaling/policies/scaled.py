"""The HPA's rule over what a policy sees: one object per service, its memory, and when it is its turn.

What a ``ServiceObservation`` tells of pods in counts becomes pods: the ready ones used the mean, those that start and
those that no node has taken are unready. So a service of which no pod is ready, or of which nothing is measured, is one
whose metric fails: it keeps its replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec.structs import replace

from shared.autoscaling.hpa.model import (
    Answers,
    Behavior,
    ContainerFacts,
    Controller,
    ExternalSeries,
    Memory,
    Metric,
    Outcome,
    PodFacts,
    PodUsage,
    Scale,
    ScaleEvent,
    Spec,
)
from shared.autoscaling.hpa.rule import reconcile
from shared.autoscaling.observation import ServiceObservation

SYNC_S = 15.0
"""How often the controller manager looks at an object (``--horizontal-pod-autoscaler-sync-period``)."""
_LABELS = {"service": "this"}
_SELECTOR = "service=this"
_CONTAINER = "main"


def usable(reading: float | None) -> float | None:
    """None for a reading that is none: missing, not a number, infinite, negative."""
    return reading if reading is not None and math.isfinite(reading) and reading >= 0 else None


def milli(amount: float) -> int:
    """Thousandths, rounded up but for the last bits of the float (0.07 is 70), within an int64."""
    return min(math.ceil(round(amount * 1000, 6)), 2**63 - 1)


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
    """One service's HorizontalPodAutoscaler, and what its controller remembers."""

    def __init__(self, flags: Controller) -> None:
        self._flags = flags
        self._memory = Memory()
        self._said: int | None = None
        self._events: tuple[tuple[ScaleEvent, ...], tuple[ScaleEvent, ...]] = ((), ())

    @property
    def said(self) -> int | None:
        """The replicas of the last reconciliation; None before the first."""
        return self._said

    def reconcile(
        self,
        seen: ServiceObservation,
        now: float,
        *,
        metrics: tuple[Metric, ...],
        behavior: Behavior | None,
        external: Mapping[str, float] | None = None,
    ) -> Outcome:
        """One reconciliation. ``external``: totals by name of metric; one that is absent fails.

        An HPA has at least one replica; who scales to zero does it beside the HPA, as KEDA does.
        """
        if self._said is not None and seen.replicas != self._said:
            # what was said was not done, or was undone: then it is no scale event either
            self._memory = replace(self._memory, ups=self._events[0], downs=self._events[1])
        self._events = (self._memory.ups, self._memory.downs)
        spec = Spec(
            minimum=max(1, seen.bounds.minimum), maximum=max(1, seen.bounds.maximum), metrics=metrics, behavior=behavior
        )
        pods, usages = _pods_of(seen, now)
        outcome = reconcile(
            spec,
            self._memory,
            Scale(seen.replicas, seen.ready + seen.starting + seen.pending, _SELECTOR),
            pods,
            Answers(
                resource=usages,
                external=tuple(ExternalSeries(name, {}, milli(value)) for name, value in (external or {}).items()),
            ),
            now,
            flags=self._flags,
        )
        self._memory, self._said = outcome.memory, outcome.replicas
        return outcome


def _pods_of(seen: ServiceObservation, now: float) -> tuple[tuple[PodFacts, ...], tuple[PodUsage, ...]]:
    requests = {name: milli(amount) for name, amount in seen.requests.items() if usable(amount)}
    containers = (ContainerFacts(_CONTAINER, requests),)
    used = {name: milli(value) for name, reading in seen.usage.items() if (value := usable(reading)) is not None}
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
