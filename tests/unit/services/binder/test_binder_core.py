"""The binder's core against etcd and an API server in memory: one behaviour per test. No loop, no mocks.

Here: the way of a placement from the plan to the Binding. What changes on the way, plans as such and lost answers have
files of their own.
"""

from __future__ import annotations

from services.binder.core.core import BinderCore
from services.binder.core.instructions import Bind, Commit
from services.binder.core.state import BinderCoreSettings
from shared.model.pod import CAUSE_ANNOTATION, DEVICES_ANNOTATION, POLICY_ANNOTATION
from shared.turns import Tick
from shared.wire.messages import Outcome
from tests.builders import make_node, make_pod
from tests.unit.services.binder.binder_checks import at_rest, outcome
from tests.unit.services.binder.binder_world import KEYS, make_world


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


def test_bindings_in_flight_are_bounded() -> None:
    world = make_world(nodes=3, pods=10, node_cpu="16", settings=BinderCoreSettings(max_bindings=4))
    binder = world.start_binder()
    world.send(binder, world.plan(*((f"p{i}", f"n{i % 3}") for i in range(10))))
    world.run(binder, Commit)
    assert sum(isinstance(e, Bind) for e in binder.effects) == 4
    at_rest(world, binder)
    assert len(world.kube.bound) == 10


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


def test_the_term_of_a_core_that_has_learned_begins_with_the_wall_clock_as_it_is_then() -> None:
    core = BinderCore(0, BinderCoreSettings(validate=True), KEYS, epoch=1000.0)
    core.learn([], 1.0)
    core.lead(3, epoch=5000.0)
    core.handle(Tick(), 2.0)
    assert (core.state.term, core.state.devices.wall) == (3, 5002.0)
