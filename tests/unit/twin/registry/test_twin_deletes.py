"""Delete: grace, finalizers, preconditions, propagation, and what watchers see of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.registry import deleting
from twin.registry.status import ApiError
from twin.registry.watching import Selection, Watcher


def bound(scene: Scene, name: str, **metadata: Any) -> None:
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 30, "containers": [{"name": "c", "image": "x"}]}
    scene.create("pods", name, metadata=metadata, spec=spec)


def follow(scene: Scene, resource: str) -> Watcher:
    kind = scene.registry.kind(resource)
    watcher = Watcher(Selection(), lambda change, type_: change.frame(kind.head, type_), lambda: None)
    scene.registry.store.shelf(resource).receivers.append(watcher)
    return watcher


def types(watcher: Watcher) -> list[str]:
    return [json.loads(line)["type"] for line in watcher.take().splitlines()]


def test_unassigned_pod_goes_at_once_and_is_shown_terminating_first() -> None:
    scene = Scene()
    scene.pod("p")
    seen = follow(scene, "pods")
    assert scene.delete("pods", "p").gone
    assert types(seen) == ["MODIFIED", "DELETED"]
    assert not scene.exists("pods", "p")


def test_bound_pod_stays_for_its_grace_period() -> None:
    scene = Scene()
    bound(scene, "p")
    deleted = scene.delete("pods", "p")
    assert not deleted.gone
    meta = deleted.stored.obj["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30
    assert meta["generation"] == 2


def test_second_delete_can_shorten_the_grace_and_not_lengthen_it() -> None:
    scene = Scene()
    bound(scene, "p")
    first = scene.delete("pods", "p").stored.obj["metadata"]
    scene.now_s += 3
    assert scene.delete("pods", "p", gracePeriodSeconds=60).stored.obj["metadata"] == first
    shorter = scene.delete("pods", "p", gracePeriodSeconds=5).stored.obj["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < first["deletionTimestamp"]
    assert scene.delete("pods", "p", gracePeriodSeconds=0).gone


def test_finalizer_holds_an_object_until_it_is_taken_off() -> None:
    scene = Scene()
    scene.config("c", finalizers=["example.com/hold"])
    assert not scene.delete("configmaps", "c").gone
    assert scene.exists("configmaps", "c")
    seen = follow(scene, "configmaps")
    answer = scene.change("configmaps", "c", finalizers=[])
    assert "finalizers" not in answer.obj["metadata"]
    assert types(seen) == ["DELETED"]
    assert not scene.exists("configmaps", "c")


def test_without_the_finalizer_rule_a_held_object_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: deleting past finalizers is what the rule above prevents."""
    monkeypatch.setattr(deleting, "_propagation_finalizers", lambda _kind, _obj, _options: [])
    scene = Scene()
    scene.config("c", finalizers=["example.com/hold"])
    assert scene.delete("configmaps", "c").gone


def test_no_finalizer_can_be_added_to_an_ending_object() -> None:
    scene = Scene()
    scene.config("c", finalizers=["example.com/hold"])
    scene.delete("configmaps", "c")
    with pytest.raises(ApiError) as refused:
        scene.change("configmaps", "c", finalizers=["example.com/hold", "example.com/more"])
    assert refused.value.code == 422


@pytest.mark.parametrize("conditions", [{"uid": "other"}, {"resourceVersion": "1"}])
def test_precondition_of_another_life_or_state_is_a_conflict(conditions: dict[str, str]) -> None:
    scene = Scene()
    scene.config("c")
    with pytest.raises(ApiError) as refused:
        scene.delete("configmaps", "c", preconditions=conditions)
    assert refused.value.code == 409
    assert scene.exists("configmaps", "c")


@pytest.mark.parametrize(
    ("policy", "finalizers"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", None)]
)
def test_propagation_policy_becomes_a_finalizer(policy: str, finalizers: list[str] | None) -> None:
    scene = Scene()
    scene.config("c")
    deleted = scene.delete("configmaps", "c", propagationPolicy=policy)
    assert deleted.gone is (finalizers is None)
    assert deleted.stored.obj["metadata"].get("finalizers") == finalizers


def test_dry_run_deletes_nothing() -> None:
    scene = Scene()
    scene.pod("p")
    assert scene.delete("pods", "p", dryRun=["All"]).gone
    assert scene.exists("pods", "p")


@pytest.mark.parametrize(
    "options",
    [
        {"propagationPolicy": "Sideways"},
        {"dryRun": ["Some"]},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
    ],
)
def test_bad_options_are_unprocessable(options: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        deleting.check_options(options)
    assert refused.value.code == 422


def test_options_of_the_body_come_before_those_of_the_query() -> None:
    assert deleting.delete_options({"gracePeriodSeconds": "7"}, {"gracePeriodSeconds": 9})["gracePeriodSeconds"] == 9
    assert deleting.delete_options({"gracePeriodSeconds": "7"}, None)["gracePeriodSeconds"] == 7
