"""A pod that asks for what nobody here looks at waits, is told why, and runs nowhere; features of nodes are obeyed."""

from __future__ import annotations

from typing import Any

from services.coordinator.core.instructions import EmitEvent, PatchCondition
from services.coordinator.inspect.explain import explain
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_places

CLAIM: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
SHARE = "gpu-fraction"
"""KAI's annotation for a part of a GPU."""


def asking(name: str, **spec: Any) -> PodBuilder:
    pod = make_pod(name).cpu("1")
    pod.json["spec"] |= spec
    return pod


def cluster() -> Scene:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    return scene


def unsupported(name: str) -> PodBuilder:
    return make_pod(name).cpu("1").set(annotations={SHARE: "0.5"})


def test_a_pod_that_asks_for_what_is_not_supported_stays_pending_and_says_so() -> None:
    scene = cluster()
    scene.add_pod(unsupported("p").pod())
    scene.add_pod(make_pod("plain").cpu("1").pod())
    scene.run(until_s=2)
    scene.add_node(make_node("n1").node())
    scene.run(until_s=400)
    assert [uid for uid, _ in scene.bindings] == ["uid-plain"]
    (patch,) = scene.of(PatchCondition)
    assert (patch.uid, patch.reason) == ("uid-p", "NotSupported")
    assert SHARE in patch.message
    assert "default-scheduler" in patch.message
    assert [e.note for e in scene.of(EmitEvent) if e.reason == "FailedScheduling"] == [patch.message]
    assert not check_places(scene)
    answer = explain(scene.core, scene.pods["uid-p"], {}, scene.now)
    assert answer["state"] == "unsupported"
    assert answer["summary"] == patch.message


def test_it_is_placed_as_soon_as_it_asks_no_more() -> None:
    scene = cluster()
    scene.add_pod(unsupported("p").set(resourceVersion="1").pod())
    scene.run(until_s=2)
    assert not scene.bindings
    scene.add_pod(asking("p").set(resourceVersion="2").pod())
    scene.run(until_s=2)
    assert [uid for uid, _ in scene.bindings] == ["uid-p"]


def test_a_bound_pod_with_claims_is_counted_as_any_other() -> None:
    scene = cluster()
    scene.add_pod(asking("p", **CLAIM).on("n0").pod())
    scene.run(until_s=2)
    assert scene.core.state.cache.accounts["uid-p"].pod_class.requests == (("cpu", 1000),)


def test_a_notice_that_did_not_get_through_is_said_again() -> None:
    scene = cluster()
    scene.lost_patches = 1
    scene.add_pod(unsupported("p").pod())
    scene.run(until_s=30)
    assert len(scene.of(PatchCondition)) == 2


def test_a_pod_goes_to_the_node_that_declares_what_it_needs_and_waits_until_one_does() -> None:
    scene = cluster()
    for number in range(3):
        scene.add_node(make_node(f"full{number}").node())
    pod = make_pod("p").cpu("1")
    pod.json["spec"]["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    scene.add_pod(pod.pod())
    scene.run(until_s=5)
    assert not scene.bindings
    assert scene.of(PatchCondition)[0].message.startswith(
        "0/4 nodes are available: 4 node(s) didn't match Pod's required features."
    )
    declares = make_node("full1")
    declares.json["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    declares.json["metadata"]["resourceVersion"] = "2"
    scene.add_node(declares.node())
    scene.run(until_s=20)
    assert scene.bindings == [("uid-p", "full1")]
