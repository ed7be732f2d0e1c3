"""Reservation objects as reserve pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.kube.reservations import ReservationObject, reserve_pod_from_api
from shared.model.pod import Pod
from shared.model.units.reservation import ReservationOwner, ReservationPhase, reservation_of

CREATED = "2026-11-29T05:00:00Z"
MADE: dict[str, Any] = {"resources": {"cpu": 2, "memory": "4Gi"}, "owners": [{"pod": "web-0"}]}


def reserve(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> Pod:
    meta = {"name": "launch", "namespace": "shop", "uid": "r-1", "resourceVersion": "5", "creationTimestamp": CREATED}
    body = {"metadata": meta, "spec": {**MADE, **(spec or {})}, "status": status}
    return reserve_pod_from_api(msgspec.convert(body, ReservationObject))


def test_a_reservation_is_a_pod_of_its_shape_that_waits() -> None:
    pod = reserve()
    assert (pod.invalid, pod.node_name, pod.finished) == ("", "", False)
    assert reservation_of(pod.name) == "launch"
    assert dict(pod.pod_class.requests) == {"cpu": 2000, "memory": 4 << 30}
    assert pod.reserves is not None
    assert pod.reserves.once
    assert pod.reserves.namespaces == ("shop",)
    assert pod.reserves.expires == pod.reserves.created + 3600


def test_it_is_on_its_node_while_available_and_finished_when_it_is_over() -> None:
    stands = reserve(status={"phase": "Available", "node": "n1", "devices": "1"})
    assert (stands.node_name, stands.devices, stands.finished) == ("n1", (1,), False)
    for phase in ("Succeeded", "Expired", "Failed"):
        assert reserve(status={"phase": phase, "node": "n1"}).finished
    unplaced = reserve(status={"phase": "Available"})
    assert unplaced.reserves is not None
    assert unplaced.reserves.phase is ReservationPhase.PENDING


def test_nodes_are_narrowed_beside_what_the_template_says() -> None:
    template = {
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "nodeSelector": {"disk": "ssd"},
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            "schedulingGates": [{"name": "later"}],
        },
        "metadata": {"labels": {"app": "web", "conclave.io/queue": "team"}},
    }
    spec = {"template": template, "nodes": {"names": ["n1", "n2"], "selector": {"matchLabels": {"zone": "a"}}}}
    body = {"metadata": {"name": "x", "namespace": "shop", "uid": "r"}, "spec": {"owners": MADE["owners"], **spec}}
    pod = reserve_pod_from_api(msgspec.convert(body, ReservationObject))
    assert pod.invalid == ""
    assert pod.pod_class.node_selector == (("disk", "ssd"),)
    (term,) = pod.pod_class.affinity_terms or ()
    assert [one.key for one in (*term.expressions, *term.fields)] == ["zone", "metadata.name"]
    assert (pod.labels, pod.gates, pod.relations) == ({"app": "web"}, (), None)


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "gang"}}, "spec": {"containers": [{"name": "c"}]}},
        {"spec": {"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": "gang"}}},
    ],
)
def test_a_reservation_is_in_no_pod_group_whatever_its_template_says(template: dict[str, Any]) -> None:
    assert reserve({"resources": None, "template": template}).group == ""


def test_owners_are_read() -> None:
    pod = reserve({"owners": [{"controller": {"kind": "Deployment", "name": "web"}, "pod": "web-1"}]})
    assert pod.reserves is not None
    assert pod.reserves.owners == (ReservationOwner("Deployment", "web", None, "web-1"),)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"ttlSeconds": 0}, "spec.ttlSeconds: 0 must be a whole number from 1"),
        ({"ttlSeconds": 60, "expirationTime": CREATED}, "keep one of the two"),
        ({"expirationTime": "soon"}, "spec.expirationTime: 'soon' is no time"),
        ({"owners": []}, "spec.owners: [] names nobody"),
        ({"owners": [{}]}, "spec.owners[0]: {} names nobody"),
        ({"owners": [{"selector": {}}]}, "spec.owners[0].selector: {} selects every pod"),
        (
            {"owners": [{"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}]},
            "spec.owners[0].selector",
        ),
        ({"owners": [{"controller": {"kind": "Job"}}]}, "must have kind and name"),
        ({"resources": {}}, "spec.resources: {} is empty"),
        ({"resources": {"cpu": "much"}}, "cpu"),
        ({"resources": None}, "give one of the two"),
        ({"template": {"spec": {"containers": []}}}, "give one of the two"),
        ({"nodes": {"names": "n1"}}, "spec.nodes.names: 'n1' must be a list"),
        ({"priority": 2**31}, "spec.priority"),
    ],
)
def test_what_cannot_be_used_is_named(spec: dict[str, Any], says: str) -> None:
    pod = reserve(spec)
    assert says in pod.invalid
    assert pod.reserves is not None
    assert not pod.node_name
