"""What is read of the API's JSON, its defaults, and what is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.autoscaling.hpa import objects as api
from shared.autoscaling.hpa.convert_seen import answers_from_api, pods_from_api
from shared.autoscaling.hpa.convert_spec import spec_from_api
from shared.autoscaling.hpa.model import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    NEVER_S,
    Aim,
    Behavior,
    HpaObjectSpec,
    MetricSource,
    ObjectRef,
)
from shared.autoscaling.hpa.values import duration_s, fraction, milli, seconds
from shared.errors import ObjectError
from shared.kube.objects import KubePod

Json = dict[str, Any]


def hpa(**fields: Any) -> HpaObjectSpec:
    return spec_from_api(msgspec.convert({"spec": {"maxReplicas": 9, **fields}}, api.HorizontalPodAutoscaler))


def external(**fields: Any) -> list[Json]:
    target = {"type": "AverageValue", "averageValue": "10"}
    return [{"type": "External", "external": {"metric": {"name": "queue"}, "target": target, **fields}}]


def test_what_is_left_out_has_the_api_servers_default() -> None:
    bare = hpa()
    assert (bare.minimum, bare.behavior, bare.namespace) == (1, None, "default")
    assert [(one.source, one.name, one.aim, one.amount) for one in bare.metrics] == [
        (MetricSource.RESOURCE, "cpu", Aim.UTILIZATION, 80)
    ]
    partly = hpa(behavior={"scaleDown": {"selectPolicy": "Min", "tolerance": "50m"}}).behavior
    assert partly is not None
    assert partly.up == DEFAULT_UP
    assert (partly.down.policies, partly.down.select, partly.down.window_s) == (DEFAULT_DOWN.policies, "Min", None)
    assert partly.down.tolerance == 0.05
    assert hpa(behavior={}).behavior == Behavior(DEFAULT_UP, DEFAULT_DOWN)


def test_a_metric_is_told_in_status_as_the_object_names_it() -> None:
    [metric] = hpa(
        metrics=[
            {
                "type": "Object",
                "object": {
                    "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"},
                    "metric": {"name": "rps", "selector": {"matchLabels": {"q": "a"}}},
                    "target": {"type": "Value", "value": "1500m"},
                },
            }
        ]
    ).metrics
    assert (metric.described, metric.aim, metric.amount) == (
        ObjectRef("networking.k8s.io", "Ingress", "front"), Aim.VALUE, 1500,
    )  # fmt: skip
    assert metric.shown == {
        "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"},
        "metric": {"name": "rps", "selector": {"matchLabels": {"q": "a"}}},
    }
    assert metric.selector_text == (
        "&LabelSelector{MatchLabels:map[string]string{q: a,},MatchExpressions:[]LabelSelectorRequirement{},}"
    )


POLICY = {"type": "Pods", "value": 1, "periodSeconds": 15}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"minReplicas": 10}, "spec.maxReplicas: 9 is below spec.minReplicas, 10; raise it or lower that"),
        ({"minReplicas": -1}, "spec.minReplicas: -1 is no number of replicas"),
        ({"maxReplicas": 0}, "spec.maxReplicas: 0 is no number of replicas; give 1 or more"),
        ({"metrics": [{"type": "Gpu"}]}, "spec.metrics[0].type: 'Gpu' is no type of metric; give one of Resource"),
        ({"metrics": [{"type": "Pods"}]}, "spec.metrics[0].pods: is missing"),
        (
            {"metrics": [{"type": "Resource", "resource": {"name": "cpu"}}]},
            "spec.metrics[0].resource.target: has neither averageUtilization nor averageValue",
        ),
        (
            {"metrics": external(target={"type": "AverageValue", "averageValue": "0"})},
            "spec.metrics[0].external.target.averageValue: must be greater than 0",
        ),
        (
            {"metrics": external(target={"type": "AverageValue", "averageValue": "ten"})},
            "spec.metrics[0].external.target.averageValue: 'ten' is not a quantity",
        ),
        (
            {"metrics": external(target={"type": "Value", "averageValue": "10"})},
            "spec.metrics[0].external.target.value: is missing for target.type 'Value'",
        ),
        ({"metrics": external(metric={})}, "spec.metrics[0].external.metric.name: is empty"),
        (
            {"metrics": external(metric={"name": "q", "selector": {"matchExpressions": [{"operator": "Gt"}]}})},
            "spec.metrics[0].external.metric.selector.matchExpressions: 'Gt' is no operator",
        ),
        ({"metrics": external(fallback={"replicas": 0})}, "spec.metrics[0].external.fallback.replicas: 0 is too small"),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
            "spec.behavior.scaleUp.stabilizationWindowSeconds: 3601 is out of range",
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{**POLICY, "type": "Nodes"}]}}},
            "spec.behavior.scaleDown.policies[0].type: 'Nodes' is no policy; give Pods or Percent",
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{**POLICY, "periodSeconds": 1801}]}}},
            "spec.behavior.scaleDown.policies[0].periodSeconds: 1801 is out of range",
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{**POLICY, "value": 0}]}}},
            "spec.behavior.scaleDown.policies[0].value: 0 is too small",
        ),
        ({"behavior": {"scaleUp": {"selectPolicy": "Any"}}}, "spec.behavior.scaleUp.selectPolicy: 'Any' is no choice"),
        ({"behavior": {"scaleUp": {"tolerance": "-1"}}}, "spec.behavior.scaleUp.tolerance: '-1' is no share"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_by_its_field(fields: Json, told: str) -> None:
    with pytest.raises(ObjectError) as refused:
        hpa(**fields)
    assert str(refused.value).startswith(told)


def pod(spec: Json, status: Json | None = None) -> Any:
    raw = {"metadata": {"name": "p"}, "spec": spec, "status": status or {"phase": "Running"}}
    [found] = pods_from_api([msgspec.convert(raw, KubePod)], "default", "pods")
    return found


def asks(name: str, cpu: str, **more: Any) -> Json:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def test_containers_and_sidecars_request_and_other_init_containers_do_not() -> None:
    found = pod(
        {
            "containers": [asks("app", "1")],
            "initContainers": [asks("p", "250m", restartPolicy="Always"), asks("i", "9")],
        }
    )
    assert [(one.name, one.requests["cpu"]) for one in found.containers] == [("app", 1000), ("p", 250)]
    assert found.pod_requests is None


def test_a_pods_own_requests_are_what_the_scheduler_counts_overhead_included() -> None:
    found = pod(
        {
            "containers": [asks("app", "1")],
            "resources": {"requests": {"memory": "1Ki"}},
            "overhead": {"cpu": "100m", "memory": "1"},
        }
    )
    assert found.pod_requests == {"cpu": 1100, "memory": 1_025_000}


def test_readiness_and_times_are_read() -> None:
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    found = pod({}, {"phase": "Running", "startTime": "1970-01-01T00:00:30Z", "conditions": [ready]})
    assert (found.ready, found.ready_since_s, found.start_s) == ("False", 60.0, 30.0)
    bare = pod({})
    assert (bare.ready, bare.ready_since_s, bare.start_s, bare.deleting) == ("", NEVER_S, None, False)


@pytest.mark.parametrize(
    ("spec", "status", "told"),
    [
        ({"containers": [asks("c", "x")]}, {}, "pods[0].spec.containers[0].resources.requests[cpu]: 'x' is not"),
        ({"containers": [asks("c", "-1")]}, {}, "pods[0].spec.containers[0].resources.requests[cpu]: '-1' is negative"),
        ({}, {"startTime": "noon"}, "pods[0].status.startTime: 'noon' is no time"),
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_by_its_field(spec: Json, status: Json, told: str) -> None:
    with pytest.raises(ObjectError) as refused:
        pod(spec, status)
    assert str(refused.value).startswith(told)


def test_pods_and_metrics_of_another_namespace_are_left_out() -> None:
    elsewhere = {"name": "p", "namespace": "other"}
    assert pods_from_api([msgspec.convert({"metadata": elsewhere}, KubePod)], "default", "pods") == ()
    raw = {"resource": [{"metadata": elsewhere, "timestamp": "1970-01-01T00:00:00Z"}]}
    assert answers_from_api(msgspec.convert(raw, api.CaseMetrics), "default", "metrics").resource == ()


def test_values_are_read_exactly() -> None:
    assert [milli(text, "f") for text in ("1", "1.5", "250m", "1u", 2, 0.5)] == [1000, 1500, 250, 1, 2000, 500]
    assert [fraction(text, "f") for text in ("0", "50m", "0.1", ".2", 1)] == [0.0, 0.05, 0.1, 0.2, 1.0]
    assert [duration_s(text, "f") for text in ("0", "5m0s", "1h30m", "1.5s", "250ms")] == [0, 300, 5400, 1.5, 0.25]
    assert seconds("1970-01-01T01:00:30+01:00", "f") == 30.0
    for text in ("", "5", "-5s", "5 m", "m"):
        with pytest.raises(ObjectError, match="is no duration"):
            duration_s(text, "f")
