"""Policies: what they wish, what is carried out, and what becomes of everybody where one fails."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core.observing import observe
from services.jobs.policies import policy_named
from shared.jobs.guard import JobsGuard
from shared.jobs.observation import JobAllocation, JobsObservation
from shared.jobs.registry import POLICIES
from shared.model.controllers.training_job import JobPhase, PodState, WorkerPod
from tests.unit.services.jobs.jobs_world import EPOCH, World, a_job, running


class Broken:
    """A policy that raises."""

    name = "broken"

    def reset(self, seed: int) -> None: ...

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        raise ZeroDivisionError("no jobs")


class Zero(Broken):
    """A policy that wants everybody to have nothing, and the impossible."""

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        return {job.name: JobAllocation(workers=0) for job in seen.jobs} | {"nobody": JobAllocation(workers=9)}


def test_a_waiting_job_says_what_it_needs_and_what_there_is():
    world = World(nodes=1)
    world.put_job(a_job("big", gpu_milli=4000, minimum=2))
    world.settle()
    ready = world.status("default/big").conditions[0]
    assert (ready.reason, ready.message) == (
        "Waiting", "it needs 2 workers of 4 GPUs; 4 of 4 GPUs are free, 0 jobs that wait come before it",
    )  # fmt: skip


def test_a_job_that_grew_gives_back_what_another_needs_for_its_minimum():
    world = World(nodes=1)
    world.put_job(a_job("first", gpu_milli=1000, minimum=1, maximum=4, requested=4))
    world.settle()
    assert world.status("default/first").running == 4
    world.put_job(a_job("second", gpu_milli=1000, minimum=2, maximum=2, created=EPOCH + 1))
    world.settle()
    assert {key: one.status.running for key, one in world.jobs.items()} == {"default/first": 2, "default/second": 2}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_whoever_decides_jobs_of_unknown_speed_run_and_are_not_stopped(name: str):
    world = World(policy=policy_named(name, 0))
    for number in range(2):
        job = a_job(f"j{number}", gpu_milli=1000, created=EPOCH + number, requested=3, checkpoint="/ckpt")
        world.put_job(job)
    world.settle()
    assert {job.status.phase for job in world.jobs.values()} == {JobPhase.RUNNING}
    assert world.broken == []
    assert world.core.deciding.problem == ""


def test_where_a_policy_fails_everything_stays_as_it_was_decided_last():
    world = running()
    world.core.deciding.pair.teacher = JobsGuard(Broken())
    world.put_job(a_job("late", created=EPOCH + 5))
    world.settle()
    assert world.phase() is JobPhase.RUNNING
    assert world.core.stats.policy_failures >= 1
    assert "no jobs" in world.core.deciding.problem
    assert world.phase("default/late") is JobPhase.PENDING


def test_nobody_without_a_checkpoint_is_scaled_to_zero_by_a_policy():
    world = running()
    world.core.deciding.pair.teacher = JobsGuard(Zero())
    world.now += 700
    world.turn(ev.Tick())
    world.settle()
    assert world.phase() is JobPhase.RUNNING
    assert "may not be stopped" in world.status().conditions[0].message


def test_with_a_checkpoint_it_may_be_stopped():
    world = running(checkpoint="/ckpt")
    world.core.deciding.pair.teacher = JobsGuard(Zero())
    world.now += 700
    world.turn(ev.Tick())
    world.settle()
    assert (world.phase(), world.pods) == (JobPhase.PENDING, {})


def test_gpus_that_were_decided_and_are_not_yet_written_are_not_given_twice():
    world = World(nodes=1)
    world.put_job(a_job(gpu_milli=1000, maximum=2))
    world.settle()
    world.now += 1000
    world.put_job(replace(world.jobs["default/a"], maximum=4))
    world.deliver()
    world.turn(ev.Tick())
    held = [world.sent.pop() for _ in list(world.sent)]  # the API server takes no status of it just now
    assert [write.status.target for _, write in held] == [4]  # type: ignore[union-attr]
    world.put_job(a_job("b", gpu_milli=1000))
    world.now += 1
    world.deliver()
    world.arrive()  # its pods would be made, says the API server
    world.now += 1
    world.turn(ev.Tick())
    jobs = world.core.state.jobs
    decided = {key: seen.wish.workers if seen.wish else seen.job.status.target for key, seen in jobs.items()}
    assert decided == {"default/a": 2, "default/b": 2}, "4 GPUs"
    world.turn(ev.WriteAnswered(held[0][1].write, ev.WriteOutcome.UNKNOWN))
    world.settle()
    assert (world.status().target, world.status("default/b").target) == (2, 2)


def test_a_wish_beyond_bounds_that_were_lowered_is_forgotten_once_it_is_met():
    world = running(requested=4)
    world.put_job(replace(world.jobs["default/a"], maximum=3, requested=3))
    world.deliver()
    world.core.state.jobs["default/a"].wish = JobAllocation(workers=4)
    world.settle()
    assert world.status().target == 3
    assert world.core.state.jobs["default/a"].wish is None


def test_somebody_elses_gang_is_a_job_of_fixed_size():
    world = World(nodes=1)
    for number in range(2):
        name = f"other-{number}"
        world.pods[name] = WorkerPod(name, "default", name, PodState.RUNNING, "n0", gpu_milli=1000, group="train")
        world.coming.append(ev.JobsPodSeen(world.pods[name]))
    world.put_job(a_job(gpu_milli=1000, minimum=3, maximum=3, requested=3))
    world.settle()
    seen = observe(world.core.state, world.now).observation
    (other,) = (job for job in seen.jobs if job.name == "group:default/train")
    assert (other.minimum, other.maximum, other.workers, dict(other.placement)) == (2, 2, 2, {"n0": 2})
    assert world.phase() is JobPhase.PENDING, "two GPUs are left, and it needs three"


def test_a_spec_that_became_invalid_still_holds_its_workers_gpus():
    world = running(gpu_milli=1000, maximum=2)
    world.put_job(replace(world.jobs["default/a"], gpu_milli=0, template={}, problem="spec.template: is wrong"))
    world.deliver()
    (job,) = observe(world.core.state, world.now).observation.jobs
    assert job.workers * job.gpus_per_worker == 2.0


def test_a_raised_minimum_waits_until_there_is_room_and_what_runs_goes_on():
    world = World(nodes=1)
    world.put_job(a_job(gpu_milli=1000, maximum=2))
    world.put_job(a_job("b", gpu_milli=1000, maximum=2, created=EPOCH + 1))
    world.settle()
    world.put_job(replace(world.jobs["default/a"], minimum=3, maximum=3, requested=3))
    world.settle()
    assert (world.status().target, world.phase(), world.status().restarts) == (2, JobPhase.RUNNING, 0)
    assert world.made["PodGroup", "a"].minimum == 2, "a gang of 3 could not be met"
    assert "spec.workers.minimum, 3, holds once there is room" in world.status().conditions[0].message
    world.end_workers(world.jobs["default/b"])
    world.settle()
    assert (world.status().target, world.status().running, world.made["PodGroup", "a"].minimum) == (3, 3, 3)
    assert world.broken == []


def test_gpus_of_parameter_servers_are_in_the_books():
    template = {"spec": {"containers": [{"name": "ps", "image": "ps"}]}}
    world = World(nodes=1)
    world.put_job(a_job(gpu_milli=1000, maximum=2, ps=2, ps_gpu_milli=1000, ps_template=template))
    world.settle()
    world.put_job(a_job("b", gpu_milli=1000, minimum=1, maximum=4, requested=4, created=EPOCH + 1))
    world.settle()
    assert (world.phase(), world.phase("default/b")) == (JobPhase.RUNNING, JobPhase.PENDING), "four GPUs are taken"
    assert "0 of 2 GPUs are free" in world.status("default/b").conditions[0].message
    world.end_workers(world.jobs["default/a"])
    world.settle()
    world.now += 700
    world.turn(ev.Tick())
    world.settle()
    assert world.status("default/b").running == 4


def test_a_job_whose_parameter_servers_find_no_gpus_does_not_start():
    template = {"spec": {"containers": [{"name": "ps", "image": "ps"}]}}
    world = World(nodes=1)
    world.put_job(
        a_job(gpu_milli=1000, minimum=3, maximum=3, requested=3, ps=2, ps_gpu_milli=1000, ps_template=template)
    )
    world.settle()
    assert (world.phase(), world.pods) == (JobPhase.PENDING, {})
    assert "2 GPUs for parameter servers" in world.status().conditions[0].message
