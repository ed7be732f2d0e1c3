"""Why a pod group is where it is: who fails, why, and what would help; and what a member says of its group."""

from __future__ import annotations

from services.coordinator.inspect.explain import explain
from services.coordinator.inspect.group_explain import explain_group, member_of
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.inspect.test_group_facts import add_members, scene_with, tell_group


def test_a_gang_that_lacks_room_names_who_fails_why_and_what_would_help() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 4)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert (found.phase, found.fits, found.pending, found.reached) == ("waiting", 2, 4, False)
    assert found.summary == "2 of at least 3 members fit now: 0 are bound, 2 of 4 that wait find a node"
    [failing] = found.failing
    assert (failing.members, failing.message) == (2, "0/1 nodes are available: 1 Insufficient cpu.")
    assert failing.helps
    assert [bool(member.message) for member in found.members] == [True, True, False, False]
    assert {member.node for member in found.members} == {"", "n0"}
    assert found.preemption is not None
    assert (found.preemption.helps, found.preemption.summary) == (False, "no preemption candidate")


def test_the_answer_is_about_now_and_changes_nothing() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    before = scene.core.state.queue.count()
    scene.core.state.cluster.upsert_node(make_node("more").allocatable(cpu="4").node())
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert (found.reached, found.fits, found.failing) == (True, 3, [])
    assert found.summary == "all 3 members that wait would find a node now"
    assert scene.core.state.queue.count() == before


def test_what_the_group_itself_lacks_comes_first() -> None:
    scene = scene_with(1)
    add_members(scene, 1)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert (found.reason, found.summary) == ("GroupMissing", "there is no PodGroup train in default; create it")
    tell_group(scene, 3)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.summary == "1 of at least 3 members exist; 2 more must be created"
    assert explain_group(scene.core, "default", "none") is None


def test_a_gang_that_runs_says_so() -> None:
    scene = scene_with(2)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert (found.phase, found.bound, found.summary) == ("running", 3, "3 members are bound, all there are")


def test_a_member_names_its_groups_state() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 2)
    scene.run(batch=100)
    pod = scene.pods["uid-m0"]
    answer = explain(scene.core, pod, {}, scene.now)
    assert member_of(scene.core, pod) == {
        "unit": "default/train", "phase": "waiting", "members": 2, "bound": 0, "min_count": 3, "queue": "",
        "reason": "Incomplete", "message": "2 of at least 3 members exist; 1 more must be created",
    }  # fmt: skip
    assert answer["summary"] == "waiting for minCount pods from a gang to appear in scheduling queue"
    assert member_of(scene.core, make_pod("alone").pod()) is None
