"""Several binders, each for the nodes of its shard: a node has one owner, whatever becomes of the record of shards."""

from __future__ import annotations

import pytest

from services.binder.core.instructions import Bind, Commit, ListIntents, MarkPod, ReadPod
from shared.errors import InvalidState
from shared.model.cluster_events import Listed
from shared.scheduling.shards import Shards
from shared.wire.messages import Outcome
from tests.unit.services.binder.ablations import without_loans, without_the_layout
from tests.unit.services.binder.binder_checks import check_all, outcome
from tests.unit.services.binder.binder_world import Binder, World, make_world

KEPT, MOVED, OTHER = "n2", "n5", "n6"
"""Nodes of shard 0: when shard 1 comes the first stays, the others become shard 1's."""


def small_world() -> World:
    """A pod fills a node."""
    return make_world(nodes=7, pods=4, node_cpu="1")


def restart(world: World, shard: str) -> Binder:
    """A new leader of the shard, all listed, nothing settled."""
    binder = world.start_binder(shard, ready=False)
    world.sync(binder)
    return binder


def test_the_scenes_rest_on_these_nodes() -> None:
    shards = Shards(("0", "1"))
    assert [shards.of(node) for node in (KEPT, MOVED, OTHER)] == ["0", "1", "1"]


def test_a_plan_for_a_node_of_another_shard_is_refused_whole() -> None:
    world = small_world()
    world.divide("0", "1")
    binder = world.start_binder("0")
    for plan in (world.plan(("p0", KEPT), ("p1", MOVED)), world.plan(("p2", KEPT, [MOVED]))):
        request = world.send(binder, plan)
        assert binder.refusals[request].code == "wrong_shard"
    assert not binder.effects
    assert not binder.core.state.cache.accounts


def test_a_commit_under_the_old_shards_is_refused_and_ends_the_term() -> None:
    world = small_world()
    old = world.start_binder("0")
    world.send(old, world.plan(("p0", KEPT)))
    world.divide("0", "1")
    world.run(old, Commit)
    assert not world.intents()
    world.settle(old)
    assert "other shards" in old.stopped


def two_owners() -> World:
    """Shard 1 gets a node that is shard 0's, and commits there; then shard 0 does, which has not heard of it."""
    world = small_world()
    old = world.start_binder("0")
    world.send(old, world.plan(("p0", MOVED)))
    world.divide("0", "1")
    new = world.start_binder("1")
    world.send(new, world.plan(("p1", MOVED)))
    world.run(new, Commit)
    world.run(old, Commit)
    return world


def test_two_owners_of_a_node_do_not_overcommit_it() -> None:
    assert check_all(two_owners()) == []


def test_ablation_without_the_compare_of_the_shards_a_node_is_overcommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_layout(monkeypatch)
    assert any(found.startswith(f"I2: {MOVED}") for found in check_all(two_owners()))


def lent(world: World) -> tuple[Binder, Binder]:
    """p0 is committed by shard 0 to a node that is then shard 1's; the leaders of both shards have begun anew."""
    first = world.start_binder("0")
    world.send(first, world.plan(("p0", MOVED)))
    world.run(first, Commit)
    world.divide("0", "1")
    world.crash(first)
    return restart(world, "0"), restart(world, "1")


def test_what_another_shard_has_committed_to_our_node_is_counted() -> None:
    world = small_world()
    _, second = lent(world)
    request = world.send(second, world.plan(("p1", MOVED)))
    assert outcome(second, request).outcome == Outcome.CONFLICT
    assert check_all(world) == []


def test_ablation_without_loans_a_node_is_overcommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_loans(monkeypatch)
    world = small_world()
    _, second = lent(world)
    world.send(second, world.plan(("p1", MOVED)))
    world.run(second, Commit)
    assert any(found.startswith("I2") for found in check_all(world))


def test_the_shard_that_committed_finishes_and_the_node_keeps_its_pod() -> None:
    world = small_world()
    first, second = lent(world)
    assert not any(isinstance(effect, Bind) for effect in second.effects), "it is not its own"
    world.settle(first)
    world.settle(second)
    assert world.node_of("p0") == MOVED
    assert not len(second.core.loans)
    assert check_all(world, first) == check_all(world, second) == []


def test_what_another_shard_gave_up_is_free_once_its_intent_is_gone() -> None:
    world = small_world()
    first = world.start_binder("0")
    world.send(first, world.plan(("p0", MOVED)))
    world.run(first, Commit)
    world.kube.change_node(MOVED, unschedulable=True)
    world.divide("0", "1")
    world.crash(first)
    first, second = restart(world, "0"), restart(world, "1")
    world.run(first, MarkPod)
    world.settle(first)
    assert not world.intents()
    assert MOVED in {account.node_name for account in second.core.state.cache.accounts.values()}
    world.pass_time(second, 1.0)
    world.run(second, ListIntents)
    world.run(second, ReadPod)
    assert not second.core.state.cache.accounts
    assert not len(second.core.loans)


def test_a_pod_that_another_shard_has_committed_is_not_placed_here() -> None:
    world = small_world()
    _, second = lent(world)
    request = world.send(second, world.plan(("p0", OTHER)))
    assert outcome(second, request).outcome == Outcome.CONFLICT


def test_intents_of_a_shard_that_is_no_more_are_resolved_by_another() -> None:
    world = small_world()
    world.divide("0", "1")
    gone = world.start_binder("1")
    world.send(gone, world.plan(("p0", MOVED)))
    world.run(gone, Commit)
    world.crash(gone)
    world.divide("0")
    binder = world.start_binder("0")
    assert world.node_of("p0") == MOVED
    assert check_all(world, binder) == []


def test_pods_are_not_listed_before_the_intents_of_other_shards() -> None:
    world = small_world()
    world.divide("0", "1")
    binder = world.start_binder("1", ready=False)
    world.watch(binder)
    with pytest.raises(InvalidState, match="before the intents"):
        world.tell(binder, Listed("pods"))


def test_nothing_is_looked_at_again_where_nothing_is_lent() -> None:
    world = small_world()
    world.divide("0", "1")
    assert world.start_binder("1").core.wake_at > world.now + 1.0


def test_a_binder_whose_shard_is_not_named_owns_nothing() -> None:
    world = small_world()
    binder = world.start_binder("2")
    request = world.send(binder, world.plan(("p0", KEPT)))
    assert binder.refusals[request].code == "wrong_shard"
