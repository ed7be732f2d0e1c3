"""A pod is bound once, under its preconditions, and only what changes is copied."""

from __future__ import annotations

from typing import Any

import pytest

from twin.kinds.pod import binding as pod_binding
from twin.registry.status import ApiError

Json = dict[str, Any]


def binding(node: str = "n1", **meta: Any) -> Json:
    return {"metadata": {"name": "a", **meta}, "target": {"kind": "Node", "name": node}}


def test_a_binding_assigns_and_marks_as_scheduled(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    cluster.change_status(
        "pods",
        "a",
        lambda pod: pod["status"].update(
            nominatedNodeName="n9",
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}],
        ),
    )
    body = binding(annotations={"gpu": "0"}, labels={"l": "1"})
    assert cluster.post("pods", "a", "binding", body)["status"] == "Success"
    pod = cluster.get("pods", "a")
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"] == {"gpu": "0"}
    assert pod["metadata"]["labels"] == {"l": "1"}
    assert pod["metadata"]["generation"] == 1
    assert pod["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }


def test_the_second_binding_is_a_conflict(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    cluster.post("pods", "a", "binding", binding("n1"))
    with pytest.raises(ApiError, match='pod a is already assigned to node "n1"') as caught:
        cluster.post("pods", "a", "binding", binding("n2"))
    assert (caught.value.code, caught.value.body["details"]["kind"]) == (409, "pods/binding")
    assert cluster.get("pods", "a")["spec"]["nodeName"] == "n1"


def test_without_the_check_the_second_binding_would_win(
    cluster: Any, make_pod: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: the check inside the atomic update is what keeps a pod from being bound twice."""
    monkeypatch.setattr(pod_binding, "_check_bindable", lambda old, name: None)
    cluster.create("pods", make_pod())
    cluster.post("pods", "a", "binding", binding("n1"))
    cluster.post("pods", "a", "binding", binding("n2"))
    assert cluster.get("pods", "a")["spec"]["nodeName"] == "n2"


@pytest.mark.parametrize("meta", [{"uid": "00000000-0000-0000-0000-000000000001"}, {"resourceVersion": "1"}], ids=str)
def test_a_failed_precondition_is_a_conflict(cluster: Any, make_pod: Any, meta: Json) -> None:
    cluster.create("pods", make_pod())
    with pytest.raises(ApiError, match="Precondition failed") as caught:
        cluster.post("pods", "a", "binding", binding(**meta))
    assert (caught.value.code, caught.value.body["details"]["kind"]) == (409, "pods")
    assert "nodeName" not in cluster.get("pods", "a")["spec"]


def test_met_preconditions_bind(cluster: Any, make_pod: Any) -> None:
    meta = cluster.create("pods", make_pod())["metadata"]
    cluster.post("pods", "a", "binding", binding(uid=meta["uid"], resourceVersion=meta["resourceVersion"]))
    assert cluster.get("pods", "a")["spec"]["nodeName"] == "n1"


def test_gated_and_terminating_pods_are_not_bound(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod("a", schedulingGates=[{"name": "x"}]))
    with pytest.raises(ApiError, match=r"non-empty \.spec\.schedulingGates"):
        cluster.post("pods", "a", "binding", binding())
    cluster.create("pods", make_pod("b", meta={"finalizers": ["example.com/x"]}))
    cluster.delete("pods", "b")
    with pytest.raises(ApiError, match="pod b is being deleted"):
        cluster.post("pods", "b", "binding", {**binding(), "metadata": {"name": "b"}})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"metadata": {"name": "a"}, "target": {}}, 500),
        ({"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "n"}}, 500),
        ({"metadata": {"name": "other"}, "target": {"name": "n"}}, 400),
        ({"metadata": {"name": "a", "namespace": "default"}, "target": {"name": "n"}}, 400),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, 400),
        ({"target": {"name": "n"}}, 400),
    ],
)
def test_bodies_that_are_no_binding_are_refused(cluster: Any, make_pod: Any, body: Json, code: int) -> None:
    cluster.create("pods", make_pod())
    with pytest.raises(ApiError) as caught:
        cluster.post("pods", "a", "binding", body)
    assert caught.value.code == code


def test_the_old_path_names_the_pod_in_the_body(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    kind = cluster.registry.find("", "v1", "bindings")
    ctx = cluster.registry.context("create", kind, "ns")
    kind.strategy.collection_create(ctx, cluster.registry, "", binding())
    assert cluster.get("pods", "a")["spec"]["nodeName"] == "n1"


def test_a_dry_run_binds_nothing(cluster: Any, make_pod: Any) -> None:
    cluster.create("pods", make_pod())
    cluster.post("pods", "a", "binding", binding(), dry_run=True)
    assert "nodeName" not in cluster.get("pods", "a")["spec"]


def test_what_does_not_change_is_shared_not_copied(cluster: Any, make_pod: Any) -> None:
    old = cluster.create("pods", make_pod(meta={"labels": {"a": "b"}}))
    new = pod_binding.bound(old, "n1", {}, "2026-01-01T00:00:00Z")
    assert new["metadata"] is old["metadata"]
    assert new["spec"]["containers"] is old["spec"]["containers"]
    assert new["spec"]["tolerations"] is old["spec"]["tolerations"]
    assert "nodeName" not in old["spec"]
    assert "conditions" not in old["status"]


REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


def test_a_binding_tells_the_pod_where_its_node_is(cluster: Any, make_pod: Any) -> None:
    labels = {REGION: "r", ZONE: "z", "kubernetes.io/hostname": "n1"}
    cluster.create("nodes", {"metadata": {"name": "n1", "labels": labels}})
    pod = make_pod()
    pod["metadata"]["labels"] = {"app": "web", ZONE: "old"}
    cluster.create("pods", pod)
    cluster.post("pods", "a", "binding", binding(labels={REGION: "claimed"}))
    assert cluster.get("pods", "a")["metadata"]["labels"] == {"app": "web", REGION: "r", ZONE: "z"}


def test_a_binding_of_the_old_path_or_without_a_target_kind_tells_nothing(cluster: Any, make_pod: Any) -> None:
    cluster.create("nodes", {"metadata": {"name": "n1", "labels": {ZONE: "z"}}})
    cluster.create("pods", make_pod())
    cluster.post("pods", "a", "binding", {**binding(), "target": {"name": "n1"}})
    assert "labels" not in cluster.get("pods", "a")["metadata"]


def test_a_pod_that_is_created_on_a_node_is_told_where_that_is(cluster: Any, make_pod: Any) -> None:
    cluster.create("nodes", {"metadata": {"name": "n1", "labels": {ZONE: "z"}}})
    assert cluster.create("pods", make_pod(nodeName="n1"))["metadata"]["labels"] == {ZONE: "z"}
