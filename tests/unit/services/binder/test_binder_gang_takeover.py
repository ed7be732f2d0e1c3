"""A gang's intent that an earlier leader left: finished, or withdrawn whole where the minimum cannot be met."""

from __future__ import annotations

import pytest

from services.binder.core.instructions import Bind, Commit, MarkPod
from services.binder.core.state import BinderCoreSettings
from shared.ports import DeleteKey, Put
from shared.turns import Tick
from shared.wire.messages import Plan
from shared.wire.records import encode_record
from tests.unit.services.binder.binder_checks import at_rest, check_all
from tests.unit.services.binder.binder_world import KEYS, Binder, World, make_world

FOUR = [(f"p{number}", f"n{number}") for number in range(4)]


def left(*, at_least: int = 4, value: int = 512, bound: int = 0, commits: int = 0) -> tuple[World, Plan]:
    """A binder died: its gang of four was committed (or so many transactions of it were made), so many were bound."""
    world = make_world(nodes=4, pods=4, settings=BinderCoreSettings(validate=True, max_value_pods=value))
    binder = world.start_binder()
    plan = world.gang(*FOUR, at_least=at_least)
    world.send(binder, plan)
    for _ in range(commits or -(-4 // value)):
        world.run(binder, Commit)
    for _ in range(bound):
        world.run(binder, Bind)
    world.crash(binder)
    return world, plan


def take_over(world: World) -> Binder:
    binder = world.start_binder(ready=False)
    world.sync(binder)
    return binder


@pytest.mark.parametrize("value", [1, 3, 512])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_a_committed_gang_is_finished_by_the_successor(value: int, bound: int) -> None:
    world, plan = left(value=value, bound=bound)
    binder = take_over(world)
    at_rest(world, binder)
    assert len(world.kube.bound) == 4
    request = world.send(binder, plan)
    assert [result.outcome for result in binder.answers[request].results] == [0] * 4


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_links_without_a_head_are_deleted(commits: int) -> None:
    world, _ = left(value=1, commits=commits)
    world.late.clear()
    assert len(world.intents()) == commits
    at_rest(world, take_over(world))
    assert world.kube.bound == []


def test_a_gang_below_its_minimum_of_which_nobody_is_bound_is_withdrawn_whole() -> None:
    world, plan = left(at_least=4)
    world.kube.remove_node("n3")
    binder = take_over(world)
    while binder.effects:
        effect = world.run(binder)
        assert not isinstance(effect, Bind)
        assert check_all(world) == []
    for late in world.late:
        world.carry_out(late)
    world.watch(binder)
    at_rest(world, binder)
    assert world.kube.bound == []
    request = world.send(binder, plan)
    assert [result.outcome for result in binder.answers[request].results] == [1] * 4


def test_a_dead_leaders_binding_that_beats_the_mark_lets_the_others_go() -> None:
    world, _ = left(at_least=3)
    world.kube.remove_node("n3")
    world.kube.remove_node("n2")
    binder = take_over(world)
    [late] = [effect for effect in world.late if isinstance(effect, Bind)]
    world.carry_out(late)
    world.settle(binder)
    assert world.node_of("p0") == "n0"
    assert world.intents() == {}
    assert check_all(world, binder, broken=True) == []


def test_a_member_whose_node_is_gone_is_withdrawn_alone_where_the_others_suffice() -> None:
    world, _ = left(at_least=3)
    world.kube.remove_node("n3")
    binder = take_over(world)
    assert sum(isinstance(effect, MarkPod) for effect in binder.effects) == 1
    at_rest(world, binder)
    assert len(world.kube.bound) == 3


def test_members_found_bound_count_and_those_that_are_gone_do_not() -> None:
    world, _ = left(at_least=2, bound=1)
    world.kube.remove_pod("p2")
    world.kube.remove_pod("p3")
    binder = take_over(world)
    at_rest(world, binder)
    assert {world.node_of("p0"), world.node_of("p1")} == {"n0", "n1"}


def test_a_head_whose_link_is_missing_is_left_alone_and_told() -> None:
    world, _ = left(value=2)
    [link] = [key for key in world.intents() if key.endswith(":1")]
    world.late.clear()
    world.etcd.txn([], [DeleteKey(KEYS.intent(link))])
    binder = world.start_binder()
    assert binder.core.stats.intents_unreadable == 1
    assert len(world.intents()) == 1


def test_an_intent_of_a_gang_that_nobody_wrote_is_found_by_the_sweep_and_resolved() -> None:
    world, _ = left()
    world.late.clear()
    [(key, intent)] = world.intents().items()
    assert intent is not None
    world.etcd.txn([], [DeleteKey(KEYS.intent(key))])
    binder = world.start_binder()
    world.etcd.txn([], [Put(KEYS.intent(key), encode_record(intent))])
    for _ in range(2):
        world.pass_time(binder, 31)
        world.settle(binder)
    assert binder.core.stats.intents_orphaned == 1
    assert len(world.kube.bound) == 4
    at_rest(world, binder)


def test_a_pod_that_two_intents_name_is_carried_by_the_first() -> None:
    world, _ = left()
    world.late.clear()
    [intent] = world.intents().values()
    assert intent is not None
    lone = type(intent)(plan_id=77, coordinator_term=intent.coordinator_term, unit=77, pods=(intent.pods[0],), term=1)
    world.etcd.txn([], [Put(KEYS.intent(intent.pods[0].uid), encode_record(lone))])
    binder = take_over(world)
    assert any(log.event == "pod_in_two_intents" for log in binder.logs)
    world.settle(binder)
    assert len({entry.uid for entry in world.kube.bound}) == len(world.kube.bound)
    assert world.intents() == {}


# --- a gang, or many intents, too large for one turn ------------------------------------------------------------------


def found(*, at_least: int = 4, bound: int = 0, a_turn: int = 1, gone: int = 0) -> tuple[World, Binder]:
    """The successor takes up so many pods a turn, and had its first. ``gone``: so many nodes are."""
    world, _ = left(at_least=at_least, bound=bound)
    for number in range(gone):
        world.kube.remove_node(f"n{3 - number}")
    world.settings = BinderCoreSettings(validate=True, units_per_turn=a_turn)
    return world, take_over(world)


def test_no_turn_takes_up_more_members_than_it_may() -> None:
    world, binder = found()
    core = binder.core
    [gang] = core.state.gangs.values()
    for taken in range(1, 4):
        assert (len(core.state.in_flight), gang.coming, core.wake_at) == (taken, 4 - taken, world.now)
        assert not core.takeover.accepting
        assert not any(isinstance(effect, Bind) for effect in binder.effects)
        world.tell(binder, Tick())
    assert (len(core.state.in_flight), gang.coming) == (4, 0)
    at_rest(world, binder)
    assert len(world.kube.bound) == 4


def test_nothing_is_decided_before_all_are_judged() -> None:
    """The first three could be bound, and would be enough."""
    world, binder = found(at_least=3, a_turn=3)
    assert not any(isinstance(effect, Bind) for effect in binder.effects)
    world.tell(binder, Tick())
    assert any(isinstance(effect, Bind) for effect in binder.effects)
    at_rest(world, binder)
    assert len(world.kube.bound) == 4


@pytest.mark.parametrize("a_turn", [1, 3])
@pytest.mark.parametrize("bound", [0, 1, 2])
def test_what_becomes_of_a_gang_is_the_same_over_turns(a_turn: int, bound: int) -> None:
    world, binder = found(at_least=4, bound=bound, a_turn=a_turn, gone=1)
    world.late.clear()
    world.settle(binder)
    assert check_all(world, binder, broken=bound > 0) == []
    assert len(world.kube.bound) == (3 if bound else 0)
    assert world.intents() == {}


def test_members_of_a_short_gang_are_marked_some_per_turn() -> None:
    world, binder = found(at_least=4, a_turn=2, gone=2)
    marks: list[int] = []
    for _ in range(4):
        marks.append(sum(isinstance(effect, MarkPod) for effect in binder.effects))
        world.tell(binder, Tick())
    assert marks == [0, 2, 4, 4]
    at_rest(world, binder)
    assert world.kube.bound == []


def test_a_plan_for_a_pod_that_is_not_taken_up_yet_waits_for_what_becomes_of_it() -> None:
    """The sweep finds a gang's intent while plans are taken already."""
    world, _ = left()
    world.late.clear()
    [(key, intent)] = world.intents().items()
    world.etcd.txn([], [DeleteKey(KEYS.intent(key))])
    world.settings = BinderCoreSettings(validate=True, units_per_turn=1)
    binder = world.start_binder()
    assert intent is not None
    world.etcd.txn([], [Put(KEYS.intent(key), encode_record(intent))])
    binder.core.state.left = 1
    binder.core.inheritance.take(world.stored())
    request = world.send(binder, world.plan(("p3", "n0")))
    assert binder.core.state.in_flight.keys().isdisjoint({world.uid("p3")})
    at_rest(world, binder)
    assert world.node_of("p3") == "n3"
    assert len(binder.answers[request].results) == 1


def test_lone_pods_of_inherited_intents_are_taken_up_some_per_turn_too() -> None:
    world = make_world(nodes=4, pods=4, settings=BinderCoreSettings(validate=True))
    binder = world.start_binder()
    world.send(binder, world.plan(*FOUR))
    world.run(binder, Commit)
    world.crash(binder)
    world.settings = BinderCoreSettings(validate=True, units_per_turn=3)
    binder = take_over(world)
    core = binder.core
    assert (len(core.state.in_flight), len(core.state.inherited), core.wake_at) == (3, 1, world.now)
    assert not core.takeover.accepting
    at_rest(world, binder)
    assert core.takeover.accepting
    assert len(world.kube.bound) == 4
