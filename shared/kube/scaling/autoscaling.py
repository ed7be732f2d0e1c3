"""ResilientAutoscaler objects (``conclave.io/v1alpha1``) as typed structs, and their conversion to the model. Pure.

As with Queues, the structs are lenient and every field that cannot be used is told in ``problems``, with the remedy:
what a CRD's schema would refuse may still come from one that was changed. Text of the object is shown cut and quoted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec
from msgspec import field

from shared.errors import ObjectError
from shared.kube.label_selectors import SelectorError, parse_label_selector, query_text
from shared.kube.objects import Json, KubeLabelSelector, ObjectMeta
from shared.kube.pods.convert_relations import selector_from_api
from shared.kube.resources import Resource
from shared.kube.spec_reader import SpecReader
from shared.model.controllers.autoscaler import (
    Autoscaler,
    ForeignWriter,
    Go,
    ScalerLimits,
    ScalerMode,
    ScalingSignal,
    ScalingTarget,
    ServiceSignalSource,
    SourceKind,
    TargetRef,
)

MAX_TARGETS = 32
MAX_REPLICAS = 100_000
MAX_DEPTH = 32
"""Levels of one field of the spec: policies' settings have no schema, so the API server takes any."""
UNAPPROVED = ("go", "paused", "killSwitch")
"""Fields of the spec that an approval is not about."""


class AutoscalerObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Any = None
    status: Any = None


AUTOSCALERS = Resource("ResilientAutoscaler", "conclave.io", "v1alpha1", "resilientautoscalers", True, AutoscalerObject)

SIGNALS = {
    "cpu": ScalingSignal.CPU, "memory": ScalingSignal.MEMORY, "arrivals": ScalingSignal.ARRIVALS,
    "served": ScalingSignal.SERVED,
    "failed": ScalingSignal.FAILED, "latency": ScalingSignal.LATENCY, "queue": ScalingSignal.QUEUE,
}  # fmt: skip
"""The names in the object."""
UNITS = {"seconds": 1.0, "milliseconds": 0.001, "cores": 1.0, "millicores": 0.001, "bytes": 1.0, "perSecond": 1.0,
         "perMinute": 1 / 60, "count": 1.0}  # fmt: skip
_UNITS_OF = {
    ScalingSignal.CPU: ("cores", "millicores"), ScalingSignal.MEMORY: ("bytes",), ScalingSignal.LATENCY: ("seconds",
    "milliseconds"),
    ScalingSignal.QUEUE: ("count",),
}  # fmt: skip
_RATES = ("perSecond", "perMinute")
_GONE_BY = {ScalingSignal.ARRIVALS, ScalingSignal.SERVED, ScalingSignal.CPU}
"""What the rule by demand needs of every service."""


def autoscaler_from_api(item: AutoscalerObject) -> Autoscaler:
    """The object; what is wrong with it in ``problems``."""
    meta, read = item.metadata, SpecReader()
    spec = read.object("", item.spec)
    if too_deep := [name for name, value in spec.items() if _deeper(value, MAX_DEPTH)]:
        # what recurses over it (the digest, a repr) would end the process of everybody's objects
        read.problems += [f"spec.{name[:64]}: has more than {MAX_DEPTH} levels; make it flatter" for name in too_deep]
        spec = {name: value for name, value in spec.items() if name not in too_deep}
    policy, objectives = read.object("policy", spec.get("policy")), read.object("objectives", spec.get("objectives"))
    canary, go = read.object("canary", spec.get("canary")), read.object("go", spec.get("go"))
    kill = read.printable("killSwitch", spec.get("killSwitch"), default="None")
    if kill not in ("None", "PlainHPA"):
        read.refuse("killSwitch", kill, "is not known; write None or PlainHPA")
    targets = _targets(read, spec.get("targets"))
    name = read.printable("policy.name", policy.get("name"), most=63, default=default_policy(targets, policy))
    cost = read.number("objectives.costLimit", objectives.get("costLimit"), 0, MAX_REPLICAS, None)
    least = sum(target.minimum for target in targets)
    if cost is not None and cost < least:
        read.refuse(
            "objectives.costLimit", cost, f"is less than all minReplicas together, {least}; raise it or lower those"
        )
    return Autoscaler(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation or 0,
        mode=read.one_of("mode", spec.get("mode"), ScalerMode, ScalerMode.OBSERVE),
        policy=name,
        seed=read.whole("policy.seed", policy.get("seed"), 0, 2**31 - 1, 0),
        policy_settings=read.object("policy.settings", policy.get("settings")),
        rule_settings=read.object("hpaRule", spec.get("hpaRule")),
        plain_hpa=kill != "None",
        paused=read.flag("paused", spec.get("paused")),
        foreign_writer=read.one_of("foreignWriter", spec.get("foreignWriter"), ForeignWriter, ForeignWriter.HOLD),
        targets=targets,
        latency_objective_s=read.number(
            "objectives.latencySeconds", objectives.get("latencySeconds"), 1e-6, 3600, None
        ),
        success_objective=read.number("objectives.success", objectives.get("success"), 0, 1, None),
        cost_limit=cost,
        canary_services=read.whole("canary.servicesPercent", canary.get("servicesPercent"), 0, 100, 100),
        canary_time=read.whole("canary.timePercent", canary.get("timePercent"), 0, 100, 100),
        limits=_limits(read, spec.get("limits")),
        go=Go(
            read.printable("go.by", go.get("by")),
            read.printable("go.digest", go.get("digest")),
            read.printable("go.at", go.get("at")),
        ),
        # the name too where it was left out: another release may take another
        document={
            **{key: value for key, value in spec.items() if key not in UNAPPROVED},
            "policy": {**policy, "name": name},
        },
        problems=tuple(read.problems),
        written=item.status if isinstance(item.status, dict) else {},
    )


def default_policy(targets: Sequence[ScalingTarget], policy: Mapping[str, Any]) -> str:
    """Who decides where the object does not say: the rule by demand, which no learned policy is ahead of
    (docs/autoscaling.md), where there is what it goes by; else HPA's, whose settings are also those without a name."""
    if policy.get("settings"):
        return "hpa"
    known = bool(targets) and all(one.sources.keys() >= _GONE_BY for one in targets)
    return "demand" if known else "hpa"


def _limits(read: SpecReader, value: Any) -> ScalerLimits:
    found, plain = read.object("limits", value), ScalerLimits()

    def whole(name: str, high: int, default: int) -> int:
        return read.whole(f"limits.{name}", found.get(name), 0, high, default)

    def seconds(name: str, default: float) -> float:
        taken = read.number(f"limits.{name}", found.get(name), 1, 86_400, default)
        return default if taken is None else taken

    return ScalerLimits(
        up_pods=whole("upPods", MAX_REPLICAS, plain.up_pods),
        up_percent=whole("upPercent", 100_000, plain.up_percent),
        up_period_s=seconds("upPeriodSeconds", plain.up_period_s),
        down_pods=whole("downPods", MAX_REPLICAS, plain.down_pods),
        down_percent=whole("downPercent", 100, plain.down_percent),
        down_period_s=seconds("downPeriodSeconds", plain.down_period_s),
        stale_after_s=seconds("staleSeconds", plain.stale_after_s),
        fail_over_s=seconds("failOverSeconds", plain.fail_over_s),
        nodes_grow=read.flag("limits.nodesGrow", found.get("nodesGrow")),
    )


def _targets(read: SpecReader, value: Any) -> tuple[ScalingTarget, ...]:
    entries = read.listed("targets", value)
    if not entries:
        read.refuse("targets", value, "must name at least one service")
    if len(entries) > MAX_TARGETS:
        read.refuse("targets", len(entries), f"are more than {MAX_TARGETS} services; divide the graph")
    found = [_target(read, index, entry) for index, entry in enumerate(entries[:MAX_TARGETS])]
    names: set[str] = set()
    scaled: set[TargetRef] = set()
    for index, target in enumerate(found):
        if target.name in names:
            read.refuse(f"targets[{index}].name", target.name, "is there twice; give each service its own name")
        if target.ref in scaled:
            read.refuse(f"targets[{index}].scaleTargetRef", str(target.ref), "is there twice; name it once")
        names.add(target.name)
        scaled.add(target.ref)
    for index, target in enumerate(found):
        for callee in target.calls:
            if callee not in names:
                read.refuse(f"targets[{index}].calls", callee, "is none of the targets' names")
    loop = loop_in({target.name: target.calls for target in found})
    if loop:
        read.refuse("targets", " -> ".join(loop), "is a loop of calls; take one of these calls out")
    return tuple(found)


def _target(read: SpecReader, index: int, value: Any) -> ScalingTarget:
    where = f"targets[{index}]"
    entry = read.object(where, value)
    ref = read.object(f"{where}.scaleTargetRef", entry.get("scaleTargetRef"))
    found = TargetRef(
        read.printable(f"{where}.scaleTargetRef.apiVersion", ref.get("apiVersion"), default="apps/v1"),
        read.printable(f"{where}.scaleTargetRef.kind", ref.get("kind"), default="Deployment"),
        read.printable(f"{where}.scaleTargetRef.name", ref.get("name")),
    )
    if not found.name:
        read.refuse(f"{where}.scaleTargetRef.name", ref.get("name"), "must name a workload of the same namespace")
    low = read.whole(f"{where}.minReplicas", entry.get("minReplicas"), 0, MAX_REPLICAS, 1)
    high = read.whole(f"{where}.maxReplicas", entry.get("maxReplicas"), 1, MAX_REPLICAS, max(low, 1))
    if entry.get("maxReplicas") is None:
        read.refuse(f"{where}.maxReplicas", None, "must say how many replicas there may be at most")
    if low > high:
        read.refuse(f"{where}.minReplicas", low, f"is more than maxReplicas, {high}; lower the one or raise the other")
    calls = read.listed(f"{where}.calls", entry.get("calls"))
    for callee in calls:
        if not isinstance(callee, str):
            read.refuse(f"{where}.calls", callee, "must be the name of a target")
    return ScalingTarget(
        name=read.printable(f"{where}.name", entry.get("name"), most=63) or found.name,
        ref=found,
        minimum=low,
        maximum=max(low, high),
        calls=tuple(dict.fromkeys(callee for callee in calls if isinstance(callee, str))),
        hpa=read.printable(f"{where}.hpa", entry.get("hpa")),
        sources=_sources(read, where, entry.get("metrics")),
    )


def _sources(read: SpecReader, where: str, value: Any) -> dict[ScalingSignal, ServiceSignalSource]:
    """By signal; without any, cpu and memory of metrics.k8s.io."""
    if value is None:
        return {
            ScalingSignal.CPU: ServiceSignalSource(kind=SourceKind.RESOURCE),
            ScalingSignal.MEMORY: ServiceSignalSource(kind=SourceKind.RESOURCE),
        }
    found: dict[ScalingSignal, ServiceSignalSource] = {}
    for index, one in enumerate(read.listed(f"{where}.metrics", value)[: len(SIGNALS)]):
        place = f"{where}.metrics[{index}]"
        entry = read.object(place, one)
        signal = SIGNALS.get(str(entry.get("signal")))
        if signal is None:
            read.refuse(f"{place}.signal", entry.get("signal"), f"is not known; write {', '.join(SIGNALS)}")
            continue
        if signal in found:
            read.refuse(f"{place}.signal", entry.get("signal"), "is there twice; name one source of it")
            continue
        found[signal] = _source(read, place, signal, entry)
    return found


def _source(read: SpecReader, place: str, signal: ScalingSignal, entry: dict[str, Any]) -> ServiceSignalSource:
    kind = read.one_of(f"{place}.type", entry.get("type"), SourceKind, SourceKind.PROMETHEUS)
    allowed = _UNITS_OF.get(signal, _RATES)
    unit = read.printable(f"{place}.unit", entry.get("unit"), default=allowed[0])
    if unit not in allowed:
        read.refuse(f"{place}.unit", unit, f"is no unit of it; write {' or '.join(allowed)}")
    target, selector = read.object(f"{place}.object", entry.get("object")), entry.get("selector")
    query = read.printable(f"{place}.query", entry.get("query"), most=4096)
    metric = read.printable(f"{place}.metric", entry.get("metric"))
    if kind is SourceKind.RESOURCE and signal not in (ScalingSignal.CPU, ScalingSignal.MEMORY):
        read.refuse(f"{place}.type", kind.value, "tells cpu and memory alone; name another source of this signal")
    if kind is SourceKind.PROMETHEUS and not query:
        read.refuse(f"{place}.query", entry.get("query"), "must be a query whose answer is one number")
    if kind in (SourceKind.PODS, SourceKind.OBJECT, SourceKind.EXTERNAL) and not metric:
        read.refuse(f"{place}.metric", entry.get("metric"), "must be the metric's name")
    if kind is SourceKind.OBJECT and not (target.get("resource") and target.get("name")):
        read.refuse(f"{place}.object", target, "must say resource and name, such as services and front")
    return ServiceSignalSource(
        kind=kind,
        metric=metric,
        query=query,
        selector=_selector(read, place, selector),
        object_resource=read.printable(f"{place}.object.resource", target.get("resource")),
        object_name=read.printable(f"{place}.object.name", target.get("name")),
        scale=1.0 if kind is SourceKind.RESOURCE else UNITS.get(unit, 1.0),
    )


def _selector(read: SpecReader, place: str, value: Any) -> str:
    """A label selector as a query's text; "" for none, and for one with a fault, which is told."""
    given = read.object(f"{place}.selector", value)
    if not given:
        return ""
    try:
        found = selector_from_api(msgspec.convert(given, KubeLabelSelector), f"{place}.selector")
        text = "" if found is None else query_text(found)
        if not text:
            raise SelectorError("it selects nothing in particular; give matchLabels or matchExpressions with values")
        parse_label_selector(text)
    except (msgspec.ValidationError, ObjectError, SelectorError) as error:
        read.refuse(f"{place}.selector", given, f"is no label selector ({str(error)[:120]})")
        return ""
    return text


def _deeper(value: object, most: int) -> bool:
    """Whether a JSON value has more levels than that; without recursion."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def loop_in(calls: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The services of one loop of calls, the first again at the end; empty where there is none."""
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as error:
        return tuple(reversed(error.args[1]))  # it is told from the callee to its caller
    return ()
