"""Readings by what a ``ResilientAutoscaler`` says: joined over pods; what could not be read is said in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping

from shared.errors import KubeRejected
from shared.model.controllers.autoscaler import ScalingSignal, ServiceSignalSource, SourceKind
from shared.runtime.kube.metric_reads import CUSTOM, METRICS, MetricReads

AT = "2026-01-01T00:00:00Z"


class Paths:
    """An API server that knows these paths; ``queries`` are those that came."""

    def __init__(self, bodies: Mapping[str, object]) -> None:
        self._bodies = bodies
        self.queries: list[Mapping[str, str]] = []

    async def read(
        self, route: str, path: str, *, query: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> bytes:
        self.queries.append(query or {})
        if path not in self._bodies:
            raise KubeRejected(f"{route} is not served", status=404)
        return json.dumps(self._bodies[path]).encode()


def values(*found: str) -> dict[str, object]:
    return {"items": [{"timestamp": AT, "value": value} for value in found]}


async def test_pods_are_summed_and_the_slowest_latency_counts():
    api = Paths({f"{CUSTOM}/namespaces/shop/pods/*/requests": values("10", "20500m")})
    reads = MetricReads(api, None, timeout_s=1.0)
    source = ServiceSignalSource(kind=SourceKind.PODS, metric="requests", scale=2.0)
    found = await reads.reading("shop", ScalingSignal.ARRIVALS, source, "app=shop")
    assert (found.value, found.pods) == (61.0, 2)
    assert api.queries == [{"labelSelector": "app=shop"}]
    assert (await reads.reading("shop", ScalingSignal.LATENCY, source, "app=shop")).value == 41.0


async def test_one_bad_part_spoils_the_sum_and_shows():
    api = Paths({f"{CUSTOM}/namespaces/shop/pods/*/requests": values("10", "-3")})
    source = ServiceSignalSource(kind=SourceKind.PODS, metric="requests")
    assert (
        await MetricReads(api, None, timeout_s=1.0).reading("shop", ScalingSignal.ARRIVALS, source, "app=shop")
    ).value == -3.0


async def test_what_cannot_be_read_is_said_in_its_place():
    reads = MetricReads(Paths({}), None, timeout_s=1.0)
    query = ServiceSignalSource(kind=SourceKind.PROMETHEUS, query="up")
    found = await reads.reading("shop", ScalingSignal.ARRIVALS, query, "")
    assert (found.value, found.problem) == (None, "there is no Prometheus: give --prometheus URL")
    assert (
        "not served"
        in (
            await reads.reading(
                "shop", ScalingSignal.QUEUE, ServiceSignalSource(kind=SourceKind.PODS, metric="q"), "app=shop"
            )
        ).problem
    )
    said = await reads.pod_metrics("shop")
    assert isinstance(said, str)
    assert said.startswith("metrics.k8s.io: ")


async def test_the_use_of_pods_comes_by_name():
    item = {"metadata": {"name": "a"}, "timestamp": AT, "containers": [{"name": "m", "usage": {"cpu": "250m"}}]}
    found = await MetricReads(
        Paths({f"{METRICS}/namespaces/shop/pods": {"items": [item]}}), None, timeout_s=1.0
    ).pod_metrics("shop")
    assert isinstance(found, dict)
    assert found["a"].containers == (("m", {"cpu": 250}),)


async def test_without_a_selector_a_pods_metric_is_refused_and_not_summed_over_the_namespace():
    api = Paths({f"{CUSTOM}/namespaces/shop/pods/*/requests": values("10", "20")})
    source = ServiceSignalSource(kind=SourceKind.PODS, metric="requests")
    found = await MetricReads(api, None, timeout_s=1.0).reading("shop", ScalingSignal.ARRIVALS, source, "")
    assert found.value is None
    assert "whole namespace" in found.problem
    assert api.queries == []
