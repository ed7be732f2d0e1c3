"""A burst of preemptors is one act: nobody leaves whom the same burst one by one would have spared, and a further
preemptor costs what the first did, however many wait or are nominated."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bench.in_process.counts import python, read
from bench.in_process.meters import OpcodeMeter
from services.coordinator.binding.plans import EVICTING_PLANS
from services.coordinator.core.events import Tick
from services.coordinator.core.instructions import EmitEvent, Instruction
from services.coordinator.core.state import CoreSettings
from services.coordinator.preemption import requests
from services.coordinator.preemption.requests import STUCK_S
from services.coordinator.preemption.search import Preemptor, Tried
from services.coordinator.preemption.tries import MOST
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.pod_group import PodGroup, Source, group_key
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import rejection_of, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.framework import Code
from shared.scheduling.parked_groups import ParkedGroup
from shared.scheduling.preemption.preemption import plan_preemption
from shared.scheduling.shards import Shards
from shared.scheduling.state.cluster_state import ClusterState
from shared.wire.messages import Eviction, EvictionReason, Plan
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_overcommit

NODES, PLACES = 8, 4
MOST_OPCODES, MOST_OPCODES_IN_A_GANG = 50_000, 45_000
"""Of the coordinator's core for one more preemptor, lone or in a gang of four: a tenth more than it is."""


def crowd(rng: Random) -> list[Pod]:
    """Full nodes: pods of one to two places, and of three priorities."""
    pods = []
    for node in range(NODES):
        left, number = PLACES, 0
        while left:
            size = min(left, rng.choice([1, 1, 2]))
            built = make_pod(f"low-{node}-{number}").cpu(str(size)).priority(rng.choice([0, 5, 9])).on(f"n{node}")
            built.json["status"]["startTime"] = f"2026-01-01T00:{rng.randrange(60):02}:00Z"
            pods.append(built.pod())
            left, number = left - size, number + 1
    return pods


def preemptors(count: int) -> list[Pod]:
    return [make_pod(f"high-{number}").cpu("1").priority(100).pod() for number in range(count)]


def priorities(victims: list[Pod]) -> list[int]:
    """The highest first: a smaller list is a smaller loss."""
    return sorted((victim.priority for victim in victims), reverse=True)


def one_by_one(pods: list[Pod], count: int, rng: Random) -> list[Pod]:
    """The victims of the same burst where each is placed before the next is looked at."""
    state = ClusterState()
    for node in range(NODES):
        state.upsert_node(make_node(f"n{node}").allocatable(cpu=str(PLACES)).node())
    for pod in pods:
        state.observe(pod)
    feasibility, victims = FeasibilityCache(state.table), []
    for pod in preemptors(count):
        prefiltered = prefilter(state, pod)
        filtered = run_filters(state, feasibility, prefiltered)
        if filtered.mask.any():
            state.assume(pod, state.table.names[int(filtered.mask.argmax())], 0.0)
            continue
        codes = []
        for row in state.table.live_rows().tolist():
            found = rejection_of(feasibility, prefiltered, filtered, row)
            codes.append((row, found[0].code if found is not None else Code.UNRESOLVABLE))
        best = plan_preemption(state, feasibility, prefiltered, codes).best
        if not best:
            break
        chosen = best[int(rng.random() * len(best))]
        for victim in chosen.victims:
            state.forget(victim.uid)
            victims.append(victim)
        state.assume(pod, chosen.node_name, 0.0)
    return victims


def at_once(pods: list[Pod], count: int, seed: int, batch: int) -> tuple[Scene, list[Pod]]:
    scene = Scene(seed=seed)
    for node in range(NODES):
        scene.add_node(make_node(f"n{node}").allocatable(cpu=str(PLACES)).node())
    for pod in pods:
        scene.add_pod(pod)
    scene.begin()
    scene.run(batch=100)
    by_uid = {pod.uid: pod for pod in pods}
    for pod in preemptors(count):
        scene.add_pod(pod)
    scene.run(batch=batch, until_s=60)
    return scene, [by_uid[uid] for uid in scene.evicted]


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("seed", range(6))
def test_the_victims_of_a_burst_are_no_more_and_no_more_important_than_one_by_one(seed: int, batch: int) -> None:
    rng = Random(seed)
    pods, count = crowd(rng), rng.choice([3, 11, 19])
    expected = one_by_one(pods, count, rng)
    scene, evicted = at_once(pods, count, seed, batch)
    assert len(scene.bindings) == count
    assert check_overcommit(scene) == []
    assert len(set(scene.evicted)) == len(scene.evicted)
    assert len(evicted) <= len(expected)
    assert priorities(evicted) <= priorities(expected)


def full_scene(nodes: int) -> Scene:
    """So many nodes of eight places, each taken."""
    scene = Scene(agents=1, settings=CoreSettings(validate=False))
    for node in range(nodes):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="8").node())
        for place in range(8):
            scene.add_pod(make_pod(f"low-{node}-{place}").cpu("1").priority(0).on(f"n{node}").pod())
    scene.begin()
    scene.run(batch=500)
    return scene


def opcodes_each(count: int, members: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of the coordinator's core, for each of a burst onto 25 nodes, lone or in gangs of so many, from its coming until
    it is bound."""
    scene = full_scene(25)
    meter, handle = OpcodeMeter(), scene.core.handle

    def counted(*arguments: Any) -> list[Instruction]:
        meter.enter("core")
        try:
            return handle(*arguments)
        finally:
            meter.leave()

    monkeypatch.setattr(scene.core, "handle", counted)
    for number, pod in enumerate(preemptors(count)):
        key = group_key(Source.NATIVE, "default", f"gang-{number // members}") if members > 1 else ""
        if key and number % members == 0:
            name = f"gang-{number // members}"
            group = PodGroup(key, Source.NATIVE, "default", name, gang=True, min_count=members)
            scene.inbox.append(ObjectChanged("podgroups", f"default/{name}", group))
        scene.add_pod(replace(pod, group=key))
    meter.counting = True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    try:
        scene.run(batch=100, until_s=20)
    finally:
        gc.enable()
    assert len(scene.bindings) == len(scene.evicted) == count
    return meter.spent["core"] / count


@pytest.mark.parametrize(("members", "most"), [(1, MOST_OPCODES), (4, MOST_OPCODES_IN_A_GANG)])
def test_a_further_preemptor_costs_the_same_however_many_wait_and_are_nominated(
    members: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = opcodes_each(48, members, monkeypatch), opcodes_each(200, members, monkeypatch)
    assert many <= 1.2 * few, (few, many)
    if python() == read()["python"]:
        assert max(few, many) <= most, (few, many)


def test_one_more_of_a_burst_is_one_more_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found on a node is believed until something changes there."""
    scene, count, tried = full_scene(25), 40, 0
    candidate = Preemptor._candidate

    def counted(preemptor: Preemptor, pod: Pod, row: int) -> Tried:
        nonlocal tried
        tried += 1
        return candidate(preemptor, pod, row)

    monkeypatch.setattr(Preemptor, "_candidate", counted)
    scene.keep_victims = True  # so that nothing else changes on any node
    for pod in preemptors(count):
        scene.add_pod(pod)
    scene.run(batch=100, until_s=20)
    assert len(scene.evicted) == count
    assert tried <= 25 + 1.2 * count  # once more for each node that is full of those who leave


def test_members_of_a_burst_that_may_evict_nobody_are_passed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for whom room was made in vain come first, and stand before all the others."""
    scene, count = Scene(agents=1), 12
    for node in range(count):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="1").node())
        scene.add_pod(make_pod(f"low-{node}").cpu("1").priority(0).on(f"n{node}").pod())
    scene.begin()
    scene.run(batch=100)
    tries = scene.core.nominations.tries
    first, *others = (make_pod(f"high-{number}").cpu("1").priority(100).pod() for number in range(2 * count))
    for pod in (first, *others[: count - 1]):
        for _ in range(MOST):
            tries.begun(pod.uid)
        scene.add_pod(pod)
    scene.run(batch=100, until_s=2)
    assert not scene.evicted
    members, listed = ParkedGroup.first, 0

    def counted(group: ParkedGroup, wanted: int) -> list[str]:
        nonlocal listed
        listed += wanted > 4
        return members(group, wanted)

    monkeypatch.setattr(ParkedGroup, "first", counted)
    for pod in others[count - 1 :]:
        scene.add_pod(pod)
    scene.run(batch=100, until_s=5)
    assert len(set(scene.evicted)) == count
    assert {uid for uid, _ in scene.bindings} == {pod.uid for pod in others[count - 1 :]}
    assert listed <= 3


def test_the_victims_of_a_burst_are_asked_by_few_plans_at_a_time_and_none_for_whom_it_is_over() -> None:
    """A plan for the victims of each turn would hold as many connections as there are turns."""
    scene, count = full_scene(25), 40
    scene.hold_plans = True
    for pod in preemptors(count):
        scene.add_pod(pod)
    scene.run(batch=3, until_s=1)
    asking = [plan for plan in scene.held_plans if plan.evictions]
    assert len(asking) == EVICTING_PLANS
    asked = [eviction.preemptor for plan in asking for eviction in plan.evictions]
    assert len(asked) < count
    over = next(pod.uid for pod in preemptors(count) if pod.uid not in asked)
    scene.delete_pod(over)
    scene.hold_plans = False
    scene.inbox.extend(map(scene.bind, scene.held_plans))
    scene.run(batch=3, until_s=20)
    evictions = [eviction for plan in scene.plans for eviction in plan.evictions]
    assert over not in {eviction.preemptor for eviction in evictions}
    assert len(scene.bindings) == len(scene.evicted) == len(evictions) == count - 1
    assert len([plan for plan in scene.plans if plan.evictions]) < count // 2


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
