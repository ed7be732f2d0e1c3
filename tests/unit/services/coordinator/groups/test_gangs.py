"""Pod groups through the coordinator: placed together or not at all."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import PlanAnswered
from services.coordinator.core.instructions import PatchCondition, TellPodGroup
from services.coordinator.groups.failures import Examination, GroupOutlook
from shared.model.cluster_events import ObjectChanged
from shared.model.terms.labels import selector_of_labels
from shared.model.terms.relations import Relations, SpreadConstraint
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup, WhenGangBreaks, group_key
from shared.scheduling.groups.quorum import MIXED, TOO_FEW
from shared.scheduling.pod_groups import ON_THEIR_WAY, GroupStanding, PodGroups
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

KEY = group_key(GroupSource.NATIVE, "default", "train")


def scene_with(nodes: int = 4, cpu: str = "4") -> Scene:
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu=cpu).node())
    scene.begin()
    scene.run()
    return scene


def tell_group(scene: Scene, minimum: int = 3, **changes: object) -> None:
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=minimum)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", replace(group, **changes)))


def add_members(scene: Scene, count: int, cpu: str = "2", *, start: int = 0) -> None:
    for number in range(start, start + count):
        scene.add_pod(replace(make_pod(f"m{number}").cpu(cpu).pod(), group=KEY))


def place_of(scene: Scene, name: str) -> list[str]:
    return scene.core.place_of(f"uid-{name}")


def test_a_gang_that_fits_is_planned_as_one() -> None:
    scene = scene_with()
    tell_group(scene)
    add_members(scene, 4)
    scene.run(batch=100)
    assert len(scene.bindings) == 4
    [plan] = scene.plans
    [gang] = plan.gangs
    assert (gang.group, gang.min_count, len(gang.members)) == (KEY, 3, 4)
    assert set(gang.members) == {placement.unit for placement in plan.placements}
    assert gang.unit not in gang.members


def test_a_gang_below_its_minimum_binds_nobody() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene)
    add_members(scene, 3)
    scene.run(batch=100)
    assert scene.bindings == []
    assert [place_of(scene, f"m{number}") for number in range(3)] == [["unschedulable"]] * 3
    told = [patch.message for patch in scene.of(PatchCondition)]
    assert len(told) == 3
    assert all("minCount (3) cannot be satisfied: 2 scheduled, 0 remaining" in text for text in told)
    assert [tell.condition[:2] for tell in scene.of(TellPodGroup)] == [("False", "Unschedulable")]
    scene.add_node(make_node("more").allocatable(cpu="4").node())
    scene.run(batch=100, until_s=5.0)
    assert len(scene.bindings) == 3


def test_a_gang_spreads_its_own_members_over_domains() -> None:
    """Two in each of three zones, none more than one ahead: more than one round of the zones, placed at once."""
    scene = Scene()
    for number in range(3):
        node = make_node(f"n{number}").allocatable(cpu="8").node()
        scene.add_node(replace(node, labels={"zone": f"z{number}"}))
    scene.begin()
    scene.run()
    tell_group(scene, 6)
    even = Relations(spread=(SpreadConstraint(1, "zone", True, selector_of_labels({"app": "x"})),))
    for number in range(6):
        pod = make_pod(f"m{number}").cpu("1").pod()
        scene.add_pod(replace(pod, group=KEY, labels={"app": "x"}, relations=even))
    scene.run(batch=100, until_s=20)
    assert sorted(node for _, node in scene.bindings) == ["n0", "n0", "n1", "n1", "n2", "n2"]


def test_members_wait_for_their_group_and_for_each_other() -> None:
    scene = scene_with()
    add_members(scene, 2)
    scene.run(batch=100, until_s=6.0)
    assert place_of(scene, "m0") == ["gated"]
    assert 'waiting for pods\'s pod group "train" to appear' in scene.pods["uid-m0"].condition[2]
    tell_group(scene)
    scene.run(batch=100, until_s=6.0)
    assert place_of(scene, "m0") == ["gated"]
    assert TOO_FEW in scene.pods["uid-m0"].condition[2]
    add_members(scene, 1, start=2)
    scene.run(batch=100)
    assert len(scene.bindings) == 3


def test_members_of_two_schedulers_wait_and_are_told_why() -> None:
    scene = scene_with()
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.add_pod(replace(make_pod("other").pod(), group=KEY, scheduler_name="default-scheduler"))
    scene.run(batch=100, until_s=6.0)
    assert scene.bindings == []
    assert MIXED in scene.pods["uid-m0"].condition[2]
    scene.delete_pod("uid-other")
    scene.run(batch=100)
    assert len(scene.bindings) == 2


def test_a_minimum_that_falls_lets_a_parked_gang_go() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    assert scene.bindings == []
    tell_group(scene, 2)
    scene.run(batch=100, until_s=2.0)
    assert len(scene.bindings) == 2
    assert place_of(scene, "m2") == ["unschedulable"]


def test_leftovers_wait_and_go_alone_once_the_minimum_runs() -> None:
    scene = scene_with(nodes=1)
    tell_group(scene, 2)
    add_members(scene, 3)
    scene.run(batch=100)
    assert len(scene.bindings) == 2
    scene.add_node(make_node("more").allocatable(cpu="4").node())
    scene.run(batch=100, until_s=5.0)
    assert len(scene.bindings) == 3
    assert not scene.plans[-1].gangs


def test_members_of_unequal_size_are_placed_though_the_agents_order_fails() -> None:
    """Small members spread over all nodes would leave none for the large one."""
    scene = scene_with(nodes=2, cpu="4")
    tell_group(scene, 3)
    for number, cpu in enumerate(["2", "2", "4"]):
        scene.add_pod(replace(make_pod(f"m{number}").cpu(cpu).pod(), group=KEY))
    scene.run(batch=100, until_s=10.0)
    assert len(scene.bindings) == 3
    assert scene.core.state.stats.gangs_partial == 0


def test_ablation_where_agents_alone_choose_unequal_members_are_never_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = Examination.go_on

    def found(examination: Examination, work: int) -> GroupOutlook | None:
        outlook = go_on(examination, work)
        return outlook and dataclasses.replace(outlook, nodes={})

    monkeypatch.setattr(Examination, "go_on", found)
    placed = []
    for seed in range(5):
        scene = Scene(seed=seed)
        for number in range(3):
            scene.add_node(make_node(f"n{number}").allocatable(cpu="4").node())
        scene.begin()
        tell_group(scene, 4)
        for number, cpu in enumerate(["2", "2", "4", "4"]):
            scene.add_pod(replace(make_pod(f"m{number}").cpu(cpu).pod(), group=KEY))
        scene.run(batch=100, until_s=10.0)
        placed.append(len(scene.bindings))
    assert 0 in placed


def test_all_members_go_to_one_rack_and_late_ones_follow() -> None:
    scene = Scene()
    for number in range(8):
        scene.add_node(make_node(f"n{number}").label(rack=f"r{number // 2}").allocatable(cpu="4").node())
    scene.begin()
    scene.run()
    scene.add_pod(make_pod("blocker").cpu("4").pod())
    scene.run(batch=100)
    tell_group(scene, 3, topology=GroupTopology("rack"))
    add_members(scene, 3)
    scene.run(batch=100, until_s=1.0)
    racks = {int(node[1:]) // 2 for uid, node in scene.bindings if uid != "uid-blocker"}
    assert len(scene.bindings) == 4
    assert len(racks) == 1
    add_members(scene, 2, start=3)
    scene.run(batch=100, until_s=1.0)
    assert {int(node[1:]) // 2 for uid, node in scene.bindings if uid != "uid-blocker"} == racks
    assert len(scene.bindings) == 5
    assert place_of(scene, "m4") == ["unschedulable"]
    assert "outside the topology domain" in scene.pods["uid-m4"].condition[2]


def test_a_gang_that_no_rack_holds_waits() -> None:
    scene = Scene()
    for number in range(4):
        scene.add_node(make_node(f"n{number}").label(rack=f"r{number}").allocatable(cpu="4").node())
    scene.begin()
    tell_group(scene, 3, topology=GroupTopology("rack"))
    add_members(scene, 3)
    scene.run(batch=100, until_s=30.0)
    assert scene.bindings == []
    tell_group(scene, 3, topology=GroupTopology("rack", required=False))
    scene.run(batch=100, until_s=30.0)
    assert len(scene.bindings) == 3


def refused(scene: Scene, *uids: str) -> None:
    """The binder answers the last plan: these are refused, the others bound."""
    plan = scene.held_plans.pop()
    results = []
    for placement in plan.placements:
        if placement.uid in uids:
            results.append(PlacementResult(placement.unit, Outcome.REFUSED, reason="denied by a webhook"))
        else:
            scene.change_pod(placement.uid, node_name=placement.node)
            scene.bindings.append((placement.uid, placement.node))
            results.append(PlacementResult(placement.unit, Outcome.BOUND, placement.node))
    answer = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results)
    scene.inbox.append(PlanAnswered(plan.plan_id, answer))


def test_a_broken_gang_keeps_what_runs_and_tries_the_rest_with_it_counted() -> None:
    scene = scene_with()
    scene.hold_plans = True
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    refused(scene, "uid-m1")
    scene.run(batch=100)
    assert place_of(scene, "m1") == ["backoff"]
    scene.hold_plans = False
    scene.run(batch=100, until_s=3.0)
    assert len(scene.bindings) == 3
    assert scene.core.state.stats.gangs_partial == 1


def test_a_broken_gang_is_evicted_after_its_time_where_it_says_so() -> None:
    scene = scene_with(nodes=1)
    scene.hold_plans = True
    tell_group(scene, 2, broken=WhenGangBreaks.EVICT, timeout_s=20.0)
    add_members(scene, 2)
    scene.run(batch=100)
    refused(scene, "uid-m1")
    scene.hold_plans = False
    scene.run(batch=100)
    scene.delete_pod("uid-m1")
    scene.run(batch=100, until_s=19.0)
    assert scene.evicted == []
    scene.run(batch=100, until_s=2.0)
    assert scene.evicted == ["uid-m0"]


def test_a_gang_whose_members_finish_one_by_one_is_not_broken() -> None:
    scene = scene_with()
    tell_group(scene, 3, broken=WhenGangBreaks.EVICT, timeout_s=5.0)
    add_members(scene, 3)
    scene.run(batch=100)
    for name in ("m0", "m1"):
        scene.change_pod(f"uid-{name}", phase="Succeeded")
    scene.run(batch=100, until_s=60.0)
    assert scene.evicted == []


def test_nobody_joins_a_gang_whose_plan_is_not_answered() -> None:
    """Bound alone it would be half a gang, if the binder gave the others back."""
    scene = scene_with()
    scene.hold_plans = True
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    add_members(scene, 1, start=3)
    scene.run(batch=100)
    assert place_of(scene, "m3") == ["gated"]
    assert len(scene.held_plans) == 1
    plan = scene.held_plans.pop()
    results = [PlacementResult(p.unit, Outcome.CONFLICT, reason="full") for p in plan.placements]
    answer = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results)
    scene.hold_plans = False
    scene.inbox.append(PlanAnswered(plan.plan_id, answer))
    scene.run(batch=100, until_s=2.0)
    assert len(scene.plans[-1].gangs[0].members) == 4
    assert len(scene.bindings) == 4


def test_ablation_a_member_that_joins_those_on_their_way_is_bound_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = PodGroups.standing

    def hasty(self: PodGroups, key: str) -> tuple[GroupStanding, str]:
        found = standing(self, key)
        return (GroupStanding.ALONE, "") if found[1] == ON_THEIR_WAY else found

    monkeypatch.setattr(PodGroups, "standing", hasty)
    scene = scene_with()
    scene.hold_plans = True
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    add_members(scene, 1, start=3)
    scene.run(batch=100)
    assert [len(plan.gangs) for plan in scene.held_plans] == [1, 0]


def test_a_new_leader_waits_for_a_gangs_open_intent() -> None:
    scene = scene_with()
    scene.hold_plans = True
    tell_group(scene, 3)
    add_members(scene, 4)
    scene.run(batch=100)
    scene.replace_leader(committed={0})
    scene.hold_plans = False
    tell_group(scene, 3)
    scene.run(batch=100)
    assert scene.bindings == []
    for number in range(3):
        scene.end_intent(f"uid-m{number}", bind=True)
    scene.run(batch=100)
    assert place_of(scene, "m3") == ["intent"]
    scene.end_intent("uid-m3", bind=False)
    scene.run(batch=100, until_s=1.0)
    assert len(scene.bindings) == 4


def test_a_gang_of_many_is_in_one_cycle() -> None:
    scene = scene_with(nodes=30, cpu="8")
    tell_group(scene, 100)
    add_members(scene, 100)
    scene.run(batch=300)
    assert len(scene.bindings) == 100
    assert [len(plan.placements) for plan in scene.plans] == [100]


def test_gangs_that_race_for_room_never_leave_a_part() -> None:
    """Interleaved arrivals of four gangs with room for two: two run whole, two wait whole."""
    scene = scene_with(nodes=4, cpu="4")
    keys = [group_key(GroupSource.NATIVE, "default", f"g{number}") for number in range(4)]
    for number, key in enumerate(keys):
        group = PodGroup(key, GroupSource.NATIVE, "default", f"g{number}", gang=True, min_count=4)
        scene.inbox.append(ObjectChanged("podgroups", f"default/g{number}", group))
    for member in range(4):
        for number, key in enumerate(keys):
            scene.add_pod(replace(make_pod(f"g{number}-{member}").cpu("2").pod(), group=key))
            scene.run()
    scene.run(until_s=30.0)
    bound = Counter(uid.split("-")[1] for uid, _ in scene.bindings)
    assert sorted(bound.values()) == [4, 4]


def test_a_group_that_cannot_be_used_is_told_so_even_without_members() -> None:
    scene = scene_with()
    problem = "spec.x: bad; correct it"
    tell_group(scene, problem=problem)
    scene.run(batch=100)
    assert [tell.condition for tell in scene.of(TellPodGroup)] == [("False", "NotReadyForScheduling", problem)]
    tell_group(scene)
    scene.run(batch=100)
    assert len(scene.of(TellPodGroup)) == 1
