"""Random walks: leaders die, answers are lost or come late, people scale by hand, etcd and the API server go away.

What is judged afterwards is the history of accepted writes and of records: every write was recorded before, by a leader
of that term, from the number that was there; no leader after another writes what an earlier term decided; and once all
is well again, the services have at least what the last good decision ordered.
"""

from __future__ import annotations

import itertools
import random

import pytest

from services.autoscaler.core.instructions import Write
from shared.turns import Tick
from tests.unit.services.autoscaler.scaler_world import Process, World, spec_of

NAMES = ("front", "cart")
STEPS = 220


def violations(world: World, recorded: list[tuple[str, int, int, int]]) -> list[str]:
    """What is wrong with the history. ``recorded``: (service, before, wrote, term) of all records."""
    found = [f"unrecorded: {write}" for write in world.accepted if write not in recorded]
    terms = [record.term for record in world.records]
    found += [f"deposed: term {b} recorded after {a}" for a, b in itertools.pairwise(terms) if b < a]
    numbers = [record.number for record in world.records]
    if numbers != sorted(set(numbers)):
        found.append(f"lost: records are numbered {numbers[:20]}")
    return found


def recorded_of(world: World) -> list[tuple[str, int, int, int]]:
    return [
        (name, one.before, one.wrote, record.term) for record in world.records for name, one in record.services.items()
    ]


def walk(seed: int, *, fences: bool = True) -> World:
    """One walk; at its end everything is up and one leader has decided for a while."""
    rng = random.Random(seed)
    world = World(spec=spec_of(*NAMES), fences=fences)
    for name in NAMES:
        world.serve(name, 4)
    world.elect()
    world.run()
    world.approve()
    dead: list[Process] = []
    for _ in range(STEPS):
        step(world, rng, dead)
    for process in dead:  # what the dead sent may arrive now, at the very end
        while process.waiting:
            world.carry_out(process, answer=False)
    world.store_down = world.api_down = False
    return world


def step(world: World, rng: random.Random, dead: list[Process]) -> None:
    """Something happens."""
    process = world.process
    assert process is not None
    everyone = [process, *dead]
    match rng.choices(range(9), [30, 12, 4, 4, 6, 3, 3, 3, 2])[0]:
        case 0:
            one = rng.choice(everyone)
            if one.waiting:
                world.carry_out(one, rng.randrange(len(one.waiting)), answer=one not in dead or rng.random() < 0.5)
        case 1:
            world.now += rng.choice([1.0, 5.0, 10.0])
            world.tell(Tick(), to=rng.choice(everyone))
        case 2:
            if process.waiting:
                world.lose(process, rng.randrange(len(process.waiting)))
        case 3:
            dead.append(process)
            del dead[:-2]
            world.elect()
        case 4:
            world.policy.wanted = {name: rng.randrange(1, 20) for name in NAMES}
        case 5:
            world.scale(rng.choice(NAMES), rng.randrange(1, 20))
        case 6:
            world.store_down = not world.store_down and rng.random() < 0.5
            world.api_down = not world.api_down and rng.random() < 0.5
        case 7:
            world.approve(at=str(rng.random()))
        case _:
            for name in NAMES:
                world.settle(name)


@pytest.mark.parametrize("seed", range(12))
def test_every_write_was_recorded_before_by_its_own_term(seed: int):
    world = walk(seed)
    assert violations(world, recorded_of(world)) == []


@pytest.mark.parametrize("seed", range(12))
def test_after_all_faults_the_policy_is_obeyed_again(seed: int):
    world = walk(seed)
    world.elect()
    world.policy.wanted = {"front": 7, "cart": 3}
    world.approve(at="the end")
    world.run(8)
    assert {name: one.replicas for name, one in world.deployments.items()} == {"front": 7, "cart": 3}
    assert violations(world, recorded_of(world)) == []


def test_without_fences_the_checker_finds_deposed_leaders():
    worlds = [walk(seed, fences=False) for seed in range(12)]
    found = [line for world in worlds for line in violations(world, recorded_of(world))]
    assert any(line.startswith("deposed") for line in found)


@pytest.mark.parametrize("seed", range(20))
def test_wherever_a_leader_dies_the_next_keeps_what_its_last_decision_ordered(seed: int):
    rng = random.Random(seed)
    spec = spec_of(*NAMES)
    spec["limits"] = {**spec["limits"], "failOverSeconds": 1000}
    world = World(spec=spec)
    for name in NAMES:
        world.serve(name, 4)
    world.elect()
    world.run()
    world.approve()
    world.policy.wanted = {name: rng.randrange(5, 20) for name in NAMES}
    process = world.process
    assert process is not None
    for _ in range(rng.randrange(1, 14)):
        if process.waiting:
            world.carry_out(process)
        else:
            world.now += 10
            world.tell(Tick())
    late = [one for one in process.waiting if isinstance(one, Write)]
    ordered = {name: one.wrote for name, one in (world.record.services if world.record else {}).items()}
    before = {name: one.replicas for name, one in world.deployments.items()}
    world.policy.wanted = dict.fromkeys(NAMES, 1)
    dying, dying.waiting = process, list(late)
    world.elect()
    world.run(3)
    while dying.waiting:
        world.carry_out(dying, answer=False)
    world.run(3)
    for name in NAMES:
        assert world.deployments[name].replicas >= max(before[name], ordered.get(name, 0))
