"""Phases, failures, time and what is told: the status follows from what is seen."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from shared.model.controllers.training_job import JobPhase, PodState
from tests.unit.services.jobs.jobs_world import EPOCH, conditions, running


def test_paused_it_holds_nothing_and_resumed_it_goes_on():
    world = running()
    world.put_job(replace(world.jobs["default/a"], paused=True))
    world.settle()
    assert (world.phase(), world.pods) == (JobPhase.PAUSED, {})
    assert conditions(world)["Ready"] == ("False", "Paused")
    world.put_job(replace(world.jobs["default/a"], paused=False))
    world.settle()
    assert world.phase() is JobPhase.RUNNING
    assert world.status().restarts == 1


def test_a_failed_attempt_counts_once_and_is_tried_again():
    world = running()
    job = world.jobs["default/a"]
    world.end_workers(job, PodState.FAILED)  # all of them: the first took the rendezvous along
    world.settle()
    assert (world.phase(), world.status().failures, world.status().attempt) == (JobPhase.RUNNING, 1, 1)
    assert {pod.attempt for pod in world.pods.values()} == {1}


def test_it_fails_when_it_failed_too_often():
    world = running(backoff_limit=1)
    for _ in range(2):
        assert world.phase() is JobPhase.RUNNING
        world.end_workers(world.jobs["default/a"], PodState.FAILED)
        world.settle()
    assert world.phase() is JobPhase.FAILED
    assert conditions(world)["Failed"] == ("True", "BackoffLimitExceeded")


def test_an_evicted_worker_is_no_failure():
    world = running()
    world.change_pod("a-worker-1", state=PodState.DISRUPTED)
    world.settle()
    assert (world.phase(), world.status().failures) == (JobPhase.RUNNING, 0)


def test_a_job_that_is_made_invalid_stays_as_it_is():
    world = running()
    world.put_job(
        replace(world.jobs["default/a"], problem="spec.workers.minimum: 5 is more than the maximum", requested=4)
    )
    world.settle()
    assert len(world.running(world.jobs["default/a"])) == 2
    assert conditions(world)["Ready"] == ("True", "Invalid")


def test_gpu_time_is_counted_over_leaders():
    world = running(gpu_milli=1000, maximum=2)
    for _ in range(4):
        world.now += 25
        world.turn(ev.Tick())
        world.settle()
    before = world.status().gpu_s
    assert before > 150
    world.die()
    world.settle()
    assert world.status().gpu_s >= before


def test_time_is_counted_for_the_workers_that_ran_in_it():
    world = running(gpu_milli=1000, maximum=2, minimum=1)
    seen = world.core.state.jobs["default/a"]
    world.turn(ev.JobsPodSeen(replace(world.pods["a-worker-0"], created=EPOCH + 1)))  # counted up to now
    before = world.status().gpu_s + seen.gpu_s
    world.now += 20
    world.turn(ev.JobsPodGone(world.pods["a-worker-1"].uid))
    assert world.status().gpu_s + seen.gpu_s - before == pytest.approx(40.0)


def test_a_failure_that_leaves_the_phase_as_it_is_is_counted_and_told():
    world = running(requested=4, minimum=1)
    world.change_pod("a-worker-3", state=PodState.LEAVING)
    world.deliver()
    while world.sent:
        world.arrive()
    world.deliver()
    assert world.phase() is JobPhase.RESHAPING
    world.told.clear()
    world.change_pod("a-worker-2", state=PodState.FAILED, message="exit 1")
    world.settle(run=False, rounds=4)
    assert (world.phase(), world.status().failures, world.core.stats.failures) == (JobPhase.RESHAPING, 1, 1)
    assert [one.type for one in world.told if getattr(one, "type", "") == "Warning"] == ["Warning"]
