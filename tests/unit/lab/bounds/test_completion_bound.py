"""The bound on mean completion time: by hand, below every schedule of small cases, and what breaks it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from lab.bounds.completion_bound import (
    bound_at,
    completion_bound,
    envelope,
    groups_of,
    rates_of,
)
from lab.bounds.gpu_bound import BoundFailed
from lab.jobs.twin_a import HOUR_S, NODES, PLACES_PER_NODE, SLOT_S, TwinOrder, draw, model_of, play_twin

PLACES = NODES * PLACES_PER_NODE
CROWD = {"jobs": 50, "gap_s": 40.0}
"""Fewer jobs than Twin A has, that come faster."""


def bound_h(jobs, places=PLACES, **given):
    return completion_bound(jobs, places=places, slot_s=SLOT_S, **given) / HOUR_S


@lru_cache
def of_seven():
    return bound_h(draw(7, **CROWD))


def played_h(policy):
    return play_twin(TwinOrder(policy=policy, seed=7, **CROWD)).figures()["avg_jct_h"]


def least_h(jobs, places, slots=3):
    """The least mean of all schedules that end these two jobs within so many slots, each tried."""
    rates = [rates_of(job.model.served, job.maximum, SLOT_S) for job in jobs]
    shares = [(one, other) for one in range(places + 1) for other in range(places + 1 - one)]
    found = np.inf
    for plan in product(shares, repeat=slots):
        total = 0.0
        for at, job in enumerate(jobs):
            first, left = int(job.submitted // SLOT_S), job.model.convergence.total
            for t in range(first, slots):
                done = rates[at][min(plan[t][at], len(rates[at]) - 1)]
                if done >= left:
                    total += t + left / done - first
                    break
                left -= done
            else:
                total = np.inf
        found = min(found, total)
    return found / len(jobs) * SLOT_S / HOUR_S


def test_alone_a_job_takes_as_long_as_at_its_best_numbers():
    (job,) = draw(3, jobs=1)
    seconds = job.model.convergence.total / max(rates_of(job.model.served, job.maximum, SLOT_S)) * SLOT_S
    assert bound_h([job]) == pytest.approx(seconds / HOUR_S)


@pytest.mark.parametrize(("seed", "epochs", "second"), [(1, (4, 6), 0), (2, (3, 3), 1), (3, (2, 4), 1), (4, (5, 2), 0)])
def test_no_schedule_of_two_jobs_is_below_it_and_the_best_is_near(seed, epochs, second):
    jobs = [
        replace(job, submitted=at * SLOT_S, model=model_of(job.model.name, count))
        for job, count, at in zip(draw(seed, jobs=2), epochs, (0, second), strict=True)
    ]
    best = least_h(jobs, 5)
    assert 0.93 * best < bound_h(jobs, places=5, slots=8, steps=300) <= best + 1e-9


@pytest.mark.parametrize("policy", ["drf", "optimus", "marginal", "jobs-sets"])
def test_no_policy_is_below_it(policy):
    assert of_seven() <= played_h(policy)


def test_with_fewer_places_than_there_are_it_would_not_hold():
    assert bound_h(draw(7, **CROWD), places=PLACES / 2) > played_h("marginal")


def test_it_says_more_than_that_each_job_could_run_alone():
    assert of_seven() > 1.03 * bound_h(draw(7, **CROWD), places=1e6)


def test_any_prices_give_a_bound():
    jobs, rng = draw(7, **CROWD), np.random.default_rng(0)
    groups = groups_of(jobs, SLOT_S)
    for most in (0.01, 0.1, 1.0):
        value, used = bound_at(groups, rng.uniform(0.0, most, 60), PLACES)
        assert value * SLOT_S / HOUR_S / len(jobs) <= of_seven() + 1e-3
        assert used.shape == (60,)
        assert (used >= 0.0).all()


def test_an_envelope_is_concave_and_ends_at_the_most():
    pieces = envelope(np.array([0.0, 0.0, 1.0, 4.0, 4.5, 7.0]))
    assert pieces.tolist() == [[5.0, 7.0]]
    assert envelope(np.array([0.0, 3.0, 5.0, 6.0])).tolist() == [[1.0, 3.0], [1.0, 2.0], [1.0, 1.0]]


def test_jobs_that_come_after_the_last_price_run_freely():
    jobs = draw(7, jobs=5)
    assert bound_h(jobs, slots=1) == pytest.approx(bound_h(jobs, places=1e6), rel=0.05)


def test_jobs_without_parameter_servers_are_refused():
    jobs = [replace(job, model=replace(job.model, served=None)) for job in draw(7, jobs=1)]
    with pytest.raises(BoundFailed, match="has no parameter servers"):
        bound_h(jobs)
