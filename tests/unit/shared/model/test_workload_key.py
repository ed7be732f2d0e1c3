"""What a pod is a copy of: the owner, else a label, else the images."""

from __future__ import annotations

from shared.model.workload_key import MAX_LENGTH, workload_key


def test_the_owner_comes_first_then_labels_then_images() -> None:
    owner = ("apps/v1", "ReplicaSet", "web-7d9")
    labels = {"app": "web", "tier": "front"}
    assert workload_key("shop", owner=owner, labels=labels, images=["nginx:1"]) == "shop/ReplicaSet:web-7d9"
    assert workload_key("shop", labels=labels, images=["nginx:1"]) == "shop/app:web"
    assert workload_key("shop", labels={"tier": "front"}, images=["nginx:1", "side:2"]) == "shop/images:nginx:1,side:2"
    assert workload_key("shop", labels={}, images=[]) == ""


def test_namespaces_are_kept_apart_and_names_stay_short() -> None:
    assert workload_key("a", labels={"app": "web"}, images=[]) != workload_key("b", labels={"app": "web"}, images=[])
    assert len(workload_key("a", labels={"app": "w" * 500}, images=[])) == MAX_LENGTH


def test_what_a_deployment_or_a_cron_job_makes_anew_is_the_same_workload() -> None:
    def key(kind: str, name: str, template_hash: str = "") -> str:
        labels = {"pod-template-hash": template_hash} if template_hash else {}
        return workload_key("shop", owner=("", kind, name), labels=labels, images=())

    assert key("ReplicaSet", "web-7d9f", "7d9f") == key("ReplicaSet", "web-55bc", "55bc") == "shop/ReplicaSet:web"
    assert key("ReplicaSet", "web-7d9f") == "shop/ReplicaSet:web-7d9f"  # nobody says what its last part is
    assert key("Job", "report-29384710") == key("Job", "report-29384770") == "shop/Job:report"
    assert key("Job", "report-2026") == "shop/Job:report-2026"
