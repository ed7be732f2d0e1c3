"""The sweeps of the binder's core."""

from __future__ import annotations

from services.binder.core.instructions import ListPods
from services.binder.core.reconcile import COUNTED_AT_ONCE
from shared.turns import Log
from tests.unit.services.binder.binder_world import make_world


def test_every_node_is_counted_anew_and_so_many_in_one_turn() -> None:
    world = make_world(nodes=2 * COUNTED_AT_ONCE + 1, pods=0)
    core = world.start_binder().core
    state, table = core.state, core.state.cache.table
    for row in table.row_of.values():
        table.requested[0, row] += 1
    state.now += state.settings.compare_every_s
    turns: list[list[Log]] = []
    while not turns or state.agenda.sweeps <= state.now:
        state.out.clear()
        core.reconciler.step()
        turns.append([said for said in state.out if isinstance(said, Log) and said.event == "cache_miscounted"])
        assert any(isinstance(said, ListPods) for said in state.out) == (len(turns) == 1)
    assert [len(said) for said in turns] == [COUNTED_AT_ONCE, COUNTED_AT_ONCE, 1]
    assert {dict(said.facts)["node"] for turn in turns for said in turn} == table.row_of.keys()


def test_a_node_that_goes_while_they_are_counted_is_left_out() -> None:
    world = make_world(nodes=COUNTED_AT_ONCE + 1, pods=0)
    core = world.start_binder().core
    core.state.now += core.state.settings.compare_every_s
    core.reconciler.step()
    core.state.cache.remove_node("n0")
    core.state.out.clear()
    core.reconciler.step()
    assert core.state.out == []
    assert core.state.agenda.sweeps > core.state.now
