"""What was sent and got no answer: read back, never repeated blindly, and looked up when nobody confirms it."""

from __future__ import annotations

import pytest

from services.binder.core.events import CommitUnknown, LookUpFailed
from services.binder.core.instructions import Bind, Commit, LookUp, MarkPod, ReadPod
from shared.wire.messages import Outcome
from tests.unit.services.binder.ablations import without_the_fence
from tests.unit.services.binder.binder_checks import at_rest, outcome
from tests.unit.services.binder.binder_world import Binder, World, make_world


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


def test_a_failed_look_at_an_earlier_transaction_asks_nothing_of_the_one_in_flight() -> None:
    """Looked up before its answer, what is not there yet would go again."""
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    [commit] = [effect for effect in binder.effects if isinstance(effect, Commit)]
    world.tell(binder, LookUpFailed(commit.batch - 1))
    world.pass_time(binder, world.settings.retry_s)
    assert not [effect for effect in binder.effects if isinstance(effect, LookUp)]
    world.tell(binder, CommitUnknown(commit.batch))
    world.run(binder, LookUp, fault="drop_reply")
    world.pass_time(binder, world.settings.retry_s)
    assert [effect for effect in binder.effects if isinstance(effect, LookUp)]


def late_transaction() -> tuple[World, Binder]:
    """A commit gets no answer and is made again, the pod is bound and its intent cleared; then the first one comes."""
    world = make_world()
    binder = world.start_binder()
    request = world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit, fault="late")
    at_rest(world, binder)
    assert outcome(binder, request).outcome == Outcome.BOUND
    world.carry_out(world.late.pop())
    assert len(world.kube.bound) == 1
    return world, binder


def test_a_transaction_that_comes_late_is_refused() -> None:
    world, binder = late_transaction()
    assert world.intents() == {}
    at_rest(world, binder)


def test_ablation_without_the_fence_it_leaves_an_intent_which_the_sweep_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_fence(monkeypatch)
    world, binder = late_transaction()
    assert len(world.intents()) == 1
    for _ in range(2):
        world.pass_time(binder, 31)
        world.settle(binder)
    assert binder.core.stats.intents_orphaned == 1
    at_rest(world, binder)


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
