"""Goodput: the best batch for each count of workers, and no batch that cannot run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from shared.jobs.policies.goodput import GoodputTables, batches_of, best_batch, even
from tests.training_jobs import observation, seen_job


@dataclass(frozen=True)
class BatchSpeed:
    """Faster with larger batches, worth less with larger batches; no more than 64 samples per worker."""

    def samples_per_s(self, placement, batch, gpu_type):
        return float(batch) if batch <= 64 * sum(placement) else 0.0

    def efficiency(self, batch, progress):
        return 1.0 if progress >= 0.5 else (64 / batch) ** 2


def test_workers_are_spread_evenly():
    assert even(3, 8) == (3, 3, 2)


def test_a_fixed_batch_is_the_only_one():
    assert batches_of(seen_job("a", batch=48)) == (48,)


def test_batches_reach_from_bound_to_bound():
    batches = batches_of(seen_job("a", batch_range=(64, 4096)))
    assert (batches[0], batches[-1]) == (64, 4096)
    assert all(2 * before > after for before, after in pairwise(batches))
    assert batches_of(seen_job("a", batch_range=(64, 64))) == (64,)


@pytest.mark.parametrize(("progress", "batch"), [(0.0, 64), (0.75, 128)])
def test_the_best_batch_follows_what_samples_are_worth_at_this_progress(progress, batch):
    job = seen_job("a", batch_range=(64, 256), progress=progress, speed=BatchSpeed())
    table = GoodputTables(observation(job)).of(job)
    assert best_batch(table, {"n0": 2}) == pytest.approx(batch, rel=0.2)
    assert table.rate[1, 2] == pytest.approx(batch, rel=0.2)


def test_counts_that_cannot_run_have_no_goodput():
    job = seen_job("a")
    table = GoodputTables(observation(job)).of(job)
    assert table.rate[1, 5] == table.rate[2, 1] == table.rate[0, 0] == 0.0
    packed = GoodputTables(observation(job), range(9)).of(job)
    assert packed.rate.tolist() == [float(count) for count in range(9)]


def test_nothing_is_said_of_a_speed_that_is_unknown():
    job = seen_job("a", speed=None)
    assert GoodputTables(observation(job)).of(job) is None
