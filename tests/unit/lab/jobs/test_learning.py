"""A policy that knows no tables: it sees what was reported, and nothing before a job has run."""

from __future__ import annotations

import pytest

from lab.jobs.learning import LearningSpeeds
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation


class True100:
    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        return 100.0 * sum(placement)

    def efficiency(self, batch: int, progress: float) -> float:
        return 1.0


class Watches:
    """Keeps what it was shown."""

    name = "watches"

    def __init__(self) -> None:
        self.seen: list[JobsObservation] = []

    def reset(self, seed: int) -> None: ...

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        self.seen.append(seen)
        return {}


def observed(workers: int) -> JobsObservation:
    job = JobObservation(
        name="a", submitted=0.0, minimum=1, maximum=4, requested=4, batch=8, batch_now=8, workers=workers,
        placement={"n0": workers} if workers else {}, speed=True100(),
    )  # fmt: skip
    return JobsObservation(now=0.0, jobs=(job,), nodes=(NodeObservation(name="n0", gpus=4),))


def test_before_a_job_has_run_nothing_of_its_speed_is_known_and_elastic_starts_it():
    inner = Watches()
    decided = LearningSpeeds(inner).decide(observed(0))
    assert inner.seen == []
    assert decided["a"].workers == 4


def test_once_it_runs_its_speed_is_learned_and_no_table_is_read():
    inner = Watches()
    policy = LearningSpeeds(inner, seed=3)
    for _ in range(9):
        policy.decide(observed(2))
    speed = inner.seen[-1].jobs[0].speed
    assert speed is not None
    assert speed.samples_per_s((2,), 8, "") == pytest.approx(200.0, rel=0.1)
    assert speed.samples_per_s((4,), 8, "") == pytest.approx(200.0 * 2**0.8, rel=0.1), "by the prior, not by the table"
    assert speed.efficiency(16, 0.5) == 0.5


def test_who_has_ended_is_forgotten():
    policy = LearningSpeeds(Watches())
    policy.decide(observed(2))
    policy.decide(JobsObservation(now=1.0, jobs=(), nodes=()))
    assert policy._reports == {}
