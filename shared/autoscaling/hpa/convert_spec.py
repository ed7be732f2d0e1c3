"""From a HorizontalPodAutoscaler's JSON to the spec and status that the rule reads. A bad field is refused by its name.

Defaults are the API server's (``pkg/apis/autoscaling/v2/defaults.go``), the limits its validation's: an object that
came from a cluster passes, one written by hand is told what is wrong with it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

from shared.autoscaling.hpa import objects as api
from shared.autoscaling.hpa.model import (
    CPU,
    DEFAULT_DOWN,
    DEFAULT_UP,
    Aim,
    Behavior,
    Fallback,
    HpaMetric,
    HpaObjectSpec,
    HpaObjectStatus,
    MetricSource,
    ObjectRef,
    ScalingCondition,
    ScalingPolicy,
    ScalingRules,
)
from shared.autoscaling.hpa.values import fraction, milli
from shared.errors import ObjectError
from shared.kube.objects import KubeLabelSelector
from shared.kube.pods.convert_relations import selector_from_api

DEFAULT_CPU_PERCENT = 80
MAX_WINDOW_S, MAX_PERIOD_S = 3600, 1800
MAX_REPLICAS = 2**31 - 1

T = TypeVar("T")


def spec_from_api(hpa: api.HorizontalPodAutoscaler) -> HpaObjectSpec:
    """Raises ``ObjectError`` naming the field."""
    spec = hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    if not 0 <= minimum <= MAX_REPLICAS:
        raise ObjectError(f"{minimum} is no number of replicas; give 0 or more", field="spec.minReplicas")
    if not 1 <= spec.max_replicas <= MAX_REPLICAS:
        raise ObjectError(f"{spec.max_replicas} is no number of replicas; give 1 or more", field="spec.maxReplicas")
    if spec.max_replicas < minimum:
        raise ObjectError(
            f"{spec.max_replicas} is below spec.minReplicas, {minimum}; raise it or lower that",
            field="spec.maxReplicas",
        )
    metrics = metrics_from_api(spec.metrics or ())
    return HpaObjectSpec(
        namespace=hpa.metadata.namespace or "default",
        minimum=minimum,
        maximum=spec.max_replicas,
        metrics=metrics or (utilization_metric(CPU, DEFAULT_CPU_PERCENT),),
        behavior=None if spec.behavior is None else behavior_from_api(spec.behavior),
    )


def metrics_from_api(metrics: Iterable[api.MetricSpec], field: str = "spec.metrics") -> tuple[HpaMetric, ...]:
    """``spec.metrics`` in its order. Raises ``ObjectError`` naming the field."""
    return tuple(_metric(item, f"{field}[{index}]") for index, item in enumerate(metrics))


def utilization_metric(resource: str, percent: int) -> HpaMetric:
    """All containers' use of ``resource``, in percent of what the pods request."""
    return HpaMetric(
        source=MetricSource.RESOURCE, name=resource, aim=Aim.UTILIZATION, amount=percent, shown={"name": resource}
    )


def external_metric(name: str, per_replica_milli: int, fallback: Fallback | None = None) -> HpaMetric:
    """A total, so much of it for each replica."""
    return HpaMetric(
        source=MetricSource.EXTERNAL,
        name=name,
        aim=Aim.AVERAGE_VALUE,
        amount=per_replica_milli,
        fallback=fallback,
        shown={"metric": {"name": name}},
    )


def _metric(item: api.MetricSpec, field: str) -> HpaMetric:
    """One of the five types; the source that ``type`` names must be there."""
    match item.type:
        case "Resource":
            return _resource_metric(
                MetricSource.RESOURCE, _given(item.resource, f"{field}.resource"), f"{field}.resource"
            )
        case "ContainerResource":
            where = f"{field}.containerResource"
            source = _given(item.container_resource, where)
            if not source.container:
                raise ObjectError("is empty; name the container", field=f"{where}.container")
            return _resource_metric(MetricSource.CONTAINER_RESOURCE, source, where)
        case "Pods":
            return _series_metric(MetricSource.PODS, _given(item.pods, f"{field}.pods"), f"{field}.pods")
        case "Object":
            return _series_metric(MetricSource.OBJECT, _given(item.object, f"{field}.object"), f"{field}.object")
        case "External":
            return _series_metric(
                MetricSource.EXTERNAL, _given(item.external, f"{field}.external"), f"{field}.external"
            )
    known = ", ".join(MetricSource)
    raise ObjectError(f"{item.type[:40]!r} is no type of metric; give one of {known}", field=f"{field}.type")


def _given(source: T | None, field: str) -> T:
    if source is None:
        raise ObjectError("is missing, and type names it; give it", field=field)
    return source


def _resource_metric(kind: MetricSource, source: api.ResourceSource, field: str) -> HpaMetric:
    if not source.name:
        raise ObjectError("is empty; name the resource, such as cpu", field=f"{field}.name")
    target, where = source.target, f"{field}.target"
    if target.average_value is not None:
        aim, amount = Aim.AVERAGE_VALUE, milli(target.average_value, f"{where}.averageValue")
    elif target.average_utilization is not None:
        aim, amount = Aim.UTILIZATION, target.average_utilization
    else:
        raise ObjectError("has neither averageUtilization nor averageValue; give one", field=where)
    in_container = {"container": source.container} if kind is MetricSource.CONTAINER_RESOURCE else {}
    return HpaMetric(
        source=kind,
        name=source.name,
        aim=aim,
        amount=_above_zero(amount, where),
        container=in_container.get("container", ""),
        shown={**in_container, "name": source.name},
    )


def _series_metric(kind: MetricSource, source: api.SeriesSource, field: str) -> HpaMetric:
    if not source.metric.name:
        raise ObjectError("is empty; name the metric", field=f"{field}.metric.name")
    where, target = f"{field}.target", source.target
    by_value = kind is not MetricSource.PODS and (
        target.type == Aim.VALUE or (not target.type and target.value is not None)
    )
    key, quantity = ("value", target.value) if by_value else ("averageValue", target.average_value)
    if quantity is None:
        raise ObjectError(f"is missing for target.type {target.type[:40]!r}; give it", field=f"{where}.{key}")
    shown: dict[str, Any] = {"metric": msgspec.to_builtins(source.metric)}
    described = source.described_object
    if kind is MetricSource.OBJECT:
        if described is None or not described.kind or not described.name:
            raise ObjectError("is missing; name kind and name of the object", field=f"{field}.describedObject")
        shown["describedObject"] = msgspec.to_builtins(described)
    return HpaMetric(
        source=kind,
        name=source.metric.name,
        aim=Aim.VALUE if by_value else Aim.AVERAGE_VALUE,
        amount=_above_zero(milli(quantity, f"{where}.{key}"), f"{where}.{key}"),
        described=None if described is None else object_ref(described),
        selector=selector_from_api(source.metric.selector, f"{field}.metric.selector"),
        selector_text=_as_go(source.metric.selector),
        fallback=_fallback(source.fallback, f"{field}.fallback") if kind is MetricSource.EXTERNAL else None,
        shown=shown,
    )


def object_ref(described: api.CrossReference) -> ObjectRef:
    """Group, kind and name; the version decides nothing."""
    group, slash, _ = described.api_version.partition("/")
    return ObjectRef(group if slash else "", described.kind, described.name)


def _fallback(fallback: api.ExternalFallback | None, field: str) -> Fallback | None:
    if fallback is None:
        return None
    for name, value in (("replicas", fallback.replicas), ("failureDurationSeconds", fallback.failure_duration_seconds)):
        if value < 1:
            raise ObjectError(f"{value} is too small; give 1 or more", field=f"{field}.{name}")
    return Fallback(fallback.replicas, float(fallback.failure_duration_seconds))


def _as_go(selector: KubeLabelSelector | None) -> str:
    """As ``%+v`` prints a selector in the real controller's events."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.match_labels or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values or ())}],}},"
        for one in selector.match_expressions or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def _above_zero(amount: int, field: str) -> int:
    if amount <= 0:
        raise ObjectError("must be greater than 0", field=field)
    return amount


def behavior_from_api(given: api.BehaviorSpec) -> Behavior:
    """Both directions; what is not given has the API server's default. Raises ``ObjectError``."""
    up = _rules(given.scale_up, DEFAULT_UP, "spec.behavior.scaleUp")
    return Behavior(up, _rules(given.scale_down, DEFAULT_DOWN, "spec.behavior.scaleDown"))


def _rules(given: api.RulesSpec | None, default: ScalingRules, field: str) -> ScalingRules:
    """What is not given is the default's."""
    if given is None:
        return default
    window_s = given.stabilization_window_seconds
    if window_s is not None and not 0 <= window_s <= MAX_WINDOW_S:
        raise ObjectError(
            f"{window_s} is out of range; give 0 to {MAX_WINDOW_S} seconds", field=f"{field}.stabilizationWindowSeconds"
        )
    return ScalingRules(
        policies=tuple(
            _policy(policy, f"{field}.policies[{index}]") for index, policy in enumerate(given.policies or ())
        )
        or default.policies,
        select=_select(given.select_policy or default.select, f"{field}.selectPolicy"),
        window_s=default.window_s if window_s is None else window_s,
        tolerance=None if given.tolerance is None else fraction(given.tolerance, f"{field}.tolerance"),
    )


def _policy(policy: api.PolicyRule, field: str) -> ScalingPolicy:
    kind: Literal["Pods", "Percent"]
    match policy.type:
        case "Pods" | "Percent":
            kind = policy.type
        case _:
            raise ObjectError(f"{policy.type[:40]!r} is no policy; give Pods or Percent", field=f"{field}.type")
    if policy.value <= 0:
        raise ObjectError(f"{policy.value} is too small; give 1 or more", field=f"{field}.value")
    if not 1 <= policy.period_seconds <= MAX_PERIOD_S:
        raise ObjectError(
            f"{policy.period_seconds} is out of range; give 1 to {MAX_PERIOD_S} seconds", field=f"{field}.periodSeconds"
        )
    return ScalingPolicy(kind, policy.value, policy.period_seconds)


def _select(select: str, field: str) -> Literal["Max", "Min", "Disabled"]:
    match select:
        case "Max" | "Min" | "Disabled":
            return select
    raise ObjectError(f"{select[:40]!r} is no choice; give Max, Min or Disabled", field=field)


def status_from_api(status: api.HpaStatus | None) -> HpaObjectStatus:
    """What an object says of itself when we meet it first."""
    if status is None:
        return HpaObjectStatus()
    return HpaObjectStatus(
        current=status.current_replicas or 0,
        desired=status.desired_replicas or 0,
        conditions={
            one.type: ScalingCondition(one.status, one.reason or "", one.message or "")
            for one in status.conditions or ()
        },
    )
