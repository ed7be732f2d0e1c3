"""GPUs of pods that no node takes: given back, told, and tried again later."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import assess
from services.jobs.core import events as ev
from shared.model.controllers.training_job import JobPhase
from shared.model.units.queue import Queue
from tests.unit.services.jobs.jobs_world import EPOCH, SETTINGS, World, a_job, conditions

QUICK = replace(SETTINGS, start_timeout_s=60.0, decide_every_s=5.0)


def stuck(**more: object) -> World:
    """A job that holds all GPUs in the books while no node takes its pods, and one that waits for them."""
    world = World(settings=QUICK, nodes=1)
    world.unfit = {f"a-worker-{index}" for index in range(4)}
    world.put_job(a_job(gpu_milli=2000, maximum=2, **more))
    world.settle(rounds=10)
    world.put_job(a_job("b", gpu_milli=2000, maximum=2, created=EPOCH + 1))
    world.settle(rounds=10)
    return world


def passes(world: World, seconds: float) -> None:
    end = world.now + seconds
    while world.now < end:
        world.now += 5
        world.turn(ev.Tick())
        world.settle(rounds=10)


def test_a_job_whose_pods_never_fit_gives_its_gpus_back_and_says_so():
    world = stuck()
    assert (world.phase(), world.phase("default/b")) == (JobPhase.STARTING, JobPhase.PENDING)
    passes(world, 70)
    assert (world.phase(), world.status().target, world.status().unplaced) == (JobPhase.PENDING, 0, 1)
    assert conditions(world)["Ready"] == ("False", "DoesNotFit")
    assert "given back until" in world.status().conditions[0].message
    assert world.phase("default/b") is JobPhase.RUNNING


def test_switched_off_it_holds_them_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(assess, "target_left", lambda *_: None)
    world = stuck()
    passes(world, 400)
    assert (world.phase(), world.phase("default/b")) == (JobPhase.STARTING, JobPhase.PENDING)


def test_it_is_tried_again_later_and_waits_longer_each_time():
    world = stuck()
    world.put_job(replace(world.jobs["default/b"], paused=True))
    passes(world, 70)
    first = world.status().retry_at
    passes(world, 140)
    assert world.status().unplaced == 2
    assert world.status().retry_at - first > 120
    world.unfit.clear()
    passes(world, 200)
    assert (world.phase(), world.status().unplaced) == (JobPhase.RUNNING, 0)
    assert conditions(world)["Ready"] == ("True", "Running")


def test_a_new_spec_is_tried_at_once():
    world = stuck()
    world.put_job(replace(world.jobs["default/b"], paused=True))
    passes(world, 70)
    assert world.status().target == 0
    world.unfit.clear()
    world.put_job(replace(world.jobs["default/a"], minimum=1, requested=1))
    world.settle(rounds=20)
    assert (world.phase(), world.status().unplaced, world.status().retry_at) == (JobPhase.RUNNING, 0, 0.0)


def test_growth_that_no_node_takes_is_given_back_and_the_job_runs_on():
    world = World(settings=QUICK, nodes=1)
    world.unfit = {"a-worker-2", "a-worker-3"}
    world.put_job(a_job(gpu_milli=1000, requested=4))
    world.settle()
    assert (world.status().target, world.status().running) == (4, 2)
    passes(world, 70)
    assert (world.status().target, world.phase(), world.status().restarts) == (2, JobPhase.RUNNING, 0)


def test_a_job_without_a_checkpoint_is_not_stopped_while_a_worker_of_it_runs():
    for checkpoint, target in (("", 2), ("/ckpt", 0)):
        world = World(settings=QUICK, nodes=1)
        world.put_job(a_job(gpu_milli=1000, maximum=2, checkpoint=checkpoint))
        world.settle()
        world.unfit = {"a-worker-1"}
        world.remove_pod("a-worker-1")
        passes(world, 70)
        assert world.status().target == target, checkpoint


def test_the_wait_begins_anew_with_each_pod_that_finds_a_node():
    world = World(settings=QUICK, nodes=1)
    world.unfit = {"a-worker-0", "a-worker-1", "a-worker-2"}
    world.put_job(a_job(gpu_milli=1000, minimum=3, maximum=3, requested=3))
    world.settle()
    for name in ("a-worker-0", "a-worker-1", "a-worker-2"):
        passes(world, 45)
        world.unfit.discard(name)
    passes(world, 10)
    assert (world.phase(), world.status().unplaced) == (JobPhase.RUNNING, 0)


def test_a_job_in_a_queue_gives_its_gpus_back_like_any_other():
    world = World(settings=QUICK, nodes=1)
    world.unfit = {"a-worker-0", "a-worker-1"}
    world.coming.append(ev.QueueSeen(Queue("research")))
    world.put_job(a_job(gpu_milli=1000, maximum=2, queue="research"))
    passes(world, 70)
    assert (world.phase(), world.status().target, world.status().unplaced) == (JobPhase.PENDING, 0, 1)
    assert conditions(world)["Ready"] == ("False", "DoesNotFit")


def test_jobs_that_hold_no_gpus_wait_as_long_as_they_like():
    world = World(settings=QUICK, nodes=1)
    world.unfit = {"a-worker-0", "a-worker-1"}
    world.put_job(a_job(maximum=2))
    passes(world, 200)
    assert (world.phase(), world.status().target) == (JobPhase.STARTING, 2)


def test_a_maximum_that_is_lowered_when_the_wait_ends_holds():
    world = World(settings=QUICK, nodes=2)
    world.unfit = {"a-worker-3"}
    world.put_job(a_job(gpu_milli=1000, maximum=4, requested=4, checkpoint="/ckpt"))
    world.settle(rounds=10)
    world.put_job(replace(world.jobs["default/a"], maximum=2, requested=2))
    world.now += 70
    world.settle(rounds=10)
    assert (world.status().target, world.status().unplaced) == (2, 0)
