"""Events expire, other objects do not."""

from __future__ import annotations

from tests.unit.twin.twin_scene import Scene
from twin.registry.expiry import expire_events


def event(scene: Scene, name: str) -> None:
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    scene.create("events", name, involvedObject=involved, reason="Test", type="Normal")


def test_event_goes_an_hour_after_its_last_write() -> None:
    scene = Scene()
    event(scene, "old")
    event(scene, "counted")
    scene.config("kept")
    scene.now_s += 3000
    event(scene, "young")
    ctx = scene.registry.context("update", "events", "default", "counted")
    scene.registry.guaranteed_update(ctx, "events", "default", "counted", lambda old: {**old, "count": 2})
    scene.now_s += 700
    assert expire_events(scene.registry) == 1
    assert [one["metadata"]["name"] for one in scene.registry.list("events")] == ["counted", "young"]
    assert scene.exists("configmaps", "kept")


def test_wish_for_a_revision_can_be_taken_back() -> None:
    scene = Scene()
    called: list[int] = []
    forget = scene.registry.store.when_revision(scene.registry.store.revision + 1, lambda: called.append(1))
    forget()
    scene.config("c")
    assert called == []
