"""A pod that is not yet known, changes, goes or is bound by others while its plan is carried out."""

from __future__ import annotations

import pytest

from services.binder.core.instructions import Bind, Commit, ReadPod
from shared.wire.messages import Outcome
from tests.builders import make_node, make_pod
from tests.unit.services.binder.binder_checks import at_rest, outcome
from tests.unit.services.binder.binder_world import make_world


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


def test_a_plan_for_a_bound_pod_is_told_where_it_is() -> None:
    world = make_world()
    binder = world.start_binder()
    plan = world.plan(("p0", "n0"))
    world.kube.bind_elsewhere("p0", "n1")
    world.watch(binder)
    request = world.send(binder, plan)
    assert (outcome(binder, request).outcome, outcome(binder, request).node) == (Outcome.ELSEWHERE, "n1")


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


def test_a_pod_that_asks_for_what_is_not_supported_is_refused_before_anything_is_committed() -> None:
    world = make_world(pods=0)
    world.kube.add_pod(make_pod("p0").set(annotations={"gpu-fraction": "0.5"}))
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    result = outcome(binder, request)
    assert result.outcome == Outcome.REFUSED
    assert "the annotation gpu-fraction" in result.reason
    assert not world.commitments
    assert world.node_of("p0") == ""


def test_a_node_that_declares_too_little_is_refused_by_the_binder_too() -> None:
    world = make_world(pods=0, nodes=1)
    declares = make_node("new")
    declares.json["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    world.kube.add_node(declares)
    builder = make_pod("p0").cpu("1")
    builder.json["spec"]["containers"][0]["restartPolicyRules"] = [{"action": "RestartAllContainers"}]
    world.kube.add_pod(builder)
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0", ["new"])))
    world.run(binder, Commit)
    world.run(binder, Bind)
    result = outcome(binder, request)
    assert (result.outcome, result.node) == (Outcome.BOUND, "new")
