"""A gang whose intent is committed is bound, or withdrawn whole: one rule per test."""

from __future__ import annotations

import pytest

from services.binder.core.gangs import GANG_TRANSITIONS, GangStage
from services.binder.core.instructions import Bind, Commit, MarkPod
from shared.errors import InvalidTransition
from shared.runtime.process.failpoints import Failpoints
from shared.wire.messages import Outcome
from tests.unit.services.binder.ablations import without_rewriting
from tests.unit.services.binder.binder_checks import at_rest, check_all
from tests.unit.services.binder.gang_scenes import FOUR, bindings, four, outcomes


def test_a_webhook_that_refuses_every_member_is_asked_once_for_each_and_nobody_is_bound() -> None:
    world, binder = four()
    world.kube.refuse_with["bind"] = 403
    request = world.send(binder, world.gang(*FOUR, at_least=3))
    world.run(binder, Commit)
    while bindings(binder):
        assert len(bindings(binder)) == 1, "while nobody is bound, one goes ahead"
        world.run(binder, Bind)
        assert check_all(world) == []
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.REFUSED] * 2 + [Outcome.CONFLICT] * 2
    assert binder.core.stats.bindings == 2
    assert binder.core.state.cache.accounts == {}


def test_a_member_refused_for_good_ends_alone_and_leaves_the_intent() -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=3))
    world.run(binder, Commit)
    world.kube.refuse_with["bind"] = 403
    world.run(binder, Bind)
    world.kube.refuse_with.clear()
    world.run(binder, Commit)
    [intent] = world.intents().values()
    assert intent is not None
    assert [pod.name for pod in intent.pods] == ["p1", "p2", "p3"]
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.REFUSED] + [Outcome.BOUND] * 3


def planned_anew() -> list[str]:
    """A member is refused and given back; while its gang goes on, its pod is planned alone."""
    world, binder = four()
    world.send(binder, world.gang(*FOUR, at_least=3))
    world.run(binder, Commit)
    world.kube.refuse_with["bind"] = 403
    world.run(binder, Bind)
    world.kube.refuse_with.clear()
    again = world.send(binder, world.plan(("p0", "n1")))
    found: list[str] = []
    while any(isinstance(effect, Commit) for effect in binder.effects):
        world.run(binder, Commit)
        found += check_all(world)
    world.settle(binder)
    assert outcomes(binder, again) == [Outcome.BOUND]
    return found + check_all(world, binder)


def test_a_member_given_back_can_be_planned_anew_while_its_gang_goes_on() -> None:
    assert planned_anew() == []


def test_ablation_without_rewriting_the_intent_two_of_them_name_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    without_rewriting(monkeypatch)
    assert planned_anew()[0].startswith("I1: two live intents name")


def test_once_somebody_is_bound_the_others_go_on_below_the_minimum() -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.kube.refuse_with["bind"] = 403
    world.run(binder, Bind)
    world.kube.refuse_with.clear()
    world.settle(binder)
    assert sorted(outcomes(binder, request)) == [Outcome.BOUND] * 3 + [Outcome.REFUSED]
    assert world.intents() == {}


@pytest.mark.parametrize("bound", [True, False])
def test_what_became_of_an_unanswered_binding_decides_for_a_gang_below_its_minimum(bound: bool) -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    world.run(binder, Bind, fault="drop_reply" if bound else "late")
    world.kube.change_node("n1", unschedulable=True)
    world.watch(binder)
    assert check_all(world) == []
    world.settle(binder)
    while world.late:
        world.carry_out(world.late.pop())
    world.watch(binder)
    expected = [Outcome.BOUND, Outcome.CONFLICT, Outcome.BOUND, Outcome.CONFLICT] if bound else [Outcome.CONFLICT] * 4
    assert outcomes(binder, request) == expected
    assert check_all(world, binder, broken=bound) == []


@pytest.mark.parametrize("gone", [True, False])
def test_a_node_that_changes_before_the_first_binding_ends_a_gang_that_needs_it(gone: bool) -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=3))
    if gone:
        world.kube.remove_node("n1")
    else:
        world.kube.change_node("n1", unschedulable=True)
    world.watch(binder)
    world.run(binder, Commit)
    assert bindings(binder) == []
    assert check_all(world) == []
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.CONFLICT] * 4


def test_a_member_whose_version_is_stale_is_renewed_in_the_gangs_intent() -> None:
    world, binder = four()
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    for number in range(4):
        world.kube.touch_pod(f"p{number}")
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4
    assert len(world.kube.bound) == 4


def test_a_busy_api_server_is_asked_again_for_a_gang() -> None:
    world, binder = four()
    world.kube.refuse_with["bind"] = 429
    request = world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    while bindings(binder):
        world.run(binder, Bind)
    world.kube.refuse_with.clear()
    at_rest(world, binder)
    assert outcomes(binder, request) == [Outcome.BOUND] * 4


def test_a_gang_that_is_cleared_leaves_in_one_transaction() -> None:
    world, binder = four(max_value_pods=1)
    world.send(binder, world.gang(*FOUR, at_least=4))
    world.settle(binder)
    assert world.intents() == {}
    assert binder.core.stats.transactions == 5, "three links, the head, one clear"


def test_an_impossible_move_of_a_gang_ends_the_term() -> None:
    world, binder = four()
    world.send(binder, world.gang(*FOUR, at_least=4))
    [gang] = binder.core.state.gangs.values()
    with pytest.raises(InvalidTransition):
        binder.core.gangs._move(gang, GangStage.BINDING)
    assert all(GangStage.ENDED in ends for stage, ends in GANG_TRANSITIONS.items() if stage is not GangStage.ENDED)


def test_marks_are_made_for_those_alone_whose_binding_may_be_under_way() -> None:
    world, binder = four()
    world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    world.run(binder, Bind, fault="drop_request")
    world.kube.change_node("n1", unschedulable=True)
    world.watch(binder)
    marked = []
    while binder.effects:
        effect = world.run(binder)
        if isinstance(effect, MarkPod):
            marked.append(effect.name)
    assert marked == ["p0"]
    at_rest(world, binder)


class Reached(Failpoints):
    """Notes what is reached."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def reach(self, name: str) -> None:
        self.names.append(name)


def test_every_step_of_a_gang_has_its_failpoints() -> None:
    world, binder = four(max_value_pods=2)
    reached = Reached()
    world.api_calls._failpoints = world.store_calls["0"]._failpoints = reached
    world.send(binder, world.gang(*FOUR, at_least=4))
    world.run(binder, Commit)
    world.run(binder, Commit)
    world.kube.touch_pod("p0")
    at_rest(world, binder)
    steps = [name for name in dict.fromkeys(reached.names) if "gang" in name]
    assert set(steps) == {
        f"{side}_gang_{step}"
        for step in ("link", "head", "first_bind", "next_bind", "rewrite", "clear")
        for side in ("before", "after")
    }
    assert steps[:4] == ["before_gang_link", "after_gang_link", "before_gang_head", "after_gang_head"]
    assert steps[-2:] == ["before_gang_clear", "after_gang_clear"]
