"""The board for people: where workers stood and when, how jobs changed, when each may end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core.showing import board
from services.jobs.core.timeline import KEPT_S, MOST_SPANS, JobsTimeline
from shared.jobs.board import Board
from shared.jobs.reports import Said
from shared.model.controllers.training_job import PodState, WorkerPod
from tests.unit.services.jobs.jobs_world import EPOCH, World, running


def shown(world: World) -> Board:
    return board(world.core.state, world.core.deciding, world.now)


def test_each_worker_is_a_span_from_its_node_to_its_end():
    world = running(gpu_milli=1000, maximum=2)
    before = {(span.pod, span.node, span.gpus, span.ended) for span in shown(world).spans}
    assert before == {("a-worker-0", "n0", 1.0, 0.0), ("a-worker-1", "n0", 1.0, 0.0)}
    world.now += 50
    world.end_workers(world.jobs["default/a"])
    world.settle()
    spans = shown(world).spans
    assert all(span.ended - span.began >= 50 for span in spans)
    assert shown(world).nodes == {"n0": 4, "n1": 4}


def test_growth_restart_and_end_are_told_in_their_order():
    world = running()
    world.put_job(replace(world.jobs["default/a"], requested=4))
    world.settle()
    world.end_workers(world.jobs["default/a"])
    world.settle()
    events = [(change.event, change.before, change.after) for change in shown(world).changes]
    assert events[0] == ("started", 0, 2)
    assert ("grew", 2, 4) in events
    assert events[-1][0] == "ended"


def test_a_jobs_end_is_expected_by_its_work_and_speed():
    world = running(gpu_milli=1000, maximum=2)
    world.turn(ev.Reported("default/a", "uid-a", Said(samples_per_s=10.0, remaining_samples=6000.0)))
    world.settle()
    (job,) = shown(world).jobs
    assert job.by == "speed"
    assert job.ends - shown(world).now == pytest.approx(600.0, abs=10.0)
    assert job.ends_early < job.ends < job.ends_late


def test_without_a_speed_it_is_expected_as_fast_as_so_far_and_without_anything_not_at_all():
    world = running(maximum=2)
    assert shown(world).jobs[0].ends == 0.0
    world.now += 100
    world.turn(ev.Reported("default/a", "uid-a", Said(progress=0.5)))
    world.settle()
    (job,) = shown(world).jobs
    assert job.by == "progress"
    assert job.ends - shown(world).now == pytest.approx(100.0, abs=15.0)


def test_what_is_kept_is_bounded_in_number_and_age():
    timeline = JobsTimeline()
    for number in range(MOST_SPANS + 10):
        pod = WorkerPod(f"u{number}", "default", f"p{number}", PodState.RUNNING, "n0", gpu_milli=1000)
        timeline.see(pod, "default/a", EPOCH)
        timeline.gone(pod.uid, EPOCH + 1)
    assert len(timeline.spans(EPOCH + 2)) == MOST_SPANS
    assert timeline.spans(EPOCH + KEPT_S + 2) == ()


def test_a_pod_that_was_listed_before_its_job_is_shown():
    world = running(gpu_milli=1000, maximum=2)
    world.die()
    world.coming.sort(key=lambda event: not isinstance(event, ev.JobsPodSeen))
    world.settle()
    assert len(shown(world).spans) == 2
