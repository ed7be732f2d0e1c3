"""Server-side apply: ownership, conflicts, what is taken away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.registry.apply import applying
from twin.registry.apply.sets import remove_fields
from twin.registry.status import ApiError
from twin.registry.stored import StoredObject


def apply(scene: Scene, manager: str, config: dict[str, Any], *, force: bool = False) -> StoredObject:
    kind = scene.registry.kind("configmaps")
    ctx = scene.registry.context("patch", kind, "default", "c", manager=manager)
    ctx.query = {"fieldManager": manager}
    old = scene.registry.store.shelf("configmaps").get("default/c")
    body = {"metadata": {"name": "c", **config.pop("metadata", {})}, **config}
    return applying.apply(scene.registry, ctx, kind, old, body, force=force, view=None)[0]


def owners(stored: StoredObject) -> dict[str, Any]:
    return {f"{one.manager}/{one.operation}": json.loads(one.fields) for one in stored.owners}


def test_apply_creates_and_owns_what_it_says() -> None:
    stored = apply(Scene(), "m1", {"data": {"a": "1"}})
    assert owners(stored) == {"m1/Apply": {"f:data": {"f:a": {}}}}


def test_field_that_is_not_said_any_more_is_taken_away() -> None:
    scene = Scene()
    apply(scene, "m1", {"data": {"a": "1", "b": "1"}, "metadata": {"labels": {"x": "1"}}})
    stored = apply(scene, "m1", {"data": {"a": "1"}})
    assert stored.obj["data"] == {"a": "1"}
    assert "labels" not in stored.obj["metadata"]


def test_field_that_another_manager_also_says_stays() -> None:
    scene = Scene()
    apply(scene, "m1", {"data": {"a": "1"}})
    apply(scene, "m2", {"data": {"a": "1"}})
    assert apply(scene, "m1", {"data": {}}).obj["data"] == {"a": "1"}


def test_other_value_is_a_conflict_that_names_manager_and_field() -> None:
    scene = Scene()
    apply(scene, "m1", {"data": {"a": "1"}})
    with pytest.raises(ApiError) as refused:
        apply(scene, "m2", {"data": {"a": "2"}})
    cause = refused.value.body["details"]["causes"][0]
    assert (refused.value.code, cause["field"], cause["message"]) == (409, ".data.a", 'conflict with "m1"')
    assert scene.registry.get("configmaps", "default", "c")["data"] == {"a": "1"}  # type: ignore[index]


def test_force_takes_the_field_over() -> None:
    scene = Scene()
    apply(scene, "m1", {"data": {"a": "1", "b": "1"}})
    stored = apply(scene, "m2", {"data": {"a": "2"}}, force=True)
    assert stored.obj["data"] == {"a": "2", "b": "1"}
    assert owners(stored) == {"m1/Apply": {"f:data": {"f:b": {}}}, "m2/Apply": {"f:data": {"f:a": {}}}}


def test_without_the_conflict_rule_the_other_managers_value_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: this is what the 409 protects."""
    monkeypatch.setattr(applying, "common_paths", lambda *_arguments: [])
    scene = Scene()
    apply(scene, "m1", {"data": {"a": "1"}})
    assert apply(scene, "m2", {"data": {"a": "2"}}).obj["data"] == {"a": "2"}


def test_same_apply_again_writes_nothing() -> None:
    scene = Scene()
    first = apply(scene, "m1", {"data": {"a": "1"}})
    scene.now_s += 60
    assert apply(scene, "m1", {"data": {"a": "1"}}) is first


def test_plain_write_takes_fields_from_an_applier() -> None:
    scene = Scene()
    apply(scene, "m1", {"data": {"a": "1"}})
    stored = scene.update("configmaps", "c", {"metadata": {"name": "c"}, "data": {"a": "9"}})
    assert owners(stored) == {"unknown/Update": {"f:data": {"f:a": {}}}}


def test_object_that_nobody_owns_belongs_to_before_first_apply() -> None:
    scene = Scene()
    scene.config("c")
    scene.change("configmaps", "c", managedFields=[])
    with pytest.raises(ApiError) as refused:
        apply(scene, "m1", {"data": {"a": "2"}})
    assert "before-first-apply" in refused.value.body["message"]


def test_apply_needs_a_manager() -> None:
    scene = Scene()
    kind = scene.registry.kind("configmaps")
    ctx = scene.registry.context("patch", kind, "default", "c")
    with pytest.raises(ApiError) as refused:
        applying.apply(scene.registry, ctx, kind, None, {"metadata": {"name": "c"}}, force=False, view=None)
    assert refused.value.code == 422


def test_a_field_below_which_nobody_owns_anything_goes_whole() -> None:
    """As the real server has it (tests/real/test_node_loans.py): a node's status at its creation is nobody's."""
    merged = {"status": {"capacity": {"cpu": "4", "x": "1"}, "conditions": []}}
    unsaid = {"f:status": {"f:capacity": {"f:x": {}}}}
    remove_fields(merged, unsaid, {"f:status": {"f:conditions": {}}})
    assert merged == {"status": {"conditions": []}}


@pytest.mark.parametrize("owned", [{"f:cpu": {}}, {}], ids=["another-owns-a-part", "the-map-is-owned"])
def test_a_field_below_which_anything_is_owned_loses_what_was_said_alone(owned: dict[str, Any]) -> None:
    merged = {"status": {"capacity": {"cpu": "4", "memory": "1Gi", "x": "1"}}}
    unsaid = {"f:status": {"f:capacity": {"f:x": {}}}}
    remove_fields(merged, unsaid, {"f:status": {"f:capacity": owned}})
    assert merged == {"status": {"capacity": {"cpu": "4", "memory": "1Gi"}}}
