"""Preemption beside another scheduler: its pods do not get the room that is made for ours, and never cost ever more."""

from __future__ import annotations

from collections import deque

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import Event, NodeHeld, PlanAnswered
from services.coordinator.core.instructions import HoldNode, PatchCondition, SendPlan
from services.coordinator.core.state import CoreSettings
from services.coordinator.preemption.holds import AT_MOST_S, LONGEST_AGAIN_S, Holds
from services.coordinator.preemption.tries import MOST, PAUSE_S
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.preemption.test_preemption import full, high
from tests.unit.services.coordinator.scene import Scene

KEY = group_key(GroupSource.NATIVE, "default", "train")
THEIRS = "default-scheduler"


def theirs(name: str, *, on: str = "") -> Pod:
    """A pod of the other scheduler, as large as a victim."""
    builder = make_pod(name).cpu("3").priority(0)
    return replace((builder.on(on) if on else builder).pod(), scheduler_name=THEIRS)


def beside(nodes: int = 2) -> Scene:
    """Full nodes, and a pod of the other scheduler that waits for room; victims stay for a while."""
    scene = full(nodes)
    scene.add_pod(theirs("waits"))
    scene.run()
    scene.keep_victims = True
    return scene


def holds(scene: Scene) -> list[tuple[str, bool]]:
    return [(one.node, one.hold) for one in scene.of(HoldNode)]


def leave(scene: Scene) -> None:
    for uid in scene.evicted:
        if uid in scene.pods:
            scene.delete_pod(uid)


def test_the_node_is_closed_to_others_before_the_victim_is_asked_and_open_when_the_pod_is_bound() -> None:
    scene = beside()
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    (victim,) = scene.evicted
    node = f"n{victim[-1]}"
    asked = [i for i in scene.trace if isinstance(i, HoldNode) or (isinstance(i, SendPlan) and i.plan.evictions)]
    assert isinstance(asked[0], HoldNode)
    assert holds(scene) == [(node, True)]
    leave(scene)
    scene.run(until_s=3)
    assert scene.bindings == [("uid-high", node)]
    assert holds(scene) == [(node, True), (node, False)]
    assert not scene.nodes[node].held


def test_no_node_is_closed_where_no_other_scheduler_is_at_work() -> None:
    scene = full()
    scene.add_pod(high().pod())
    scene.run(until_s=15)
    assert len(scene.bindings) == 1
    assert holds(scene) == []


def test_a_victim_of_another_scheduler_is_enough_since_a_controller_makes_it_anew() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.add_pod(theirs("stands", on="n0"))
    scene.run()
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    assert holds(scene)[0] == ("n0", True)


def test_where_nodes_may_not_be_closed_room_is_made_all_the_same() -> None:
    scene = beside()
    scene.refuse_holds = True
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    assert len(scene.evicted) == 1


def test_all_nodes_of_a_gang_are_closed_before_anybody_is_asked() -> None:
    scene = beside(4)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(3):
        scene.add_pod(replace(high(f"m{number}").pod(), group=KEY))
    scene.run(batch=100, until_s=10)
    assert len(scene.evicted) == 3
    order = [
        "hold" if isinstance(i, HoldNode) else "evict"
        for i in scene.trace
        if isinstance(i, HoldNode) or (isinstance(i, SendPlan) and i.plan.evictions)
    ]
    assert order[:3] == ["hold"] * 3
    leave(scene)
    scene.run(batch=100, until_s=10)
    assert len(scene.bindings) == 3
    assert not any(node.held for node in scene.nodes.values())


def test_a_node_is_not_closed_for_longer_than_its_time() -> None:
    scene = beside()
    scene.add_pod(high().pod())
    scene.run(until_s=AT_MOST_S + 5)
    assert [hold for _, hold in holds(scene)] == [True, False]
    assert scene.core.state.cluster.nominated_to == {"uid-high": holds(scene)[0][0]}


def test_a_node_is_open_again_when_the_preemptor_is_deleted() -> None:
    scene = beside()
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    scene.delete_pod("uid-high")
    scene.run(until_s=3)
    assert [hold for _, hold in holds(scene)] == [True, False]


def test_annotations_that_are_there_without_the_taint_are_taken_away() -> None:
    scene = full()
    scene.add_node(replace(scene.nodes["n0"], marked=True))
    scene.run(until_s=3)
    assert holds(scene) == [("n0", False)]
    assert not scene.nodes["n0"].marked


def test_a_node_whose_taint_is_taken_away_while_it_is_wanted_gets_it_again() -> None:
    scene = beside()
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    ((node, _),) = holds(scene)
    scene.add_node(replace(scene.nodes[node], held=False))
    scene.run(until_s=3)
    assert holds(scene) == [(node, True), (node, True)]


def test_a_node_that_may_not_be_opened_is_tried_less_and_less_often_until_it_may() -> None:
    scene = beside()
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    scene.refuse_holds = True
    scene.delete_pod("uid-high")
    scene.run(until_s=600)
    tries = len(holds(scene)) - 1
    assert tries <= 6 + 600 / LONGEST_AGAIN_S
    scene.refuse_holds = False
    scene.run(until_s=LONGEST_AGAIN_S + 1)
    assert not any(node.held for node in scene.nodes.values())


def test_a_new_leader_opens_what_an_earlier_one_left_closed_when_nobody_is_nominated_there() -> None:
    scene = beside()
    scene.add_pod(high().pod())
    scene.run(until_s=3)
    (node,) = (name for name, one in scene.nodes.items() if one.held)
    scene.replace_leader(set())
    scene.run(until_s=10)
    assert scene.nodes[node].held, "a pod of ours is nominated there still"
    leave(scene)
    scene.run(until_s=20)
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]
    assert not scene.nodes[node].held


def test_evictions_for_one_pod_are_bounded_though_others_take_the_room_each_time() -> None:
    scene = beside(6)
    scene.refuse_holds = True
    scene.add_pod(high().pod())
    for number in range(12):
        scene.run(until_s=3)
        for uid in [uid for uid in scene.evicted if uid in scene.pods]:
            node = scene.pods[uid].node_name
            scene.delete_pod(uid)
            scene.add_pod(theirs(f"taken-{number}", on=node))
            while scene.step(batch=100):
                pass
    assert len(scene.evicted) == MOST
    told = [patch for patch in scene.of(PatchCondition) if patch.uid == "uid-high"][-1]
    assert f"room was made {MOST} times in a row, and other pods took it" in told.message
    assert scene.pods["uid-high"].nominated_node == ""


def test_it_is_tried_again_after_a_pause() -> None:
    scene = beside(6)
    tries = scene.core.nominations.tries
    for _ in range(MOST):
        assert not tries.refusal("uid-high")
        tries.begun("uid-high")
    assert tries.refusal("uid-high")
    scene.run(until_s=PAUSE_S + 1)
    scene.core.handle([], scene.now)
    assert not tries.refusal("uid-high")
    tries.forget("uid-high")
    assert not tries.of


def test_what_is_kept_for_a_pod_of_another_scheduler_is_not_taken_from_it() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    nominated = replace(theirs("theirs"), nominated_node="n0", priority=10)
    scene.add_pod(nominated)
    scene.run()
    scene.add_pod(make_pod("lower").cpu("3").priority(5).pod())
    scene.add_pod(make_pod("small").cpu("1").priority(5).pod())
    scene.run(until_s=5)
    assert scene.bindings == [("uid-small", "n0")]
    scene.delete_pod("uid-theirs")
    scene.run(until_s=15)
    assert ("uid-lower", "n0") in scene.bindings


def test_a_pod_of_another_scheduler_is_never_written_to() -> None:
    """A preemptor of ours displaces nominations of lower priority; those of others are theirs to withdraw."""
    scene = full(1)
    scene.add_pod(replace(theirs("theirs"), nominated_node="n0", priority=10))
    scene.run()
    scene.add_pod(high().pod())
    scene.run(until_s=15)
    assert ("uid-high", "n0") in scene.bindings
    assert not [patch for patch in scene.of(PatchCondition) if patch.uid == "uid-theirs"]


def starving() -> Scene:
    """Two nodes full of pods of the gang's own priority that end by themselves, and another scheduler's pods wait."""
    scene = Scene(settings=CoreSettings(validate=True, gang_patience_s=20.0))
    for number in range(2):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="4").node())
    scene.begin()
    for number in range(4):
        scene.add_pod(make_pod(f"small{number}").cpu("2").pod())
    scene.run(batch=100)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=4, timeout_s=300.0)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(4):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("2").pod(), group=KEY))
    return scene


def others_come(scene: Scene, seconds: int) -> None:
    """Each second a small pod ends, and the other scheduler takes what is free where it may."""
    for second in range(seconds):
        small = [uid for uid, pod in scene.pods.items() if pod.node_name and uid[4] != "m"]
        if second % 2 and small:
            scene.delete_pod(small[0])
        for node in scene.nodes.values():
            there = [pod for pod in scene.pods.values() if pod.node_name == node.name]
            if not node.held and len(there) < 2:
                pod = make_pod(f"taken{second}{node.name}").cpu("2").on(node.name).pod()
                scene.add_pod(replace(pod, scheduler_name=THEIRS))
        scene.run(batch=100, until_s=1.0)


def test_nodes_kept_for_a_gang_that_starves_are_closed_to_others_and_open_when_it_runs() -> None:
    scene = starving()
    scene.add_pod(theirs("waits"))
    others_come(scene, 60)
    assert {f"uid-m{number}" for number in range(4)} <= {uid for uid, _ in scene.bindings}
    assert not scene.evicted
    scene.run(batch=100, until_s=5.0)
    assert not any(node.held for node in scene.nodes.values())


def test_ablation_without_that_the_gang_starves_beside_another_scheduler() -> None:
    scene = starving()
    scene.refuse_holds = True
    scene.add_pod(theirs("waits"))
    others_come(scene, 60)
    assert not {f"uid-m{number}" for number in range(4)} & {uid for uid, _ in scene.bindings}


def test_nodes_kept_for_a_gang_in_vain_are_open_after_its_turn() -> None:
    scene = starving()
    scene.add_pod(theirs("waits"))
    scene.run(batch=100, until_s=45.0)
    assert {hold for _, hold in holds(scene)} == {True, False}
    assert not any(node.held for node in scene.nodes.values())


def test_a_gang_that_starves_alone_in_its_cluster_closes_no_node() -> None:
    scene = starving()
    scene.run(batch=100, until_s=30.0)
    assert scene.core.state.cluster.nominated_to
    assert holds(scene) == []


def test_a_gang_whose_binder_is_behind_the_victims_end_takes_its_room_after_a_pause() -> None:
    """It refuses nodes on which nothing changes any more: nobody else may have them, and they would stay empty."""
    scene = beside(3)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(2):
        scene.add_pod(replace(high(f"m{number}").pod(), group=KEY))
    scene.run(batch=100, until_s=5)
    scene.hold_plans = True
    leave(scene)
    scene.run(batch=100, until_s=2)
    [plan] = [plan for plan in scene.held_plans if plan.placements]
    refused = [PlacementResult(p.unit, Outcome.CONFLICT, p.node, "the watch lags") for p in plan.placements]
    scene.hold_plans = False
    told = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, refused)
    scene.inbox.append(PlanAnswered(plan.plan_id, told))
    scene.run(batch=100, until_s=30)
    assert sorted(uid for uid, _ in scene.bindings) == ["uid-m0", "uid-m1"]
    assert len(set(scene.evicted)) == 2


@pytest.mark.parametrize("nominated", [False, True])
def test_the_victim_of_another_schedulers_preemptor_is_not_counted_on(nominated: bool) -> None:
    """It carries the same mark as ours: what it leaves is for the pod that is nominated there, though that yields."""
    scene = full(2)
    scene.change_pod("uid-low0", preempted=True, terminating=True)
    scene.add_pod(replace(theirs("theirs"), nominated_node="n0" if nominated else "", priority=10))
    scene.run()
    low = scene.core.state.cluster.index.get("uid-low0")
    assert low is not None
    assert scene.core.nominations.leaves(low) is not nominated


def looks_at_holds(count: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """How often it is asked whether a node is closed, for each of a burst of preemptors."""
    scene, stands, asked = beside(count), Holds.stands, 0

    def counted(holds: Holds, node: str) -> bool:
        nonlocal asked
        asked += 1
        return stands(holds, node)

    monkeypatch.setattr(Holds, "stands", counted)
    for number in range(count):
        scene.add_pod(high(f"high{number}").pod())
    late: list[Event] = []
    while scene.inbox:  # all nominations are stored before the first node is known to be closed
        scene.step()
        late += [event for event in scene.inbox if isinstance(event, NodeHeld)]
        scene.inbox = deque(event for event in scene.inbox if not isinstance(event, NodeHeld))
    scene.inbox.extend(late)
    scene.run(batch=100, until_s=3)
    assert len(late) == len(set(scene.evicted)) == count
    return asked / count


def test_a_node_that_is_closed_costs_those_that_wait_for_it_and_not_all_preemptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert looks_at_holds(4, monkeypatch) == looks_at_holds(12, monkeypatch) <= 2
