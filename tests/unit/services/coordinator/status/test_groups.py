"""What a pod group is told: once, and anew where its object was made anew."""

from __future__ import annotations

from services.coordinator.core.instructions import TellPodGroup
from shared.model.cluster_events import ObjectChanged
from tests.unit.services.coordinator.groups.test_gangs import add_members, scene_with, tell_group


def test_a_group_that_is_made_anew_under_its_name_is_told_at_once() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, uid="first")
    add_members(scene, 3)
    scene.run(batch=100)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", None))
    scene.run(batch=100, until_s=1.0)
    tell_group(scene, uid="second")
    scene.run(batch=100, until_s=5.0)
    assert [told.group.uid for told in scene.of(TellPodGroup)] == ["first", "second"]
