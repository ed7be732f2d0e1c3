"""Members that have ended stand for those that do not come any more; a gang that was over begins anew as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, WhenGangBreaks
from shared.scheduling.places import Place
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import bound, change_group, gang, place, scene_with, told
from tests.unit.services.coordinator.scene import Scene

TIMEOUT_S = 60.0


def ended(size: int, *phases: str, minimum: int | None = None, **more: Any) -> tuple[Scene, str]:
    """A gang that ran; of its members as many have ended, each in its phase, the others run on."""
    scene = scene_with(nodes=4)
    key = gang(scene, "g", size, minimum=minimum, timeout_s=TIMEOUT_S, **more)
    scene.run(batch=100, until_s=3)
    assert len(bound(scene)) == size
    for number, phase in enumerate(phases):
        scene.change_pod(f"uid-g-{number}", phase=phase)
    scene.run(batch=100, until_s=1)
    return scene, key


def replacement(scene: Scene, key: str, *names: str) -> None:
    for name in names:
        scene.add_pod(replace(make_pod(name).cpu("1").pod(), group=key))


def test_the_last_one_of_a_gang_whose_others_have_succeeded_is_made_anew_and_runs() -> None:
    scene, key = ended(4, "Succeeded", "Succeeded", "Succeeded", "Failed")
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=20)
    assert bound(scene)[-1] == "again"


def test_a_replacement_beside_members_that_run_and_members_that_have_succeeded_goes() -> None:
    scene, key = ended(4, "Succeeded", "Succeeded", "Failed")
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=20)
    assert bound(scene)[-1] == "again"


def test_two_replacements_that_stand_for_the_rest_go_together_or_not_at_all() -> None:
    scene, key = ended(4, "Succeeded", "Succeeded", "Failed", "Failed")
    for number, cpu in enumerate(("4", "4", "4", "3")):
        scene.add_pod(make_pod(f"full{number}").cpu(cpu).pod())
    scene.run(batch=100, until_s=3)
    replacement(scene, key, "again0", "again1")
    scene.run(batch=100, until_s=20 + TIMEOUT_S)
    assert not {"again0", "again1"} & set(bound(scene))
    scene.delete_pod("uid-full3")
    scene.run(batch=100, until_s=20)
    assert sorted(bound(scene)[-2:]) == ["again0", "again1"]


@pytest.mark.parametrize(("wait_s", "runs"), [(TIMEOUT_S / 2, False), (TIMEOUT_S + 15, True)])
def test_failed_members_are_waited_for_as_long_as_the_gang_may_take(wait_s: float, runs: bool) -> None:
    """Their controller makes them anew, perhaps after a pause; an index that failed for good it does not."""
    scene, key = ended(4, "Failed", "Failed", "Failed")
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=wait_s)
    assert ("again" in bound(scene)) is runs


def test_a_gang_that_failed_as_a_whole_is_made_anew_as_a_whole() -> None:
    scene, key = ended(3, "Failed", "Failed", "Failed")
    replacement(scene, key, "a0")
    scene.run(batch=100, until_s=20)
    assert place(scene, "a0") is Place.GATED
    replacement(scene, key, "a1", "a2")
    scene.run(batch=100, until_s=10)
    assert sorted(bound(scene)[-3:]) == ["a0", "a1", "a2"]


def test_a_gang_that_is_run_again_beside_what_is_left_of_the_last_run_goes_as_a_whole() -> None:
    scene, key = ended(3, "Succeeded", "Succeeded", "Succeeded")
    replacement(scene, key, "a0")
    scene.run(batch=100, until_s=2)
    replacement(scene, key, "a1")
    scene.run(batch=100, until_s=4)
    assert not {"a0", "a1"} & set(bound(scene))
    replacement(scene, key, "a2")
    scene.run(batch=100, until_s=5)
    assert sorted(bound(scene)[-3:]) == ["a0", "a1", "a2"]


def test_a_run_after_one_whose_ended_members_stood_for_others_goes_as_a_whole() -> None:
    scene, key = ended(3, "Succeeded", "Succeeded", "Failed")
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=20)
    assert bound(scene)[-1] == "again"
    scene.change_pod("uid-again", phase="Succeeded")
    scene.run(batch=100, until_s=1)
    for number in range(3):
        replacement(scene, key, f"a{number}")
        scene.run(batch=100, until_s=1)
        assert (f"a{number}" in bound(scene)) is (number == 2)
    assert {"a0", "a1", "a2"} <= set(bound(scene))


@pytest.mark.parametrize("priority", [0, 10], ids=["equal", "lower"])
def test_a_gang_that_lost_a_member_goes_before_others_of_its_priority(priority: int) -> None:
    """The filler has waited for longer; the node comes back from a drain."""
    scene = scene_with(nodes=3, cpu="1")
    key = gang(scene, "g", 3)
    for uid in list(scene.pods):
        scene.change_pod(uid, priority=priority)
    scene.run(batch=100, until_s=3)
    uid, node = scene.bindings[0]
    scene.add_node(make_node(node).allocatable(cpu="1").cordon().node())
    scene.run()
    scene.add_pod(make_pod("filler").cpu("1").pod())
    scene.delete_pod(uid)
    scene.run(batch=100, until_s=3)
    scene.add_pod(replace(make_pod("again").cpu("1").pod(), group=key, priority=priority))
    scene.run(batch=100, until_s=12)
    scene.add_node(make_node(node).allocatable(cpu="1").node())
    scene.run(batch=100, until_s=20)
    assert bound(scene)[-1] == "again"


def test_ended_members_do_not_stand_for_a_minimum_that_was_raised_above_them() -> None:
    scene, key = ended(3, "Succeeded")
    change_group(scene, replace(scene.core.state.cluster.pod_groups[key], min_count=9))
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=20)
    assert "minCount" in told(scene, "again")


# --- who ends is deleted at once ------------------------------------------------------------------------------------


def deleted(size: int, *phases: str, **more: Any) -> tuple[Scene, str]:
    """As ``ended``, and those that have ended are deleted as soon as they have."""
    scene, key = ended(size, *phases, **more)
    for number in range(len(phases)):
        scene.delete_pod(f"uid-g-{number}")
    scene.run(batch=100, until_s=1)
    return scene, key


@pytest.mark.parametrize("phases", [("Succeeded", "Succeeded", "Failed"), ("Succeeded",) * 3 + ("Failed",)])
def test_a_replacement_goes_though_those_that_have_succeeded_were_deleted(phases: tuple[str, ...]) -> None:
    scene, key = deleted(4, *phases)
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=20)
    assert bound(scene)[-1] == "again"


def test_a_gang_whose_members_are_deleted_as_they_succeed_is_not_broken() -> None:
    scene, _ = deleted(4, "Succeeded", "Succeeded", broken=WhenGangBreaks.EVICT)
    scene.run(batch=100, until_s=3 * TIMEOUT_S)
    assert not scene.evicted


def test_members_that_have_succeeded_stand_for_nobody_who_is_there() -> None:
    """As those of a queue of work: each is made anew, so the gang keeps its minimum and its protection."""
    scene, key = deleted(4, "Succeeded", "Succeeded")
    replacement(scene, key, "a0", "a1")
    scene.run(batch=100, until_s=20)
    groups = scene.core.state.groups
    assert {"a0", "a1"} <= set(bound(scene))
    assert groups.ran(key) == 0
    scene.delete_pod("uid-a0")
    scene.run(batch=100, until_s=1)
    assert (groups.ran(key), groups.broken(key)) == (1, False)
    scene.delete_pod("uid-a1")
    scene.delete_pod("uid-g-2")
    scene.run(batch=100, until_s=1)
    assert groups.broken(key)


def test_a_gang_that_goes_without_a_member_that_failed_for_good_is_not_broken() -> None:
    scene, key = ended(4, "Failed", broken=WhenGangBreaks.EVICT)
    scene.run(batch=100, until_s=TIMEOUT_S + 5)
    assert len(scene.evicted) == 3, "nobody came for so long"
    replacement(scene, key, "a0", "a1", "a2")
    scene.run(batch=100, until_s=4 * TIMEOUT_S)
    assert sorted(bound(scene)[-3:]) == ["a0", "a1", "a2"]
    assert len(scene.evicted) == 3


def test_a_member_that_was_asked_to_leave_has_not_run_to_its_end_though_it_says_so() -> None:
    """A program that ends well on SIGTERM leaves a pod that has succeeded."""
    scene, key = ended(4)
    for number in range(3):
        scene.change_pod(f"uid-g-{number}", terminating=True)
        scene.change_pod(f"uid-g-{number}", terminating=True, phase="Succeeded")
        scene.delete_pod(f"uid-g-{number}")
    scene.run(batch=100, until_s=1)
    replacement(scene, key, "again")
    scene.run(batch=100, until_s=20)
    assert place(scene, "again") is Place.GATED
    assert scene.core.state.groups.broken(key)


def test_a_run_after_one_whose_members_were_deleted_goes_as_a_whole() -> None:
    scene, key = deleted(3, "Succeeded", "Succeeded", "Succeeded")
    replacement(scene, key, "a0", "a1")
    scene.run(batch=100, until_s=20)
    assert not {"a0", "a1"} & set(bound(scene))
    replacement(scene, key, "a2")
    scene.run(batch=100, until_s=5)
    assert sorted(bound(scene)[-3:]) == ["a0", "a1", "a2"]


def test_what_is_known_of_members_that_are_gone_goes_with_their_group() -> None:
    scene, key = deleted(3, "Succeeded", "Succeeded", "Succeeded")
    assert key in scene.core.state.groups.members
    scene.inbox.append(ObjectChanged("podgroups", "default/g", None))
    scene.run(batch=100, until_s=1)
    assert key not in scene.core.state.groups.members


def test_a_job_counts_those_that_have_succeeded_once_by_its_own_status() -> None:
    """Its minimum is what may still run: of four, two have succeeded, and one of the other two is gone."""
    scene, key = ended(4, "Succeeded", "Succeeded")
    group = PodGroup(key, GroupSource.JOB, "default", "g", gang=True, min_count=2)
    scene.core.state.cluster.pod_groups[key] = group
    assert not scene.core.state.groups.broken(key)
    scene.delete_pod("uid-g-3")
    scene.run(batch=100, until_s=1)
    assert scene.core.state.groups.broken(key)
