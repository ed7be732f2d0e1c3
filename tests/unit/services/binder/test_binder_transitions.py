"""Where a unit may go from where: an illegal move raises and tells the unit's story."""

from __future__ import annotations

import pytest

from services.binder.core import events
from services.binder.core.in_flight import TRANSITIONS, BindingStage, InFlightBinding
from services.binder.core.instructions import Bind, Commit
from services.binder.core.state import BinderState
from shared.errors import InvalidTransition
from shared.model import cluster_events
from tests.unit.services.binder.binder_world import make_world


def on_its_way() -> tuple[BinderState, InFlightBinding]:
    """A unit whose intent is committed, and whose Binding is out."""
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    state = binder.core.state
    return state, state.in_flight[world.uid("p0")]


def test_an_illegal_move_names_the_unit_the_move_its_cause_and_its_story() -> None:
    state, binding = on_its_way()
    state.cause = events.Committed
    with pytest.raises(InvalidTransition) as caught:
        state.move(binding, BindingStage.AWAITED)
    error = caught.value
    assert (error.uid, error.start, error.finish, error.cause) == (binding.uid, "binding", "awaited", "Committed")
    assert "awaited -> checked on PlanReceived" in str(error)
    assert binding.stage is BindingStage.BINDING


@pytest.mark.parametrize("cause", [events.Evicted, events.Compared, cluster_events.ObjectChanged, events.LookUpFailed])
def test_what_is_not_about_units_moves_none(cause: type[events.Event]) -> None:
    state, binding = on_its_way()
    state.cause = cause
    for stage in BindingStage:
        with pytest.raises(InvalidTransition):
            state.move(binding, stage)


def test_a_settled_unit_goes_nowhere_and_every_stage_has_an_end() -> None:
    moves = [(start, finish) for moves in TRANSITIONS.values() for start, ends in moves.items() for finish in ends]
    assert all(start is not BindingStage.SETTLED and finish is not BindingStage.NEW for start, finish in moves)
    assert {start for start, finish in moves if finish is BindingStage.SETTLED} == set(BindingStage) - {
        BindingStage.NEW,
        BindingStage.SETTLED,
    }


def test_a_unit_tells_its_whole_story() -> None:
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.settle(binder)
    uid = world.uid("p0")
    told = [line.partition("  ")[2] for line in binder.core.story(uid)]
    assert told == [
        f"plan 1 wants it on n0 as unit {world.coordinator_term:x}-1",
        "new -> awaited on PlanReceived",
        "awaited -> checked on PlanReceived",
        "checked -> committed on Committed",
        "committed -> binding on Tick",
        "binding -> settled on BindingAccepted",
        "BOUND n0 ",
    ]


def test_a_late_answer_finds_no_unit_and_moves_nothing() -> None:
    world = make_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    [bind] = [effect for effect in binder.effects if isinstance(effect, Bind)]
    world.kube.remove_pod("p0")
    world.watch(binder)
    world.tell(binder, events.BindingAccepted(bind.request.uid, bind.attempt))
    assert binder.core.story(bind.request.uid)[-1].endswith("GONE  the pod was deleted")
