"""``metrics.k8s.io`` of the cluster that is played, and all three metrics APIs as data that a test sets.

A real cluster has a metrics server that averages over a window; the twin knows the truth and says it at once, cpu and
memory alone, as the real API. Pods use what their profile says (``conclave.io/usage``), without one nothing; where
``pods`` are set, those that are neither set nor have a profile are missing. ``PUT /twin/metrics`` replaces all that is
set::

    {"down": false,                                                   # true: all three answer 503
     "pods": {"shop/front-": {"cpu": "300m", "memory": "64Mi", "age_s": 0}},  # namespace/beginning of the name
     "custom": {"shop/pods/*/http_requests": [{"value": "12500m", "age_s": 0}],
                "shop/services/front/queue": [{"value": "3"}]},
     "external": {"shop/queue_depth": [{"value": "40"}]}}

A metrics API that has nothing to answer is not served, nor listed by discovery: 404, as in a cluster without its
adapter. Sources: metrics.k8s.io v1beta1, custom.metrics.k8s.io v1beta2, external.metrics.k8s.io v1beta1
(``k8s.io/metrics/pkg/apis``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from shared.errors import ObjectError
from shared.model.resources import parse_quantity
from twin.api.requests.paths import ResourcePath
from twin.kinds import metrics
from twin.model.usage import TWIN_NODE_ANNOTATION, USAGE_ANNOTATION, UsageNow, profile_from_json
from twin.registry.list_options import parse_fields, parse_labels, query_bool
from twin.registry.registry import TwinRegistry
from twin.registry.served import ServedKind
from twin.registry.status import ApiError, bad_request, method_not_allowed, not_found, path_not_found, status

Json = dict[str, Any]

GROUPS = (metrics.RESOURCE_GROUP, metrics.CUSTOM_GROUP, metrics.EXTERNAL_GROUP)
_V1BETA1 = "metrics.k8s.io/v1beta1"
_WINDOW = "15s"
"""What a metrics server averages over by default (``--metric-resolution``)."""
_FIELDS = frozenset(("metadata.name", "metadata.namespace"))


class _Pods(msgspec.Struct, forbid_unknown_fields=True):
    cpu: str = "0"
    memory: str = "0"
    age_s: float = 0.0


class _Value(msgspec.Struct, forbid_unknown_fields=True):
    value: str
    age_s: float = 0.0


class _Data(msgspec.Struct, forbid_unknown_fields=True):
    down: bool = False
    pods: dict[str, _Pods] = {}
    custom: dict[str, list[_Value]] = {}
    external: dict[str, list[_Value]] = {}


class MetricsData:
    """What the three APIs answer."""

    def __init__(self, registry: TwinRegistry) -> None:
        self._registry = registry
        self._data = _Data()
        self._speed = 0.0
        self._used: Callable[[], dict[str, UsageNow]] | None = None
        self._listed: list[ServedKind] = []

    def play(self, used: Callable[[], dict[str, UsageNow]], *, speed: float) -> None:
        """Answer for a cluster that is played: ``used`` by each node now; ``speed``: a profile's seconds a second."""
        self._used, self._speed = used, speed
        self._list_kinds()

    def replace(self, body: Any) -> Json:
        """Take other data. Refused: 400 with the field."""
        try:
            data = msgspec.convert(body, _Data)
            for name, used in data.pods.items():
                for part in (used.cpu, used.memory):
                    _quantity(f"pods[{name}]", part)
            for values, form in (
                (data.custom, "namespace/resource/object/metric"), (data.external, "namespace/metric")
            ):  # fmt: skip
                for name, found in values.items():
                    if name.count("/") < form.count("/"):
                        raise ValueError(f"{name}: give {form}")
                    for one in found:
                        _quantity(name, one.value)
        except (msgspec.ValidationError, ValueError) as error:
            raise bad_request(f"the metrics cannot be used: {error}") from None
        self._data = data
        self._list_kinds()
        return self.shown()

    def shown(self) -> Json:
        """The data as it was set."""
        return msgspec.to_builtins(self._data)  # type: ignore[no-any-return]

    def _list_kinds(self) -> None:
        """Let discovery list what is answered."""
        for kind in self._listed:
            self._registry.remove_kind(kind)
        strategies = [*metrics.custom_metrics(self._data.custom), *metrics.external_metrics(self._data.external)]
        if self._used is not None:
            strategies.append(metrics.node_metrics())
        if self._used is not None or self._data.pods:
            strategies.append(metrics.pod_metrics())
        self._listed = [ServedKind(one) for one in strategies]
        for kind in self._listed:
            self._registry.add_kind(kind)

    # --- answers --------------------------------------------------------------------------------------------------

    def serve(self, target: ResourcePath, query: Mapping[str, str]) -> Json:
        """The answer to a GET of one of the three. Refused: 404 where nothing is served, 405, 503 while down."""
        if self._data.down:
            raise ApiError(status(503, "ServiceUnavailable", "the server is currently unable to handle the request"))
        if target.watch or query_bool(query.get("watch")):
            raise method_not_allowed()
        if target.group == metrics.RESOURCE_GROUP:
            return self._measured(target, query)
        data = self._data.custom if target.group == metrics.CUSTOM_GROUP else self._data.external
        parts = (target.namespace, target.plural, target.name, target.subresource)
        kind = "MetricValueList" if target.group == metrics.CUSTOM_GROUP else "ExternalMetricValueList"
        name = "/".join(part for part in parts if part)
        return _list(f"{target.group}/{target.version}", kind, self._values(name, data))

    def _measured(self, target: ResourcePath, query: Mapping[str, str]) -> Json:
        """Of nodes or pods: a list, or one."""
        kind = self._registry.find(target.group, target.version, target.plural)
        if kind is None or target.subresource or (target.in_namespace and not kind.namespaced):
            raise path_not_found()
        items = self._nodes() if target.plural == "nodes" else self._pods(target.namespace)
        if target.name:
            found = next((one for one in items if one["metadata"]["name"] == target.name), None)
            if found is None:
                raise not_found(target.plural, target.group, target.name)
            return {"kind": kind.info.kind, "apiVersion": _V1BETA1, **found}
        labels = parse_labels(query.get("labelSelector", ""))
        fields = parse_fields(query.get("fieldSelector", ""), _FIELDS)
        selected = [
            one
            for one in items
            if (labels is None or labels.matches(one["metadata"].get("labels") or {}))
            and (fields is None or fields.matches({f"metadata.{key}": str(v) for key, v in one["metadata"].items()}))
        ]
        return _list(_V1BETA1, kind.list_kind, selected)

    def _nodes(self) -> Iterable[Json]:
        """Of the nodes that are played."""
        for name, usage in sorted((self._used() if self._used is not None else {}).items()):
            node = self._registry.get("nodes", "", name) or {"metadata": {"name": name}}
            amounts = {"cpu": f"{usage.cpu_millis}m", "memory": str(usage.memory_bytes)}
            yield {**self._head(node), "usage": amounts}

    def _pods(self, namespace: str) -> Iterable[Json]:
        """Of the running pods of a namespace, or of all."""
        for pod in self._registry.list("pods", namespace):
            if (pod.get("status") or {}).get("phase") != "Running":
                continue
            used = self._pod_usage(pod)
            if used is not None:
                usage = {"cpu": used.cpu, "memory": used.memory}
                containers = [{"name": pod["spec"]["containers"][0]["name"], "usage": usage}]
                yield {**self._head(pod, used.age_s), "containers": containers}

    def _head(self, obj: Json, age_s: float = 0.0) -> Json:
        meta = obj["metadata"]
        shown = {key: meta[key] for key in ("name", "namespace", "labels") if meta.get(key)}
        time = self._time(age_s)
        return {"metadata": {**shown, "creationTimestamp": time}, "timestamp": time, "window": _WINDOW}

    def _pod_usage(self, pod: Json) -> _Pods | None:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for beginning, used in self._data.pods.items():
            if name.startswith(beginning):
                return used
        node = self._registry.get("nodes", "", pod["spec"].get("nodeName") or "")
        if self._used is None or node is None or _annotation(node, TWIN_NODE_ANNOTATION) != "true":
            return None
        text = _annotation(pod, USAGE_ANNOTATION)
        if not text:
            return None if self._data.pods else _Pods()
        try:
            profile = profile_from_json(text)
            began = dt.datetime.fromisoformat(pod["status"].get("startTime") or "").timestamp()
        except (ObjectError, ValueError):
            return None
        usage = profile.at((self._registry.clock() - began) * self._speed)
        return _Pods(f"{usage.cpu_millis}m", str(usage.memory_bytes))

    def _values(self, name: str, data: Mapping[str, list[_Value]]) -> list[Json]:
        if name not in data:
            raise path_not_found()
        metric = name.rpartition("/")[2]
        return [
            {"metric": {"name": metric}, "metricName": metric, "value": one.value, "timestamp": self._time(one.age_s)}
            for one in data[name]
        ]

    def _time(self, age_s: float) -> str:
        return self._registry.now_text(self._registry.clock() - age_s)


def _annotation(obj: Json, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def _list(api_version: str, kind: str, items: list[Json]) -> Json:
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "items": items}


def _quantity(field: str, text: str) -> None:
    """``ValueError`` for what is neither a quantity nor something that a broken adapter would say."""
    if text not in ("NaN", ""):
        try:
            parse_quantity(text, milli=True)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None
