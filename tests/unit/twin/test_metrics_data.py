"""The twin's metrics APIs answer what was set, in the real APIs' forms, and nothing that was not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shared.autoscaling.hpa.decode import pod_usages
from shared.kube.scaling.scaled_objects import decode_metric_values
from twin.api.requests.paths import parse_path
from twin.bootstrap import make_registry
from twin.metrics_data import MetricsData
from twin.model.usage import TWIN_NODE_ANNOTATION, USAGE_ANNOTATION, UsageNow
from twin.registry.discovery import discovery, openapi
from twin.registry.status import ApiError

NOW = 1_800_000_000.0
PLAYED = {TWIN_NODE_ANNOTATION: "true"}
RUNNING = {"phase": "Running", "startTime": "2026-11-20T00:00:00Z"}
PROFILE = '{"u":[[0,300,41943040,0,0]]}'
NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
ALL_PODS = "/apis/metrics.k8s.io/v1beta1/pods"
PODS = "/apis/metrics.k8s.io/v1beta1/namespaces/"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/"


@pytest.fixture
def data() -> MetricsData:
    registry = make_registry(clock=lambda: NOW, rng=random.Random(1))
    for name, zone in (("n", "a"), ("m", "b")):
        node = {"metadata": {"name": name, "labels": {"zone": zone}, "annotations": PLAYED}, "spec": {}}
        registry.create(registry.context("create", "nodes"), "nodes", "", node)
    pod = {
        "metadata": {"name": "front-1", "labels": {"app": "front"}, "annotations": {USAGE_ANNOTATION: PROFILE}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
    }
    registry.create(registry.context("create", "pods", "default"), "pods", "default", pod)
    running = registry.context("update", "pods", "default", "front-1")
    registry.guaranteed_update(
        running, "pods", "default", "front-1", lambda old: {**old, "status": {**old["status"], **RUNNING}}
    )
    return MetricsData(registry)


def encoded(answer: dict[str, Any]) -> bytes:
    import msgspec

    return msgspec.json.encode(answer)


def serve(data: MetricsData, path: str, **query: str) -> dict[str, Any]:
    target = parse_path(path)
    assert target is not None
    return data.serve(target, query)


def code_of(data: MetricsData, path: str, **query: str) -> int:
    with pytest.raises(ApiError) as refused:
        serve(data, path, **query)
    return int(refused.value.code)


def test_what_was_not_set_is_not_served(data: MetricsData):
    assert code_of(data, f"{PODS}default/pods") == 404
    assert code_of(data, f"{CUSTOM}default/services/front/queue") == 404
    assert code_of(data, f"{EXTERNAL}default/depth") == 404


def test_running_pods_use_what_was_set_for_their_names(data: MetricsData):
    data.replace({"pods": {"default/front-": {"cpu": "300m", "memory": "1Mi", "age_s": 20}}})
    (one,) = pod_usages(encoded(serve(data, f"{PODS}default/pods")))
    assert (one.pod, one.at_s) == ("front-1", NOW - 20)
    assert dict(one.containers) == {"c": {"cpu": 300, "memory": 1048576000}}
    assert pod_usages(encoded(serve(data, f"{PODS}other/pods"))) == []


def test_custom_and_external_values_have_their_ages(data: MetricsData):
    data.replace({"custom": {"default/services/front/queue": [{"value": "3", "age_s": 5}, {"value": "4500m"}]}})
    found = decode_metric_values(encoded(serve(data, f"{CUSTOM}default/services/front/queue")))
    assert found == [(3.0, NOW - 5), (4.5, NOW)]
    data.replace({"external": {"default/depth": [{"value": "-7"}]}})
    assert decode_metric_values(encoded(serve(data, f"{EXTERNAL}default/depth"))) == [(-7.0, NOW)]


def test_down_is_503_and_bad_data_is_refused_and_changes_nothing(data: MetricsData):
    data.replace({"down": True})
    assert code_of(data, f"{EXTERNAL}default/depth") == 503
    for bad in ({"pods": {"x": {"cpu": "much"}}}, {"nonesuch": 1}, {"external": {"x": [{"value": 3}]}}, []):
        with pytest.raises(ApiError, match="metrics cannot be used"):
            data.replace(bad)
    assert data.shown()["down"] is True


def registry_of(data: MetricsData) -> Any:
    return data._registry


def listed(data: MetricsData) -> set[str]:
    """Every resource of the metrics APIs that discovery lists, aggregated and plain alike."""
    registry = registry_of(data)
    found = {
        f"{one['resource']}.{item['metadata']['name']}"
        for item in discovery.aggregated(registry, core=False, version="v2")["items"]
        for version in item["versions"]
        for one in version["resources"]
        if "metrics" in item["metadata"]["name"]
    }
    plain = {
        f"{one['name']}.{group['name']}"
        for group in discovery.api_group_list(registry)["groups"]
        if "metrics" in group["name"]
        for version in group["versions"]
        for one in (discovery.resource_list(registry, group["name"], version["version"]) or {})["resources"]
    }
    assert found == plain
    return found


def test_discovery_lists_what_the_metrics_apis_answer_and_no_more(data: MetricsData):
    assert listed(data) == set()
    data.replace({"custom": {"default/services/front/queue": []}, "external": {"default/depth": []}})
    assert listed(data) == {"services/queue.custom.metrics.k8s.io", "depth.external.metrics.k8s.io"}
    data.play(dict, speed=1.0)
    data.replace({})
    assert listed(data) == {"nodes.metrics.k8s.io", "pods.metrics.k8s.io"}
    document = openapi.document(registry_of(data), "/apis/metrics.k8s.io/v1beta1")
    assert document is not None
    assert "io.k8s.metrics.v1beta1.NodeMetrics" in document["components"]["schemas"]


def test_nodes_and_pods_of_a_played_cluster_are_listed_and_read_one_by_one(data: MetricsData):
    data.play(lambda: {"n": UsageNow(300, 41943040), "m": UsageNow()}, speed=1.0)
    assert [one["metadata"]["name"] for one in serve(data, NODES)["items"]] == ["m", "n"]
    (chosen,) = serve(data, NODES, labelSelector="zone=a")["items"]
    assert chosen["usage"] == {"cpu": "300m", "memory": "41943040"}
    assert serve(data, f"{NODES}/n")["kind"] == "NodeMetrics"
    assert code_of(data, f"{NODES}/o") == 404
    for path in (ALL_PODS, f"{PODS}default/pods"):
        (pod,) = serve(data, path, labelSelector="app=front")["items"]
        assert pod["containers"] == [{"name": "c", "usage": {"cpu": "300m", "memory": "41943040"}}]
        assert serve(data, path, labelSelector="app=back")["items"] == []
        assert serve(data, path, fieldSelector="metadata.name=front-1")["items"] == [pod]
    assert serve(data, f"{PODS}default/pods/front-1")["kind"] == "PodMetrics"
    assert code_of(data, f"{PODS}default/nodes") == 404
    assert code_of(data, NODES, watch="true") == 405


def test_a_metric_of_another_form_is_refused_by_its_name(data: MetricsData):
    for bad in ({"custom": {"queue": []}}, {"external": {"depth": []}}):
        with pytest.raises(ApiError, match="give namespace/"):
            data.replace(bad)


def test_a_pod_without_a_profile_uses_nothing_and_is_missing_where_others_were_set(data: MetricsData):
    data.play(lambda: {"n": UsageNow()}, speed=1.0)
    registry = registry_of(data)
    ctx = registry.context("update", "pods", "default", "front-1")
    registry.guaranteed_update(
        ctx, "pods", "default", "front-1", lambda old: {**old, "metadata": {**old["metadata"], "annotations": {}}}
    )
    (pod,) = serve(data, ALL_PODS)["items"]
    assert pod["containers"][0]["usage"] == {"cpu": "0", "memory": "0"}
    data.replace({"pods": {"default/back-": {"cpu": "1"}}})
    assert serve(data, ALL_PODS)["items"] == []
