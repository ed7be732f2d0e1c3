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
