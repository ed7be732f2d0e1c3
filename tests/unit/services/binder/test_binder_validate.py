"""What must hold in a binder between two turns: each invariant, broken by hand, is seen and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from services.binder.core.core import BinderCore
from services.binder.core.gangs import GangStage, InFlightGang
from services.binder.core.in_flight import BindingStage
from services.binder.core.instructions import Commit
from services.binder.core.state import NEVER, BinderCoreSettings
from shared.errors import InvalidState
from shared.turns import Tick
from tests.builders import make_pod
from tests.unit.services.binder.binder_world import World, make_world


def busy() -> tuple[World, BinderCore, str]:
    """A binder with one unit that is being bound, one whose intent waits, and one whose pod is awaited."""
    world = make_world(pods=2, settings=BinderCoreSettings())
    binder = world.start_binder()
    world.send(binder, world.plan(("p0", "n0")))
    world.run(binder, Commit)
    world.kube.add_pod(make_pod("unseen").cpu("1"))
    world.send(binder, world.plan(("p1", "n1"), ("unseen", "n2")))
    return world, binder.core, world.uid("p0")


def lose_the_time(core: BinderCore, uid: str) -> None:
    core.state.paused.clear()


def lose_the_intent(core: BinderCore, uid: str) -> None:
    core.committer._created.clear()


def lose_the_transaction(core: BinderCore, uid: str) -> None:
    core.committer.sent = None
    core.committer._puts.clear()


def lose_the_account(core: BinderCore, uid: str) -> None:
    core.state.cache.forget(uid)


def keep_an_intent(core: BinderCore, uid: str) -> None:
    core.committer._created["nobody"] = 7


def forget_a_unit(core: BinderCore, uid: str) -> None:
    del core.state.in_flight[uid]


def rename_a_unit(core: BinderCore, uid: str) -> None:
    core.state.in_flight[uid].uid = "other"


def miscount_bindings(core: BinderCore, uid: str) -> None:
    core.cycle.line.in_flight = 0


def wait_for_nobody(core: BinderCore, uid: str) -> None:
    core.state.paused["nobody"] = 1.0


def put_off_the_answer(core: BinderCore, uid: str) -> None:
    core.state.agenda.plans = NEVER


def close_no_plan(core: BinderCore, uid: str) -> None:
    for opened in core.plans._open.values():
        opened.results = dict.fromkeys((p.unit for p in opened.plan.placements), None)  # type: ignore[arg-type]
        opened.waiting.clear()


def inherit_for_nobody(core: BinderCore, uid: str) -> None:
    core.takeover.opened("nobody")


def miscount_a_node(core: BinderCore, uid: str) -> None:
    core.state.cache.table.requested[0, 0] += 1


def move_an_account(core: BinderCore, uid: str) -> None:
    account = core.state.cache.accounts[uid]
    core.state.cache.accounts[uid] = msgspec.structs.replace(account, node_name="n2")


def swap_rows(core: BinderCore, uid: str) -> None:
    rows = core.state.cache.table.row_of
    rows["n0"], rows["n1"] = rows["n1"], rows["n0"]


def in_a_gang() -> tuple[World, BinderCore]:
    """A binder with a committed gang whose first member is being bound."""
    world = make_world(pods=3, settings=BinderCoreSettings())
    binder = world.start_binder()
    world.send(binder, world.gang(("p0", "n0"), ("p1", "n1"), ("p2", "n2"), at_least=3))
    world.run(binder, Commit)
    return world, binder.core


def member_back_to_checked(gang: InFlightGang) -> None:
    gang.members[next(iter(gang.members))].stage = BindingStage.CHECKED


def gang_back_to_committing(gang: InFlightGang) -> None:
    gang.stage = GangStage.COMMITTING


def miscount_leaving(gang: InFlightGang) -> None:
    gang.leaving = 1


def raise_the_minimum(gang: InFlightGang) -> None:
    gang.min_count = 4


def close_the_gate(gang: InFlightGang) -> None:
    gang.stage = GangStage.COMMITTED
    for member in gang.members.values():
        member.stage = BindingStage.COMMITTED


def lose_a_member(gang: InFlightGang) -> None:
    gang.members.popitem()


GANGS_BROKEN: list[tuple[str, Callable[[InFlightGang], None]]] = [
    ("gang-atomic", member_back_to_checked),
    ("gang-atomic", gang_back_to_committing),
    ("gang-counts", miscount_leaving),
    ("gang-minimum", raise_the_minimum),
    ("gang-goes-on", close_the_gate),
    ("gang-members", lose_a_member),
]


@pytest.mark.parametrize(("name", "harm"), GANGS_BROKEN, ids=[f"{name}-{harm.__name__}" for name, harm in GANGS_BROKEN])
def test_what_is_broken_in_a_gang_is_named(name: str, harm: Callable[[InFlightGang], None]) -> None:
    _, core = in_a_gang()
    assert core.validate() == []
    [gang] = core.state.gangs.values()
    harm(gang)
    assert name in {problem.partition(":")[0] for problem in core.validate()}


BROKEN: list[tuple[str, Callable[[BinderCore, str], None]]] = [
    ("goes-on", lose_the_time),
    ("goes-on", lose_the_transaction),
    ("intent-known", lose_the_intent),
    ("intent-owned", keep_an_intent),
    ("assumed", lose_the_account),
    ("plan-units", forget_a_unit),
    ("unit-key", rename_a_unit),
    ("bindings", miscount_bindings),
    ("waits", wait_for_nobody),
    ("plan-open", close_no_plan),
    ("agenda", put_off_the_answer),
    ("inherited", inherit_for_nobody),
    ("accounts-sum", miscount_a_node),
    ("accounts-by-node", move_an_account),
    ("node-rows", swap_rows),
]


def test_a_busy_binder_is_sound() -> None:
    _, core, uid = busy()
    assert core.state.in_flight[uid].stage is BindingStage.BINDING
    assert core.validate() == []


@pytest.mark.parametrize(("name", "harm"), BROKEN, ids=[f"{name}-{harm.__name__}" for name, harm in BROKEN])
def test_what_is_broken_is_named(name: str, harm: Callable[[BinderCore, str], None]) -> None:
    _, core, uid = busy()
    harm(core, uid)
    assert name in {problem.partition(":")[0] for problem in core.validate()}


def test_with_the_setting_a_broken_core_ends_its_term_and_tells_whose_story_it_is() -> None:
    world, core, uid = busy()
    core.state.settings = replace(core.state.settings, validate=True)
    lose_the_account(core, uid)
    with pytest.raises(InvalidState, match="assumed: ") as caught:
        core.handle(Tick(), world.now)
    assert f"{uid}: " in str(caught.value)
    assert "checked -> committed on Committed" in str(caught.value)


def test_without_the_setting_nothing_is_checked() -> None:
    world, core, uid = busy()
    lose_the_account(core, uid)
    core.handle(Tick(), world.now)
