"""``Unschedulable`` makes autoscalers buy nodes: it is said only where one more node would help."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core.instructions import PatchCondition
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import Queue
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import add, cpus
from tests.unit.services.coordinator.queues.queue_scenes import scene_with as queues_with
from tests.unit.services.coordinator.scene import Scene

KEY = group_key(GroupSource.NATIVE, "default", "train")
NOT_READY, UNSCHEDULABLE = "NotReadyForScheduling", "Unschedulable"


def scene_of(*, agents: int = 2) -> Scene:
    scene = Scene(agents=agents)
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    return scene


def reasons(scene: Scene, uid: str) -> list[str]:
    return [patch.reason for patch in scene.of(PatchCondition) if patch.uid == uid]


def members(scene: Scene, count: int, **changes: object) -> None:
    for number in range(count):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("1").pod(), group=KEY, **changes))


def group(**changes: object) -> ObjectChanged:
    made = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)
    return ObjectChanged("podgroups", "default/train", replace(made, **changes))


@pytest.mark.parametrize(
    ("changes", "count", "reason"),
    [
        (None, 3, NOT_READY),
        ({}, 2, NOT_READY),
        ({"problem": "spec.x: bad; correct it"}, 3, NOT_READY),
        ({"min_count": 100_000}, 3, NOT_READY),
        ({"min_resources": (("cpu", 6000),)}, 3, UNSCHEDULABLE),
        ({"min_count": 5}, 5, UNSCHEDULABLE),
    ],
    ids=["no group", "incomplete", "unusable", "too large a minimum", "more than the cluster has", "does not fit"],
)
def test_members_of_a_group_are_told_so_only_where_nodes_lack(
    changes: dict[str, object] | None, count: int, reason: str
) -> None:
    scene = scene_of()
    if changes is not None:
        scene.inbox.append(group(**changes))
    members(scene, count)
    scene.run(batch=100, until_s=40)
    assert set(reasons(scene, "uid-m0")) == {reason}


def test_members_of_two_schedulers_buy_no_nodes() -> None:
    scene = scene_of()
    scene.inbox.append(group(min_count=2))
    members(scene, 2)
    scene.add_pod(replace(make_pod("other").pod(), group=KEY, scheduler_name="default-scheduler"))
    scene.run(batch=100, until_s=40)
    assert set(reasons(scene, "uid-m0")) == {NOT_READY}


def test_a_pod_that_its_queue_holds_back_buys_no_nodes() -> None:
    scene = queues_with(Queue("a", maximum=cpus(1)), nodes=4)
    add(scene, "a", "p0", "p1")
    scene.run(batch=100, until_s=40)
    held = next(uid for uid in ("uid-p0", "uid-p1") if uid not in {uid for uid, _ in scene.bindings})
    assert set(reasons(scene, held)) == {NOT_READY}


def test_a_pod_whose_nodes_nobody_answers_for_buys_no_nodes() -> None:
    scene = scene_of(agents=1)
    scene.lost_answers = {"agent-0"}
    scene.add_pod(make_pod("p").cpu("1").pod())
    scene.run(until_s=40)
    assert set(reasons(scene, "uid-p")) <= {NOT_READY, "SchedulerError"}
    assert reasons(scene, "uid-p")


def test_a_pod_for_which_there_is_no_room_does() -> None:
    scene = scene_of()
    scene.add_pod(make_pod("p").cpu("5").pod())
    scene.run(until_s=5)
    assert set(reasons(scene, "uid-p")) == {UNSCHEDULABLE}
