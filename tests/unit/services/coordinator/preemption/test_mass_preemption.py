"""A burst of preemptors is one act: nobody leaves whom the same burst one by one would have spared, and a further
preemptor costs what the first did, however many wait or are nominated."""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest

from bench.in_process.meters import OpcodeMeter
from services.coordinator.core.instructions import Instruction
from services.coordinator.core.state import CoreSettings
from services.coordinator.preemption.tries import MOST
from shared.model.pod import Pod
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


def opcodes_each(count: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of the coordinator's core, for each of a burst onto 25 nodes, from its coming until it is bound."""
    scene = Scene(agents=1, settings=CoreSettings(validate=False))
    for node in range(25):
        scene.add_node(make_node(f"n{node}").allocatable(cpu="8").node())
        for place in range(8):
            scene.add_pod(make_pod(f"low-{node}-{place}").cpu("1").priority(0).on(f"n{node}").pod())
    scene.begin()
    scene.run(batch=500)
    meter, handle = OpcodeMeter(), scene.core.handle

    def counted(*arguments: Any) -> list[Instruction]:
        meter.enter("core")
        try:
            return handle(*arguments)
        finally:
            meter.leave()

    monkeypatch.setattr(scene.core, "handle", counted)
    for pod in preemptors(count):
        scene.add_pod(pod)
    meter.counting = True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    try:
        scene.run(batch=100, until_s=20)
    finally:
        gc.enable()
    assert len(scene.bindings) == len(scene.evicted) == count
    return meter.spent["core"] / count


def test_a_further_preemptor_costs_the_same_however_many_wait_and_are_nominated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = opcodes_each(50, monkeypatch), opcodes_each(200, monkeypatch)
    assert many <= 1.2 * few, (few, many)


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
