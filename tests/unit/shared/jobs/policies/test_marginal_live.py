"""``marginal`` and ``jobs-sets`` on what a live cluster may show them, and a twin does not."""

from __future__ import annotations

import numpy as np
import pytest

from shared.jobs.observation import JobObservation, JobsObservation, NodeObservation
from shared.jobs.registry import make
from tests.training_jobs import LINEAR

NODES = (NodeObservation(name="left", gpus=4), NodeObservation(name="right", gpus=4))
OURS = pytest.mark.parametrize("policy", ["marginal", "jobs-sets"])


def job(name, **changes):
    given = {"submitted": 0.0, "minimum": 1, "maximum": 4, "requested": 2, "batch": 32, **changes}
    return JobObservation(name=name, **given)


def workers(policy, *jobs, nodes=NODES, now=100.0):
    decision = make(policy).decide(JobsObservation(now=now, jobs=jobs, nodes=nodes))
    return {name: one.workers for name, one in decision.items()}


@OURS
def test_a_new_job_whose_restart_costs_nothing_takes_nobodys_gpus(policy):
    assert workers(policy, job("free", restart_s=0.0), job("other")) == {"free": 4, "other": 4}


@OURS
def test_a_job_that_reports_that_all_is_done_takes_nobodys_gpus(policy):
    done = job("done", remaining_samples=0.0, progress=1.0, workers=1, placement={"left": 1}, speed=LINEAR)
    assert workers(policy, done, job("other"))["other"] == 4


@OURS
def test_a_gpu_type_that_others_hold_all_of_is_passed_over(policy):
    taken = NodeObservation(name="taken", gpus=0, gpu_type="a100")
    assert workers(policy, job("one"), nodes=(taken, *NODES)) == {"one": 4}


@OURS
def test_without_gpus_all_wait(policy):
    assert workers(policy, job("one"), nodes=()) == {"one": 0}


@OURS
def test_a_job_from_a_clock_that_is_ahead_counts_as_new(policy):
    with np.errstate(all="raise"):
        ahead, now = (workers(policy, job("one", submitted=at), job("other")) for at in (100_000.0, 100.0))
    assert ahead == now == {"one": 4, "other": 4}
