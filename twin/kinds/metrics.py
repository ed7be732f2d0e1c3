"""The kinds of the metrics APIs, as discovery and OpenAPI list them; nothing of them is stored.

What they answer is in ``metrics_data``. Source: ``k8s.io/metrics/pkg/apis``, metrics-server. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from twin.registry.strategy import Json, KindInfo, KindStrategy

RESOURCE_GROUP, CUSTOM_GROUP, EXTERNAL_GROUP = "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"
_USAGE: Json = {
    "type": "object",
    "description": "Usage is the measured usage of cpu and memory over the window.",
    "additionalProperties": {"type": "string"},
}
_CONTAINERS: Json = {
    "type": "array",
    "description": "Metrics for all containers, collected within the same time window.",
    "items": {"type": "object", "properties": {"name": {"type": "string"}, "usage": _USAGE}},
}


class MeasuredStrategy(KindStrategy):
    """A kind that is read and never written."""

    def __init__(self, info: KindInfo, schema: Json | None = None) -> None:
        self.info = info
        self.schema = schema


def node_metrics() -> MeasuredStrategy:
    """NodeMetrics of metrics.k8s.io."""
    info = KindInfo(RESOURCE_GROUP, "v1beta1", "NodeMetrics", "nodes", "", False, verbs=("get", "list"))
    return MeasuredStrategy(info, _schema("NodeMetrics is the measured usage of a node.", usage=_USAGE))


def pod_metrics() -> MeasuredStrategy:
    """PodMetrics of metrics.k8s.io."""
    info = KindInfo(RESOURCE_GROUP, "v1beta1", "PodMetrics", "pods", "", True, verbs=("get", "list"))
    return MeasuredStrategy(info, _schema("PodMetrics is the measured usage of a pod.", containers=_CONTAINERS))


def custom_metrics(names: Iterable[str]) -> list[MeasuredStrategy]:
    """One kind per ``namespace/resource/object/metric`` that has values: discovery lists ``resource/metric``."""
    found = {(resource, metric) for _, resource, _, metric in (name.split("/", 3) for name in names)}
    return [
        MeasuredStrategy(
            KindInfo(CUSTOM_GROUP, "v1beta2", "MetricValueList", f"{resource}/{metric}", "", True, verbs=("get",))
        )
        for resource, metric in sorted(found)
    ]


def external_metrics(names: Iterable[str]) -> list[MeasuredStrategy]:
    """One kind per ``namespace/metric`` that has values."""
    return [
        MeasuredStrategy(
            KindInfo(EXTERNAL_GROUP, "v1beta1", "ExternalMetricValueList", metric, "", True, verbs=("get",))
        )
        for metric in sorted({name.partition("/")[2] for name in names})
    ]


def _schema(description: str, **fields: Json) -> Json:
    measured: Json = {
        "timestamp": {"type": "string", "format": "date-time", "description": "The window ended then."},
        "window": {"type": "string", "description": "The time over which the usage is averaged."},
        **fields,
    }
    return {"type": "object", "description": description, "properties": measured}
