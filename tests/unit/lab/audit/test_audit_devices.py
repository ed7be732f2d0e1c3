"""A pod with claims stands where the API server shows that it has its devices, for itself."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.devices import Devices
from lab.audit.rules import node_facts

Json = dict[str, Any]
NODE = node_facts({"metadata": {"name": "n1"}})
POD: Json = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]},
}


def claim(device: str = "d0", user: str = "u", node: str = "n1", **result: Any) -> Json:
    names = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    given = {"driver": "x", "pool": node, "device": device, **result}
    allocation = {"devices": {"results": [given]}, "nodeSelector": {"nodeSelectorTerms": [names]}}
    return {"status": {"allocation": allocation, "reservedFor": [{"uid": user}]}}


def told(**claims: Json) -> str:
    devices = Devices()
    for name, one in claims.items():
        devices.change(f"default/{name}", one)
    return devices.refusal(POD, NODE)


def test_a_pod_that_has_what_it_claims_may_stand_there() -> None:
    assert told(c=claim()) == ""


@pytest.mark.parametrize(
    ("claims", "wrong"),
    [
        ({}, "its claim default/c does not exist"),
        ({"c": {}}, "its claim default/c has no devices"),
        ({"c": claim(user="other")}, "its claim default/c is not reserved for it"),
        ({"c": claim(node="n2")}, "the node does not reach the devices of its claim default/c"),
        ({"c": claim(), "b": claim(user="v")}, "device x/n1/d0 of its claim default/c is that of default/b too"),
    ],
)
def test_what_is_wrong_is_named(claims: dict[str, Json], wrong: str) -> None:
    assert told(**claims) == wrong


def test_devices_that_are_shared_or_looked_at_may_be_in_two_claims() -> None:
    assert told(c=claim(shareID="1"), b=claim(shareID="2")) == ""
    assert told(c=claim(), b=claim(adminAccess=True)) == ""


def test_a_device_is_free_when_its_claim_has_it_no_more() -> None:
    devices = Devices()
    devices.change("default/b", claim(user="v"))
    devices.change("default/b", {"status": {}})
    devices.change("default/c", claim())
    assert devices.refusal(POD, NODE) == ""


def test_a_claim_of_a_template_is_the_one_that_the_pods_status_names() -> None:
    devices = Devices()
    pod = {**POD, "spec": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}}
    assert devices.refusal(pod, NODE) == "its claim of a template does not exist"
    devices.change("default/made", claim())
    statuses = [{"name": "g", "resourceClaimName": "made"}]
    assert devices.refusal({**pod, "status": {"resourceClaimStatuses": statuses}}, NODE) == ""
    assert devices.refusal({**pod, "status": {"resourceClaimStatuses": [{"name": "g"}]}}, NODE) == ""


def test_the_claim_for_extended_resources_is_held_to_the_same() -> None:
    pod = {"metadata": POD["metadata"], "status": {"extendedResourceClaimStatus": {"resourceClaimName": "made"}}}
    devices = Devices()
    assert devices.refusal(pod, NODE) == "its claim default/made does not exist"
    devices.change("default/made", claim())
    assert devices.refusal(pod, NODE) == ""
