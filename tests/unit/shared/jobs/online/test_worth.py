"""What decisions are worth beside each other, held to figures by hand."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest

from shared.jobs.bounds import Allowed
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation
from shared.jobs.online.worth import compared


class Linear:
    """Ten samples per second and worker."""

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        return 10.0 * sum(placement)

    def efficiency(self, batch: int, progress: float) -> float:
        return min(1.0, 8 / batch)


def job(name: str = "a", **more: Any) -> JobObservation:
    values: dict[str, Any] = {
        "name": name, "submitted": 0.0, "minimum": 1, "maximum": 8, "requested": 8, "batch": 8, "speed": Linear(),
        "restart_s": 60.0,
    }  # fmt: skip
    return JobObservation(**{**values, **more})


def seen(*jobs: JobObservation) -> JobsObservation:
    return JobsObservation(now=0.0, jobs=jobs, nodes=(NodeObservation(name="n", gpus=8),))


def wish(**workers: int) -> Allowed:
    return Allowed({name: JobAllocation(workers=count) for name, count in workers.items()}, {})


def test_a_job_that_starts_with_two_workers_instead_of_four_is_worth_two_less():
    gap = compared(seen(job()), wish(a=4), wish(a=2), {"a"})
    assert (gap.teacher, gap.more, gap.sd) == (4.0, -2.0, 0.0)


def test_a_change_pays_its_restart():
    gap = compared(seen(job(workers=4)), wish(), wish(a=5), {"a"})
    assert gap.teacher == 4.0
    assert gap.more == pytest.approx(5.0 * 0.9 - 4.0)


def test_a_job_that_is_stopped_is_worth_nothing():
    assert compared(seen(job(workers=4)), wish(), wish(a=0), {"a"}).more == -4.0


def test_a_batch_is_worth_what_its_samples_are():
    other = Allowed({"a": JobAllocation(workers=4, batch=16)}, {})
    assert compared(seen(job(workers=4, batch_now=8)), wish(), other, {"a"}).more == pytest.approx(-2.0)


def test_of_an_unknown_speed_the_prior_is_taken_with_its_error():
    gap = compared(seen(job(speed=None)), wish(a=4), wish(a=1), {"a"})
    assert gap.teacher == pytest.approx(4**0.8)
    assert gap.sd == pytest.approx(sqrt((4**0.8 * 0.2) ** 2))


def test_jobs_that_both_treat_alike_add_no_error_and_jobs_of_others_do_not_count():
    both = wish(a=4, b=2)
    gap = compared(seen(job(speed=None), job("b", speed=None), job("group:x", workers=8)), both, both, {"a", "b"})
    assert (gap.more, gap.sd) == (0.0, 0.0)
    assert gap.teacher == pytest.approx(4**0.8 + 2**0.8)
