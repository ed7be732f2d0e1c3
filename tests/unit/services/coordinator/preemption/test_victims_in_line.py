"""Victims in line for the few plans that may be out: each is asked for whoever waits for it when its turn comes, none
in vain, and the end of each is heard."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from services.coordinator.binding.plans import EVICTING_PLANS
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoreSettings
from services.coordinator.preemption import requests
from services.coordinator.preemption.requests import STUCK_S
from services.coordinator.preemption.tries import PAUSE_S
from shared.scheduling.shards import Shards
from shared.turns import Tick
from shared.wire.messages import Eviction, EvictionOutcome, EvictionReason, EvictionResult, Plan
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.preemption.test_group_preemption import tell_group
from tests.unit.services.coordinator.preemption.test_mass_preemption import full_scene, preemptors
from tests.unit.services.coordinator.scene import Scene, check_overcommit


def line_of_victims(count: int, nodes: int = 5) -> tuple[Scene, list[str]]:
    """So many preemptors, with as many plans of their victims out as may be; and whose victims are in none yet."""
    scene = full_scene(nodes)
    scene.hold_plans = True
    for pod in preemptors(count):
        scene.add_pod(pod)
    scene.run(batch=3, until_s=1)
    asked = {eviction.preemptor for plan in scene.held_plans for eviction in plan.evictions}
    unasked = [pod.uid for pod in preemptors(count) if pod.uid not in asked]
    assert asked
    assert unasked
    return scene, unasked


def let_go(scene: Scene) -> None:
    """The binder answers what it was asked, and all that comes."""
    scene.hold_plans, held = False, list(scene.held_plans)
    scene.held_plans.clear()
    scene.inbox.extend(map(scene.bind, held))
    scene.run(batch=3, until_s=60)


def victims_of(scene: Scene, preemptor: str) -> list[str]:
    return [past.uid for past in scene.core.state.evicted.by(preemptor)]


@pytest.mark.parametrize("binder", ["evicts", "refuses", "does not know", "has it in its line"])
@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_a_victim_leaves_for_whoever_waits_for_it_when_the_first_is_gone(asked: bool, binder: str) -> None:
    scene, unasked = line_of_victims(20)
    first = next(pod.uid for pod in preemptors(20) if (pod.uid in unasked) is not asked)
    (victim,) = victims_of(scene, first)
    scene.delete_pod(first)
    late = make_pod("late").cpu("1").priority(100).pod()
    scene.add_pod(late)
    scene.run(batch=3)
    assert victim in scene.core.nominations.made[late.uid].victims
    scene.budget_forbids = {victim} if binder == "refuses" else set()
    scene.unknown_evictions = 20 if binder == "does not know" else 0
    scene.waiting_evictions = 20 if binder == "has it in its line" else 0
    let_go(scene)
    assert late.uid in {uid for uid, _ in scene.bindings}
    assert len(scene.bindings) == len(scene.evicted) == 20
    assert (victim in scene.evicted) is (binder != "refuses")
    if binder == "evicts" and not asked:
        assert victims_of(scene, late.uid) == [victim]


def test_a_victim_not_asked_yet_leaves_for_who_displaced_the_first() -> None:
    scene, unasked = line_of_victims(20)
    top = make_pod("top").cpu("1").priority(1000).pod()
    scene.add_pod(top)
    scene.run(batch=3)
    displaced = [uid for uid in unasked if uid not in scene.core.nominations.made]
    assert top.uid in scene.core.nominations.made
    let_go(scene)
    assert len(scene.bindings) == len(scene.evicted) == 21, displaced


def test_a_victim_that_nobody_waits_for_any_more_costs_again_what_it_is_worth() -> None:
    """Nor is it asked: what was found on its node while it counted as leaving is not believed any longer."""
    scene, count = Scene(agents=1), 20
    for node in range(count):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="1").node())
        scene.add_pod(make_pod(f"low-{node}").cpu("1").priority(5).on(f"n{node}").pod())
    scene.begin()
    scene.run(batch=100)
    scene.hold_plans = True
    for pod in preemptors(count):
        scene.add_pod(pod)
    scene.run(batch=3, until_s=1)
    asked = {eviction.preemptor for plan in scene.held_plans for eviction in plan.evictions}
    over = [pod.uid for pod in preemptors(count) if pod.uid not in asked][:2]
    spared = {victim for uid in over for victim in victims_of(scene, uid)}
    for uid in over:
        scene.delete_pod(uid)
    scene.add_pod(make_pod("late").cpu("1").priority(100).pod())
    scene.run(batch=3)
    let_go(scene)
    assert len(scene.bindings) == len(scene.evicted) == count - 1
    scene.add_node(make_node("cheap").allocatable(cpu="1").node())
    scene.add_pod(make_pod("cheap").cpu("1").priority(0).on("cheap").pod())
    scene.run()
    scene.add_pod(make_pod("later").cpu("1").priority(100).pod())
    scene.run(batch=3, until_s=20)
    assert ("uid-later", "cheap") in scene.bindings
    assert len(spared - {*scene.evicted}) == 1


def answer(scene: Scene, plans: list[Plan]) -> None:
    scene.inbox.extend(map(scene.bind, plans))
    scene.run(batch=len(plans))


def sent_since(scene: Scene, number: int) -> list[Eviction]:
    return [eviction for plan in scene.plans[number:] for eviction in plan.evictions]


def test_victims_in_the_binders_line_are_asked_for_again_before_any_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of a flood stands in that line, and ends come that no open plan hears of."""
    monkeypatch.setattr(requests, "EVICTIONS_PER_PLAN", 2)
    scene, _ = line_of_victims(30)
    first, sent = list(scene.held_plans), len(scene.plans)
    asked = [eviction.uid for plan in first for eviction in plan.evictions]
    scene.waiting_evictions = len(asked)
    scene.held_plans.clear()
    answer(scene, first)
    again = [eviction.uid for eviction in sent_since(scene, sent)]
    assert again[: len(asked)] == asked
    assert len(again) <= 2 * EVICTING_PLANS
    let_go(scene)
    assert len(scene.bindings) == len(scene.evicted) == scene.core.state.stats.victims == 30


def test_a_victim_that_left_the_binders_line_between_two_plans_is_told_as_evicted() -> None:
    scene, _ = line_of_victims(30)
    first, sent = list(scene.held_plans), len(scene.plans)
    victim = first[0].evictions[0].uid
    scene.change_pod(victim, terminating=True)
    scene.waiting_evictions = sum(len(plan.evictions) for plan in first)
    scene.held_plans.clear()
    answer(scene, first)
    assert victim not in {eviction.uid for eviction in sent_since(scene, sent)}
    assert scene.core.state.stats.victims == 1
    assert [event.uid for event in scene.of(EmitEvent) if event.reason == "Preempted"] == [victim]


@pytest.mark.parametrize("gone", [False, True], ids=["terminating", "gone"])
def test_a_victim_that_leaves_by_itself_before_it_is_asked_is_not_asked(gone: bool) -> None:
    scene, unasked = line_of_victims(20)
    victim = victims_of(scene, unasked[0])[0]
    if gone:
        scene.delete_pod(victim)
    else:
        scene.change_pod(victim, terminating=True)
    scene.run()
    let_go(scene)
    assert victim not in {eviction.uid for plan in scene.plans for eviction in plan.evictions}
    if gone:
        assert len(scene.bindings) == 20


def over_limit(scene: Scene, uids: list[str]) -> None:
    """A queue's limit fell: one plan for each of these."""
    for uid in uids:
        pod = scene.pods[uid]
        reason = EvictionReason.OVER_LIMIT
        scene.core.ledger.evict([Eviction(uid, pod.namespace, pod.name, "", pod.node_name, reason=reason)])
    scene.deliver(Tick())


def test_a_limit_that_fell_holds_up_no_preemption() -> None:
    scene = full_scene(2)
    scene.hold_plans = True
    over_limit(scene, [f"uid-low-0-{place}" for place in range(EVICTING_PLANS)])
    scene.add_pod(preemptors(1)[0])
    scene.run(until_s=1)
    assert EvictionReason.PREEMPTION in {eviction.reason for eviction in scene.held_plans[-1].evictions}


def test_a_victim_that_its_queue_has_given_up_is_not_asked_again() -> None:
    scene = full_scene(2)
    scene.waiting_evictions = 1
    over_limit(scene, ["uid-low-0-0"])
    scene.run()
    assert not scene.waiting_evictions
    assert len([plan for plan in scene.plans if plan.evictions]) == 1


def test_a_slow_binder_of_one_shard_holds_up_no_victims_of_another() -> None:
    shards = Shards(("0", "1"), 5)
    scene = Scene(agents=1, settings=CoreSettings(validate=False), shards=shards)
    for node in range(20):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="1").node())
        scene.add_pod(make_pod(f"low-{node}").cpu("1").priority(0).on(f"n{node}").pod())
    scene.begin()
    scene.run(batch=100)
    scene.hold_plans = True
    for pod in preemptors(20):
        scene.add_pod(pod)
        scene.run()
        for plan in [plan for plan in scene.held_plans if plan.evictions]:
            if shards.of(plan.evictions[0].node) == "1":
                scene.held_plans.remove(plan)
                answer(scene, [plan])
    held = [plan for plan in scene.held_plans if plan.evictions]
    assert {shards.of(plan.evictions[0].node) for plan in held} == {"0"}
    assert len(held) == EVICTING_PLANS
    there = {f"uid-low-{node}" for node in range(20) if shards.of(f"n{node}") == "1"}
    assert set(scene.evicted) == there


def test_a_binder_that_only_says_that_victims_wait_is_not_waited_for_for_ever() -> None:
    scene = full_scene(2)
    scene.hold_plans = True
    scene.add_pod(preemptors(1)[0])
    scene.run(until_s=1)
    (first,) = scene.core.nominations.made.values()
    began = scene.now
    while scene.core.nominations.made.get("uid-high-0") is first:
        scene.now += 2
        held = [plan for plan in scene.held_plans if plan.evictions]
        scene.held_plans.clear()
        scene.waiting_evictions = len(held)
        answer(scene, held)
        assert scene.now < began + 2 * STUCK_S
    assert scene.now >= began + STUCK_S
    let_go(scene)
    assert len(scene.bindings) == 1


def answer_some(scene: Scene, rng: Random) -> None:
    """A slow binder: of some plans, oldest first, it has asked some victims; most others stand in its line."""
    evict = scene.evict
    answered = rng.randrange(3)
    some, scene.held_plans = scene.held_plans[:answered], scene.held_plans[answered:]

    def slowly(eviction: Eviction) -> EvictionResult:
        pod = scene.pods.get(eviction.uid)
        assert pod is None or not pod.terminating, f"{eviction.uid} is evicted again"
        if pod is not None and rng.random() < 0.6:
            return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, "no answer", waits=rng.random() < 0.9)
        return evict(eviction)

    scene.evict = slowly  # type: ignore[method-assign]
    scene.inbox.extend(map(scene.bind, some))
    scene.evict = evict  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", [1, 6, 7, 10, 12, 14])
def test_every_preemptor_that_stays_has_its_room_whoever_comes_and_goes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lone ones of two priorities and gangs, at a slow binder: one victim for each, evicted once, and counted."""
    rng = Random(seed)
    monkeypatch.setattr(requests, "EVICTIONS_PER_PLAN", rng.choice([2, 5, 256]))
    scene, live = full_scene(10), set[str]()
    scene.hold_plans = True
    for turn in range(60):
        for number in range(3 * turn, 3 * turn + 3 * (len(live) < 60)):
            gang = rng.random() < 0.2
            key = tell_group(scene, 2, f"gang-{number}") if gang else ""
            for member in range(2 if gang else 1):
                built = make_pod(f"{number}-{member}").cpu("1").priority(100 if gang else rng.choice([100, 100, 500]))
                scene.add_pod(replace(built.pod(), group=key))
                live.add(f"uid-{number}-{member}")
        waiting = sorted(uid for uid in live if not scene.pods[uid].node_name and not scene.pods[uid].group)
        if waiting and rng.random() < 0.5:
            live.remove(gone := rng.choice(waiting))
            scene.delete_pod(gone)
        scene.run(batch=rng.choice([1, 3, 10]), until_s=rng.choice([0, 1, 2]))
        answer_some(scene, rng)
    let_go(scene)
    scene.run(batch=3, until_s=3 * PAUSE_S)  # some may have lost their room to pods of higher priority time and again
    assert {uid for uid, _ in scene.bindings} >= live
    assert len(set(scene.evicted)) == len(scene.evicted) == scene.core.state.stats.victims
    assert not check_overcommit(scene)
