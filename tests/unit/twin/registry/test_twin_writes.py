"""Create and update: optimistic concurrency, what clients may not set, no-ops, dry runs, namespaces, owners."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.registry import updating
from twin.registry.apply.field_owners import Owner
from twin.registry.status import ApiError

THINGS = {
    "group": "example.io",
    "scope": "Namespaced",
    "names": {"plural": "things", "kind": "Thing"},
    "versions": [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    ],
}


def refused(call: Any, *arguments: Any, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        call(*arguments, **options)
    return error.value


def test_client_cannot_choose_identity_or_time() -> None:
    scene = Scene()
    meta = scene.config("c", uid="mine", creationTimestamp="2020-01-01T00:00:00Z").obj["metadata"]
    assert meta["uid"] != "mine"
    assert not meta["creationTimestamp"].startswith("2020")


def test_second_create_of_a_name_is_refused() -> None:
    scene = Scene()
    scene.config("c")
    assert refused(scene.config, "c").reason == "AlreadyExists"


def test_create_in_a_missing_namespace_is_404_and_in_an_ending_one_403() -> None:
    scene = Scene()
    kind = scene.registry.kind("configmaps")
    ctx = scene.registry.context("create", kind, "nowhere")
    error = refused(scene.registry.create, ctx, "configmaps", "nowhere", {"metadata": {"name": "c"}})
    assert (error.code, error.body["details"]["kind"]) == (404, "namespaces")
    scene.create("namespaces", "ending")
    scene.delete("namespaces", "ending")
    ctx = scene.registry.context("create", kind, "ending")
    error = refused(scene.registry.create, ctx, "configmaps", "ending", {"metadata": {"name": "c"}})
    assert (error.code, error.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")


def test_generated_names_differ_and_keep_their_base() -> None:
    scene = Scene()
    names = {scene.create("configmaps", "", metadata={"name": "", "generateName": "run-"}).name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


def test_stale_write_is_refused() -> None:
    scene = Scene()
    stale = scene.config("c").fresh()
    scene.change("configmaps", "c", labels={"a": "b"})
    assert refused(scene.update, "configmaps", "c", stale).reason == "Conflict"


def test_without_the_revision_check_a_stale_write_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of optimistic concurrency: the lost update that the check above prevents."""
    monkeypatch.setattr(updating, "_check_revision", lambda *_arguments, **_options: None)
    scene = Scene()
    stale = scene.config("c").fresh()
    scene.change("configmaps", "c", labels={"a": "b"})
    assert "labels" not in scene.update("configmaps", "c", stale).obj["metadata"]


def test_write_without_a_revision_overwrites_unless_the_kind_forbids_it() -> None:
    scene = Scene()
    scene.config("c")
    assert scene.update("configmaps", "c", {"metadata": {"name": "c"}, "data": {"b": "2"}}).obj["data"] == {"b": "2"}
    scene.create("leases.coordination.k8s.io", "l", spec={"holderIdentity": "me"})
    error = refused(scene.update, "leases.coordination.k8s.io", "l", {"metadata": {"name": "l"}, "spec": {}})
    assert (error.code, error.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_uid_of_another_life_is_a_conflict() -> None:
    scene = Scene()
    scene.config("c")
    assert refused(scene.update, "configmaps", "c", {"metadata": {"name": "c", "uid": "other"}}).reason == "Conflict"


def test_write_that_changes_nothing_has_no_revision_and_no_event() -> None:
    scene = Scene()
    before = scene.config("c", labels={"a": "b"})
    revision = scene.registry.store.revision
    assert scene.change("configmaps", "c", labels={"a": "b"}) is before
    assert scene.registry.store.revision == revision


def test_dry_run_answers_in_full_and_stores_nothing() -> None:
    scene = Scene()
    revision = scene.registry.store.revision
    answer = scene.create("configmaps", "c", dry_run=True, data={"a": "1"})
    assert answer.obj["data"] == {"a": "1"}
    assert not scene.exists("configmaps", "c")
    assert scene.registry.store.revision == revision


def test_generation_counts_specs_and_not_metadata() -> None:
    scene = Scene()
    assert scene.pod("p").obj["metadata"]["generation"] == 1
    assert scene.change("pods", "p", labels={"a": "b"}).obj["metadata"]["generation"] == 1
    obj = scene.registry.stored(scene.registry.kind("pods"), "default", "p").fresh()
    obj["spec"]["containers"][0]["image"] = "y"
    assert scene.update("pods", "p", obj).obj["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": "a", "labels": {"-bad": "x"}}, "metadata.labels"),
        ({"name": "a", "labels": {"ok": "not ok"}}, "metadata.labels"),
        ({"name": "a", "annotations": {"bad key": "x"}}, "metadata.annotations"),
        ({"name": "a", "annotations": {"big": "x" * 262145}}, "metadata.annotations"),
        ({"name": "a", "finalizers": ["nodomain"]}, "metadata.finalizers[0]"),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            "metadata.ownerReferences.uid",
        ),
    ],
)
def test_bad_metadata_names_its_field(metadata: dict[str, Any], field: str) -> None:
    error = refused(Scene().create, "configmaps", "", metadata=metadata)
    assert error.code == 422
    assert field in [cause["field"] for cause in error.body["details"]["causes"]]


def test_guaranteed_update_keeps_identity_and_skips_no_changes() -> None:
    scene = Scene()
    stored = scene.config("c")
    ctx = scene.registry.context("update", "configmaps", "default", "c")
    revision = scene.registry.store.revision
    scene.registry.guaranteed_update(ctx, "configmaps", "default", "c", dict)
    assert scene.registry.store.revision == revision
    changed = scene.registry.guaranteed_update(
        ctx,
        "configmaps",
        "default",
        "c",
        lambda old: {**old, "metadata": {"name": "c", "uid": "x"}, "data": {"n": "1"}},
    )
    assert changed["metadata"]["uid"] == stored.obj["metadata"]["uid"]


def test_subscribers_hear_changes_in_order_even_when_one_of_them_writes() -> None:
    """Otherwise an audit would show an effect before its cause."""
    scene = Scene()
    heard: list[int] = []

    def echo(accepted: Any) -> None:
        if accepted.change.new.name == "c":
            scene.config("echo")

    scene.registry.subscribe(echo)
    scene.registry.subscribe(lambda accepted: heard.append(accepted.change.revision))
    scene.config("c")
    assert heard == sorted(heard)
    assert len(heard) == 2


def owners_of(owners: tuple[Owner, ...]) -> dict[str, Any]:
    return {owner.manager: json.loads(owner.fields) for owner in owners}


def test_writer_owns_what_it_changed_and_takes_it_from_the_others() -> None:
    scene = Scene()
    scene.create("configmaps", "c", data={"a": "1", "b": "1"})
    for manager, value in (("m2", "2"), ("m3", "3")):
        ctx = scene.registry.context("update", "configmaps", "default", "c", manager=manager)
        scene.registry.guaranteed_update(
            ctx, "configmaps", "default", "c", lambda old, v=value: {**old, "data": {**old["data"], "a": v}}
        )
    owners = owners_of(scene.registry.stored(scene.registry.kind("configmaps"), "default", "c").owners)
    assert owners["m3"] == {"f:data": {"f:a": {}}}
    assert "m2" not in owners
    assert "f:a" not in owners["unknown"]["f:data"]


def test_removed_field_has_no_owner() -> None:
    scene = Scene()
    scene.create("configmaps", "c", data={"a": "1", "b": "1"})
    scene.update("configmaps", "c", {"metadata": {"name": "c"}, "data": {"b": "1"}})
    owners = owners_of(scene.registry.stored(scene.registry.kind("configmaps"), "default", "c").owners)
    assert owners["unknown"] == {"f:data": {".": {}, "f:b": {}}}


def test_owners_survive_more_writes_than_are_kept_unresolved() -> None:
    scene = Scene()
    scene.create("configmaps", "c", data={"a": "0"})
    for step in range(30):
        scene.update("configmaps", "c", {"metadata": {"name": "c"}, "data": {"a": str(step), f"k{step}": "1"}})
    stored = scene.registry.stored(scene.registry.kind("configmaps"), "default", "c")
    assert stored.unresolved <= 9
    assert owners_of(stored.owners)["unknown"] == {"f:data": {".": {}, "f:a": {}, "f:k29": {}}}


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        ("leases.coordination.k8s.io", {}),
        ("csinodes.storage.k8s.io", {"spec": {"drivers": []}}),
        ("runtimeclasses.node.k8s.io", {"handler": "h"}),
        ("csidrivers.storage.k8s.io", {"spec": {}}),
    ],
)
def test_kinds_that_are_not_overwritten_blindly_ask_for_the_resource_version(
    resource: str, fields: dict[str, Any]
) -> None:
    scene = Scene()
    scene.create(resource, "a", **fields)
    error = refused(scene.update, resource, "a", {"metadata": {"name": "a"}, **fields})
    assert error.code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in error.body["message"]


def test_a_custom_resource_is_updated_with_its_resource_version_only() -> None:
    scene = Scene()
    scene.create("customresourcedefinitions.apiextensions.k8s.io", "things.example.io", spec=THINGS)
    scene.create("things.example.io", "a", spec={"n": 1})
    error = refused(scene.update, "things.example.io", "a", {"metadata": {"name": "a"}, "spec": {"n": 2}})
    assert error.body["message"] == (
        'things.example.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'
    )
    assert scene.change("things.example.io", "a", labels={"l": "1"}).obj["metadata"]["labels"] == {"l": "1"}
