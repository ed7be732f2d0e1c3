"""A unit planned into room that is still taken here waits for those who leave it: the coordinator saw it first."""

from __future__ import annotations

import pytest

from services.binder.core.events import Compared, Evicted
from services.binder.core.instructions import Evict, Instruction, ReadPod
from services.binder.cycle.leavers import Leavers
from shared.model.cluster_events import NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from shared.model.pod import Pod
from shared.wire.messages import Eviction, EvictionOutcome, EvictionResult, Outcome
from tests.builders import make_node, make_pod
from tests.unit.services.binder.binder_checks import at_rest, outcome
from tests.unit.services.binder.binder_world import Binder, World, make_world

LOW = "uid-low"


def low(*, terminating: bool = False) -> Pod:
    """Fills node n0; only the binder's watch knows it, so that a test says when that shows what."""
    built = make_pod("low").cpu("4").on("n0")
    if terminating:
        built.json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return built.pod()


def full(*, terminating: bool) -> tuple[World, Binder, int]:
    """A plan for p0 into room that is taken here."""
    world = make_world(nodes=1, pods=1)
    binder = world.start_binder()
    world.tell(binder, PodUpserted(low(terminating=terminating)))
    return world, binder, world.send(binder, world.plan(("p0", "n0")))


def asked_to_leave(world: World, binder: Binder) -> Evict:
    plan = world.plan()
    eviction = Eviction(LOW, "default", "low", world.uid("p0"), "n0")
    plan.evictions.append(eviction)
    world.send(binder, plan)
    (evict,) = [effect for effect in binder.effects if isinstance(effect, Evict)]
    binder.effects.remove(evict)
    return evict


def wanted(binder: Binder) -> list[Instruction]:
    return list(binder.effects)


def test_it_is_bound_once_the_watch_shows_a_terminating_pod_gone() -> None:
    world, binder, request = full(terminating=True)
    assert not binder.answers
    assert not wanted(binder)
    world.tell(binder, PodDeleted(LOW))
    at_rest(world, binder)
    assert (outcome(binder, request).outcome, world.node_of("p0")) == (Outcome.BOUND, "n0")


def test_it_is_bound_once_the_watch_shows_a_terminating_pod_finished() -> None:
    world, binder, request = full(terminating=True)
    ended = make_pod("low").cpu("4").on("n0")
    ended.json["status"]["phase"] = "Succeeded"
    world.tell(binder, PodUpserted(ended.pod()))
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND


def test_who_was_asked_to_leave_here_counts_before_any_watch_shows_it() -> None:
    world = make_world(nodes=1, pods=1)
    binder = world.start_binder()
    world.tell(binder, PodUpserted(low()))
    asked_to_leave(world, binder)
    request = world.send(binder, world.plan(("p0", "n0")))
    assert request not in binder.answers
    world.tell(binder, PodDeleted(LOW))
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND


def test_who_was_found_gone_without_a_watch_is_not_waited_for() -> None:
    """The sweep misses it in two lists."""
    world, binder, first = full(terminating=True)
    world.tell(binder, Compared({}))
    world.tell(binder, Compared({}))
    at_rest(world, binder)
    assert outcome(binder, first).outcome == Outcome.BOUND
    world.kube.add_pod(make_pod("p1").cpu("4"))
    world.watch(binder)
    second = world.send(binder, world.plan(("p1", "n0")))
    assert outcome(binder, second).outcome == Outcome.CONFLICT
    assert not any(vars(binder.core.state.leavers).values())


@pytest.mark.parametrize("ending", [EvictionOutcome.REFUSED, EvictionOutcome.UNKNOWN])
def test_it_is_given_back_at_once_where_the_victim_stays(ending: EvictionOutcome) -> None:
    world = make_world(nodes=1, pods=1)
    binder = world.start_binder()
    world.tell(binder, PodUpserted(low()))
    evict = asked_to_leave(world, binder)
    request = world.send(binder, world.plan(("p0", "n0")))
    assert request not in binder.answers
    world.tell(binder, Evicted(evict.plan, EvictionResult(LOW, ending)))
    assert outcome(binder, request).outcome == Outcome.CONFLICT


def test_it_is_given_back_after_a_while_without_asking_anybody() -> None:
    world, binder, request = full(terminating=True)
    world.pass_time(binder, world.settings.await_room_s + 0.01)
    assert outcome(binder, request).outcome == Outcome.CONFLICT
    assert not any(isinstance(effect, ReadPod) for effect in binder.effects)
    world.tell(binder, PodDeleted(LOW))
    assert not wanted(binder)


def wait_in_vain(world: World, binder: Binder, request: int) -> None:
    world.pass_time(binder, world.settings.await_room_s + 0.01)
    assert outcome(binder, request).outcome == Outcome.CONFLICT


def another(world: World, binder: Binder, name: str) -> int:
    world.kube.add_pod(make_pod(name).cpu("1"))
    world.watch(binder)
    return world.send(binder, world.plan((name, "n0")))


def test_who_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    """A long grace, a finalizer, a kubelet that is dead: it costs one wait, not one for each unit."""
    world, binder, request = full(terminating=True)
    wait_in_vain(world, binder, request)
    assert outcome(binder, another(world, binder, "p1")).outcome == Outcome.CONFLICT
    world.tell(binder, PodUpserted(low(terminating=True)))  # its status changes
    assert outcome(binder, another(world, binder, "p2")).outcome == Outcome.CONFLICT


def test_who_began_to_leave_during_a_wait_in_vain_is_waited_for() -> None:
    world, binder, request = full(terminating=True)
    world.pass_time(binder, world.settings.await_room_s / 2)
    late = make_pod("late").cpu("1").on("n0")
    late.json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.tell(binder, PodUpserted(late.pod()))
    wait_in_vain(world, binder, request)
    second = another(world, binder, "p1")
    assert second not in binder.answers
    world.tell(binder, PodDeleted(LOW))  # nobody waits for it, and whoever waits there is looked at
    world.tell(binder, PodDeleted("uid-late"))
    at_rest(world, binder)
    assert outcome(binder, second).outcome == Outcome.BOUND


@pytest.mark.parametrize("why", ["cordoned", "too small", "gone"])
def test_it_is_given_back_at_once_where_nobodys_leaving_would_help(why: str) -> None:
    world = make_world(nodes=1, pods=1, pod_cpu="5" if why == "too small" else "1")
    binder = world.start_binder()
    world.tell(binder, PodUpserted(low(terminating=True)))
    if why == "cordoned":
        node = make_node("n0").allocatable(cpu="4")
        node.json["spec"]["unschedulable"] = True
        world.tell(binder, NodeUpserted(node.node()))
    if why == "gone":
        world.tell(binder, NodeDeleted("n0"))
    assert outcome(binder, world.send(binder, world.plan(("p0", "n0")))).outcome == Outcome.CONFLICT


def test_who_was_found_gone_leaves_the_units_to_be_woken_by_the_others() -> None:
    leavers = Leavers()
    for uid in ("a", "b"):
        leavers.leaves(uid, "n0", 0.0)
    assert leavers.awaited_by("first", ["n0"], counted={"a", "b"})
    assert leavers.awaited_by("second", ["n0"], counted={"b"})
    assert leavers.ended("b") == ["first", "second"]
    assert not any(vars(leavers).values())


def test_it_is_given_back_at_once_where_nobody_leaves() -> None:
    _, binder, request = full(terminating=False)
    assert outcome(binder, request).outcome == Outcome.CONFLICT


def test_a_pod_that_goes_away_while_it_waits_ends_there() -> None:
    world, binder, request = full(terminating=True)
    uid = world.uid("p0")
    del world.kube.pods["default/p0"]
    world.tell(binder, PodDeleted(uid))
    assert outcome(binder, request).outcome == Outcome.GONE
    world.tell(binder, PodDeleted(LOW))
    assert not wanted(binder)


def test_without_waiting_room_that_the_coordinator_saw_first_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation."""
    monkeypatch.setattr(Leavers, "awaited_by", lambda *_, **__: False)
    _, binder, request = full(terminating=True)
    assert outcome(binder, request).outcome == Outcome.CONFLICT


def test_nothing_is_kept_of_those_who_have_left() -> None:
    world, binder, _ = full(terminating=True)
    world.tell(binder, PodDeleted(LOW))
    at_rest(world, binder)
    leavers = binder.core.state.leavers
    assert not any(vars(leavers).values())
