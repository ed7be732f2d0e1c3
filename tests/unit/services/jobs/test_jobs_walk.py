"""Random walks: writes that arrive late, twice or after the death of their leader, watches that lag, pods that end.

What users were promised holds at every step; when the storm is over every job comes to its end. A seed that fails:
 ``pytest tests/unit/services/jobs/test_jobs_walk.py -k "SEED"``.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core import members
from shared.errors import InvalidState
from shared.jobs.reports import Said
from shared.model.controllers.training_job import ENDED, JobPhase, PodState
from tests.unit.services.jobs.jobs_world import EPOCH, SETTINGS, World, a_job

STEPS = 250
JOBS = 3


def step(world: World, *, ports: bool = False) -> None:
    """Something happens. ``ports``: specs change too so that all workers are to be made anew."""
    rng = world.rng
    world.now += rng.random()
    drawn = rng.random()
    if drawn < 0.35 and world.sent:
        world.arrive(rng.randrange(len(world.sent)), lost=rng.random() < 0.1)
    elif drawn < 0.65:
        world.deliver(rng.randint(1, 4), again=rng.random() < 0.2)
    elif drawn < 0.75:
        world.kubelets()
    elif drawn < 0.80 and world.pods:
        name = rng.choice(sorted(world.pods))
        if world.pods[name].state is PodState.RUNNING:
            states = [PodState.DISRUPTED] * 3 + [PodState.FAILED] * 2 + [PodState.STUCK]
            world.change_pod(name, state=rng.choice(states), cause=rng.choice(["", "OutOfcpu", "Evicted"]))
    elif drawn < 0.82 and world.pods:
        name = rng.choice(sorted(world.pods))  # somebody deletes it, or its node is gone
        world.remove_pod(name)
    elif drawn < 0.87:
        job = world.jobs[rng.choice(sorted(world.jobs))]
        least = rng.randint(1, 3)
        most = rng.randint(least, 5)
        change = {
            "minimum": least,
            "maximum": most,
            "requested": rng.randint(least, most),
            "paused": rng.random() < 0.2,
            "port": rng.choice([29_400, 29_500]) if ports and rng.random() < 0.3 else job.port,
        }
        world.put_job(replace(job, **change))
    elif drawn < 0.89:
        world.die()
    elif drawn < 0.92:
        job = world.jobs[rng.choice(sorted(world.jobs))]
        world.turn(ev.Reported(job.key, job.uid, Said(steps=rng.randint(0, 99), progress=rng.uniform(-0.1, 1.1))))
    else:
        world.turn(ev.Tick())


def storm(seed: int) -> World:
    world = World(seed, nodes=2)
    for number in range(JOBS):
        gpus = (0, 1000, 500)[number % 3]
        world.put_job(
            a_job(
                f"j{number}", gpu_milli=gpus, created=EPOCH + number, backoff_limit=50, checkpoint="/c" * (number % 2)
            )
        )
    for _ in range(STEPS):
        step(world, ports=seed % 2 == 0)
    return world


def calm(world: World) -> None:
    """No more trouble: everything that was asked for is done, and the workers come to their end."""
    for job in world.jobs.values():
        world.put_job(replace(job, paused=False))
    for name, pod in list(world.pods.items()):
        if pod.state is PodState.STUCK:
            world.change_pod(name, state=PodState.RUNNING)
    world.settle(rounds=400)
    for _ in range(20):
        going = [job for job in world.jobs.values() if job.status.phase not in ENDED]
        for job in going:
            if len(world.running(job)) >= job.minimum:
                world.end_workers(job)
        world.settle(rounds=100)
        if not going:
            return


@pytest.mark.parametrize("seed", range(12))
def test_no_job_is_lost_and_none_is_cut_below_its_minimum(seed: int):
    world = storm(seed)
    assert world.broken == []
    calm(world)
    assert world.broken == []
    assert {key: job.status.phase for key, job in world.jobs.items()} == dict.fromkeys(world.jobs, JobPhase.SUCCEEDED)
    assert all(pod.ended for pod in world.pods.values()), "nothing is left that holds anything"
    assert not any(kind == "PodGroup" for kind, _ in world.made)


def broken_by(monkeypatch: pytest.MonkeyPatch, seeds: range, *, validate: bool) -> list[str]:
    from tests.unit.services.jobs import jobs_world

    monkeypatch.setattr(jobs_world, "SETTINGS", SETTINGS)
    found: list[str] = []
    for seed in seeds:
        world = World(seed, nodes=2)
        world.core.state.settings = world.settings = replace(SETTINGS, validate=validate)
        world.say_spec = False  # else most of what goes goes for its spec
        world.put_job(a_job("j0", gpu_milli=1000, backoff_limit=50))
        for _ in range(STEPS):
            step(world)
        found += world.broken
    return found


def test_without_its_safeguard_a_reshaped_job_falls_below_its_minimum(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(members, "may_leave", lambda *_: True)
    assert any("was taken away" in line for line in broken_by(monkeypatch, range(40), validate=False))


def test_without_its_safeguard_the_core_says_so_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(members, "may_leave", lambda *_: True)
    with pytest.raises(InvalidState, match="J3"):
        broken_by(monkeypatch, range(40), validate=True)
