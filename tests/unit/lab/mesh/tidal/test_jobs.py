"""Offline jobs of the tidal day: what is done, what a worker that leaves costs, and what a gang that breaks costs."""

from __future__ import annotations

import pytest

from lab.mesh.tidal.jobs import OfflineJob
from lab.mesh.tidal.levels import TidalLevels
from lab.traces.tidal import TracedJob

LEVELS = TidalLevels(checkpoint_s=100.0, restore_s=20.0, start_s=5.0)


def running(workers: int, least: int) -> OfflineJob:
    job = OfflineJob("j", TracedJob(1000.0, workers, 0, 1000, 1), 1.0, least, 1000.0 * workers)
    for worker in [job.new_worker() for _ in range(workers)]:
        job.placed(worker, 0, 0.0, LEVELS)
    return job


def test_a_gang_advances_once_enough_of_it_run():
    job = running(4, least=4)
    job.workers["j-3"].node = -1
    assert job.advance(10.0, 10.0, [1.0], LEVELS) == 0.0
    job.workers["j-3"].node = 0
    assert job.advance(20.0, 10.0, [0.5], LEVELS) == 20.0
    assert job.left == 3980.0


def test_a_worker_that_can_be_spared_loses_its_own_work_since_the_checkpoint_and_its_restart():
    job = running(4, least=2)
    job.advance(10.0, 30.0, [1.0], LEVELS)
    assert job.left_by(job.workers["j-0"], LEVELS) == 30.0 + 20.0
    assert job.left == 4000.0 - 120.0 + 30.0
    assert job.started
    assert [worker.unsaved for worker in job.workers.values()] == [0.0, 30.0, 30.0, 30.0]


def test_a_gang_that_breaks_loses_the_work_of_all():
    job = running(4, least=4)
    job.advance(10.0, 30.0, [1.0], LEVELS)
    assert job.left_by(job.workers["j-0"], LEVELS) == 4 * (30.0 + 20.0)
    assert job.left == 4000.0
    assert not job.started


def test_the_others_of_a_broken_gang_lose_nothing_more():
    job = running(4, least=4)
    job.advance(10.0, 30.0, [1.0], LEVELS)
    lost = job.left_by(job.workers["j-0"], LEVELS)
    assert [job.left_by(job.workers[f"j-{number}"], LEVELS) for number in (1, 2, 3)] == [0.0, 0.0, 0.0]
    assert lost == 200.0
    assert job.left == 4000.0


def test_what_is_saved_is_not_lost():
    job = running(2, least=2)
    for step in range(10):
        job.advance(10.0 + 10 * step, 10.0, [1.0], LEVELS)
    assert job.saved_now
    job.advance(110.0, 10.0, [1.0], LEVELS)
    assert not job.saved_now
    assert job.left_by(job.workers["j-0"], LEVELS) == 2 * (10.0 + 20.0)
    assert job.left == 2000.0 - 200.0


def test_a_worker_that_never_ran_costs_nothing():
    job = OfflineJob("j", TracedJob(1000.0, 2, 0, 1000, 1), 1.0, 1, 2000.0)
    worker = job.new_worker()
    assert job.left_by(worker, LEVELS) == 0.0


@pytest.mark.parametrize(("begun", "runs_at"), [(False, 5.0), (True, 25.0)])
def test_who_begins_again_reads_the_checkpoint_first(begun, runs_at):
    job = running(1, least=1)
    job.begun = begun
    worker = job.new_worker()
    job.placed(worker, 0, 0.0, LEVELS)
    assert worker.runs_at_s == runs_at


@pytest.mark.parametrize(
    ("workers", "least", "leave", "broken"), [(1, 1, 1, 0), (4, 4, 1, 1), (4, 4, 4, 1), (4, 2, 2, 0), (4, 2, 3, 1)]
)
def test_a_gang_of_several_that_falls_below_its_least_is_broken_once(workers, least, leave, broken):
    job = running(workers, least)
    job.advance(10.0, 30.0, [1.0], LEVELS)
    for number in range(leave):
        job.left_by(job.workers[f"j-{number}"], LEVELS)
    assert job.broken == broken


def test_at_work_is_who_runs_or_restores_while_enough_have_started():
    job = running(3, least=2)
    assert job.at_work(4.0, LEVELS) == []
    assert len(job.at_work(5.0, LEVELS)) == 3
    job.advance(10.0, 30.0, [1.0], LEVELS)
    job.left_by(job.workers["j-0"], LEVELS)
    assert len(job.at_work(40.0, LEVELS)) == 2
    job.placed(job.new_worker(), 0, 40.0, LEVELS)
    assert [len(job.at_work(at, LEVELS)) for at in (44.0, 45.0)] == [2, 3]
    job.left_by(job.workers["j-1"], LEVELS)
    job.left_by(job.workers["j-2"], LEVELS)
    assert job.at_work(45.0, LEVELS) == []
