"""What a policy may not do, and what a report may not say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shared.jobs.bounds import allow
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation, NodeObservation
from shared.jobs.reports import ReportRefused, Said, accept, lost_steps, read_report
from shared.jobs.tokens import is_token, report_token
from shared.model.controllers.training_job import JobReport


def job(name: str = "a", **more: Any) -> JobObservation:
    values: dict[str, Any] = {
        "name": name, "submitted": 0.0, "minimum": 2, "maximum": 4, "requested": 2, "batch": 8, "workers": 2,
        "placement": {"n0": 2}, "batch_now": 8,
    }  # fmt: skip
    return JobObservation(**{**values, **more})


def allowed(
    wish: JobAllocation, *jobs: JobObservation, gpus: int = 8, may_stop: tuple[str, ...] = ()
) -> tuple[Any, Any]:
    seen = JobsObservation(now=0.0, jobs=jobs or (job(),), nodes=(NodeObservation(name="n0", gpus=gpus),))
    found = allow(seen, {"a": wish}, may_stop=may_stop)
    return found.changes, found.refused


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (JobAllocation(workers=1), "1 workers: not from 2 to 4"),
        (JobAllocation(workers=5), "5 workers: not from 2 to 4"),
        (JobAllocation(workers=-1), "-1 workers: not a number of workers"),
        (JobAllocation(workers=2.5), "2.5 workers: not a number of workers"),  # type: ignore[arg-type]
        (JobAllocation(workers=0), "may not be stopped"),
        (JobAllocation(workers=3, batch=16), "batch 16: not from 8 to 8"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_its_reason(wish: JobAllocation, why: str):
    changes, refused = allowed(wish)
    assert changes == {}
    assert why in refused["a"]


def test_growth_without_gpus_is_refused():
    assert allowed(JobAllocation(workers=4), gpus=3)[1] == {"a": "4 workers: 2 more GPUs, and 1 are free"}
    assert set(allowed(JobAllocation(workers=4), gpus=4)[0]) == {"a"}


def test_what_shrinks_makes_room_for_what_grows_in_the_same_decision():
    seen = JobsObservation(
        now=0.0, nodes=(NodeObservation(name="n0", gpus=6),), jobs=(job(), job("b", workers=4, placement={"n0": 4})),
    )  # fmt: skip
    found = allow(seen, {"a": JobAllocation(workers=4), "b": JobAllocation(workers=2)})
    assert (set(found.changes), found.refused) == ({"a", "b"}, {})


def test_a_job_with_a_checkpoint_may_be_stopped_and_an_unknown_one_is_told():
    assert set(allowed(JobAllocation(workers=0), may_stop=("a",))[0]) == {"a"}
    found = allow(JobsObservation(now=0.0, jobs=(), nodes=()), {"x": JobAllocation(workers=1)})
    assert found.refused == {"x": "there is no such job"}


# --- reports --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"loss": NaN}', "no JSON"),
        (b'{"steps": "many"}', "steps"),
        (b'{"speed": 1}', "speed"),
        (b"[1]", "object"),
        (b"\xff", "no JSON"),
        (b" " * 5000, "5000 bytes"),
    ],
)
def test_what_is_no_report_is_said_so(body: bytes, told: str):
    with pytest.raises(ReportRefused, match=told):
        read_report(body)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Said(samples_per_s=-1), "samples_per_s"),
        (Said(samples_per_s=1e12), "samples_per_s"),
        (Said(loss=math.inf), "loss"),
        (Said(progress=math.nan), "progress"),
        (Said(epochs_left=-0.5), "epochs_left"),
        (Said(steps=-1), "steps"),
        (Said(steps=5, checkpoint_steps=6), "checkpoint_steps"),
        (Said(steps=50, resumed_steps=60), "resumed_steps"),
        (Said(steps=3), "steps: 3 is less than 40 before"),
        (Said(job="default/b"), "another"),
    ],
)
def test_what_cannot_be_true_is_refused_with_the_field(said: Said, told: str):
    with pytest.raises(ReportRefused, match=told):
        accept(said, job="default/a", last=JobReport(steps=40), at=1.0, restarted=False)


def test_what_is_left_out_stays_as_it_was():
    last = JobReport(steps=4, loss=0.5, samples_per_s=9.0)
    assert accept(Said(steps=5), job="a", last=last, at=2.0, restarted=False) == JobReport(
        steps=5, loss=0.5, samples_per_s=9.0, at=2.0
    )


def test_lost_are_the_steps_from_where_the_processes_began_anew():
    before = JobReport(steps=42, checkpoint_steps=40, resumed_steps=16)
    assert lost_steps(before, JobReport(steps=45, resumed_steps=40)) == 2
    assert lost_steps(before, JobReport(steps=43, resumed_steps=16)) == 0, "the same processes"
    assert lost_steps(before, JobReport(steps=30)) == 12, "who does not say: what is seen"


def test_a_token_opens_its_own_job_alone():
    token = report_token(b"k" * 32, "default/a", "uid-1")
    assert is_token(b"k" * 32, "default/a", "uid-1", token)
    assert not is_token(b"k" * 32, "default/a", "uid-2", token)
    assert not is_token(b"k" * 32, "default/b", "uid-1", token)
    assert not is_token(b"x" * 32, "default/a", "uid-1", token)
    assert not is_token(b"k" * 32, "default/a", "uid-1", "é")
