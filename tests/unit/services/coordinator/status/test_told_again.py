"""What autoscalers read stays true: it is told again, of all whom it concerns, and nobody is tried for it in vain."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core.instructions import PatchCondition
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.gang_waking import WOKEN_AT_ONCE
from shared.model.cluster_events import NodeDeleted, ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.preemption.delays import parse_delays
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene
from tests.unit.services.coordinator.status.test_autoscalers import (
    DELAYS,
    KEY,
    Waiting,
    acts,
    cluster,
    full,
    large,
    member,
    put_claim,
    using,
    waits,
)

# --- what was told, once it is otherwise ----------------------------------------------------------------------------


def gangs(scene: Scene, count: int, size: int) -> Waiting:
    """Of one kind: larger than any node, and all of one volume claim."""
    members = []
    for number in range(count):
        key = group_key(GroupSource.NATIVE, "default", f"g{number}")
        made = PodGroup(key, GroupSource.NATIVE, "default", f"g{number}", gang=True, min_count=size)
        scene.inbox.append(ObjectChanged("podgroups", f"default/g{number}", made))
        members += [replace(large(f"g{number}-{one}", "data"), group=key) for one in range(size)]
    return waits(scene, *members)


def reasons(scene: Scene, waiting: list[str]) -> set[str]:
    return {scene.pods[uid].condition[1] for uid in waiting}


def drop_claim(scene: Scene) -> None:
    scene.inbox.append(ObjectChanged("persistentvolumeclaims", "default/data", None))
    scene.run()


def test_all_gangs_of_a_kind_say_what_is_so_now_and_not_the_first_alone() -> None:
    scene = cluster()
    put_claim(scene)
    scene, waiting = gangs(scene, WOKEN_AT_ONCE + 4, 2)
    assert reasons(scene, waiting) == {"Unschedulable"}
    drop_claim(scene)
    scene.run(until_s=25.0)
    assert reasons(scene, waiting) == {"NotReadyForScheduling"}
    put_claim(scene)
    scene.run(until_s=25.0)
    assert reasons(scene, waiting) == {"Unschedulable"}


def tried(scene: Scene) -> int:
    return scene.core.state.stats.gangs_refused


def shake(scene: Scene) -> None:
    """Nodes of no use come and go for a minute."""
    for number in range(12):
        scene.add_node(make_node(f"small{number}").allocatable(cpu="100m").node())
        scene.run(until_s=2.5)
        del scene.nodes[f"small{number}"]
        scene.inbox.append(NodeDeleted(f"small{number}"))
        scene.run(until_s=2.5)


def test_a_gang_of_which_one_member_lacks_its_claim_rests_while_nodes_come_and_go() -> None:
    scene = cluster()
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=5)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    members = [replace(large(f"m{number}"), group=KEY) for number in range(5)]
    scene, waiting = waits(scene, *members, member(5, "none"))
    before = tried(scene)
    shake(scene)
    assert (reasons(scene, waiting), tried(scene)) == ({"Unschedulable"}, before)


def test_nodes_that_may_be_opened_are_looked_for_also_where_something_else_is_to_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = cluster()
    put_claim(scene)
    scene, waiting = waits(scene, *(large(f"p{number}", "data") for number in range(5)))
    looked: list[tuple[bool, int | None]] = []
    monkeypatch.setattr(
        scene.core.preemptor,
        "look_again",
        lambda group, row: looked.append((group.members.keys() == set(waiting), row)),
    )
    drop_claim(scene)
    assert reasons(scene, waiting) == {"NotReadyForScheduling"}
    assert looked == [(True, None)]


def test_pods_are_told_again_though_the_first_of_them_says_so_already() -> None:
    scene = cluster()
    scene, waiting = waits(scene, *(large(f"p{number}", "data") for number in range(5)))
    scene.core.requeuer.hold("test")  # what changes is looked into later
    put_claim(scene)
    scene.core.state.queue.wake(waiting[0], scene.now)
    scene.add_node(make_node("small").allocatable(cpu="100m").node())
    scene.run(until_s=15.0)
    assert [scene.pods[uid].condition[1] for uid in waiting] == ["Unschedulable", *["NotReadyForScheduling"] * 4]
    scene.core.requeuer.release("test")
    scene.run(until_s=5.0)
    assert reasons(scene, waiting) == {"Unschedulable"}


# --- claims, where a further node would not help --------------------------------------------------------------------


def test_without_nodes_a_pod_whose_claim_is_missing_buys_none_until_it_is_there() -> None:
    scene, [uid] = waits(cluster(nodes=0), using("p", "data"))
    assert acts(scene, uid) == {False}
    assert all(patch.reason != "Unschedulable" for patch in scene.of(PatchCondition))
    put_claim(scene)
    scene.run(until_s=61.0)
    assert acts(scene, uid) == {True}


@pytest.mark.parametrize(("least", "helped"), [(5, True), (6, False)])
def test_without_nodes_a_gang_buys_some_only_where_enough_members_would_go_to_them(least: int, helped: bool) -> None:
    scene = cluster(nodes=0)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=least)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    scene, waiting = waits(scene, *(member(number) for number in range(5)), member(5, "none"))
    assert [acts(scene, uid) for uid in waiting] == [{helped}] * 6


@pytest.mark.parametrize("refused", [False, True], ids=["leaves", "may not be evicted"])
def test_a_pod_whose_claim_a_victim_has_buys_no_node_whatever_becomes_of_the_victim(refused: bool) -> None:
    scene = cluster(nodes=2)
    put_claim(scene, "ReadWriteOncePod")
    scene.add_pod(replace(using("first", "data"), node_name="n0"))
    scene.run()
    scene.keep_victims = not refused
    scene.budget_forbids = {"uid-first"} if refused else set()
    scene, [uid] = waits(scene, replace(using("p", "data"), priority=100))
    for patch in scene.of(PatchCondition):
        assert patch.reason != "Unschedulable" or patch.nominated
    assert acts(scene, uid) == {False}
    assert bool(scene.evicted) is not refused


# --- who waits for the preemption delay, and who does not -----------------------------------------------------------


def test_what_no_node_helps_waits_for_no_delay() -> None:
    scene = cluster(nodes=2, preemption_delays=parse_delays("0=120"))
    put_claim(scene, "ReadWriteOncePod")
    scene.add_pod(replace(using("first", "data"), node_name="n0"))
    scene.run()
    scene, [uid] = waits(scene, replace(using("p", "data"), priority=500), until_s=5.0)
    assert scene.evicted == ["uid-first"]
    assert [bound for bound, _ in scene.bindings] == [uid]


def test_who_can_evict_nobody_is_told_so_once_and_not_of_a_delay() -> None:
    scene = full(low=7, preemption_delays=DELAYS)
    pods = [make_pod(f"p{number}").cpu("3").priority(7) for number in range(3)]
    scene, waiting = waits(scene, *pods, until_s=200.0)
    assert sorted(patch.uid for patch in scene.of(PatchCondition)) == sorted(waiting)
    assert all("nobody is evicted before" not in patch.message for patch in scene.of(PatchCondition))


def test_while_all_of_a_kind_are_delayed_no_victims_are_looked_for() -> None:
    scene = full(preemption_delays=DELAYS)
    scene, _ = waits(scene, *(make_pod(f"p{one}").cpu("3").priority(7) for one in range(5)), until_s=10.0)
    before = scene.core.state.stats.preemption_searches
    for number in range(5):
        scene.add_pod(make_pod(f"short{number}").cpu("100m").on("n0").pod())
        scene.run(until_s=1.0)
        scene.delete_pod(f"uid-short{number}")
        scene.run(until_s=1.0)
    assert scene.core.state.stats.preemption_searches == before
    scene.run(until_s=60.0)
    assert len(scene.bindings) == 1


def test_those_whose_delay_is_over_together_are_all_tried_again_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.coordinator.preemption.delayed.AT_ONCE", 2)
    scene = cluster(nodes=5, preemption_delays=DELAYS)
    for number in range(5):
        scene.add_pod(make_pod(f"low{number}").cpu("3").priority(-1).on(f"n{number}").pod())
    scene.run()
    scene, waiting = waits(scene, *(make_pod(f"p{one}").cpu("3").priority(7) for one in range(5)), until_s=50.0)
    assert not scene.evicted
    scene.run(until_s=15.0)
    assert {uid for uid, _ in scene.bindings} == set(waiting)


def test_a_pod_that_is_gone_is_delayed_no_longer() -> None:
    scene, [uid] = waits(full(preemption_delays=DELAYS), make_pod("p").cpu("3").priority(7), until_s=5.0)
    delayed = scene.core.nominations.delayed
    assert uid in delayed
    scene.delete_pod(uid)
    scene.run()
    assert uid not in delayed


def test_a_leader_that_saw_a_pod_while_it_stood_by_counts_the_delay_from_when_it_began() -> None:
    scene = Scene(settings=CoreSettings(validate=True, preemption_delays=DELAYS))
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("low").cpu("3").on("n0").pod())
    scene.add_pod(make_pod("p").cpu("3").priority(7).pod())
    scene.run()
    scene.now += 5_000.0
    scene.begin()
    scene.run(until_s=59.0)
    assert not scene.evicted
    assert acts(scene, "uid-p") == {True}
    scene.run(until_s=5.0)
    assert scene.evicted == ["uid-low"]
