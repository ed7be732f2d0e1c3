"""A new leader of the shard: every intent in etcd is finished or withdrawn before plans are accepted."""

from __future__ import annotations

import pytest

from services.binder.core.events import IntentsListed
from services.binder.core.instructions import Bind, Commit, MarkPod, ReadPod
from services.binder.core.state import BinderCoreSettings
from shared.model.cluster_events import Listed
from shared.ports import Put
from shared.wire.messages import Outcome
from tests.builders import make_node, make_pod
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import KEYS, Binder, World, make_world


def committed(world: World, node: str = "n0") -> Binder:
    """A binder that died right after it committed p0 to ``node``; its Binding may still come."""
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", node)))
    world.run(binder, Commit)
    world.crash(binder)
    return binder


def take_over(world: World) -> Binder:
    binder = world.start_binder(ready=False)
    world.sync(binder)
    return binder


def test_a_plan_that_comes_before_lists_and_intents_are_done_is_taken_up_then() -> None:
    world = make_world()
    committed(world)
    binder = world.start_binder(ready=False)
    first = world.send(binder, world.plan(("p1", "n1")))
    world.watch(binder)
    world.tell(binder, Listed("nodes"), Listed("pods"), IntentsListed(world.stored(), world.fence()))
    second = world.send(binder, world.plan(("p2", "n2")))
    assert (binder.refusals, binder.answers) == ({}, {})
    assert len(world.intents()) == 1, "nothing is committed while an inherited intent is open"
    world.settle(binder)
    assert [binder.answers[asked].results[0].outcome for asked in (first, second)] == [Outcome.BOUND] * 2
    assert check_all(world, binder) == []


def test_a_plan_told_again_during_the_takeover_is_kept_once_and_its_first_request_refused() -> None:
    world = make_world()
    binder = world.start_binder(ready=False)
    plan = world.plan(("p1", "n1"))
    first, again = world.send(binder, plan), world.send(binder, plan)
    assert (binder.refusals[first].code, binder.refusals[first].status) == ("not_ready", 503)
    world.sync(binder)
    world.settle(binder)
    assert binder.answers[again].results[0].outcome == Outcome.BOUND
    assert len(world.kube.bound) == 1


def test_a_plan_of_a_coordinator_that_is_followed_meanwhile_is_refused_when_plans_are_taken_up() -> None:
    world = make_world()
    binder = world.start_binder(ready=False)
    old = world.send(binder, world.plan(("p1", "n1")))
    world.lead_coordinator()
    new = world.send(binder, world.plan(("p1", "n2")))
    world.sync(binder)
    world.settle(binder)
    assert binder.refusals[old].code == "stale_term"
    assert binder.answers[new].results[0].node == "n2"


def test_no_more_is_kept_during_the_takeover_than_may_be_on_its_way() -> None:
    world = make_world(settings=BinderCoreSettings(validate=True, max_units=2))
    binder = world.start_binder(ready=False)
    kept = [world.send(binder, world.plan((name, "n1"))) for name in ("p0", "p1")]
    refused = world.send(binder, world.plan(("p2", "n1")))
    assert binder.refusals[refused].code == "not_ready"
    world.sync(binder)
    world.settle(binder)
    assert sorted(binder.answers) == kept


def test_an_intent_never_bound_is_finished_on_its_node() -> None:
    world = make_world()
    committed(world, "n2")
    binder = take_over(world)
    world.settle(binder)
    assert world.node_of("p0") == "n2"
    assert check_all(world, binder) == []


def test_an_intent_already_bound_is_only_cleared() -> None:
    world = make_world()
    old = world.start_binder()
    world.send(old, world.plan(("p0", "n0")))
    world.run(old, Commit)
    world.run(old, Bind)
    world.crash(old)
    binder = take_over(world)
    world.settle(binder)
    assert len(world.kube.bound) == 1
    assert world.intents() == {}
    assert check_all(world, binder) == []


def test_an_intent_of_a_pod_bound_elsewhere_is_cleared_and_counted_there() -> None:
    world = make_world()
    committed(world)
    world.kube.bind_elsewhere("p0", "n1")
    binder = take_over(world)
    world.settle(binder)
    assert check_all(world, binder) == []


@pytest.mark.parametrize("recreated", [False, True])
def test_an_intent_of_a_pod_that_is_gone_is_cleared(recreated: bool) -> None:
    world = make_world()
    committed(world)
    world.kube.remove_pod("p0")
    if recreated:
        world.kube.add_pod(make_pod("p0").cpu("1"))
    binder = take_over(world)
    world.settle(binder)
    assert world.intents() == {}
    for effect in world.late:
        world.carry_out(effect)
    assert world.kube.bound == []


def test_an_intent_on_a_node_that_is_gone_is_withdrawn_after_marking_the_pod() -> None:
    world = make_world()
    committed(world)
    world.kube.remove_node("n0")
    binder = take_over(world)
    assert [type(effect) for effect in binder.effects] == [MarkPod]
    world.settle(binder)
    assert world.intents() == {}
    # The dead leader's Binding arrives now: it names the version before the mark.
    [late] = [effect for effect in world.late if isinstance(effect, Bind)]
    world.carry_out(late)
    assert world.node_of("p0") == ""
    assert check_all(world, binder) == []


def test_a_zombies_binding_that_beats_the_mark_is_believed() -> None:
    world = make_world()
    committed(world)
    world.kube.change_node("n0", unschedulable=True)
    binder = take_over(world)
    [late] = [effect for effect in world.late if isinstance(effect, Bind)]
    world.carry_out(late)
    world.settle(binder)
    assert (world.node_of("p0"), len(world.kube.bound)) == ("n0", 1)
    assert check_all(world, binder) == []


@pytest.mark.parametrize("fault", ["drop_request", "drop_reply"])
def test_a_mark_without_an_answer_is_made_again(fault: str) -> None:
    world = make_world()
    committed(world)
    world.kube.remove_node("n0")
    binder = take_over(world)
    world.run(binder, MarkPod, fault=fault)
    assert not binder.core.takeover.accepting
    world.settle(binder)
    assert world.intents() == {}
    [late] = [effect for effect in world.late if isinstance(effect, Bind)]
    world.carry_out(late)
    assert world.kube.bound == []


def test_an_inherited_pod_is_counted_while_it_is_being_withdrawn() -> None:
    world = make_world(nodes=1, pods=2, node_cpu="1")
    committed(world)
    world.kube.change_node("n0", unschedulable=True)
    binder = world.start_binder(ready=False)
    world.sync(binder)
    assert world.uid("p0") in binder.core.state.cache.accounts


def test_inherited_devices_stay_those_of_the_intent() -> None:
    world = make_world(nodes=0, pods=0)
    world.kube.add_node(make_node("n0").gpus(2))
    for name in ("first", "p0"):
        world.kube.add_pod(make_pod(name).gpu_milli(600))
    old = world.start_binder()
    world.send(old, world.plan(("first", "n0"), ("p0", "n0")))
    world.run(old, Commit)
    world.crash(old)
    world.kube.remove_pod("first")
    binder = take_over(world)
    world.settle(binder)
    assert world.kube.bound[0].annotations["conclave.io/gpu-devices"] == "1"


def test_a_zombie_that_was_deposed_between_commit_and_bind_changes_nothing() -> None:
    world = make_world()
    old = world.start_binder()
    world.send(old, world.plan(("p0", "n0")))
    world.run(old, Commit)
    world.kube.change_node("n0", unschedulable=True)
    new = take_over(world)
    world.settle(new)
    request = world.send(new, world.plan(("p0", "n1")))
    world.settle(new)
    assert new.answers[request].results[0].node == "n1"
    world.run(old, Bind)
    world.settle(old, seconds=1e9)
    assert old.stopped
    assert world.node_of("p0") == "n1"
    assert check_all(world, new) == []


def test_the_plan_is_sent_again_to_the_new_leader_and_answered_from_the_intent() -> None:
    world = make_world()
    old = world.start_binder()
    plan = world.plan(("p0", "n0"))
    world.send(old, plan)
    world.run(old, Commit)
    world.crash(old)
    binder = take_over(world)
    world.settle(binder)
    request = world.send(binder, plan)
    assert binder.answers[request].results[0].outcome == Outcome.BOUND
    assert len(world.kube.bound) == 1


def test_one_pod_that_cannot_be_resolved_does_not_stop_the_others_for_ever() -> None:
    world = make_world(settings=BinderCoreSettings(takeover_grace_s=5.0))
    committed(world)
    world.kube.remove_node("n0")
    binder = take_over(world)
    for _ in range(100):
        if binder.core.takeover.accepting:
            break
        if binder.effects:
            fault = "drop_request" if isinstance(binder.effects[0], MarkPod) else "ok"
            world.run(binder, fault=fault)
        else:
            world.pass_time(binder, 0.5)
    assert binder.core.takeover.accepting
    assert world.now < 110
    request = world.send(binder, world.plan(("p1", "n1"), ("p0", "n1")))
    world.settle(binder)
    assert [r.outcome for r in binder.answers[request].results] == [Outcome.BOUND, Outcome.CONFLICT]
    assert check_all(world, binder) == []


def test_an_intent_that_cannot_be_read_is_left_alone_and_told() -> None:
    world = make_world()
    world.etcd.txn([], [Put(KEYS.intent("strange"), b"[1]")])
    binder = world.start_binder()
    assert binder.core.stats.intents_unreadable == 1
    assert "strange" in world.intents()


def test_a_read_that_fails_during_the_takeover_is_made_again() -> None:
    world = make_world()
    committed(world)
    world.kube.remove_pod("p0")
    binder = take_over(world)
    world.run(binder, ReadPod, fault="drop_reply")
    assert not binder.core.takeover.accepting
    world.settle(binder)
    assert world.intents() == {}
