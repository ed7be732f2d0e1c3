"""A pod with claims stands where the API server shows that it has its devices, for itself."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.devices import MARK, PROTECTION, DevicesAudit
from lab.audit.rules import node_facts
from tests.unit.lab.audit.audit_history import History

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
    devices = DevicesAudit()
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


@pytest.mark.parametrize(
    ("group", "user", "wrong"),
    [
        ("g", {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "of-g"}, ""),
        ("h", {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "of-g"}, "not reserved"),
        ("", {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "of-g"}, "not reserved"),
        ("g", {"apiGroup": "x.example.com", "resource": "podgroups", "name": "g", "uid": "of-g"}, "not reserved"),
        ("g", {"resource": "pods", "name": "g", "uid": "of-g"}, "not reserved"),
    ],
)
def test_a_claim_that_is_reserved_for_the_pods_group_is_its_own(group: str, user: Json, wrong: str) -> None:
    one, devices = claim(), DevicesAudit()
    one["status"]["reservedFor"] = [user]
    devices.change("default/c", one)
    pod = {**POD, "spec": {**POD["spec"], "schedulingGroup": {"podGroupName": group} if group else None}}
    found = devices.refusal(pod, NODE)
    assert wrong in found
    assert bool(wrong) == bool(found)


def test_a_device_is_free_when_its_claim_has_it_no_more() -> None:
    devices = DevicesAudit()
    devices.change("default/b", claim(user="v"))
    devices.change("default/b", {"status": {}})
    devices.change("default/c", claim())
    assert devices.refusal(POD, NODE) == ""


def test_a_claim_of_a_template_is_the_one_that_the_pods_status_names() -> None:
    devices = DevicesAudit()
    pod = {**POD, "spec": {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}}
    assert devices.refusal(pod, NODE) == "its claim of a template does not exist"
    devices.change("default/made", claim())
    statuses = [{"name": "g", "resourceClaimName": "made"}]
    assert devices.refusal({**pod, "status": {"resourceClaimStatuses": statuses}}, NODE) == ""
    assert devices.refusal({**pod, "status": {"resourceClaimStatuses": [{"name": "g"}]}}, NODE) == ""


def test_the_claim_for_extended_resources_is_held_to_the_same() -> None:
    pod = {"metadata": POD["metadata"], "status": {"extendedResourceClaimStatus": {"resourceClaimName": "made"}}}
    devices = DevicesAudit()
    assert devices.refusal(pod, NODE) == "its claim default/made does not exist"
    devices.change("default/made", claim())
    assert devices.refusal(pod, NODE) == ""


# --- at the end -------------------------------------------------------------------------------------------------------


def written(user: str = "u", *, finalizer: bool = True, by_us: bool = True, **given: Any) -> Json:
    """A claim as the mesh leaves it."""
    meta: Json = {"annotations": {MARK: "1-2"} if by_us else {}, "finalizers": [PROTECTION] if finalizer else []}
    found = claim(**given)
    found["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": user}] if user else []
    return {"metadata": meta, **found}


def left(uses: bool = False, **claims: Json) -> list[str]:
    devices = DevicesAudit()
    for name, one in claims.items():
        devices.change(f"default/{name}", one)
    return list(devices.leaked(lambda _: uses, lambda _: True))


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (written(), "devices and consumers and a finalizer"),
        (written(user=""), "devices and a finalizer"),
        (written(user="", finalizer=False), "devices"),
        ({"metadata": written()["metadata"]}, "a finalizer"),
    ],
)
def test_what_the_mesh_wrote_must_not_outlive_its_pods(one: Json, what: str) -> None:
    assert left(c=one) == [f"default/c has {what}, and no pod that uses it"]


def test_what_is_used_is_free_or_was_never_ours_is_not_leaked() -> None:
    assert left(uses=True, c=written()) == []
    assert left(c=written(by_us=False)) == []
    assert left(c={"metadata": {"annotations": {MARK: "1-2"}}, "status": {}}) == []
    group = written()
    group["status"]["reservedFor"][0] |= {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
    assert left(c=group) == []


def test_what_a_pod_group_has_is_leaked_once_the_group_and_its_pods_are_gone() -> None:
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "of-g"}
    kept = written()
    kept["status"]["reservedFor"] = [user]
    spec: Json = {"schedulingPolicy": {"basic": {}}}
    history = History().node().pod("p1", schedulingGroup={"podGroupName": "g"})
    history._write("create", "PodGroup", {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "metadata": {"name": "g", "namespace": "default"}, "spec": spec,
    })  # fmt: skip
    history.claim("c", **kept)
    assert history.wait(3).node("n2").report().claims_leaked == 0
    history.bind().gone("PodGroup", "g")
    assert history.wait(3).node("n3").report().claims_leaked == 0
    history.gone("Pod", "p1")
    assert history.wait(3).node("n4").report().claims_leaked == 1


def test_a_claim_that_waits_for_its_driver_is_not_leaked_while_its_pod_waits() -> None:
    waits = written(bindingConditions=["Attached"])
    assert left(c=waits) == []
    devices = DevicesAudit()
    devices.change("default/c", waits)
    assert len(list(devices.leaked(lambda _: False, lambda _: False))) == 1


def test_a_claim_that_is_reserved_for_a_pod_that_nobody_binds_is_leaked() -> None:
    """A binder died after its write, and whoever came after it forgot the pod."""
    history = History().node().pod()
    uid = history.objects["Pod", "p1"]["metadata"]["uid"]
    history.claim("c", **written(uid))
    assert history.report().claims_leaked == 0
    assert history.wait(3).node("n2").report().claims_leaked == 1
    assert history.bind().report().claims_leaked == 0


def test_a_device_of_two_claims_is_named_with_both() -> None:
    devices = DevicesAudit()
    devices.change("default/c", claim())
    devices.change("default/b", claim(user="v"))
    devices.change("default/a", claim("d1"))
    assert list(devices.twice()) == ["x/n1/d0 is given to default/b, default/c"]


def test_a_claim_is_leaked_once_its_pod_is_gone_for_longer_than_freeing_it_may_take() -> None:
    history = History().node().pod()
    uid = history.objects["Pod", "p1"]["metadata"]["uid"]
    history.claim("c", **written(uid)).bind()
    assert history.wait(60).node("n2").report().claims_leaked == 0
    history.gone("Pod", "p1")
    assert history.node("n3").report().claims_leaked == 0
    report = history.wait(3).node("n4").report()
    assert (report.claims_leaked, report.ok) == (1, False)
    assert "default/c has devices" in report.examples[-1]
