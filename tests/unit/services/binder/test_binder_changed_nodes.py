"""A node that changes between its choice and the Binding: looked at again, never bound to blindly."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core.instructions import Bind, Commit, MarkPod
from services.binder.core.state import BinderCoreSettings
from shared.errors import KubeRejected
from shared.wire.messages import Outcome
from tests.builders import make_node, make_pod
from tests.unit.services.binder.binder_checks import at_rest, outcome
from tests.unit.services.binder.binder_world import make_world


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
    world = make_world(nodes=1, pods=3, node_cpu="4", settings=BinderCoreSettings(max_bindings=1))
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
