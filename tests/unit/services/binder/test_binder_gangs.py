"""A gang is committed as one, or given back whole: one rule per test. Its Bindings: ``test_binder_gangs_bound.py``."""

from __future__ import annotations

import msgspec
import pytest

from services.binder.core.instructions import Bind, Commit, LookUp, ReadPod
from shared.wire.messages import Gang, Outcome
from tests.builders import make_pod
from tests.unit.services.binder.binder_checks import at_rest, check_all
from tests.unit.services.binder.binder_world import make_world
from tests.unit.services.binder.gang_scenes import FOUR, bindings, four, outcomes, results

# --- before the commit ------------------------------------------------------------------------------------------------


def test_a_gang_is_committed_as_one_intent_before_any_binding() -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=3))
    assert bindings(binder) == []
    world.run(binder, Commit)
    [intent] = world.intents().values()
    assert intent is not None
    assert (intent.min_count, [pod.name for pod in intent.pods]) == (3, ["p0", "p1", "p2", "p3"])
    assert len({pod.unit for pod in intent.pods}) == 4
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4


def test_a_gang_below_its_minimum_binds_nobody_and_says_who_failed() -> None:
    world = make_world(nodes=2, pods=4, node_cpu="1")
    binder = world.start_binder()
    request = world.send(binder, world.gang(*FOUR, at_least=3))
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT] * 4
    assert results(binder, request)[0].reason == (
        "pod group default/g needs 3 members at once, 2 can go: p2: n0: Insufficient cpu; p3: n1: Insufficient cpu"
    )
    assert results(binder, request)[0].node == "", "nothing is wrong with its node"
    assert results(binder, request)[3].reason == "n1: Insufficient cpu"
    assert (world.commitments, binder.core.state.cache.accounts) == ([], {})


def test_members_beyond_the_minimum_that_do_not_fit_fail_alone() -> None:
    world = make_world(nodes=2, pods=4, node_cpu="1")
    binder = world.start_binder()
    request = world.send(binder, world.gang(*FOUR, at_least=2))
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND, Outcome.BOUND, Outcome.CONFLICT, Outcome.CONFLICT]


def test_members_are_tried_in_the_gangs_order_and_on_their_alternatives() -> None:
    world = make_world(nodes=2, pods=3, node_cpu="1")
    binder = world.start_binder()
    plan = world.gang(("p0", "n0", ["n1"]), ("p1", "n0"), ("p2", "n0"), at_least=2)
    [gang] = plan.gangs
    plan = msgspec.structs.replace(plan, gangs=[msgspec.structs.replace(gang, members=gang.members[::-1])])
    request = world.send(binder, plan)
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND, Outcome.CONFLICT, Outcome.BOUND]
    assert [world.node_of(name) for name in ("p0", "p1", "p2")] == ["n1", "", "n0"]


def test_a_gang_waits_for_a_member_that_the_watch_has_not_shown() -> None:
    world, binder = four()
    world.kube.add_pod(make_pod("late").cpu("1"))
    request = world.send(binder, world.gang(*FOUR, ("late", "n0"), at_least=5))
    assert not any(isinstance(effect, Commit) for effect in binder.effects)
    world.watch(binder)
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 5


def test_a_member_that_nobody_can_read_does_not_hold_its_gang_for_ever() -> None:
    world, binder = four()
    world.kube.add_pod(make_pod("late").cpu("1"))
    request = world.send(binder, world.gang(*FOUR, ("late", "n0"), at_least=4))
    for _ in range(20):
        reads = [effect for effect in binder.effects if isinstance(effect, ReadPod)]
        if reads:
            world.run(binder, ReadPod, fault="drop_reply")
        elif request not in binder.answers and not binder.effects:
            world.pass_time(binder, 0.1)
    world.settle(binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4 + [Outcome.CONFLICT]


def test_a_member_deleted_before_the_commit_ends_a_gang_that_needs_it() -> None:
    world, binder = four()
    world.send(binder, world.plan(("p0", "n0")))
    request = world.send(binder, world.gang(*FOUR[1:], at_least=3))
    world.kube.remove_pod("p2")
    world.watch(binder)
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT, Outcome.GONE, Outcome.CONFLICT]
    assert world.gangs == {}


def test_members_that_are_bound_already_count() -> None:
    world, binder = four()
    world.send(binder, world.plan(("p0", "n0")))
    world.settle(binder)
    world.kube.bind_elsewhere("p1", "n0")
    world.watch(binder)
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND, Outcome.ELSEWHERE, Outcome.BOUND, Outcome.BOUND]


def test_late_members_of_a_gang_that_runs_go_one_by_one() -> None:
    world = make_world(nodes=2, pods=4, node_cpu="1")
    binder = world.start_binder()
    request = world.send(binder, world.gang(*FOUR, at_least=0))
    world.run(binder, Commit)
    assert bindings(binder) == ["p0", "p1"], "no probe where nothing hangs on it"
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND, Outcome.BOUND, Outcome.CONFLICT, Outcome.CONFLICT]


def test_lone_pods_and_gangs_of_one_plan_do_not_share_their_fate() -> None:
    world = make_world(nodes=2, pods=4, node_cpu="1")
    binder = world.start_binder()
    request = world.send(binder, world.gang(("p0", "n0"), ("p1", "n0"), ("p2", "n1"), at_least=2, lone=1))
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT, Outcome.CONFLICT, Outcome.BOUND]


@pytest.mark.parametrize(
    ("gangs", "said"),
    [
        ([Gang(9, "g", [1, 77], 1)], "gang 9 names unit 77, which has no placement in the plan"),
        ([Gang(9, "g", [1], 1), Gang(10, "h", [1], 1)], "unit 1 is named by gangs twice"),
        ([Gang(9, "g", [1, 1], 1)], "unit 1 is named by gangs twice"),
        ([Gang(9, "g", [1], 1), Gang(9, "h", [2], 1)], "two gangs have one number"),
        ([Gang(9, "", [1], 1)], "gang 9 names no group"),
    ],
)
def test_a_plan_whose_gangs_make_no_sense_is_refused(gangs: list[Gang], said: str) -> None:
    world, binder = four()
    plan = msgspec.structs.replace(world.plan(*FOUR), gangs=gangs)
    request = world.send(binder, plan)
    assert (binder.refusals[request].code, binder.refusals[request].message) == ("wire_invalid", said)


def test_a_minimum_above_the_members_is_never_met_and_says_so() -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=9))
    at_rest(world, binder)
    assert results(binder, request)[0].reason == "pod group default/g needs 9 members at once, 4 can go"


# --- the commit -------------------------------------------------------------------------------------------------------


def test_a_gang_too_large_for_one_value_is_valid_with_its_head_alone() -> None:
    world, binder = four(max_value_pods=1)
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    for links in (1, 2, 3):
        world.run(binder, Commit)
        assert (len(world.intents()), bindings(binder)) == (links, [])
        assert check_all(world) == []
    world.run(binder, Commit)
    heads = [intent for intent in world.intents().values() if intent is not None and intent.links]
    assert [head.links for head in heads] == [3]
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4


def test_a_stale_coordinators_gang_is_refused_whole() -> None:
    world, binder = four()
    plan = world.gang(*FOUR, at_least=2)
    world.lead_coordinator()
    request = world.send(binder, plan)
    at_rest(world, binder)
    assert binder.refusals[request].code == "stale_term"
    assert world.commitments == []


def test_a_new_coordinator_ends_a_chain_without_its_head() -> None:
    world, binder = four(max_value_pods=1)
    old = world.send(binder, world.gang(*FOUR, at_least=2))
    world.run(binder, Commit)
    world.lead_coordinator()
    request = world.send(binder, world.plan(("p0", "n1")))
    assert binder.refusals[old].code == "stale_term"
    world.settle(binder)
    assert outcomes(binder, request) == [Outcome.BOUND]
    assert len(world.kube.bound) == 1
    assert check_all(world, binder) == []


def test_a_head_that_comes_after_its_coordinator_is_refused_by_etcd() -> None:
    world, binder = four(max_value_pods=2)
    old = world.send(binder, world.gang(*FOUR, at_least=2))
    world.run(binder, Commit)
    world.lead_coordinator()
    world.settle(binder)
    assert binder.refusals[old].code == "stale_term"
    assert check_all(world, binder) == []


@pytest.mark.parametrize("fault", ["drop_request", "drop_reply"])
@pytest.mark.parametrize("size", [1, 512])
def test_a_commit_without_an_answer_is_looked_up(fault: str, size: int) -> None:
    world, binder = four(max_value_pods=size)
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit, fault=fault)
    world.run(binder, LookUp)
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4


def test_a_gang_that_etcd_does_not_take_is_given_back() -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    while request not in binder.answers:
        world.run(binder, Commit, fault="drop_request")
        world.run(binder, LookUp)
    assert {result.reason for result in results(binder, request)} == {"etcd does not take the intent"}
    at_rest(world, binder)


def test_a_plan_told_again_while_its_gang_is_on_its_way_gets_the_one_answer() -> None:
    world, binder = four()
    plan = world.gang(*FOUR, at_least=4)
    first = world.send(binder, plan)
    world.run(binder, Commit)
    again = world.send(binder, plan)
    later = world.send(binder, msgspec.structs.replace(plan, plan_id=99))
    at_rest(world, binder)
    assert outcomes(binder, first) == outcomes(binder, again) == outcomes(binder, later) == [Outcome.BOUND] * 4
    assert len(world.kube.bound) == 4


def test_a_pod_on_its_way_with_another_plan_is_no_member() -> None:
    world, binder = four()
    lone = world.send(binder, world.plan(("p0", "n1")))
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    at_rest(world, binder)
    assert outcomes(binder, lone) == [Outcome.BOUND]
    assert outcomes(binder, request) == [Outcome.BOUND] + [Outcome.CONFLICT] * 3


def test_members_given_back_while_no_plan_waited_are_not_placed_alone_by_the_plan_that_asks_for_them() -> None:
    world, binder = four()
    plan = world.gang(*FOUR, at_least=4)
    first = world.send(binder, plan)
    world.run(binder, Commit)
    world.run(binder, Bind, fault="late")
    world.pass_time(binder, 2.5)
    assert outcomes(binder, first) == [Outcome.UNRESOLVED] * 4
    world.kube.change_node("n1", unschedulable=True)
    world.watch(binder)
    world.settle(binder)
    again = msgspec.structs.replace(plan, plan_id=99, gangs=[])
    request = world.send(binder, again)
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT] * 4
    assert world.kube.bound == []
