"""Several shards at the coordinator: a plan for each, a gang in one, and nobody held up by a shard without a binder."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import BinderChanged, Event, PlanAnswered, PlanFailed, ShardsSeen
from services.coordinator.core.instructions import Instruction, PatchCondition, SendPlan
from services.coordinator.core.state import WORK_PER_TURN, CoreSettings
from services.coordinator.groups import failures
from services.coordinator.inspect.explain import explain
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.groups.placing import Attempt, Exploring
from shared.scheduling.shards import Shards
from shared.turns import Stop
from shared.wire.messages import VERSION, Eviction, Outcome, PlacementResult, Plan, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

TWO = Shards(("0", "1"), 5)
NODES = {"0": ("n0", "n2"), "1": ("n5", "n6")}
KEY = group_key(GroupSource.NATIVE, "default", "train")


def scene_of(*, cpu: str = "4", hold: bool = False, settings: CoreSettings | None = None) -> Scene:
    """Two shards of two nodes each."""
    scene = Scene(shards=TWO, settings=settings)
    scene.hold_plans = hold
    for shard, names in NODES.items():
        for name in names:
            assert TWO.of(name) == shard
            scene.add_node(make_node(name).allocatable(cpu=cpu).node())
    scene.begin()
    scene.run()
    return scene


def add_gang(scene: Scene, members: int, minimum: int) -> None:
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=minimum)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    for number in range(members):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("2").pod(), group=KEY))


def test_a_cycles_placements_become_one_plan_per_shard_and_next_best_nodes_stay_in_it() -> None:
    scene = scene_of(cpu="2")
    for number in range(4):
        scene.add_pod(make_pod(f"p{number}").cpu("2").pod())
    scene.run(batch=100)
    assert len(scene.bindings) == 4
    for plan in scene.plans:
        nodes = {node for placement in plan.placements for node in (placement.node, *placement.alternatives)}
        assert len({TWO.of(node) for node in nodes}) == 1


def test_evictions_go_to_the_shard_of_their_node() -> None:
    scene = scene_of(hold=True)
    scene.core.ledger.evict([Eviction(f"v{node}", "default", node, "", node) for node in ("n0", "n5", "n2")])
    plans = [opened for opened in scene.core.ledger.plans.values() if opened.plan.evictions]
    assert {plan.shard: [victim.node for victim in plan.plan.evictions] for plan in plans} == {
        "0": ["n0", "n2"],
        "1": ["n5"],
    }


def test_a_gang_goes_to_its_home_alone() -> None:
    scene = scene_of()
    add_gang(scene, 4, 3)
    scene.run(batch=100)
    assert {node for _, node in scene.bindings} == set(NODES[TWO.of(KEY)])
    [plan] = scene.plans
    assert len(plan.gangs) == 1


def test_a_gang_that_its_home_cannot_take_goes_to_a_shard_that_can() -> None:
    scene = scene_of()
    home = TWO.of(KEY)
    for name in NODES[home]:
        scene.add_pod(make_pod(f"fills-{name}").cpu("4").on(name).pod())
    add_gang(scene, 4, 4)
    scene.run(batch=100, until_s=10.0)
    gang = {node for uid, node in scene.bindings if uid.startswith("uid-m")}
    assert gang == set(NODES["1" if home == "0" else "0"])
    assert scene.core.validate() == []


def test_a_gang_of_which_some_were_planned_keeps_its_committer_and_borrows_elsewhere() -> None:
    """A deposed binder may give back a moment too early what only its own shard's committer knows of."""
    scene = scene_of(hold=True)
    home = TWO.of(KEY)
    add_gang(scene, 4, 4)
    scene.run(batch=100)
    [plan] = scene.held_plans
    scene.hold_plans = False
    for name in NODES[home]:
        scene.add_pod(make_pod(f"fills-{name}").cpu("4").on(name).pod())
    results = [PlacementResult(p.unit, Outcome.CONFLICT, "", "its gang was given back") for p in plan.placements]
    result = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results)
    scene.deliver(PlanAnswered(plan.plan_id, result))
    scene.run(batch=100, until_s=10.0)
    gang = {node for uid, node in scene.bindings if uid.startswith("uid-m")}
    assert gang == set(NODES["1" if home == "0" else "0"])
    lending, committing = scene.plans[-2:]
    assert lending.lend
    assert {loan.uid for loan in committing.loans} == {placement.uid for placement in committing.placements}


def spanning_scene(*, hold: bool = False, leaderless: str = "") -> Scene:
    """A gang that takes three of four nodes, with its plans held back."""
    scene = scene_of(hold=hold)
    if leaderless:
        scene.deliver(BinderChanged("", 0, leaderless))
    add_gang(scene, 6, 6)
    scene.run(batch=100)
    return scene


def test_a_gang_larger_than_any_shard_spans_them() -> None:
    scene = spanning_scene()
    gang = [node for uid, node in scene.bindings if uid.startswith("uid-m")]
    assert len(gang) == 6
    assert {TWO.of(node) for node in gang} == {"0", "1"}
    lending, committing = scene.plans
    assert lending.lend
    [never] = lending.gangs  # so a binder that does not know of loans commits none of it
    assert set(never.members) == {placement.unit for placement in lending.placements}
    assert never.min_count > len(never.members)
    assert {TWO.of(placement.node) for placement in lending.placements} == {"1" if TWO.of(KEY) == "0" else "0"}
    assert {loan.uid for loan in committing.loans} == {placement.uid for placement in lending.placements}
    assert scene.core.validate() == []


def test_a_gang_goes_to_one_shard_where_one_can_take_it() -> None:
    """It waited while only all together had room, and then its home has."""
    scene = scene_of()
    for name in sum(NODES.values(), ()):
        scene.add_pod(make_pod(f"fills-{name}").cpu("4").on(name).pod())
    add_gang(scene, 4, 4)
    scene.run(batch=100, until_s=10.0)
    assert scene.core.state.groups.members[KEY].spans
    for name in NODES[TWO.of(KEY)]:
        scene.delete_pod(f"uid-fills-{name}")
    scene.run(batch=100, until_s=10.0)
    assert {node for _, node in scene.bindings} == set(NODES[TWO.of(KEY)])
    assert not any(plan.lend for plan in scene.plans)


def test_room_that_comes_free_in_any_shard_wakes_a_gang_that_waits() -> None:
    scene = scene_of()
    for name in sum(NODES.values(), ()):
        scene.add_pod(make_pod(f"fills-{name}").cpu("4").on(name).pod())
    add_gang(scene, 4, 4)
    scene.run(batch=100, until_s=10.0)
    for names in NODES.values():
        scene.delete_pod(f"uid-fills-{names[0]}")
    scene.run(batch=100, until_s=2.0)
    assert {node for _, node in scene.bindings} == {names[0] for names in NODES.values()}


def test_a_gang_larger_than_all_shards_waits_and_is_told() -> None:
    scene = scene_of()
    add_gang(scene, 10, 10)
    scene.run(batch=100, until_s=10.0)
    assert scene.bindings == []
    told = [patch.message for patch in scene.of(PatchCondition)]
    assert any("Insufficient cpu" in text for text in told), told


def lend_of(scene: Scene) -> Plan:
    [plan] = [plan for plan in scene.held_plans if plan.lend]
    return plan


def test_nothing_is_sent_to_the_home_before_all_is_lent() -> None:
    scene = spanning_scene(hold=True)
    assert [plan.lend for plan in scene.held_plans] == [True]
    [waiting] = [opened for opened in scene.core.ledger.plans.values() if opened.borrows]
    assert waiting.shard == TWO.of(KEY)
    told = explain(scene.core, scene.pods["uid-m0"], {}, scene.now)
    assert "is asked to lend room" in str(told)


def test_a_gang_that_is_lent_too_little_is_given_back_whole() -> None:
    scene = spanning_scene(hold=True)
    plan = lend_of(scene)
    results = [PlacementResult(p.unit, Outcome.CONFLICT, p.node, "full") for p in plan.placements]
    scene.deliver(PlanAnswered(plan.plan_id, PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results)))
    assert all(not placed.loan for placed in scene.core.ledger.placed.values())
    assert scene.core.validate() == []
    scene.hold_plans = False
    scene.run(batch=100, until_s=10.0)
    assert len(scene.bindings) == 6


def went_while_it_borrowed(scene: Scene, gone: list[str]) -> list[bool]:
    """Members that were bound go before the lender has answered: of the plans sent, which lend."""
    plan = lend_of(scene)
    for uid in gone:
        scene.delete_pod(uid)
    scene.run(batch=100)
    scene.deliver(scene.bind(plan))
    assert scene.core.validate() == []
    return [held.lend for held in scene.held_plans]


def test_a_gang_whose_bound_members_went_while_it_borrowed_is_not_sent_below_its_minimum() -> None:
    scene = scene_of(hold=True)
    add_gang(scene, 0, 6)
    scene.add_pod(replace(make_pod("b").cpu("2").on(NODES["0"][0]).pod(), group=KEY))
    scene.run(batch=100)
    add_gang(scene, 5, 6)
    scene.run(batch=100)
    assert went_while_it_borrowed(scene, ["uid-b"]) == [True]


def test_a_late_member_whose_gang_went_while_it_borrowed_is_not_sent_alone() -> None:
    scene = scene_of()
    add_gang(scene, 4, 4)
    scene.run(batch=100)
    node = scene.pods["uid-m0"].node_name
    scene.hold_plans = True
    scene.delete_pod("uid-m0")
    scene.add_pod(make_pod("fills").cpu("2").on(node).pod())
    scene.run(batch=100)
    scene.add_pod(replace(make_pod("m9").cpu("2").pod(), group=KEY))
    scene.run(batch=100, until_s=2.0)
    assert went_while_it_borrowed(scene, ["uid-m1", "uid-m2", "uid-m3"]) == [True]


def test_a_lender_that_does_not_answer_holds_a_gang_up_no_longer_than_its_time() -> None:
    scene = spanning_scene(hold=True)
    plan = lend_of(scene)
    scene.hold_plans = False
    scene.run(batch=100, until_s=4.0)
    assert scene.bindings == []
    scene.run(batch=100, until_s=10.0)
    assert len(scene.bindings) == 6
    told = [patch.message for patch in scene.of(PatchCondition)]
    assert any("whether it lends room" in text for text in told), told
    late = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, [])
    assert not [i for i in scene.deliver(PlanAnswered(plan.plan_id, late)) if isinstance(i, SendPlan)]


def test_a_late_member_goes_where_there_is_room_and_its_home_commits_it() -> None:
    scene = scene_of()
    home = TWO.of(KEY)
    add_gang(scene, 4, 4)
    scene.run(batch=100)
    scene.add_pod(replace(make_pod("m9").cpu("2").pod(), group=KEY))
    scene.run(batch=100, until_s=10.0)
    [node] = [node for uid, node in scene.bindings if uid == "uid-m9"]
    assert TWO.of(node) != home
    assert [loan.shard for loan in scene.plans[-1].loans] == [TWO.of(node)]


def test_with_one_shard_nothing_is_labelled_and_a_gang_goes_anywhere() -> None:
    scene = Scene()
    for name in ("n0", "n5"):
        scene.add_node(make_node(name).allocatable(cpu="4").node())
    scene.begin()
    add_gang(scene, 4, 4)
    scene.run(batch=100)
    assert {node for _, node in scene.bindings} == {"n0", "n5"}


def test_a_shard_without_a_binder_holds_up_nobody_else() -> None:
    """Its plans wait for one, and are sent as soon as there is one."""
    scene = scene_of(hold=True)
    scene.deliver(BinderChanged("", 0, "1"))
    for number in range(8):
        scene.add_pod(make_pod(f"p{number}").cpu("2").pod())
    scene.run(batch=100)
    waiting = [plan for plan in scene.core.ledger.plans.values() if plan.shard == "1"]
    assert waiting
    assert all(plan.sends == 0 for plan in waiting)
    assert scene.core.ledger.has_room()
    assert scene.core.ledger.leaderless() == ["1"]
    sent = scene.deliver(BinderChanged("http://late", 9, "1"))
    assert {s.plan.plan_id for s in sent if isinstance(s, SendPlan)} == {plan.plan.plan_id for plan in waiting}


def test_gangs_that_wait_for_a_shard_without_a_binder_to_lend_hold_up_nobody_else() -> None:
    scene = spanning_scene(hold=True, leaderless="1" if TWO.of(KEY) == "0" else "0")
    [borrowing] = [opened for opened in scene.core.ledger.plans.values() if opened.borrows]
    scene.core.ledger.plans |= dict.fromkeys(range(100, 120), borrowing)
    assert scene.core.ledger.has_room()


def test_a_plan_that_came_to_the_wrong_shard_is_sent_again_and_its_units_stay_where_they_are() -> None:
    """It may have had an effect before the shards changed: who refuses it now does not know of that."""
    scene = scene_of(hold=True)
    scene.add_pod(make_pod("a").cpu("2").pod())
    scene.run()
    [plan] = scene.held_plans
    scene.deliver(PlanFailed(plan.plan_id, "wrong_shard", refused=True))
    assert scene.core.place_of("uid-a") == ["assumed"]
    scene.run(until_s=2.0)
    assert len(scene.held_plans) > 1
    assert scene.held_plans[-1] == plan


def test_who_committed_a_gang_is_asked_for_its_end_also_when_the_group_has_no_members_any_more() -> None:
    """Its pods are being deleted, and another shard than its home by name took it."""
    scene = scene_of(hold=True)
    home = TWO.of(KEY)
    for name in NODES[home]:
        scene.add_pod(make_pod(f"fills-{name}").cpu("4").on(name).pod())
    add_gang(scene, 4, 4)
    scene.run(batch=100)
    plan = scene.held_plans[-1]
    for number in range(4):
        scene.change_pod(f"uid-m{number}", terminating=True)
    scene.run(batch=100)
    results = [PlacementResult(p.unit, Outcome.UNRESOLVED, p.node) for p in plan.placements]
    result = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results, elapsed_us=2_000_000)
    scene.deliver(PlanAnswered(plan.plan_id, result, 2.0))
    [asked] = [opened for opened in scene.core.ledger.plans.values() if opened.again]
    assert {TWO.of(placement.node) for placement in asked.plan.placements} == {asked.shard}


def test_another_record_of_the_shards_ends_the_term() -> None:
    scene = scene_of()
    assert not [i for i in scene.deliver(ShardsSeen(5)) if isinstance(i, Stop)]
    assert [i for i in scene.deliver(ShardsSeen(6)) if isinstance(i, Stop)]


def test_a_gang_tries_each_shard_in_a_part_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one attempt takes a turn's work, no turn looks at all shards."""
    monkeypatch.setattr(failures, "ATTEMPT", WORK_PER_TURN)
    shards = Shards(tuple("0123"), 5)
    names = {shard: next(f"n{n}" for n in range(99) if shards.of(f"n{n}") == shard) for shard in shards.names}
    home = shards.of(KEY)
    last = next(shard for shard in reversed(shards.names) if shard != home)
    scene = Scene(shards=shards)
    for shard, name in names.items():
        scene.add_node(make_node(name).allocatable(cpu="8" if shard == last else "2").node())
    scene.begin()
    scene.run()
    attempting, looked, handle = scene.core.state.domains.attempting, [0], scene.core.handle

    def counted(group: PodGroup, pods: Sequence[Pod]) -> Exploring[Attempt]:
        looked[-1] += 1
        return attempting(group, pods)

    def turn(events: Sequence[Event], now: float) -> list[Instruction]:
        looked.append(0)
        return handle(events, now)

    scene.core.state.domains.attempting = counted  # type: ignore[method-assign]
    scene.core.handle = turn  # type: ignore[method-assign]
    add_gang(scene, 4, 4)
    scene.run(batch=100, until_s=1.0)
    assert {node for _, node in scene.bindings} == {names[last]}
    assert sum(looked) == len(names) - 1  # the last has room for so many copies: nobody has to try
    assert max(looked) <= 2  # what is left of one, and the next
