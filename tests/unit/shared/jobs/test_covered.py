"""Jobs of unknown speed beside a policy that needs speeds."""

from __future__ import annotations

from typing import Any

from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation
from shared.jobs.policies.covered import Covered


class Steady:
    """A speed that is known."""

    def samples_per_s(self, placement: tuple[int, ...], batch: int, gpu_type: str) -> float:
        return 1.0

    def efficiency(self, batch: int, progress: float) -> float:
        return 1.0


class Greedy:
    """Gives the first job that it is shown four workers, the others nothing; keeps what it was shown."""

    name = "greedy"

    def __init__(self) -> None:
        self.seen: list[JobsObservation] = []

    def reset(self, seed: int) -> None: ...

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        self.seen.append(seen)
        return {job.name: JobAllocation(workers=0 if number else 4) for number, job in enumerate(seen.jobs)}


def job(name: str, at: float, **more: Any) -> JobObservation:
    values: dict[str, Any] = {"minimum": 2, "maximum": 4, "requested": 2, "batch": 1, "since_change_s": 1e6}
    return JobObservation(name=name, submitted=at, **{**values, **more})


def decide(*jobs: JobObservation, gpus: int = 8) -> tuple[dict[str, int], Greedy]:
    inner = Greedy()
    nodes = (NodeObservation(name="n0", gpus=gpus),)
    found = Covered(inner).decide(JobsObservation(now=0.0, jobs=jobs, nodes=nodes))
    return {name: wish.workers for name, wish in found.items()}, inner


def test_the_policy_is_shown_the_jobs_it_can_judge_and_the_room_they_may_have():
    unknown = job("a", 0, workers=2, placement={"n0": 2}, maximum=2)
    found, inner = decide(unknown, job("b", 1, speed=Steady()))
    assert found == {"b": 4}
    (seen,) = inner.seen
    assert ([one.name for one in seen.jobs], seen.nodes[0].gpus) == (["b"], 6)


def test_a_job_of_unknown_speed_starts_in_the_room_that_is_left():
    assert decide(job("a", 0), job("b", 1, speed=Steady()))[0] == {"a": 4, "b": 4}
    assert decide(job("a", 0), job("b", 1, speed=Steady()), gpus=5)[0] == {"b": 4}, "one GPU is left"


def test_nothing_is_taken_for_it_from_what_the_policy_gave():
    known = job("b", 1, workers=4, placement={"n0": 4}, speed=Steady())
    assert decide(job("a", 0), known, gpus=5)[0].get("b", 4) == 4


def test_where_every_speed_is_known_the_policy_decides_alone():
    assert decide(job("b", 0, speed=Steady()), job("c", 1, speed=Steady()))[0] == {"b": 4, "c": 0}


def test_a_job_that_waits_has_its_minimum_kept_for_it_before_the_policy_deals():
    known = job("b", 1, workers=8, maximum=8, placement={"n0": 8}, speed=Steady())
    _, inner = decide(job("a", 0), known)
    assert inner.seen[0].nodes[0].gpus == 6


def test_nobody_who_runs_is_stopped_for_one_that_is_not_known():
    known = job("b", 1, workers=4, placement={"n0": 4}, speed=Steady())
    waiting = [job(f"w{number}", 2 + number) for number in range(9)]
    _, inner = decide(*waiting, known)
    assert inner.seen[0].nodes[0].gpus == 2, "its minimum"
