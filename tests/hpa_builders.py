"""A small HPA world for tests: a target of pods ``p0``, ``p1`` ... that each request 1000m, at noon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.autoscaling.hpa.convert_spec import external_metric, utilization_metric
from shared.autoscaling.hpa.model import (
    Behavior,
    ContainerFacts,
    ExternalSeries,
    HpaMetric,
    HpaObjectSpec,
    HpaOutcome,
    Memory,
    MetricAnswers,
    PodFacts,
    PodUsage,
    ScaleSubresource,
    ScalingPolicy,
    ScalingRules,
)
from shared.autoscaling.hpa.rule import reconcile

NOON = 43_200.0
LABELS = {"app": "web"}


def pod(name: str, **facts: Any) -> PodFacts:
    """A pod that has been ready for an hour, but for ``facts``."""
    given: dict[str, Any] = {
        "labels": LABELS,
        "ready": "True",
        "start_s": NOON - 3700,
        "ready_since_s": NOON - 3600,
        "containers": (ContainerFacts("c", {"cpu": 1000, "memory": 1000}),),
    }
    return PodFacts(name=name, **{**given, **facts})


def pods(count: int) -> list[PodFacts]:
    """``p0`` ... all ready."""
    return [pod(f"p{index}") for index in range(count)]


def usage(name: str, cpu: int, *, at_s: float = NOON - 10, window_s: float = 30.0) -> PodUsage:
    """What one pod used, milli-units of cpu."""
    return PodUsage(name, LABELS, at_s, window_s, (("c", {"cpu": cpu}),))


def used(*cpu: int | None) -> MetricAnswers:
    """Answers about ``p0``, ``p1`` ...; None: nothing about that one."""
    return MetricAnswers(resource=tuple(usage(f"p{i}", value) for i, value in enumerate(cpu) if value is not None))


def queued(value: int) -> MetricAnswers:
    """An external series ``queue`` of ``value`` requests."""
    return MetricAnswers(external=(ExternalSeries("queue", {}, value * 1000),))


CPU_HALF = utilization_metric("cpu", 50)
QUEUE_TEN = external_metric("queue", 10_000)


def spec(*metrics: HpaMetric, minimum: int = 1, maximum: int = 100, behavior: Behavior | None = None) -> HpaObjectSpec:
    """By cpu at 50 % unless metrics are given."""
    return HpaObjectSpec(minimum=minimum, maximum=maximum, metrics=metrics or (CPU_HALF,), behavior=behavior)


def rules(*policies: tuple[str, int, int], **fields: Any) -> ScalingRules:
    """(Pods or Percent, value, period) each; no stabilisation unless said."""
    made = tuple(ScalingPolicy(kind, value, period) for kind, value, period in policies)  # type: ignore[arg-type]
    return ScalingRules(made or (ScalingPolicy("Pods", 1000, 15),), **{"window_s": 0, **fields})


FREE = Behavior(rules(), rules(("Percent", 100, 15)))
"""No window, and no policy that limits in these tests."""


def scale(replicas: int, status: int | None = None, **fields: Any) -> ScaleSubresource:
    """The scale of ``app=web``; as many pods as replicas unless said."""
    return ScaleSubresource(
        replicas, replicas if status is None else status, fields.pop("selector", "app=web"), **fields
    )


def once(
    given: HpaObjectSpec, replicas: int, answers: MetricAnswers, seen: Sequence[PodFacts] | None = None, **more: Any
) -> HpaOutcome:
    """One reconciliation by a controller that meets the object at noon."""
    now = more.pop("now", NOON)
    memory = more.pop("memory", Memory())
    found = pods(replicas) if seen is None else seen
    return reconcile(given, memory, more.pop("scaled", scale(replicas)), found, answers, now, **more)


def wanted(
    given: HpaObjectSpec, replicas: int, answers: MetricAnswers, seen: Sequence[PodFacts] | None = None, **more: Any
) -> Any:
    """What the first metric asks for: replicas, or the reason it failed."""
    proposals = once(given, replicas, answers, seen, **more).proposals
    assert proposals is not None
    return proposals[0].reason if proposals[0].replicas is None else proposals[0].replicas


def reasons(outcome: HpaOutcome) -> Mapping[str, str]:
    """Reasons of the conditions by type."""
    return {kind: one.reason for kind, one in outcome.status.conditions.items()}
