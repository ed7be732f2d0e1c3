"""Whose Binding is next: lone pods and gangs in turn, and no gang holds all there is."""

from __future__ import annotations

from typing import NoReturn

import pytest

from services.binder.core.instructions import Bind, Commit
from services.binder.core.state import BinderCoreSettings
from services.binder.cycle.line import SLICE_S, BindingLine
from tests.unit.services.binder.ablations import with_one_line_for_all
from tests.unit.services.binder.binder_checks import at_rest
from tests.unit.services.binder.binder_world import make_world


def many(gang: str, most: int) -> int:
    return most


def taken(line: BindingLine, now: float = 0.0, at_once: object = many) -> list[str]:
    """Everybody who is sent now, in order."""
    sent: list[str] = []
    while (uid := line.next(now, at_once)) is not None:  # type: ignore[arg-type]  # a function of the test
        line.sent(uid, uid.partition("-")[0] if "-" in uid else "")
        sent.append(uid)
    return sent


def test_a_lone_pod_behind_a_large_gang_is_next() -> None:
    line = BindingLine(8)
    for number in range(500):
        line.add(f"g-{number}", "g")
    line.add("lone", "")
    assert taken(line)[0] == "lone"


def test_lone_pods_and_a_gang_go_in_turn() -> None:
    line = BindingLine(8)
    for number in range(4):
        line.add(f"g-{number}", "g")
        line.add(f"pod{number}", "")
    assert taken(line) == ["pod0", "g-0", "pod1", "g-1", "pod2", "g-2", "pod3", "g-3"]


def test_a_gang_that_hangs_leaves_half_of_the_room_and_two_leave_a_quarter() -> None:
    line = BindingLine(8)
    for number in range(20):
        line.add(f"a-{number}", "a")
    assert len(taken(line)) == 4
    for number in range(20):
        line.add(f"b-{number}", "b")
    assert len(taken(line)) == 2
    line.add("lone0", "")
    line.add("lone1", "")
    assert taken(line) == ["lone0", "lone1"]


def test_a_gang_that_is_first_for_long_goes_to_the_end() -> None:
    line = BindingLine(4)
    for number in range(20):
        line.add(f"a-{number}", "a")
        line.add(f"b-{number}", "b")
    assert taken(line) == ["a-0", "a-1", "b-0"]
    line.answered("b-0")
    assert taken(line, SLICE_S) == ["b-1"], "the first has its share in flight"
    for uid in ("a-0", "a-1", "b-1"):
        line.answered(uid)
    assert taken(line, SLICE_S + 0.1) == ["b-2", "b-3", "a-2"]


def test_members_of_one_gang_are_sent_before_those_of_the_next() -> None:
    line = BindingLine(8)
    for gang in ("a", "b"):
        for number in range(3):
            line.add(f"{gang}-{number}", gang)
    assert taken(line) == ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]


def test_a_gang_that_may_send_nothing_does_not_stop_the_next() -> None:
    line = BindingLine(8)
    line.add("a-0", "a")
    line.add("b-0", "b")
    assert taken(line, at_once=lambda gang, most: 0 if gang == "a" else most) == ["b-0"]
    assert line.waiting() == {"a-0"}
    line.forget("a")
    assert line.waiting() == set()


class Untold(dict[str, int]):
    """Gangs with Bindings in flight, whom nobody may go through."""

    def values(self) -> NoReturn:
        raise AssertionError("a Binding costs as gangs do")

    items = __iter__ = keys = values  # type: ignore[assignment]


def test_whose_binding_is_next_costs_no_look_at_all_gangs_in_flight() -> None:
    line = BindingLine(64)
    line._sent = Untold()
    for number in range(48):
        line.add(f"g{number}-0", f"g{number}")
    sent = taken(line)
    assert len(sent) == 48
    line.add("late-0", "late")
    assert taken(line) == []
    line.answered(sent[0])
    assert taken(line) == ["late-0"]


def test_with_room_for_one_everybody_has_a_turn() -> None:
    line = BindingLine(1)
    line.add("g-0", "g")
    line.add("lone", "")
    assert taken(line) == ["lone"]
    line.answered("lone")
    assert taken(line) == ["g-0"]
    line.answered("g-0")
    assert line.in_flight == 0


def last_sent_beside_a_hanging_gang() -> str:
    """A gang's first member is bound, then the API server answers nothing; a lone pod is planned. Who is sent last?"""
    world = make_world(nodes=4, pods=60, node_cpu="100", settings=BinderCoreSettings(max_bindings=8))
    binder = world.start_binder()
    world.send(binder, world.gang(*((f"p{n}", f"n{n % 4}") for n in range(59)), at_least=2))
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.send(binder, world.plan(("p59", "n0")))
    world.run(binder, Commit)
    sent = [effect.request.name for effect in binder.effects if isinstance(effect, Bind)][-1]
    at_rest(world, binder)
    return sent


def test_a_gang_whose_webhook_hangs_does_not_hold_up_a_lone_pod() -> None:
    assert last_sent_beside_a_hanging_gang() == "p59"


def test_ablation_with_one_line_for_all_a_lone_pod_waits_for_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_line_for_all(monkeypatch)
    assert last_sent_beside_a_hanging_gang() != "p59"
