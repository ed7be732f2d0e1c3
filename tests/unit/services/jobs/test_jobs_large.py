"""A job of many pods: what one more of them costs, and that a burst of their changes is one look at the job."""

from __future__ import annotations

import gc

from msgspec.structs import replace

from bench.in_process.meters import OpcodeMeter
from services.jobs.core import events as ev
from shared.model.controllers.training_job import PodState
from tests.unit.services.jobs.jobs_world import SETTINGS, World, a_job, running


def opcodes_each(count: int) -> float:
    """Of a turn in which all pods of a job of so many begin to run, for each."""
    world = World(settings=replace(SETTINGS, validate=False), nodes=count)
    world.put_job(a_job(minimum=count, maximum=count, requested=count, gpu_milli=4000))
    world.settle(rounds=10, run=False)
    assert len(world.pods) == count
    for number, name in enumerate(sorted(world.pods)):
        world.change_pod(name, state=PodState.RUNNING, node=f"n{number}")
    events, world.coming = world.coming, []
    meter = OpcodeMeter()
    meter.counting = True
    gc.disable()  # its callbacks would be counted, wherever a collection falls
    meter.enter("core")
    try:
        world.core.handle_all(events, world.now)
    finally:
        meter.leave()
        gc.enable()
    return meter.spent["core"] / count


def test_a_burst_of_changes_costs_each_pod_the_same_however_many_the_job_has() -> None:
    few, many = opcodes_each(20), opcodes_each(160)
    assert many <= 1.2 * few, (few, many)


def test_a_worker_that_was_taken_away_and_is_gone_within_one_turn_excuses_the_others() -> None:
    world = running()
    world.change_pod("a-worker-1", state=PodState.DISRUPTED)
    world.remove_pod("a-worker-1")
    world.change_pod("a-worker-0", state=PodState.FAILED)
    world.deliver()
    world.settle()
    assert (world.status().failures, world.status().attempt) == (0, 1)


def test_the_worker_that_all_meet_at_excuses_the_others_also_where_it_came_and_went_within_one_turn() -> None:
    world = running()
    world.change_pod("a-worker-0", state=PodState.LEAVING)
    world.remove_pod("a-worker-0")
    world.change_pod("a-worker-1", state=PodState.FAILED)
    world.deliver()
    world.settle()
    assert (world.status().failures, world.status().attempt) == (0, 1)


def test_time_before_a_pod_begins_is_not_counted_for_it() -> None:
    world = running(minimum=1, maximum=2)
    before = world.core.state.jobs["default/a"]
    world.settle()
    gpu_s = world.status().gpu_s + before.gpu_s
    world.now += 100.0
    pod = replace(world.pods["a-worker-1"], name="a-worker-9", uid="uid-late", index=9)
    world.turn(ev.JobsPodSeen(pod))
    workers = len(world.running(world.jobs["default/a"]))
    passed = world.status().gpu_s + world.core.state.jobs["default/a"].gpu_s - gpu_s
    assert passed <= 100.5 * workers * world.jobs["default/a"].gpu_milli / 1000
