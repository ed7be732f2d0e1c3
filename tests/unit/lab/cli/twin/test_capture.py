"""What a capture keeps decides where pods may run, and what it cannot bring along it leaves out."""

from __future__ import annotations

import msgspec

from lab.cli.twin.capture import AddressedNode, TimedPod, captured_node, captured_pod
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.features import RESTART_ALL
from tests.builders import make_node, make_pod


def test_a_captured_node_still_declares_its_features() -> None:
    builder = make_node("n")
    builder.json["status"]["declaredFeatures"] = [RESTART_ALL]
    kept = captured_node(msgspec.convert(builder.json, AddressedNode))
    assert node_from_api(kept).features == (RESTART_ALL,)


def test_a_captured_pod_keeps_its_rules_whole_and_no_claim_that_would_be_missing() -> None:
    builder = make_pod("p")
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    builder.json["spec"]["containers"][0]["restartPolicyRules"] = rules
    builder.json["spec"] |= {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}], "schedulingGroup": {}}
    kept = captured_pod(msgspec.convert(builder.json, TimedPod), start_s=0.0, seen_s=1.0).pod
    spec = msgspec.to_builtins(kept)["spec"]
    assert spec["containers"][0]["restartPolicyRules"] == rules
    assert not {"resourceClaims", "schedulingGroup"} & spec.keys()
    assert pod_from_api(kept).pod_class.features == (RESTART_ALL,)
