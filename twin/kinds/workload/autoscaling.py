"""HorizontalPodAutoscalers: autoscaling/v2, and v1 as a view of it.

Sources: ``pkg/apis/autoscaling`` (v1 and v2 defaults, conversion, validation). The stored form is v2.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.printing import NONE, UNKNOWN, UNSET, printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_GROUP, _PLURAL = "autoscaling", "horizontalpodautoscalers"
_DEFAULT_UTILIZATION = 80


def _cpu_metric(percent: int) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


class AutoscalerStrategy(TypedStrategy):
    """autoscaling/v2 HorizontalPodAutoscaler."""

    info = KindInfo(
        _GROUP, "v2", "HorizontalPodAutoscaler", _PLURAL, "horizontalpodautoscaler", True,
        short_names=("hpa",), categories=("all",),
    )  # fmt: skip
    go_type = "autoscaling/v2.HorizontalPodAutoscaler"
    has_generation = False
    table = printed(
        "Name",
        ("Reference", lambda obj: _reference_text(obj["spec"]["scaleTargetRef"])),
        ("Targets", lambda obj: ", ".join(_target_texts(obj)) or NONE),
        ("MinPods", lambda obj: str(obj["spec"].get("minReplicas", UNSET))),
        "MaxPods=spec.maxReplicas",
        "Replicas=status.currentReplicas|0",
        "Age",
    )

    def default(self, obj: Json) -> None:
        spec = obj["spec"]
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            spec["metrics"] = [_cpu_metric(_DEFAULT_UTILIZATION)]

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        obj["status"] = {"desiredReplicas": 0, "currentMetrics": None}

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found: list[FieldError] = []
        low, high = spec["minReplicas"], spec["maxReplicas"]
        if low < 1:
            found.append(invalid("spec.minReplicas", low, "must be greater than or equal to 1"))
        if high < 1:
            found.append(invalid("spec.maxReplicas", high, "must be greater than 0"))
        if high < low:
            found.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
        target = spec["scaleTargetRef"]
        return found + [required(f"spec.scaleTargetRef.{name}") for name in ("kind", "name") if not target.get(name)]


def _reference_text(target: Json) -> str:
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _target_texts(obj: Json) -> list[str]:
    return [_target_text(metric, obj["status"]) for metric in obj["spec"].get("metrics") or ()]


def _target_text(metric: Json, status: Json) -> str:
    source = metric.get("resource") or {}
    target = source.get("target") or {}
    current = UNKNOWN
    for one in status.get("currentMetrics") or ():
        if (one.get("resource") or {}).get("name") == source.get("name"):
            used = (one["resource"].get("current") or {}).get("averageUtilization")
            current = f"{used}%" if used is not None else current
    if "averageUtilization" in target:
        return f"{source.get('name', '')}: {current}/{target['averageUtilization']}%"
    return f"{current}/{target.get('averageValue') or target.get('value', '')}"


class AutoscalerV1Strategy(AutoscalerStrategy):
    """autoscaling/v1: cpu utilisation as one field."""

    info = KindInfo(
        _GROUP, "v1", "HorizontalPodAutoscaler", _PLURAL, "horizontalpodautoscaler", True,
        short_names=("hpa",), categories=("all",), storage=f"{_PLURAL}.{_GROUP}",
    )  # fmt: skip
    go_type = "autoscaling/v1.HorizontalPodAutoscaler"

    def default(self, obj: Json) -> None:
        obj["spec"].setdefault("minReplicas", 1)

    def to_storage(self, obj: Json) -> Json:
        spec = dict(obj["spec"])
        percent = spec.pop("targetCPUUtilizationPercentage", None)
        spec["metrics"] = [_cpu_metric(_DEFAULT_UTILIZATION if percent is None else percent)]
        status = {
            key: value for key, value in obj.get("status", {}).items() if key != "currentCPUUtilizationPercentage"
        }
        return {**obj, "spec": spec, "status": {"desiredReplicas": 0, "currentMetrics": None, **status}}

    def from_storage(self, obj: Json) -> Json:
        spec = dict(obj["spec"])
        for metric in spec.pop("metrics", None) or ():
            resource = metric.get("resource") or {}
            if resource.get("name") == "cpu" and "averageUtilization" in resource.get("target", {}):
                spec["targetCPUUtilizationPercentage"] = resource["target"]["averageUtilization"]
        status = {k: v for k, v in obj["status"].items() if k not in ("currentMetrics", "conditions")}
        return {**obj, "spec": spec, "status": {"currentReplicas": 0, **status}}
