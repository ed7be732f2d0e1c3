"""Reads one signal of one service from where a ``ResilientAutoscaler`` says that it is: metrics APIs, or a Prometheus.

The autoscaler and a capture read alike. No read raises for what others do: what could not be read is said in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import quote

from shared.adapters.prometheus import PrometheusClient
from shared.autoscaling.hpa import decode
from shared.autoscaling.hpa.model import CustomSeries, ExternalSeries, HpaMetric, MetricSource, PodUsage
from shared.autoscaling.safety.readings import SignalReading
from shared.errors import ConfigError, KubeError
from shared.kube.label_selectors import query_text
from shared.kube.scaling.scaled_objects import decode_metric_values
from shared.model.controllers.autoscaler import ScalingSignal, ServiceSignalSource, SourceKind

CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
METRICS = "/apis/metrics.k8s.io/v1beta1"
BRIEF = 200
NO_SELECTOR = "the target's pods cannot be told by a selector; without one the whole namespace would count"


class RawReads(Protocol):
    """The API server's paths that are no objects."""

    async def read(
        self, route: str, path: str, *, query: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> bytes:
        """GET; errors as of ``KubeApi``."""
        ...


class MetricReads:
    """``prometheus`` None: no query is answered."""

    def __init__(self, api: RawReads, prometheus: PrometheusClient | None, *, timeout_s: float) -> None:
        self._api, self._prometheus, self._timeout_s = api, prometheus, timeout_s

    async def pod_metrics(self, namespace: str) -> dict[str, PodUsage] | str:
        """What each pod's containers use, by the pod's name; why it could not be read."""
        path = f"{METRICS}/namespaces/{quote(namespace, safe='')}/pods"
        try:
            body = await self._api.read("list pod metrics", path, timeout_s=self._timeout_s)
            return {one.pod: one for one in decode.pod_usages(body)}
        except KubeError as error:
            return f"metrics.k8s.io: {str(error)[:BRIEF]}"

    async def reading(
        self, namespace: str, signal: ScalingSignal, source: ServiceSignalSource, selector: str
    ) -> SignalReading:
        """One signal. ``selector``: of the service's pods, where the source names none."""
        try:
            if source.kind is SourceKind.PROMETHEUS:
                values = await self._by_query(source.query)
            else:
                values = await self._by_api(namespace, source, selector)
        except (KubeError, ConfigError) as error:
            return SignalReading(None, None, str(error)[:BRIEF])
        if not values:
            return SignalReading(None, None, "the answer is empty")
        numbers = [value * source.scale for value, _ in values]
        joined = max(numbers) if signal is ScalingSignal.LATENCY else sum(numbers)
        # one bad part spoils the sum, and must show
        worst = next((one for one in numbers if not one >= 0), None)
        # a selector of the object's own may mean fewer pods than the service has
        pods = len(values) if source.kind is SourceKind.PODS and not source.selector else None
        return SignalReading(joined if worst is None else worst, min(at_s for _, at_s in values), pods=pods)

    async def series(
        self, namespace: str, metric: HpaMetric, selector: str, resource: str
    ) -> tuple[CustomSeries, ...] | tuple[ExternalSeries, ...] | str:
        """What the API answers to the question that the HPA's rule has for a Pods, an Object or an External metric; a
        text: why it does not. ``selector``: of the target's pods; ``resource``: plural, and group, of the object."""
        space, name = quote(namespace, safe=""), quote(metric.name, safe="")
        chosen = query_text(metric.selector) if metric.selector is not None else ""
        query = {"metricLabelSelector": chosen} if chosen else {}
        path = f"{CUSTOM}/namespaces/{space}/{name}"
        if metric.source is MetricSource.EXTERNAL:
            path, query = f"{EXTERNAL}/namespaces/{space}/{name}", {"labelSelector": chosen} if chosen else {}
        elif metric.source is MetricSource.PODS:
            if not selector:
                return NO_SELECTOR
            path, query = f"{CUSTOM}/namespaces/{space}/pods/*/{name}", {**query, "labelSelector": selector}
        elif resource == "namespaces":
            path = f"{CUSTOM}/namespaces/{space}/metrics/{name}"
        elif metric.described is not None:
            there = f"{quote(resource, safe='')}/{quote(metric.described.name, safe='')}"
            path = f"{CUSTOM}/namespaces/{space}/{there}/{name}"
        try:
            body = await self._api.read(f"metric {metric.source}", path, query=query, timeout_s=self._timeout_s)
            return (
                decode.external_series(body) if metric.source is MetricSource.EXTERNAL else decode.custom_series(body)
            )
        except KubeError as error:
            return str(error)[:BRIEF]

    async def _by_query(self, query: str) -> list[tuple[float, float]]:
        if self._prometheus is None:
            raise ConfigError("there is no Prometheus: give --prometheus URL")
        series = await self._prometheus.query(query, timeout_s=self._timeout_s)
        if len(series) > 1:
            raise ConfigError(f"the query has {len(series)} series: sum them in it, so that it has one")
        return [(value, at_s) for one in series for at_s, value in one.samples]

    async def _by_api(self, namespace: str, source: ServiceSignalSource, selector: str) -> list[tuple[float, float]]:
        space, metric = quote(namespace, safe=""), quote(source.metric, safe="")
        query: dict[str, str] = {}
        match source.kind:
            case SourceKind.EXTERNAL:
                path = f"{EXTERNAL}/namespaces/{space}/{metric}"
                query = {"labelSelector": source.selector} if source.selector else {}
            case SourceKind.PODS:
                path = f"{CUSTOM}/namespaces/{space}/pods/*/{metric}"
                query = {"labelSelector": source.selector or selector}
                if not query["labelSelector"]:
                    raise ConfigError(NO_SELECTOR)
            case _:
                resource, name = quote(source.object_resource, safe=""), quote(source.object_name, safe="")
                path = f"{CUSTOM}/namespaces/{space}/{resource}/{name}/{metric}"
        body = await self._api.read(f"metric {source.kind.value}", path, query=query, timeout_s=self._timeout_s)
        return decode_metric_values(body)
