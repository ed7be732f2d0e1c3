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
from services.coordinator.core.instructions import Instruction, PatchCondition
from services.coordinator.core.state import CoreSettings
from services.coordinator.preemption.nominations import TOLD_AT_LATEST_S
from services.coordinator.preemption.search import Preemptor, Tried
from services.coordinator.preemption.tries import MOST
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import rejection_of, run_filters
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.framework import Code
from shared.scheduling.parked_groups import ParkedGroup
from shared.scheduling.preemption.preemption import plan_preemption
from shared.scheduling.state.cluster_state import ClusterState
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


def add_burst(scene: Scene, count: int, members: int) -> None:
    """So many preemptors, lone or in gangs of so many."""
    for number, pod in enumerate(preemptors(count)):
        key = group_key(GroupSource.NATIVE, "default", f"gang-{number // members}") if members > 1 else ""
        if key and number % members == 0:
            name = f"gang-{number // members}"
            group = PodGroup(key, GroupSource.NATIVE, "default", name, gang=True, min_count=members)
            scene.inbox.append(ObjectChanged("podgroups", f"default/{name}", group))
        scene.add_pod(replace(pod, group=key))


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
    add_burst(scene, count, members)
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


@pytest.mark.parametrize("members", [1, 4])
def test_the_victims_of_a_burst_are_all_asked_within_a_second_though_none_of_them_is_gone(members: int) -> None:
    """A grace of 30 s makes nobody wait for anybody but his own victim."""
    scene, count = full_scene(25), 200
    scene.keep_victims = True
    add_burst(scene, count, members)
    scene.run(batch=100, until_s=1.0)
    assert len(scene.evicted) == len(set(scene.evicted)) == count
    scene.run(batch=100, until_s=29.0)
    assert len(scene.evicted) == count


@pytest.mark.parametrize("members", [1, 4])
def test_nobody_of_a_burst_whose_victims_leave_at_once_is_told_anything_but_that_he_is_bound(members: int) -> None:
    scene, count = full_scene(25), 200
    add_burst(scene, count, members)
    scene.run(batch=100, until_s=20)
    assert len(scene.bindings) == count
    assert not scene.of(PatchCondition)
    assert scene.nominations == {}


def test_those_of_a_burst_whose_victims_stand_in_line_are_told_late_and_at_last() -> None:
    """What is written of them meanwhile would make the line longer."""
    scene, count = full_scene(25), 40
    scene.hold_plans = True
    add_burst(scene, count, 1)
    scene.run(batch=100, until_s=0.9 * TOLD_AT_LATEST_S)
    assert not scene.of(PatchCondition)
    scene.run(batch=100, until_s=0.2 * TOLD_AT_LATEST_S)
    assert len({patch.uid for patch in scene.of(PatchCondition) if patch.nominated}) == count


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
