"""A speed that is learned from reports: what it expects, and how sure it is."""

from __future__ import annotations

from math import inf, log, nan
from random import Random

import pytest

from shared.jobs.online.learned import PRIOR_SD, LearnedSpeed, Reports, Way


def learned(*seen: tuple[int, float], batch: int = 64) -> LearnedSpeed:
    return LearnedSpeed([(Way(workers, 1, batch), speed) for workers, speed in seen], batch)


def test_after_one_report_it_scales_as_most_jobs_do_and_says_how_unsure_that_is():
    speed = learned((1, 100.0))
    assert speed.samples_per_s((1,), 64, "") == pytest.approx(100.0, rel=1e-3)
    assert speed.samples_per_s((4,), 64, "") == pytest.approx(100.0 * 4**0.8, rel=1e-3)
    assert speed.spread((4,), 64) == pytest.approx(PRIOR_SD[1] * log(4), rel=1e-3)
    assert speed.spread((1,), 64) == 0.0


def test_what_was_seen_is_believed_over_the_prior_and_makes_it_surer():
    speed = learned((1, 100.0), (4, 130.0), (8, 145.0))
    assert speed.samples_per_s((4,), 64, "") == pytest.approx(130.0, rel=0.12)
    assert speed.spread((4,), 64) < 0.6 * learned((1, 100.0)).spread((4,), 64)


def test_the_true_figure_lies_within_two_standard_deviations_as_often_as_it_should():
    rng, inside = Random(5), 0
    for _ in range(200):
        slope, base = rng.gauss(0.8, 0.2), rng.uniform(10.0, 1000.0)
        speed = learned(*((n, base * n**slope * 2.718 ** rng.gauss(0.0, 0.1)) for n in (1, 2)))
        error = log(speed.samples_per_s((8,), 64, "") / speed.samples_per_s((1,), 64, "")) - slope * log(8)
        inside += abs(error) <= 2 * speed.spread((8,), 64)
    assert inside >= 180


def test_a_larger_batch_is_not_worth_more_as_long_as_nobody_measured_it():
    speed = learned((2, 100.0))
    gain = speed.samples_per_s((2,), 128, "") * speed.efficiency(128, 0.5)
    assert gain < speed.samples_per_s((2,), 64, "") * speed.efficiency(64, 0.5)


def test_one_wrong_report_does_not_count_for_much():
    reports = Reports()
    for speed in (100.0, 101.0, 9e8, 99.0, 100.0):
        reports.add(Way(2, 1, 64), speed)
    found = reports.speed(64)
    assert found is not None
    assert found.samples_per_s((2,), 64, "") == pytest.approx(100.0, rel=0.01)


@pytest.mark.parametrize("speed", [0.0, -1.0, nan, float("inf")])
def test_what_is_no_speed_teaches_nothing(speed: float):
    reports = Reports()
    reports.add(Way(2, 1, 64), speed)
    reports.add(Way(0, 0, 64), 10.0)
    assert reports.speed(64) is None


def test_a_speed_stays_the_same_object_until_something_is_learned():
    reports = Reports()
    reports.add(Way(1, 1, 64), 10.0)
    first = reports.speed(64)
    reports.add(Way(1, 1, 64), 10.1)
    assert reports.speed(64) is first, "one per cent is no news"
    for _ in range(3):
        reports.add(Way(1, 1, 64), 11.0)
    assert reports.speed(64) is not first
    second = reports.speed(64)
    reports.add(Way(2, 1, 64), 20.0)
    assert reports.speed(64) is not second, "another way of running is"


def test_what_is_kept_is_bounded():
    reports = Reports()
    for number in range(1000):
        reports.add(Way(1 + number, 1, 64), 10.0)
    assert len(reports._seen) == 64


def test_however_wild_the_reports_what_follows_for_any_number_of_workers_is_a_number():
    reports = Reports()
    for workers, speed in ((1, 1e-300), (2, 1e9)):
        reports.add(Way(workers, 1, 1), speed)
    found = reports.speed(1)
    assert found is not None
    assert all(0.0 < found.samples_per_s((count,), 1, "") < inf for count in (1, 64, 1024))
