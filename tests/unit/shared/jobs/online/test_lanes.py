"""The candidate deals out what its teacher leaves to its lane, and nothing else."""

from __future__ import annotations

from typing import Any

from shared.jobs.bounds import Allowed
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation
from shared.jobs.online.lanes import joined, of_lane


def job(name: str, **more: Any) -> JobObservation:
    values: dict[str, Any] = {"name": name, "submitted": 0.0, "minimum": 1, "maximum": 8, "requested": 2, "batch": 8}
    return JobObservation(**{**values, **more})


SEEN = JobsObservation(
    now=0.0, nodes=(NodeObservation(name="n0", gpus=4), NodeObservation(name="n1", gpus=4)),
    jobs=(job("ours", workers=2, placement={"n0": 2}), job("theirs", workers=2, placement={"n1": 2})),
)  # fmt: skip


def gpus(seen: JobsObservation) -> dict[str, int]:
    return {node.name: node.gpus for node in seen.nodes}


def test_the_lane_sees_its_jobs_and_the_nodes_without_what_the_others_hold():
    shown = of_lane(SEEN, Allowed({}, {}), {"ours"})
    assert ([one.name for one in shown.jobs], gpus(shown)) == (["ours"], {"n0": 4, "n1": 2})


def test_what_the_teacher_gives_the_others_now_is_theirs_too():
    grown = Allowed({"theirs": JobAllocation(workers=5)}, {})
    assert sum(gpus(of_lane(SEEN, grown, {"ours"})).values()) == 3
    stopped = Allowed({"theirs": JobAllocation(workers=0)}, {})
    assert sum(gpus(of_lane(SEEN, stopped, {"ours"})).values()) == 8


def test_each_decides_for_its_own_lane():
    teacher = Allowed({"ours": JobAllocation(workers=1), "theirs": JobAllocation(workers=3)}, {"theirs2": "no"})
    other = Allowed({"ours": JobAllocation(workers=4), "theirs": JobAllocation(workers=0)}, {})
    found = joined(teacher, other, {"ours"})
    assert {name: wish.workers for name, wish in found.changes.items()} == {"ours": 4, "theirs": 3}
    assert found.refused == {"theirs2": "no"}
