"""LatencyTarget objects and the pods' annotation: read, or refused by the name of the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.errors import ObjectError
from shared.kube.nodes.latency_targets import LatencyTarget, LatencyTargetObject, latency_target_from_api
from shared.kube.objects import KubePod
from shared.kube.pods.convert import pod_from_api


def target(**spec: Any) -> LatencyTarget:
    body = msgspec.json.encode({"metadata": {"name": "shop"}, "spec": spec})
    return latency_target_from_api(msgspec.json.decode(body, type=LatencyTargetObject))


def test_a_host_a_service_and_a_region_are_read() -> None:
    assert target(host="shop.example", port=443) == LatencyTarget("shop", "shop.example", 443)
    assert target(service={"namespace": "web", "name": "front", "port": 80}, everySeconds=5) == LatencyTarget(
        "shop", "front.web.svc", 80, 5.0
    )
    assert target(region="eu-south") == LatencyTarget("shop", region="eu-south")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec"),
        ({"host": "a", "region": "b"}, "spec"),
        ({"host": "a"}, "spec.port"),
        ({"host": "a", "port": 0}, "spec.port"),
        ({"host": "a", "port": "443"}, "spec.port"),
        ({"host": "a b", "port": 1}, "spec.host"),
        ({"host": 7, "port": 1}, "spec.host"),
        ({"host": "a" * 253 + ".", "port": 1}, "spec.host"),
        ({"region": ""}, "spec.region"),
        ({"service": {"name": "x", "port": 1}}, "spec.service"),
        ({"service": "x"}, "spec.service"),
        ({"service": {"namespace": "w", "name": "x", "port": True}}, "spec.service.port"),
        ({"region": "r", "everySeconds": 0.1}, "spec.everySeconds"),
        ({"region": "r", "everySeconds": "often"}, "spec.everySeconds"),
    ],
)
def test_what_cannot_be_used_is_refused_by_the_name_of_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ObjectError) as refused:
        target(**spec)
    assert str(refused.value).startswith(f"{field}:")


def pod(annotations: dict[str, str]) -> Any:
    body = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations},
        "spec": {"containers": []},
    }
    return pod_from_api(msgspec.json.decode(msgspec.json.encode(body), type=KubePod))


def test_a_pod_names_its_target() -> None:
    assert pod({"conclave.io/latency-target": "shop"}).pod_class.latency_target == "shop"
    assert pod({}).pod_class.latency_target == ""


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a" * 254])
def test_a_name_that_no_target_can_have_makes_the_pod_invalid(name: str) -> None:
    assert "conclave.io/latency-target" in pod({"conclave.io/latency-target": name}).invalid
