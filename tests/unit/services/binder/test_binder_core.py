"""The binder's core against etcd and an API server in memory: one behaviour per test. No loop, no mocks."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.instructions import Bind, Commit, LookUp, MarkPod, ReadPod
from services.binder.state import CoreSettings
from shared.errors import KubeRejected
from shared.model.pod import CAUSE_ANNOTATION, DEVICES_ANNOTATION, POLICY_ANNOTATION
from shared.wire.messages import Outcome, PlacementResult
from tests.builders import make_node, make_pod
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import Binder, World, make_world


def outcome(binder: Binder, request: int) -> PlacementResult:
    [result] = binder.answers[request].results
    return result


def at_rest(world: World, binder: Binder) -> None:
    """Everything that was begun is done and the invariants hold."""
    world.settle(binder)
    assert check_all(world, binder) == []


def test_a_placement_is_committed_then_bound_then_its_intent_is_cleared() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n1")))
    world.run(binder, Commit)
    assert world.intents()[world.uid("p0")] is not None
    assert world.node_of("p0") == ""
    world.run(binder, Bind)
    assert world.node_of("p0") == "n1"
    result = outcome(binder, request)
    assert (result.outcome, result.node) == (Outcome.BOUND, "n1")
    assert result.settled_us > 0, "0 would mean that it is not known"
    at_rest(world, binder)


def test_the_binding_names_uid_version_policy_and_devices() -> None:
    world = make_world(nodes=0)
    world.kube.add_node(make_node("gpu").gpus(2))
    world.kube.add_pod(make_pod("a").gpu_milli(500))
    binder = world.start_binder()
    world.send(binder, world.plan(("a", "gpu")))
    world.run(binder, Commit)
    effect = world.run(binder, Bind)
    assert isinstance(effect, Bind)
    assert effect.request.uid == world.uid("a")
    assert effect.request.annotations == {
        CAUSE_ANNOTATION: effect.cause_id, POLICY_ANNOTATION: "kube-default@1", DEVICES_ANNOTATION: "0"
    }  # fmt: skip


def test_what_gathers_during_a_transaction_goes_with_the_next_one() -> None:
    world = make_world(pods=3)
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.send(binder, world.plan(("p1", "n1")))
    world.send(binder, world.plan(("p2", "n2")))
    assert sum(isinstance(e, Commit) for e in binder.effects) == 1
    world.run(binder, Commit)
    second = next(e for e in binder.effects if isinstance(e, Commit))
    assert len(second.ops) == 2
    at_rest(world, binder)


def test_a_node_that_is_full_now_is_refused_and_the_next_candidate_taken() -> None:
    world = make_world(nodes=2, pods=2, node_cpu="1")
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    request = world.send(binder, world.plan(("p1", "n0", ["n1"])))
    at_rest(world, binder)
    assert (outcome(binder, request).node, outcome(binder, request).conflicts) == ("n1", 1)


def test_a_placement_without_any_candidate_left_is_a_conflict_that_says_why() -> None:
    world = make_world(nodes=1, pods=2, node_cpu="1")
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p1", "n0")))
    at_rest(world, binder)
    first, second = binder.answers[request].results
    assert first.outcome == Outcome.BOUND
    assert (second.outcome, second.reason) == (Outcome.CONFLICT, "n0: Insufficient cpu")


def test_a_cordoned_node_is_refused_at_the_commit() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    request = world.send(binder, plan)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert world.node_of("p0") == ""


def test_a_node_that_never_existed_is_refused_though_the_api_server_would_take_it() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "ghost")))
    at_rest(world, binder)
    assert outcome(binder, request).reason == "ghost: node does not exist"


def test_a_node_removed_between_commit_and_bind_is_not_bound_to() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.kube.remove_node("n0")
    world.watch(binder)
    world.run(binder, Commit)
    assert not any(isinstance(e, Bind) for e in binder.effects)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT


def test_a_pod_the_watch_has_not_shown_yet_is_waited_for_and_then_read() -> None:
    world = make_world(pods=0)
    binder = world.start_binder()
    world.kube.add_pod(make_pod("new").cpu("1"))
    request = world.send(binder, world.plan(("new", "n0")))
    assert binder.effects == []
    world.pass_time(binder, 0.25)
    assert any(isinstance(e, ReadPod) for e in binder.effects)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND


def test_a_pod_that_appears_while_waited_for_goes_on_at_once() -> None:
    world = make_world(pods=0)
    binder = world.start_binder()
    world.kube.add_pod(make_pod("new").cpu("1"))
    world.send(binder, world.plan(("new", "n0")))
    world.watch(binder)
    assert any(isinstance(e, Commit) for e in binder.effects)
    at_rest(world, binder)


def test_a_pod_known_only_older_than_the_plans_is_waited_for() -> None:
    world = make_world()
    binder = world.start_binder()
    world.kube.touch_pod("p0")
    world.send(binder, world.plan(("p0", "n0")))
    assert binder.effects == []
    world.watch(binder)
    world.run(binder, Commit)
    world.run(binder, Bind)
    assert world.node_of("p0") == "n0"
    assert binder.core.stats.conflicting_bindings == 0


@pytest.mark.parametrize("when", ["before", "committed", "binding"])
def test_a_pod_deleted_on_the_way_is_gone_and_holds_nothing(when: str) -> None:
    world = make_world(nodes=1, node_cpu="1")
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    if when == "before":
        world.kube.remove_pod("p0")
        world.watch(binder)
    request = world.send(binder, plan)
    if when != "before":
        world.run(binder, Commit)
        world.kube.remove_pod("p0")
        if when == "committed":
            world.watch(binder)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.GONE
    assert binder.core.state.cache.accounts == {}


def test_a_pod_recreated_under_its_name_is_never_bound_by_the_old_plan() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.kube.remove_pod("p0")
    world.kube.add_pod(make_pod("p0").cpu("1"))
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.GONE
    assert world.node_of("p0") == ""


def test_a_terminating_pod_is_gone_for_the_plan() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.kube.terminate_pod("p0")
    world.run(binder, Commit)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.GONE


def test_a_stale_version_is_renewed_in_the_intent_before_the_second_binding() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.kube.touch_pod("p0")
    world.run(binder, Bind)
    world.run(binder, ReadPod)
    world.run(binder, Commit)
    assert world.commitments[-1].intent.pods[0].rv == world.kube.pods["default/p0"]["metadata"]["resourceVersion"]
    world.run(binder, Bind)
    assert outcome(binder, request).outcome == Outcome.BOUND
    at_rest(world, binder)


def test_a_pod_that_changes_faster_than_we_bind_is_given_back_after_three_tries() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    for _ in range(3):
        world.run(binder, Commit)
        world.kube.touch_pod("p0")
        world.run(binder, Bind)
        world.run(binder, ReadPod)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert binder.core.state.cache.accounts == {}


def test_a_pod_bound_by_somebody_else_moves_the_account_there() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.kube.bind_elsewhere("p0", "n2")
    world.run(binder, Bind)
    world.run(binder, ReadPod)
    result = outcome(binder, request)
    assert (result.outcome, result.node) == (Outcome.ELSEWHERE, "n2")
    at_rest(world, binder)


@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_a_binding_without_an_answer_is_read_back(fault: str) -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind, fault=fault)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND
    assert len(world.kube.bound) == 1


@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_a_transaction_without_an_answer_is_read_back(fault: str) -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p1", "n1")))
    world.run(binder, Commit, fault=fault)
    world.run(binder, LookUp, fault="drop_reply")
    at_rest(world, binder)
    assert [r.outcome for r in binder.answers[request].results] == [Outcome.BOUND, Outcome.BOUND]


def test_a_transaction_that_comes_late_does_not_commit_twice() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit, fault="late")
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND
    world.carry_out(world.late.pop())
    assert len(world.kube.bound) == 1
    for _ in range(2):
        world.pass_time(binder, 31)
        world.settle(binder)
    assert binder.core.stats.intents_orphaned == 1
    at_rest(world, binder)


def test_a_stale_coordinators_plan_is_refused_by_the_transaction() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    world.lead_coordinator()
    request = world.send(binder, plan)
    at_rest(world, binder)
    assert binder.refusals[request].code == "stale_term"
    assert world.node_of("p0") == ""


def test_a_plan_of_a_lower_term_than_one_seen_is_refused_at_once() -> None:
    world = make_world()
    binder = world.start_binder()
    old = world.plan(("p0", "n0"))
    world.lead_coordinator()
    world.send(binder, world.plan(("p1", "n1")))
    request = world.send(binder, old)
    assert (binder.refusals[request].code, binder.refusals[request].status) == ("stale_term", 409)
    at_rest(world, binder)


def test_a_plan_of_a_term_that_never_led_does_not_lock_the_true_coordinator_out() -> None:
    world = make_world()
    binder = world.start_binder()
    bogus = world.send(binder, world.plan(("p0", "n0"), term=10**9))
    world.settle(binder)
    assert binder.refusals[bogus].code == "stale_term"
    request = world.send(binder, world.plan(("p0", "n1")))
    at_rest(world, binder)
    assert (outcome(binder, request).outcome, world.node_of("p0")) == (Outcome.BOUND, "n1")


def test_a_new_coordinators_plan_drops_what_waits_under_the_old_term() -> None:
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    waiting = world.send(binder, world.plan(("p1", "n1")))
    world.lead_coordinator()
    request = world.send(binder, world.plan(("p1", "n2")))
    at_rest(world, binder)
    assert binder.refusals[waiting].code == "stale_term"
    assert (outcome(binder, request).outcome, world.node_of("p1")) == (Outcome.BOUND, "n2")


def test_a_deposed_binder_stops_at_its_next_transaction() -> None:
    world = make_world()
    old = world.start_binder()
    world.send(old, world.plan(("p0", "n0")))
    new = world.start_binder()
    world.run(old, Commit)
    world.run(old, LookUp)
    assert old.stopped
    assert old.effects == []
    at_rest(world, new)


def test_a_plan_delivered_twice_is_done_once_and_answered_twice() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    first, second = world.send(binder, plan), world.send(binder, plan)
    at_rest(world, binder)
    third = world.send(binder, plan)
    assert outcome(binder, first).outcome == outcome(binder, second).outcome == outcome(binder, third).outcome
    assert len(world.kube.bound) == 1
    assert binder.core.stats.plans == 1


def test_another_plan_for_a_pod_on_its_way_hears_the_end_of_the_first() -> None:
    world = make_world()
    binder = world.start_binder()
    first = world.send(binder, world.plan(("p0", "n0")))
    second = world.send(binder, world.plan(("p0", "n2")))
    at_rest(world, binder)
    assert outcome(binder, first).node == outcome(binder, second).node == "n0"


def test_a_plan_for_a_bound_pod_is_told_where_it_is() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    world.kube.bind_elsewhere("p0", "n1")
    world.watch(binder)
    request = world.send(binder, plan)
    assert (outcome(binder, request).outcome, outcome(binder, request).node) == (Outcome.ELSEWHERE, "n1")


def test_a_plan_is_answered_unresolved_in_time_and_goes_on() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.pass_time(binder, 2.1)
    assert outcome(binder, request).outcome == Outcome.UNRESOLVED
    at_rest(world, binder)
    assert world.node_of("p0") == "n0"


def test_a_binding_refused_for_good_holds_nothing() -> None:
    world = make_world()
    binder = world.start_binder()
    world.kube.refuse_with["bind"] = 403
    request = world.send(binder, world.plan(("p0", "n0")))
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.REFUSED
    assert binder.core.state.cache.accounts == {}


def test_a_busy_api_server_is_asked_again_later() -> None:
    world = make_world()
    binder = world.start_binder()
    world.kube.refuse_with["bind"] = 429
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind)
    assert binder.effects == []
    world.kube.refuse_with.clear()
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND


@pytest.mark.parametrize("what", ["cordoned", "tainted", "shrunk", "filled"])
def test_a_node_that_changed_while_the_api_server_was_busy_is_not_bound_to(what: str) -> None:
    world = make_world(nodes=1, node_cpu="4")
    binder = world.start_binder()
    world.kube.refuse_with["bind"] = 429
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.kube.refuse_with.clear()
    match what:
        case "cordoned":
            world.kube.change_node("n0", unschedulable=True)
        case "tainted":
            world.kube.change_node("n0", taints=[{"key": "maintenance", "effect": "NoSchedule"}])
        case "shrunk":
            world.kube.add_node(make_node("n0").allocatable(cpu="100m", memory="8Gi", pods="110"))
        case _:
            world.kube.add_pod(make_pod("static").cpu("3500m").on("n0"))
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert world.node_of("p0") == ""
    assert world.uid("p0") not in binder.core.state.cache.accounts


def test_a_unit_that_waits_for_room_to_bind_is_checked_again() -> None:
    world = make_world(nodes=1, pods=3, node_cpu="4", settings=CoreSettings(max_bindings=1))
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p1", "n0"), ("p2", "n0")))
    world.run(binder, Commit)
    world.kube.add_node(make_node("n0").allocatable(cpu="2", memory="8Gi", pods="110"))
    world.watch(binder)
    at_rest(world, binder)
    results = [Outcome(result.outcome) for result in binder.answers[request].results]
    assert sorted(results) == sorted([Outcome.BOUND, Outcome.BOUND, Outcome.CONFLICT])


def test_a_binding_without_an_answer_is_withdrawn_with_a_mark_if_the_node_changed() -> None:
    world = make_world(nodes=1)
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind, fault="drop_request")
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert binder.core.stats.pods_marked == 1
    assert world.node_of("p0") == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"unschedulable": True}, "n0: node(s) were unschedulable"),
        ({"taints": [{"key": "k", "effect": "NoExecute"}]}, "n0: node(s) had untolerated taint(s)"),
        ({"podCIDR": "10.0.0.0/24"}, ""),
    ],
)
def test_a_node_is_looked_at_again_before_a_binding_that_was_put_off(change: dict[str, Any], why: str) -> None:
    world = make_world()
    binder = world.start_binder()
    world.kube.refuse_with["bind"] = 429
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.kube.change_node("n0", **change)
    world.watch(binder)
    world.kube.refuse_with.clear()
    at_rest(world, binder)
    if why:
        assert outcome(binder, request).outcome == Outcome.CONFLICT
        assert outcome(binder, request).reason.startswith(why)
        assert world.node_of("p0") == ""
    else:
        assert outcome(binder, request).outcome == Outcome.BOUND


def test_a_binding_under_way_to_a_node_that_is_cordoned_is_called_back() -> None:
    """The API server holds the Binding (admission); the pod is marked, so that it comes to a 409."""
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0", "n1")))
    world.run(binder, Commit)
    [held] = [effect for effect in binder.effects if isinstance(effect, Bind)]
    binder.effects.remove(held)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    world.run(binder, MarkPod)
    with pytest.raises(KubeRejected, match="has been modified"):
        world.kube.bind(held.request)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert world.node_of("p0") == ""


def test_a_binding_that_was_faster_than_its_recall_counts_as_bound_and_the_pod_is_not_marked() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    [held] = [effect for effect in binder.effects if isinstance(effect, Bind)]
    binder.effects.remove(held)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    world.kube.bind(held.request)
    world.run(binder, MarkPod)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND
    assert binder.core.stats.pods_marked == 0


def test_bindings_in_flight_are_bounded() -> None:
    world = make_world(nodes=3, pods=10, node_cpu="16", settings=CoreSettings(max_bindings=4))
    binder = world.start_binder()
    world.send(binder, world.plan(*((f"p{i}", f"n{i % 3}") for i in range(10))))
    world.run(binder, Commit)
    assert sum(isinstance(e, Bind) for e in binder.effects) == 4
    at_rest(world, binder)
    assert len(world.kube.bound) == 10


def test_too_many_units_on_their_way_are_refused() -> None:
    world = make_world(settings=CoreSettings(max_units=1))
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p1", "n1")))
    assert (binder.refusals[request].code, binder.refusals[request].status) == ("overloaded", 429)


def test_one_pod_twice_in_a_plan_is_malformed() -> None:
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0"), ("p0", "n1")))
    assert binder.refusals[request].code == "wire_invalid"


def test_pods_of_other_schedulers_are_counted_and_never_bound() -> None:
    world = make_world(nodes=1, node_cpu="1")
    foreign = make_pod("other").cpu("1")
    foreign.json["spec"]["schedulerName"] = "default-scheduler"
    world.kube.add_pod(foreign)
    binder = world.start_binder()
    refused = world.send(binder, world.plan(("other", "n0")))
    world.settle(binder)
    assert outcome(binder, refused).outcome == Outcome.REFUSED
    world.kube.bind_elsewhere("other", "n0")
    world.watch(binder)
    request = world.send(binder, world.plan(("p0", "n0")))
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT


def test_a_pod_that_grew_after_the_commit_is_checked_again_before_the_next_binding() -> None:
    world = make_world(nodes=1, pods=1, node_cpu="2")
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    pod = world.kube.pods["default/p0"]
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    world.kube.touch_pod("p0")
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert world.node_of("p0") == ""


def test_an_account_nobody_confirms_is_looked_up() -> None:
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.kube.remove_pod("p0")
    world.pass_time(binder, 31)
    while binder.effects:
        world.run(binder)
    assert binder.core.stats.late_confirmations == 1
    assert binder.core.state.cache.accounts == {}


def test_a_difference_to_two_full_lists_in_a_row_is_put_right_and_logged() -> None:
    world = make_world()
    binder = world.start_binder()
    world.kube.bind_elsewhere("p0", "n0")
    binder.seen = world.kube.revision  # the watch lost it
    for _ in range(2):
        world.pass_time(binder, 301)
        while binder.effects:
            world.run(binder)
    assert binder.core.state.cache.accounts[world.uid("p0")].node_name == "n0"
    assert [entry.event for entry in binder.logs if entry.level == "error"] == ["cache_differs"]


def test_marking_is_asked_for_only_while_a_binding_may_be_under_way() -> None:
    world = make_world(nodes=1)
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    for _ in range(3):
        world.run(binder, Bind, fault="drop_request")
        world.run(binder, ReadPod)
    assert any(isinstance(e, MarkPod) for e in binder.effects)
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
