"""Why a pod group is where it is: who fails, why, and what would help; and what a member says of its group."""

from __future__ import annotations

from services.coordinator.inspect.explain import explain
from services.coordinator.inspect.group_explain import explain_group, member_of
from services.coordinator.inspect.pending import painted
from shared.model.units.queue import Queue, UnitOrder
from shared.scheduling.parts import in_one_go
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.inspect.test_group_facts import add_members, scene_with, tell_group


def test_a_gang_that_lacks_room_names_who_fails_why_and_what_would_help() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 4)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.now is not None
    assert (found.phase, found.now.placed, found.now.lacking) == ("waiting", 2, 1)
    assert found.summary == "2 of 4 waiting members fit together: 3 are needed, so none is placed"
    [failed] = found.now.failed
    assert (failed.pods, failed.count) == (("default/m2", "default/m3"), 2)
    assert failed.why == "0/1 nodes are available: 1 Insufficient cpu."
    assert found.now.change.startswith("add a node like n0 (4 cpu, 8Gi memory); or ask for at most 1.333 cpu each")


def test_the_answer_is_about_now_and_changes_nothing() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    before = scene.core.state.queue.count()
    scene.core.state.cluster.upsert_node(make_node("more").allocatable(cpu="4").node())
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.now is not None
    assert (found.now.reached, found.now.placed, found.now.failed) == (True, 3, ())
    assert scene.core.state.queue.count() == before


def test_what_the_group_itself_lacks_comes_first() -> None:
    scene = scene_with(1)
    add_members(scene, 1)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert (found.reason, found.now) == ("GroupMissing", None)
    assert found.summary == "there is no PodGroup train in default; create it"
    tell_group(scene, 3)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.summary == "1 of at least 3 members exist: the group is not tried before"
    assert explain_group(scene.core, "default", "none") is None


def test_members_that_stand_count() -> None:
    scene = scene_with(2)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.now is not None
    assert (found.phase, found.now.bound, found.now.pending) == ("running", 3, 0)


def test_a_member_names_its_groups_state() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 2)
    scene.run(batch=100)
    pod = scene.pods["uid-m0"]
    answer = explain(scene.core, pod, {}, scene.now)
    assert member_of(scene.core, pod) == {
        "unit": "default/train", "phase": "waiting", "members": 2, "bound": 0, "gang": True, "min_count": 3,
        "queue": "", "reason": "Incomplete", "message": "2 of at least 3 members exist; 1 more must be created",
    }  # fmt: skip
    assert answer["summary"] == "waiting for minCount pods from a gang to appear in scheduling queue"
    assert member_of(scene.core, make_pod("alone").pod()) is None


def test_a_quota_that_holds_a_gang_back_is_told_everywhere() -> None:
    scene = scene_with(4)
    scene.core.queues.change("small", Queue("small", maximum={"cpu": 2000}, namespaces=("default",)))
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100, until_s=2.0)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert (found.phase, found.reason, found.queue) == ("waiting", "QueueQuota", "small")
    assert "maximum" in found.blocked
    answer = explain(scene.core, scene.pods["uid-m0"], {}, scene.now)
    assert "queue small: cpu" in answer["summary"]
    assert scene.bindings == []


def test_a_gang_that_its_queue_holds_is_told_of_its_queue_before_any_node_and_of_no_eviction() -> None:
    scene = scene_with(1)
    scene.core.queues.change("tight", Queue("tight", maximum={"cpu": 2500}, namespaces=("default",)))
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.now is not None
    assert found.reason == "QueueQuota"
    assert found.now.change.startswith(
        "its queue first: ask for less, or raise the limit; and then: add a node like n0"
    )
    assert (found.now.preemption, found.now.helps, [one.change for one in found.now.failed]) == (None, (), [""])
    member = explain(scene.core, scene.pods["uid-m0"], {}, scene.now)
    assert {group["change"] for group in member["nodes"]["groups"]} <= {""}
    assert member["preemption"] is None
    assert member["queue"]["remedy"] == "ask for less, or raise the limit"
    [shown] = in_one_go(painted(scene.core, scene.now)).groups
    assert (shown.reason, shown.remedy) == ("QueueQuota", "ask for less, or raise the limit")


def test_who_is_behind_the_first_of_a_fifo_queue_is_not_told_to_change_itself() -> None:
    scene = scene_with(4)
    tight = Queue("tight", maximum={"cpu": 4000}, namespaces=("default",), order=UnitOrder.FIFO)
    scene.core.queues.change("tight", tight)
    scene.add_pod(make_pod("first").cpu("10").pod())
    scene.run(batch=100)
    scene.add_pod(make_pod("behind").cpu("250m").pod())
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    told = {one.oldest_pod: one.remedy for one in in_one_go(painted(scene.core, scene.now)).groups}
    waits = "the first of its queue must go, or be made smaller"
    assert told == {
        "default/first": "ask for less, or raise the limit", "default/behind": waits, "default/m0": waits,
    }  # fmt: skip
    found = explain_group(scene.core, "default", "train")
    assert found is not None
    assert found.now is not None
    assert found.now.change == f"its queue first: {waits}"
    assert "the first of its queue (order FIFO), which asks for 10" in found.blocked


def test_a_missing_group_has_no_minimum_to_tell() -> None:
    scene = scene_with(1)
    add_members(scene, 1)
    scene.run(batch=100)
    told = member_of(scene.core, scene.pods["uid-m0"])
    assert told is not None
    assert told["gang"] is False
