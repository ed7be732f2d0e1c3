"""``metrics.k8s.io`` of pods, ``custom.metrics.k8s.io`` and ``external.metrics.k8s.io`` as data that a test sets.

``PUT /twin/metrics`` replaces all of it::

    {"down": false,                                                   # true: all three answer 503
     "pods": {"shop/front-": {"cpu": "300m", "memory": "64Mi", "age_s": 0}},  # namespace/beginning of the name
     "custom": {"shop/pods/*/http_requests": [{"value": "12500m", "age_s": 0}],
                "shop/services/front/queue": [{"value": "3"}]},
     "external": {"shop/queue_depth": [{"value": "40"}]}}

Pods that nothing was set for use what their profile says (``conclave.io/usage``), where the twin plays them. A metrics
API that nothing was set for is not served: 404, as in a cluster without its adapter. Sources: metrics.k8s.io v1beta1,
custom.metrics.k8s.io v1beta2, external.metrics.k8s.io v1beta1 (``k8s.io/metrics/pkg/apis``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import msgspec

from services.twin.registry.registry import TwinRegistry
from services.twin.registry.status import ApiError, bad_request, path_not_found, status
from shared.errors import ObjectError
from shared.model.resources import parse_quantity
from shared.twin.usage import USAGE_ANNOTATION, profile_from_json

Json = dict[str, Any]

PODS, CUSTOM = "/apis/metrics.k8s.io/v1beta1/namespaces/", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/"
PREFIXES = (PODS, CUSTOM, EXTERNAL)


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
    """What the three APIs answer. ``speed``: seconds of a pod's profile per second; None: no pods are played."""

    def __init__(self, registry: TwinRegistry, *, speed: float | None = None) -> None:
        self._registry = registry
        self.speed = speed
        self._data = _Data()

    def replace(self, body: Any) -> Json:
        """Take other data. Refused: 400 with the field."""
        try:
            data = msgspec.convert(body, _Data)
            for name, used in data.pods.items():
                for part in (used.cpu, used.memory):
                    _quantity(f"pods[{name}]", part)
            for values in (data.custom, data.external):
                for name, found in values.items():
                    for one in found:
                        _quantity(name, one.value)
        except (msgspec.ValidationError, ValueError) as error:
            raise bad_request(f"the metrics cannot be used: {error}") from None
        self._data = data
        return self.shown()

    def shown(self) -> Json:
        """The data as it was set."""
        return msgspec.to_builtins(self._data)  # type: ignore[no-any-return]

    def serve(self, path: str) -> Json:
        """The answer to a GET of one of the three. Refused: 404 where nothing is served, 503 while down."""
        if self._data.down:
            raise ApiError(status(503, "ServiceUnavailable", "the server is currently unable to handle the request"))
        if path.startswith(PODS):
            namespace, _, plural = path.removeprefix(PODS).partition("/")
            if plural != "pods" or (self.speed is None and not self._data.pods):
                raise path_not_found()
            return _list("metrics.k8s.io/v1beta1", "PodMetricsList", self._pods(namespace))
        if path.startswith(CUSTOM):
            name = path.removeprefix(CUSTOM)
            return _list("custom.metrics.k8s.io/v1beta2", "MetricValueList", self._values(name, self._data.custom))
        name = path.removeprefix(EXTERNAL)
        return _list(
            "external.metrics.k8s.io/v1beta1", "ExternalMetricValueList", self._values(name, self._data.external)
        )

    def _pods(self, namespace: str) -> list[Json]:
        found = []
        for pod in self._registry.list("pods", namespace):
            if (pod.get("status") or {}).get("phase") != "Running":
                continue
            used = self._used(namespace, pod)
            if used is None:
                continue
            usage = {"cpu": used.cpu, "memory": used.memory}
            name = pod["metadata"]["name"]
            found.append(
                {
                    "metadata": {"name": name, "namespace": namespace},
                    "timestamp": self._time(used.age_s), "window": "15s",
                    "containers": [{"name": pod["spec"]["containers"][0]["name"], "usage": usage}],
                }
            )  # fmt: skip
        return found

    def _used(self, namespace: str, pod: Json) -> _Pods | None:
        name = f"{namespace}/{pod['metadata']['name']}"
        for beginning, used in self._data.pods.items():
            if name.startswith(beginning):
                return used
        text = (pod["metadata"].get("annotations") or {}).get(USAGE_ANNOTATION)
        if self.speed is None or not text:
            return None
        try:
            profile = profile_from_json(text)
            began = dt.datetime.fromisoformat(pod["status"].get("startTime") or "").timestamp()
        except (ObjectError, ValueError):
            return None
        usage = profile.at((self._registry.clock() - began) * self.speed)
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


def _list(api_version: str, kind: str, items: list[Json]) -> Json:
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, "items": items}


def _quantity(field: str, text: str) -> None:
    """``ValueError`` for what is neither a quantity nor something that a broken adapter would say."""
    if text not in ("NaN", ""):
        try:
            parse_quantity(text, milli=True)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None
