"""``elastic``: minima by priority and age, room by need, and nobody moved without need."""

from __future__ import annotations

from typing import Any

from shared.jobs.observation import JobObservation, JobsObservation, NodeObservation
from shared.jobs.policies.elastic import Elastic

NODES = (NodeObservation(name="n0", gpus=4), NodeObservation(name="n1", gpus=4))


def job(name: str, *, at: float = 0.0, workers: int = 0, **more: Any) -> JobObservation:
    values: dict[str, Any] = {
        "name": name, "submitted": at, "minimum": 2, "maximum": 8, "requested": 4, "batch": 1, "workers": workers,
        "placement": {"n0": min(workers, 4), "n1": max(0, workers - 4)} if workers else {}, "since_change_s": 1e6,
    }  # fmt: skip
    return JobObservation(**{**values, **more})


def decide(*jobs: JobObservation, nodes: tuple[NodeObservation, ...] = NODES, now: float = 0.0) -> dict[str, int]:
    found = Elastic().decide(JobsObservation(now=now, jobs=jobs, nodes=nodes))
    return {name: one.workers for name, one in found.items()}


def test_a_lone_job_gets_what_there_is_up_to_its_maximum():
    assert decide(job("a")) == {"a": 8}
    assert decide(job("a", maximum=6)) == {"a": 6}


def test_room_goes_by_what_was_asked_for():
    assert decide(job("a", requested=6), job("b", at=1, requested=2)) == {"a": 6, "b": 2}


def test_one_below_its_minimum_takes_what_others_have_above_theirs():
    assert decide(job("a", workers=8), job("b", at=1)) == {"a": 6, "b": 2}


def test_the_least_important_and_youngest_gives_first():
    old, young = job("a", workers=4, placement={"n0": 4}), job("b", at=1, workers=4, placement={"n1": 4})
    assert decide(old, young, job("c", at=2)) == {"b": 2, "c": 2}
    assert decide(old, job("b", at=1, workers=4, placement={"n1": 4}, priority=5), job("c", at=2)) == {"a": 2, "c": 2}


def test_nobody_falls_below_its_minimum_for_another():
    jobs = [job(name, at=at, workers=4, minimum=4, placement={f"n{at}": 4}) for at, name in enumerate("ab")]
    assert decide(*jobs, job("c", at=2, priority=100)) == {}


def test_nobody_gives_what_stands_on_a_closed_node_where_nothing_new_may_go():
    closed = NodeObservation(name="n1", gpus=4, open=False)
    whole = job("a", workers=4, placement={"n1": 4})
    assert decide(whole, job("b", at=1), nodes=(closed,)) == {}
    half = job("a", workers=6, placement={"n0": 4, "n1": 2})
    assert decide(half, job("b", at=1), nodes=(NODES[0], closed)) == {"a": 4, "b": 2}


def test_while_one_waits_nobody_grows():
    assert decide(job("a", workers=2), job("big", at=1, minimum=7, maximum=7), now=10) == {}


def test_one_that_waited_long_lets_nobody_start_behind_it():
    running, big, small = job("a", workers=2, maximum=2), job("big", at=1, minimum=7), job("small", at=2)
    assert decide(running, big, small, now=10) == {"small": 2}
    assert decide(running, big, small, now=700) == {}


def test_one_that_has_just_changed_rests():
    assert decide(job("a", workers=2, since_change_s=10.0)) == {}
    assert decide(job("a", workers=2, since_change_s=400.0, restart_s=60.0)) == {}, "its restart costs much"
    assert decide(job("a", workers=2, since_change_s=700.0, restart_s=60.0)) == {"a": 8}


def test_a_worker_of_several_gpus_needs_one_node_with_all_of_them():
    nodes = (NodeObservation(name="n0", gpus=3), NodeObservation(name="n1", gpus=3))
    assert decide(job("a", gpus_per_worker=2.0, minimum=3, maximum=3), nodes=nodes) == {}
    assert decide(job("a", gpus_per_worker=2.0, minimum=2, maximum=3, requested=3), nodes=nodes) == {"a": 2}


def test_shares_of_a_gpu_add_up():
    assert decide(job("a", gpus_per_worker=0.5, maximum=16, requested=16)) == {"a": 16}


def test_one_that_needs_no_gpu_gets_what_it_asked_for():
    assert decide(job("a", gpus_per_worker=0.0), nodes=()) == {"a": 4}
    assert decide(job("a", gpus_per_worker=0.0, workers=4, placement={"n9": 4}, requested=2), nodes=()) == {"a": 2}


def test_bounds_that_were_changed_hold():
    assert decide(job("a", workers=8, maximum=3, requested=3)) == {"a": 3}
    assert decide(job("a", workers=2, minimum=3, placement={"n0": 2}, since_change_s=0.0)) == {"a": 3}
