"""Pod groups in the scheduling queue: their members move as one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from shared.scheduling.places import ClusterEvent, OwnEvent, Place
from shared.scheduling.queue import PodQueue
from shared.scheduling.queues.turns import QueueTurns
from tests.builders import make_pod
from tests.unit.shared.scheduling.queues.queue_trees import World
from tests.unit.shared.scheduling.queues.queue_trees import queue as tree_queue

KEY = "podgroup:default/train"
FITS = {"NodeResourcesFit"}


def joined(*names: str, priority: int = 0) -> PodQueue:
    queue = PodQueue()
    for name in names:
        queue.add(make_pod(name).cpu("1").pod(), 0.0, gated=True)
    queue.join(KEY, [f"uid-{name}" for name in names], priority, 0.0, ClusterEvent.MEMBER_ADDED)
    return queue


def names(queue: PodQueue, now: float) -> list[str]:
    return [pod.name for pod in queue.pop_unit(now)]


def parked(need: int = 2) -> PodQueue:
    queue = joined("a", "b")
    queue.pop_unit(0.0)
    queue.park_group(KEY, FITS, need, 0.0)
    return queue


def sound(queue: PodQueue) -> None:
    assert list(queue.validate()) == []


def test_a_group_is_taken_whole_in_its_order() -> None:
    queue = joined("a", "b")
    queue.add(make_pod("early").pod(), 0.0)
    queue.add(make_pod("c").cpu("1").priority(5).pod(), 0.0, gated=True)
    queue.join(KEY, ["uid-c"], 5, 0.0, ClusterEvent.MEMBER_ADDED)
    sound(queue)
    assert names(queue, 0.0) == ["c", "a", "b"]
    assert names(queue, 0.0) == ["early"]


def test_gated_pods_wait_whatever_happens_in_the_cluster() -> None:
    queue = PodQueue()
    queue.add(make_pod("a").pod(), 0.0, gated=True)
    assert not queue.wake("uid-a", 1.0, ClusterEvent.NODE_ADDED)
    assert queue.pop_unit(1000.0) == []
    queue.ungate("uid-a", 1000.0, ClusterEvent.POD_ADDED)
    assert names(queue, 1000.0) == ["a"]


def test_one_woken_member_wakes_all() -> None:
    queue = parked()
    sound(queue)
    assert len(queue.waiting) == 1
    assert queue.wake("uid-b", 100.0, ClusterEvent.NODE_ADDED)
    sound(queue)
    assert names(queue, 100.0) == ["a", "b"]


def test_a_group_backs_off_together_and_a_member_that_joins_shares_its_backoff() -> None:
    queue = joined("a", "b")
    queue.pop_unit(0.0)
    queue.retry_group(KEY, 0.0)
    queue.add(make_pod("c").cpu("1").pod(), 0.5, gated=True)
    queue.join(KEY, ["uid-c"], 0, 0.5, ClusterEvent.MEMBER_ADDED)
    sound(queue)
    assert {entry.place for entry in queue.entries.values()} == {Place.BACKOFF}
    assert names(queue, 0.9) == []
    assert names(queue, 1.0) == ["a", "b", "c"]


@pytest.mark.parametrize(("ahead", "first"), [(True, "again"), (False, "filler")])
def test_a_group_that_waits_for_a_place_it_had_leaves_its_backoff_before_its_equals(ahead: bool, first: str) -> None:
    queue = PodQueue()
    queue.add(make_pod("filler").cpu("1").pod(), 0.0)
    queue.pop_unit(0.0)
    queue.park("uid-filler", FITS, 0.0)
    queue.add(make_pod("again").cpu("1").pod(), 10.0, gated=True)
    queue.join(KEY, ["uid-again"], 0, 10.0, ClusterEvent.MEMBER_ADDED, ahead=ahead)
    queue.pop_unit(10.0)
    queue.park_group(KEY, FITS, 1, 10.0)
    for uid in ("uid-filler", "uid-again"):
        queue.wake(uid, 10.5, ClusterEvent.NODE_TAINTS)
    sound(queue)
    assert names(queue, 10.5) == [first]


def test_a_refused_member_makes_its_group_wait_and_nobody_else() -> None:
    queue = joined("a", "b")
    queue.pop_unit(0.0)
    queue.disband(KEY, 0.0, ClusterEvent.POD_ADDED)
    queue.retry("uid-a", 0.0, failed=True)
    queue.retry("uid-b", 0.0, failed=False)
    queue.add(make_pod("other").pod(), 0.0)
    queue.join(KEY, ["uid-a", "uid-b"], 0, 0.0, ClusterEvent.MEMBER_ADDED)
    sound(queue)
    assert names(queue, 0.0) == ["other"]
    assert names(queue, 0.5) == []
    assert names(queue, 1.0) == ["a", "b"]


def test_members_that_leave_are_stood_for_by_others() -> None:
    queue = parked()
    queue.remove("uid-a")
    sound(queue)
    assert queue.groups[KEY].leads == {"uid-b"}
    queue.gate("uid-b", 1.0)
    sound(queue)
    assert queue.groups == {}


def test_a_group_asks_its_queue_anew_once_however_many_members_leave() -> None:
    world = World(tree_queue("a", maximum={"pods": 10}), cpu=10_000)
    queue = PodQueue()
    queue.take_turns(QueueTurns(world.tree, lambda _: 15, lambda _: "a", lambda _: 15), 0.0)
    uids = [f"uid-{number}" for number in range(20)]
    for number in range(20):
        queue.add(replace(make_pod(f"{number}").cpu("1").pod(), group=KEY), 0.0, gated=True)
    queue.join(KEY, uids, 0, 0.0, ClusterEvent.MEMBER_ADDED)
    assert names(queue, 0.0) == []
    before = world.tree.version
    for uid in uids[:12]:
        queue.remove(uid)
    assert world.tree.version == before
    assert len(names(queue, 0.0)) == 8
    sound(queue)


def test_members_that_a_quota_leaves_behind_wait_and_their_group_goes() -> None:
    world = World(tree_queue("a", maximum={"pods": 3}), cpu=10_000)
    queue = PodQueue()
    queue.take_turns(QueueTurns(world.tree, lambda _: 2, lambda _: "a", lambda _: 2), 0.0)
    for number in range(5):
        queue.add(replace(make_pod(f"{number}").cpu("1").pod(), group=KEY), 0.0, gated=True)
    queue.join(KEY, [f"uid-{number}" for number in range(5)], 0, 0.0, ClusterEvent.MEMBER_ADDED)
    assert names(queue, 0.0) == ["0", "1", "2"]
    assert not queue.has_active()
    assert queue.count()[Place.GATED] == 2
    sound(queue)


def test_a_disbanded_group_leaves_its_members_where_they_are() -> None:
    for queue in (joined("a", "b"), parked()):
        queue.disband(KEY, 100.0, ClusterEvent.POD_ADDED)
        sound(queue)
        assert names(queue, 100.0) == ["a"]
        assert names(queue, 100.0) == ["b"]


def test_gangs_of_one_class_wait_as_one_kind_whatever_their_labels_are() -> None:
    queue = PodQueue()
    for number in range(3):
        key = f"podgroup:default/g{number}"
        for name in ("a", "b"):
            pod = make_pod(f"{name}{number}").cpu("1").set(labels={"job": str(number), "index": name}).pod()
            queue.add(replace(pod, group=key), 0.0, gated=True)
        queue.join(key, [f"uid-a{number}", f"uid-b{number}"], 0, 0.0, ClusterEvent.MEMBER_ADDED)
        queue.pop_unit(0.0)
        queue.park_group(key, FITS, 2, 0.0)
    [kind] = queue.waiting
    assert sorted(kind.needs.values()) == [2, 2, 2]
    sound(queue)


def test_a_group_made_anew_is_not_taken_for_the_one_before() -> None:
    queue = joined("a", "b")
    queue.gate("uid-a", 0.0)
    queue.gate("uid-b", 0.0)
    queue.join(KEY, ["uid-b"], 0, 0.0, ClusterEvent.MEMBER_ADDED)
    assert names(queue, 0.0) == ["b"]
    assert names(queue, 0.0) == []
    sound(queue)


def lose_a_member(queue: PodQueue) -> None:
    del queue.groups[KEY].members["uid-a"]


def move_one_alone(queue: PodQueue) -> None:
    entry = queue.entries["uid-b"]
    queue._move(entry, Place.ACTIVE, 0.0, OwnEvent.WOKEN)


def forget_who_leads(queue: PodQueue) -> None:
    queue.groups[KEY].leads.clear()


@pytest.mark.parametrize("harm", [lose_a_member, move_one_alone, forget_who_leads])
def test_what_is_broken_in_a_group_is_named(harm: Callable[[PodQueue], None]) -> None:
    queue = parked()
    harm(queue)
    assert "queue-group" in {problem.partition(":")[0] for problem in queue.validate()}
