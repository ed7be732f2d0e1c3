"""A look that weighs many pods, and victims that are many: some per turn, and what was chosen must stand still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import Event
from services.coordinator.core.instructions import Instruction, SendPlan
from services.coordinator.preemption.nominations import MOST_UNKNOWN
from services.coordinator.queues import finding, leaving
from shared.model.units.queue import Queue
from shared.scheduling.queues.reclaim import victims
from shared.scheduling.queues.reclaim.victims import Stock
from shared.turns import Tick
from shared.wire.messages import MAX_UNITS, Eviction
from tests.unit.services.coordinator.queues.queue_scenes import add, bound, cpus, put, scene_with
from tests.unit.services.coordinator.scene import Scene

LENDER, BORROWER = Queue("a", guaranteed=cpus(4), reclaim=True), Queue("b")


@pytest.fixture
def stocks(monkeypatch: pytest.MonkeyPatch) -> list[Stock]:
    """One part of the work a turn, each of two pods; what was weighed."""
    made: list[Stock] = []

    class Seen(Stock):
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(finding, "Stock", Seen)
    monkeypatch.setattr(victims, "WEIGHED", 10**9)
    monkeypatch.setattr(victims, "PART", 2)
    return made


def limited(*, taken: int = 6, nodes: int = 4) -> Scene:
    """The borrower has all that the queue above both lets them have; nodes have room."""
    top = Queue("top", maximum=cpus(6), guaranteed=cpus(6))
    scene = scene_with(top, replace(LENDER, parent="top"), Queue("b", "top"), nodes=nodes)
    add(scene, "b", *(f"b{number}" for number in range(taken)))
    scene.run(batch=100, until_s=5)
    assert len(bound(scene)) == taken
    return scene


def full() -> Scene:
    """The borrower has everything."""
    scene = scene_with(LENDER, BORROWER, nodes=2)
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    return scene


def each_turn(scene: Scene, monkeypatch: pytest.MonkeyPatch, note: Callable[[list[Instruction]], int]) -> list[int]:
    """What ``note`` says after each turn from now on."""
    handle, noted = scene.core.handle, list[int]()

    def handled(events: Sequence[Event], now: float) -> list[Instruction]:
        out = handle(events, now)
        noted.append(note(out))
        return out

    monkeypatch.setattr(scene.core, "handle", handled)
    return noted


def test_no_turn_weighs_more_than_its_part(stocks: list[Stock], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = limited()
    stocks.clear()
    add(scene, "a", "a0")
    weighed = each_turn(scene, monkeypatch, lambda _: sum(stock.weighed for stock in stocks))
    scene.run(batch=100, until_s=10)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 1
    assert max(weighed) >= 6
    assert max(after - before for before, after in pairwise([0, *weighed])) == 2


def test_a_lone_pod_finds_its_room_over_turns(stocks: list[Stock]) -> None:
    scene = full()
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=20)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 1
    assert stocks


def turn(scene: Scene) -> None:
    """One; where nothing is on its way a moment later."""
    if not scene.step():
        scene.now += 0.05
        scene.deliver(Tick())


def looking(scene: Scene) -> bool:
    return scene.core.queues._reclaimer._look is not None


def amid_a_look(scene: Scene, stocks: list[Stock]) -> None:
    """Turns until a look has weighed something and is not over."""
    for _ in range(2000):
        if looking(scene) and any(stock.weighed for stock in stocks):
            return
        turn(scene)
    raise AssertionError("no look took more than a turn")


def test_a_unit_that_goes_amid_the_look_costs_nobody_anything(stocks: list[Stock]) -> None:
    scene = limited()
    stocks.clear()
    add(scene, "a", "a0")
    amid_a_look(scene, stocks)
    scene.delete_pod("uid-a0")
    scene.run(batch=100, until_s=10)
    assert scene.evicted == []


def test_room_that_comes_amid_the_look_costs_nobody_anything(stocks: list[Stock]) -> None:
    scene = limited()
    stocks.clear()
    add(scene, "a", "a0")
    amid_a_look(scene, stocks)
    scene.delete_pod("uid-b0")
    scene.run(batch=100, until_s=10)
    assert bound(scene)[-1] == "a0"
    assert scene.evicted == []


def test_a_change_of_the_queues_begins_the_look_anew(stocks: list[Stock]) -> None:
    scene = limited()
    stocks.clear()
    add(scene, "a", "a0")
    amid_a_look(scene, stocks)
    put(scene, replace(LENDER, parent="top", guaranteed=cpus(5)))
    scene.step()
    assert not looking(scene)
    scene.run(batch=100, until_s=10)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 1


def test_a_lowered_limit_asks_some_per_turn_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "ASKED_PER_TURN", 2)
    monkeypatch.setattr(leaving, "MARKED_PER_TURN", 3)
    scene = full()
    scene.keep_victims = True
    put(scene, Queue("b", maximum=cpus(1), reclaim=True))
    turns = each_turn(
        scene, monkeypatch, lambda out: sum(len(one.plan.evictions) for one in out if isinstance(one, SendPlan))
    )
    scene.run(batch=100, until_s=20)
    asked = [eviction.uid for plan in scene.plans for eviction in plan.evictions]
    assert (len(asked), len(set(asked)), max(turns)) == (7, 7, 2)
    assert scene.core.state.queues.decided.leaving.keys() == set(asked)


def test_who_was_not_asked_yet_stays_where_the_unit_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "ASKED_PER_TURN", 0)
    scene = limited()
    add(scene, "a", "a0")
    for _ in range(400):
        if scene.core.state.queues.decided.leaving:
            break
        turn(scene)
    assert scene.core.state.queues.decided.leaving
    scene.delete_pod("uid-a0")
    for _ in range(100):
        if not scene.core.state.queues.decided.leaving:
            break
        turn(scene)
    assert not scene.core.state.queues.decided.leaving
    assert scene.evicted == []


def test_who_was_refused_once_is_asked_again_before_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = limited()
    scene.budget_forbids = {f"uid-b{number}" for number in range(6)}
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=leaving.GIVE_UP_S - 5)
    asked, decided = len(scene.plans), scene.core.state.queues.decided
    assert not decided.leaving
    scene.budget_forbids = set()
    monkeypatch.setattr(leaving, "ASKED_PER_TURN", 0)
    until = scene.now + 20
    while scene.now < until:
        turn(scene)
    assert len(decided.leaving) == 1
    assert not any(plan.evictions for plan in scene.plans[asked:])
    monkeypatch.setattr(leaving, "ASKED_PER_TURN", 256)
    scene.run(batch=100, until_s=5)
    assert bound(scene)[-1] == "a0"


def test_who_is_asked_without_an_answer_again_and_again_is_passed_over_for_others() -> None:
    """As a webhook that fails makes it: four times, not each second for a minute."""
    scene = limited()
    scene.unknown_evictions = 10**6
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=leaving.GIVE_UP_S - 10)
    asked = Counter(eviction.uid for plan in scene.plans for eviction in plan.evictions)
    assert len(asked) > 1
    assert max(asked.values()) == MOST_UNKNOWN
    scene.unknown_evictions = 0
    scene.run(batch=100, until_s=2 * leaving.GIVE_UP_S)
    assert "a0" in bound(scene)


def test_more_evictions_than_a_plan_may_name_are_several_plans() -> None:
    scene = scene_with(nodes=1)
    some = [Eviction(f"u{n}", "default", f"p{n}", "", "n0") for n in range(MAX_UNITS + 1)]
    scene.core.ledger.evict(some)
    assert [len(plan.plan.evictions) for plan in scene.core.ledger.plans.values()] == [MAX_UNITS, 1]
