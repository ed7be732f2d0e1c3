"""What each metric of a spec asks for by itself: the value of its API, and the replicas that follow from it.

Source: ``pkg/controller/podautoscaler/horizontal.go``, ``replica_calculator.go`` and ``metrics/client.go`` of
Kubernetes 1.36. A metric that fails says under which reason; what that means for the others is ``rule.py``'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from shared.autoscaling.hpa.model import (
    Aim,
    Behavior,
    CustomSeries,
    ExternalSeries,
    HpaController,
    HpaMetric,
    Json,
    MetricAnswers,
    MetricSource,
    ObjectRef,
    PodFacts,
    Proposal,
    ScaleSubresource,
)
from shared.autoscaling.hpa.pods import (
    MAX_INT64,
    Measure,
    NoValueError,
    PodSample,
    Tolerance,
    container_samples,
    group_pods,
    mean_measure,
    pod_samples,
    ready_pods,
    replicas_for_pods,
    requests_of,
    utilization_measure,
    whole_replicas,
)

_POD = ("", "Pod")
_NAMESPACE = ("", "Namespace")


class MetricsView(Struct, frozen=True, kw_only=True):
    """One moment as the metrics of one object see it. ``pods`` and ``answers.resource`` are the target's alone."""

    namespace: str
    scale: ScaleSubresource
    pods: tuple[PodFacts, ...]
    answers: MetricAnswers
    now: float
    flags: HpaController
    tolerance: Tolerance


def tolerance_of(behavior: Behavior | None, flags: HpaController) -> Tolerance:
    """The controller's, replaced on each side by the object's own."""
    if behavior is None or not flags.configurable_tolerance:
        return Tolerance(flags.tolerance, flags.tolerance)
    down, up = behavior.down.tolerance, behavior.up.tolerance
    return Tolerance(flags.tolerance if down is None else down, flags.tolerance if up is None else up)


def propose(metric: HpaMetric, view: MetricsView) -> Proposal:
    """What ``metric`` asks for, or why it cannot be told."""
    try:
        match metric.source:
            case MetricSource.RESOURCE | MetricSource.CONTAINER_RESOURCE:
                return _by_resource(metric, view)
            case MetricSource.PODS:
                return _by_pods(metric, view)
            case MetricSource.OBJECT:
                return _by_object(metric, view)
            case MetricSource.EXTERNAL:
                return _by_external(metric, view)
    except NoValueError as problem:
        return failed(metric, str(problem))


def failed(metric: HpaMetric, problem: str) -> Proposal:
    """No replicas follow from it."""
    return Proposal(reason=f"FailedGet{metric.source}Metric", problem=f"{metric.name}: {problem}")


def _by_resource(metric: HpaMetric, view: MetricsView) -> Proposal:
    _reachable("resource metrics", view.answers.resource_error)
    usages, container = view.answers.resource, metric.container
    if not usages:
        raise NoValueError("the resource metrics API has nothing about these pods")
    samples = container_samples(usages, metric.name, container) if container else pod_samples(usages, metric.name)
    if metric.aim is Aim.AVERAGE_VALUE:
        replicas, found = _by_mean(metric, view, samples, resource=metric.name)
        return _proposal(metric, replicas, found, f"{metric.name} resource")
    _found(view.pods)
    groups = group_pods(view.pods, samples, resource=metric.name, now=view.now, flags=view.flags)
    requests = requests_of(view.pods, metric.name, container)
    share = max(100, metric.amount)
    replicas, found = replicas_for_pods(
        samples,
        groups,
        current=view.scale.replicas,
        tolerance=view.tolerance,
        measured=utilization_measure(requests, metric.amount),
        busy=lambda name: requests[name] * share // 100,
    )
    kind = "container resource" if container else "resource"
    return _proposal(metric, replicas, found, f"{metric.name} {kind} utilization (percentage of request)")


def _by_pods(metric: HpaMetric, view: MetricsView) -> Proposal:
    """A series that describes a pod counts whether or not the target selects the pod: that is the adapter's."""
    series = [one for one in _custom(metric, view) if (one.described.group, one.described.kind) == _POD]
    if not series:
        raise NoValueError("the custom metrics API has no series of pods")
    samples = {one.described.name: PodSample(one.value, one.at_s, one.window_s) for one in series}
    replicas, found = _by_mean(metric, view, samples, resource="")
    return _proposal(metric, replicas, found, f"pods metric {metric.name}")


def _by_mean(
    metric: HpaMetric, view: MetricsView, samples: dict[str, PodSample], *, resource: str
) -> tuple[int, Measure]:
    _found(view.pods)
    return replicas_for_pods(
        samples,
        group_pods(view.pods, samples, resource=resource, now=view.now, flags=view.flags),
        current=view.scale.replicas,
        tolerance=view.tolerance,
        measured=mean_measure(metric.amount),
        busy=lambda _: metric.amount,
    )


def _by_object(metric: HpaMetric, view: MetricsView) -> Proposal:
    described = metric.described
    assert described is not None  # conversion refuses an object metric without it
    if described[:2] == _NAMESPACE:
        described = ObjectRef(*_NAMESPACE, view.namespace)  # an HPA sees no namespace but its own
    series = _custom(metric, view)
    if metric.question not in view.answers.asked:
        series = [one for one in series if one.described == described]
    if len(series) != 1:
        raise NoValueError(f"the custom metrics API has {len(series)} series where exactly one is asked for")
    if metric.aim is Aim.VALUE:
        replicas = _by_total(series[0].value, metric, view)
        return _total(metric, replicas, "value", series[0].value, f"{described.kind} metric {metric.name}")
    return _per_pod(series[0].value, metric, view)


def _by_external(metric: HpaMetric, view: MetricsView) -> Proposal:
    values = [one.value for one in _external(metric, view)]
    if not values:
        raise NoValueError("the external metrics API has no such series")
    if metric.aim is Aim.VALUE:
        usage = _saturated(values)
        replicas = _by_total(usage, metric, view)
        return _total(metric, replicas, "value", usage, f"external metric {metric.name}({metric.selector_text})")
    return _per_pod(_wrapped(values), metric, view)


def _by_total(usage: int, metric: HpaMetric, view: MetricsView) -> int:
    """A total against a target for all: in proportion to the pods that are ready, or from nothing."""
    ratio = float(usage) / float(metric.amount)
    if view.scale.replicas == 0:
        return whole_replicas(ratio)
    if view.tolerance.covers(ratio):
        return view.scale.replicas
    return whole_replicas(ratio * float(ready_pods(view.pods)))


def _per_pod(usage: int, metric: HpaMetric, view: MetricsView) -> Proposal:
    """A total against a target for each pod. It goes by the scale's *status*, not by what is wanted."""
    status = view.scale.status_replicas
    wanted = float(usage) / float(metric.amount)
    within = status != 0 and view.tolerance.covers(float(usage) / (float(metric.amount) * float(status)))
    replicas = status if within else whole_replicas(wanted)
    mean = math.ceil(float(usage) / float(status)) if status else 0  # 1.36 divides by zero here; 1.37 says 0
    mean = MAX_INT64 if usage >= MAX_INT64 else mean
    return _total(metric, replicas, "averageValue", mean, f"external metric {metric.name}({metric.selector_text})")


def _saturated(values: Sequence[int]) -> int:
    total = 0
    for value in values:
        total += value
        if value > 0 and total > MAX_INT64:
            return MAX_INT64
    return total


def _wrapped(values: Sequence[int]) -> int:
    """The real one takes a sum below 0 for an overflow of its int64, and so does this."""
    total = 0
    for value in values:
        total += value
        if not 0 <= total <= MAX_INT64:
            return MAX_INT64
    return total


def _external(metric: HpaMetric, view: MetricsView) -> list[ExternalSeries]:
    answer = view.answers.asked.get(metric.question)
    if answer is not None:
        _reachable("external metrics", answer if isinstance(answer, str) else "")
        return [one for one in answer if isinstance(one, ExternalSeries)]
    _reachable("external metrics", view.answers.external_error)
    return [
        one
        for one in view.answers.external
        if one.name == metric.name and (metric.selector is None or metric.selector.matches(one.labels))
    ]


def _custom(metric: HpaMetric, view: MetricsView) -> list[CustomSeries]:
    answer = view.answers.asked.get(metric.question)
    if answer is not None:
        _reachable("custom metrics", answer if isinstance(answer, str) else "")
        return [one for one in answer if isinstance(one, CustomSeries)]
    _reachable("custom metrics", view.answers.custom_error)
    return [
        one
        for one in view.answers.custom
        if one.name == metric.name
        and one.namespace in ("", view.namespace)
        and (metric.selector is None or metric.selector.matches(one.labels))
    ]


def _reachable(api: str, error: str) -> None:
    if error:
        raise NoValueError(f"the {api} API does not answer: {error}")


def _found(pods: Sequence[PodFacts]) -> None:
    if not pods:
        raise NoValueError("the selector finds no pods")


def _proposal(metric: HpaMetric, replicas: int, found: Measure, title: str) -> Proposal:
    current: dict[str, object] = {"averageValue": milli_text(found.mean)}
    if found.utilization is not None:
        current["averageUtilization"] = found.utilization
    return Proposal(replicas=replicas, title=title, current=_entry(metric, current))


def _total(metric: HpaMetric, replicas: int, field: str, amount: int, title: str) -> Proposal:
    return Proposal(replicas=replicas, title=title, current=_entry(metric, {field: milli_text(amount)}))


def _entry(metric: HpaMetric, current: Json) -> Json:
    key = metric.source[0].lower() + metric.source[1:]
    return {"type": str(metric.source), key: {**metric.shown, "current": current}}


def milli_text(amount: int) -> str:
    """Milli-units as a quantity: ``267m``, ``14``."""
    return f"{amount}m" if amount % 1000 else str(amount // 1000)
