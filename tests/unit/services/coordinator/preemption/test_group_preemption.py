"""Preemption by pod groups in the mesh: members nominated on all nodes, then victims leave, then all are bound."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core import core as turning
from services.coordinator.core.instructions import SendPlan, StoreNominations
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle import constraints
from services.coordinator.cycle.assign import GuidedSeats
from services.coordinator.preemption import groups as group_preemption
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.model.units.unit import Unit
from shared.scheduling.cycle.constraints import Guidance
from shared.turns import Log, Tick
from shared.wire.messages import EvictionReason
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_overcommit, check_places

KEY = group_key(GroupSource.NATIVE, "default", "train")


def full(nodes: int = 3, *, settings: CoreSettings | None = None, priority: int = 0) -> Scene:
    """Every node of 4 CPU holds one pod of 3."""
    scene = Scene(settings=settings)
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    for number in range(nodes):
        scene.add_pod(make_pod(f"low{number}").cpu("3").priority(priority).on(f"n{number}").pod())
    scene.run()
    return scene


def tell_group(scene: Scene, minimum: int, name: str = "train", **changes: object) -> str:
    key = group_key(GroupSource.NATIVE, "default", name)
    group = PodGroup(key, GroupSource.NATIVE, "default", name, gang=True, min_count=minimum)
    scene.inbox.append(ObjectChanged("podgroups", f"default/{name}", replace(group, **changes)))
    return key


def add_members(scene: Scene, count: int, *, key: str = KEY, priority: int = 100, prefix: str = "m") -> None:
    for number in range(count):
        pod = make_pod(f"{prefix}{number}").cpu("3").priority(priority).pod()
        scene.add_pod(replace(pod, group=key))


def test_members_are_nominated_before_anybody_is_evicted_and_bound_together_when_all_victims_are_gone() -> None:
    scene = full()
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=20)
    assert len(scene.evicted) == len(set(scene.evicted)) == 2
    assert {node for _, node in scene.bindings} == {f"n{uid[-1]}" for uid in scene.evicted}
    [plan] = [plan for plan in scene.plans if plan.gangs]
    assert plan.gangs[0].min_count == 2
    nominations = [store for store in scene.of(StoreNominations) for _, _, node in store.changes if node]
    first = next(i for i in scene.trace if isinstance(i, SendPlan) and i.plan.evictions)
    assert len(nominations) == 2
    assert all(scene.trace.index(one) < scene.trace.index(first) for one in nominations)
    assert not check_overcommit(scene)
    assert not check_places(scene)


def test_a_member_that_has_its_node_is_judged_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On all nodes it would cost a dry run for each one that somebody is nominated to."""
    scene = full()
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    nominated = dict(scene.core.state.cluster.nominated_to)
    assert len(nominated) == 2
    placed = list[str]()
    take = GuidedSeats.take

    def watched(seats: GuidedSeats, unit: Unit, only: str = "") -> bool:
        def on_all_nodes(cluster: object, feasibility: object, pod: Pod) -> Guidance:
            raise AssertionError(f"{pod.name} was judged on all nodes")

        with monkeypatch.context() as patch:
            patch.setattr(constraints, "guidance_for", on_all_nodes)
            placed.append(only)
            return take(seats, unit, only)

    monkeypatch.setattr(GuidedSeats, "take", watched)
    for uid in scene.evicted:
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=20)
    assert sorted(placed) == sorted(nominated.values())
    assert len(scene.bindings) == 2


def test_nobody_is_evicted_while_one_nomination_is_not_stored() -> None:
    scene = full()
    scene.slow_stores = 1
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100)
    assert not scene.evicted
    scene.run(batch=100, until_s=30)
    assert (len(scene.evicted), len(scene.bindings)) == (2, 2)


def test_a_gang_that_cannot_reach_its_minimum_evicts_nobody_and_is_told_so() -> None:
    scene = full()
    tell_group(scene, 4)
    add_members(scene, 4)
    scene.run(batch=100, until_s=10)
    assert not scene.evicted
    text = scene.pods["uid-m0"].condition[2]
    assert text.startswith('pod group "default/train": minCount (4) cannot be satisfied')
    assert text.endswith("preemption: no preemption candidate")


def test_while_victims_leave_no_second_preemption_is_made_and_nobody_steals_the_room() -> None:
    scene = full(4)
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    assert len(scene.evicted) == 2
    first, second = scene.evicted
    scene.delete_pod(first)
    for number in range(4):
        scene.add_pod(make_pod(f"rival{number}").cpu("3").pod())
    scene.run(batch=100, until_s=30)
    assert not [uid for uid, node in scene.bindings if node == f"n{first[-1]}"], "the room is kept"
    assert scene.core.state.stats.preemptions >= 1
    assert [uid for uid in scene.evicted if uid in (first, second)] == [first, second], "each is asked once"
    scene.delete_pod(second)
    scene.run(batch=100, until_s=30)
    assert {uid for uid, _ in scene.bindings} >= {"uid-m0", "uid-m1"}
    assert not check_overcommit(scene)


def test_a_pod_that_preempts_a_member_of_a_whole_group_evicts_all_of_it() -> None:
    scene = Scene()
    for number in range(3):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    key = tell_group(scene, 1, "whole", whole=True)
    for number in range(3):
        scene.add_pod(replace(make_pod(f"w{number}").cpu("3").on(f"n{number}").pod(), group=key))
    scene.run()
    scene.add_pod(make_pod("high").cpu("3").priority(9).pod())
    scene.run(until_s=20)
    assert set(scene.evicted) == {"uid-w0", "uid-w1", "uid-w2"}
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]


def test_a_gang_preempts_the_surplus_of_another_before_it_is_broken() -> None:
    scene = Scene()
    for number in range(3):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    key = tell_group(scene, 2, "old")
    for number in range(3):
        scene.add_pod(replace(make_pod(f"old{number}").cpu("3").on(f"n{number}").pod(), group=key))
    scene.run()
    tell_group(scene, 1)
    add_members(scene, 1)
    scene.run(batch=100, until_s=20)
    assert (len(scene.evicted), len(scene.bindings)) == (1, 1)


def test_members_of_different_priority_may_be_nominated_to_one_node() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").allocatable(cpu="6").node())
    scene.begin()
    for number in range(2):
        scene.add_pod(make_pod(f"low{number}").cpu("3").on("n0").pod())
    scene.run()
    tell_group(scene, 2)
    add_members(scene, 1, priority=90, prefix="less")
    add_members(scene, 1, priority=100, prefix="more")
    scene.run(batch=100, until_s=20)
    assert (len(scene.evicted), len(scene.bindings)) == (2, 2)


def test_a_search_that_is_cut_into_many_turns_comes_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_preemption, "NODES_PER_WORK", 1)
    monkeypatch.setattr(turning, "LEAST_WORK", 1)
    monkeypatch.setattr(turning, "WORK_PER_TURN", 1)
    scene = full(4)
    for name in ("train", "other"):
        key = tell_group(scene, 2, name)
        add_members(scene, 2, key=key, prefix=name)
    scene.step(batch=100)
    assert scene.core.group_preemptor.searches, "one turn does not end them"
    scene.run(batch=100, until_s=20)
    assert (len(scene.evicted), len(scene.bindings)) == (4, 4)
    assert not check_overcommit(scene)


def test_a_group_that_never_preempts_evicts_nobody() -> None:
    scene = full()
    tell_group(scene, 2, never_preempts=True)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    assert not scene.evicted
    assert "preemption: not eligible due to preemptionPolicy=Never." in scene.pods["uid-m0"].condition[2]


def test_a_refused_eviction_ends_all_of_it_and_the_gang_is_tried_again() -> None:
    scene = full()
    scene.budget_forbids = {"uid-low0", "uid-low1", "uid-low2"}
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=8)
    assert not scene.bindings
    assert not check_places(scene)
    scene.budget_forbids = set()
    scene.run(batch=100, until_s=40)
    assert len(scene.bindings) == 2


def test_an_eviction_of_which_nobody_knows_is_asked_again() -> None:
    scene = full()
    scene.unknown_evictions = 1
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=40)
    assert (len(set(scene.evicted)), len(scene.bindings)) == (2, 2)


def test_when_the_groups_time_is_over_its_room_is_given_up_and_victims_that_stay_are_not_counted_on() -> None:
    scene = full(3)
    scene.keep_victims = True
    tell_group(scene, 2, timeout_s=10.0)
    add_members(scene, 2)
    scene.run(batch=100, until_s=5)
    stuck = scene.evicted[0]
    scene.delete_pod(scene.evicted[1])
    assert scene.core.state.cluster.nominated
    scene.run(batch=100, until_s=40)
    third = next(uid for uid in ("uid-low0", "uid-low1", "uid-low2") if uid not in scene.evicted[:2])
    assert scene.evicted.count(stuck) == 1
    assert third in scene.evicted
    scene.delete_pod(third)
    scene.run(batch=100, until_s=40)
    assert {uid for uid, _ in scene.bindings} == {"uid-m0", "uid-m1"}


def test_a_gang_that_waits_looks_again_when_less_important_pods_come() -> None:
    scene = full(2, priority=100)
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    assert not scene.evicted
    for number in range(2):
        scene.delete_pod(f"uid-low{number}")
        scene.add_pod(make_pod(f"new{number}").cpu("3").on(f"n{number}").pod())
    scene.run(batch=100, until_s=40)
    assert (len(scene.evicted), len(scene.bindings)) == (2, 2)


def test_the_next_leader_reads_the_nominations_back_and_waits_for_the_same_victims() -> None:
    scene = full(3)
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    before = list(scene.evicted)
    group = scene.core.state.cluster.pod_groups[KEY]
    assert len(before) == 2
    scene.replace_leader(set())
    scene.inbox.appendleft(ObjectChanged("podgroups", "default/train", replace(group)))
    scene.run(batch=100, until_s=20)
    assert scene.evicted == before, "they are leaving already"
    for uid in before:
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=20)
    assert {uid for uid, _ in scene.bindings} == {"uid-m0", "uid-m1"}


def test_a_gang_of_which_a_member_is_deleted_before_anybody_was_asked_starts_anew() -> None:
    scene = full(3)
    scene.slow_stores = 2
    tell_group(scene, 2)
    add_members(scene, 3)
    scene.run(batch=100)
    scene.delete_pod("uid-m0")
    scene.run(batch=100, until_s=40)
    assert (len(scene.evicted), len(scene.bindings)) == (2, 2)


def test_a_more_important_gang_takes_the_room_that_was_made_for_another() -> None:
    scene = full(2)
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=5)
    key = tell_group(scene, 2, "first")
    add_members(scene, 2, key=key, priority=200, prefix="f")
    scene.run(batch=100, until_s=10)
    assert len(scene.evicted) == 2, "the same victims leave for it"
    for uid in list(scene.evicted):
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=20)
    assert {uid for uid, _ in scene.bindings} == {"uid-f0", "uid-f1"}
    assert not check_places(scene)


def test_many_gangs_of_one_kind_cost_one_search_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = full(2, priority=100)
    searches = 0
    known = group_preemption.search_group

    def counted(*asked: object, **more: object) -> object:
        nonlocal searches
        searches += 1
        return known(*asked, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(group_preemption, "search_group", counted)
    for number in range(20):
        key = tell_group(scene, 2, f"g{number}")
        add_members(scene, 2, key=key, prefix=f"g{number}-")
    scene.run(batch=200, until_s=3)
    assert searches <= 3


def test_without_the_reservation_a_rival_steals_the_room() -> None:
    """Ablation: what keeps the room is that others yield to nominated members."""
    scene = full(2)
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=5)
    cluster = scene.core.state.cluster
    for uid in list(cluster.nominated_to):
        cluster.withdraw_nomination(uid)
    scene.delete_pod(scene.evicted[0])
    scene.add_pod(make_pod("rival").cpu("3").priority(50).pod())
    scene.run(batch=100, until_s=10)
    assert [uid for uid, _ in scene.bindings] == ["uid-rival"]


def test_while_victims_leave_room_for_some_of_the_members_has_nobody_tried() -> None:
    """Each attempt of a gang looks at all nodes: what comes free for one member helps nobody."""
    scene = full(4)
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    scene.core.state.queue.wake("uid-m0", scene.now)
    scene.deliver(Tick())
    scene.run(batch=100, until_s=15)  # tried and parked once more, each member for itself
    tried = scene.core.state.stats.gangs_refused
    scene.delete_pod(next(f"uid-low{number}" for number in range(4) if f"uid-low{number}" not in scene.evicted))
    scene.run(batch=100, until_s=15)
    assert (scene.core.state.stats.gangs_refused, scene.bindings) == (tried, [])


def test_while_victims_leave_room_for_all_members_elsewhere_is_taken() -> None:
    scene = full(4)
    scene.keep_victims = True
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10)
    for number in range(2):
        scene.add_node(make_node(f"new{number}").node())
    scene.run(batch=100, until_s=10)
    assert {node for _, node in scene.bindings} == {"new0", "new1"}


def given_up(scene: Scene) -> int:
    return sum(1 for line in scene.of(Log) if line.event == "group_preemption_over")


def test_nominations_that_a_leader_before_made_end_with_the_groups_time_too() -> None:
    scene = full(2)
    scene.keep_victims = True
    tell_group(scene, 2, timeout_s=10.0)
    add_members(scene, 2)
    scene.run(batch=100, until_s=5)
    group = scene.core.state.cluster.pod_groups[KEY]
    scene.replace_leader(set())
    scene.inbox.appendleft(ObjectChanged("podgroups", "default/train", replace(group)))
    scene.run(batch=100, until_s=9)
    assert given_up(scene) == 0
    assert len(scene.core.state.cluster.nominated_to) == 2
    scene.run(batch=100, until_s=2)
    assert given_up(scene) == 1


def test_room_that_a_queue_takes_back_for_a_gang_is_given_up_with_its_time() -> None:
    """Nobody else ends it: the gang would count as on its way for ever, and its queue would ask for nothing else."""
    scene = Scene()
    for number in range(2):
        scene.add_node(make_node(f"n{number}").node())
    for queue in (Queue("a", guaranteed={"cpu": 6000}, reclaim=True), Queue("b")):
        scene.inbox.append(ObjectChanged("queues", queue.name, replace(queue, generation=1)))
    scene.begin()
    for number in range(2):
        pod = make_pod(f"b{number}").cpu("3").pod()
        scene.add_pod(replace(pod, labels={QUEUE_LABEL: "b"}))
    scene.run(batch=100, until_s=3)
    scene.keep_victims = True
    tell_group(scene, 2, timeout_s=10.0, labels={QUEUE_LABEL: "a"})
    add_members(scene, 2, priority=0)
    scene.run(batch=100, until_s=8)
    assert sorted(scene.evicted) == ["uid-b0", "uid-b1"]
    [made_room] = {id(one): one for one in scene.core.nominations.made.values()}.values()
    reasons = {eviction.reason for plan in scene.plans for eviction in plan.evictions}
    assert reasons == {EvictionReason.RECLAIM}
    scene.run(batch=100, until_s=12)
    assert given_up(scene) == 1
    assert made_room not in scene.core.nominations.made.values()


def test_gangs_nominated_to_the_same_nodes_are_placed_in_turn_as_their_room_comes() -> None:
    """A member that is to go to a node yields to none of those who come after it there."""
    scene = Scene(agents=1)
    for node in range(2):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="4").node())
        for place in range(4):
            scene.add_pod(make_pod(f"low-{node}-{place}").cpu("1").priority(0).on(f"n{node}").pod())
    scene.begin()
    scene.run(batch=100)
    scene.keep_victims = True
    for name in "abcd":
        key = tell_group(scene, 2, name)
        for number in range(2):
            scene.add_pod(replace(make_pod(f"{name}{number}").cpu("1").priority(100).pod(), group=key))
    scene.run(batch=100, until_s=0.5)
    nominated = dict(scene.core.state.cluster.nominated_to)
    assert len(nominated) == len(scene.evicted) == 8
    first = {uid: node for uid, node in nominated.items() if "-a" in uid}
    for victim in scene.core.nominations.made["uid-a0"].victims:
        scene.delete_pod(victim)  # the others' stay
    scene.run(batch=100, until_s=0.5)
    assert dict(scene.bindings) == first
    assert scene.core.state.stats.losses == 0
    assert not check_overcommit(scene)


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_a_gang_one_of_whose_nodes_was_taken_does_not_go_to_the_room_of_the_gang_after_it(first: str) -> None:
    """By the order of its members it would be refused there, and tried again, or the other gang would lose its room."""
    scene = Scene(agents=1)
    scene.keep_victims = True

    def full_node(name: str, *priorities: int) -> None:
        scene.add_node(make_node(name).allocatable(cpu=str(len(priorities))).node())
        for place, priority in enumerate(priorities):
            scene.add_pod(make_pod(f"low-{name}-{place}").cpu("1").priority(priority).on(name).pod())

    def gang_of_two(name: str) -> None:
        key = tell_group(scene, 2, name)
        for number in range(2):
            scene.add_pod(replace(make_pod(f"{name}{number}").cpu("1").priority(100).pod(), group=key))
        scene.run(batch=100, until_s=0.5)

    for name in (first, "n1" if first == "n2" else "n2"):
        full_node(name, *((0, 50) if name == "n1" else (0,)))
    scene.begin()
    scene.run(batch=100)
    gang_of_two("a")
    full_node("n3", 0)
    scene.run(batch=100, until_s=0.5)
    gang_of_two("b")
    nominated = scene.core.state.cluster.nominated_to
    assert {nominated["uid-a0"], nominated["uid-a1"]} == {"n1", "n2"}
    assert nominated["uid-a0"] == first
    assert {nominated["uid-b0"], nominated["uid-b1"]} == {"n1", "n3"}
    full_node("n4", 0)
    scene.run(batch=100, until_s=0.5)
    for victim in ("uid-low-n2-0", "uid-low-n1-0", "uid-low-n1-1"):
        scene.delete_pod(victim)
    scene.add_pod(make_pod("thief").cpu("1").priority(1000).on("n2").pod())
    scene.run(batch=100, until_s=30)
    assert scene.core.state.stats.misfits == 0
    assert "uid-low-n4-0" in scene.evicted
    scene.delete_pod("uid-low-n3-0")
    scene.delete_pod("uid-low-n4-0")
    scene.run(batch=100, until_s=30)
    assert sorted(uid for uid, _ in scene.bindings) == ["uid-a0", "uid-a1", "uid-b0", "uid-b1"]
    assert not check_overcommit(scene)
