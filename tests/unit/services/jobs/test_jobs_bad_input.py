"""What cannot be true: a clear line on the object, the last good decision stands, and nobody is scaled to zero."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core.observing import observe
from shared.jobs.reports import Said
from shared.kube.training.training_jobs import TrainingJobObject, job_from_api
from tests.unit.services.jobs.jobs_world import TEMPLATE, World, running


def minimum_above_maximum(world: World) -> None:
    spec = {"template": TEMPLATE, "workers": {"minimum": 5, "maximum": 2}}
    document = {"metadata": {"name": "a", "namespace": "default", "uid": "uid-a"}, "spec": spec}
    problem = job_from_api(msgspec.convert(document, TrainingJobObject)).problem
    world.put_job(replace(world.jobs["default/a"], minimum=2, maximum=2, problem=problem))


def says(**said: object) -> Callable[[World], None]:
    return lambda world: world.turn(ev.Reported("default/a", "uid-a", Said(**said)))  # type: ignore[arg-type]


def annotates(text: str) -> Callable[[World], None]:
    return lambda world: world.change_pod("a-worker-0", report=text)


def falls_silent(world: World) -> None:
    world.now += 400
    world.turn(ev.Tick())


def writes_no_checkpoint(world: World) -> None:
    for steps in (60, 70):
        world.turn(ev.Reported("default/a", "uid-a", Said(steps=steps)))
        world.now += 200
    world.turn(ev.Tick())


CASES = [
    ("Ready", "Invalid", "spec.workers.minimum: 5 is more than spec.workers.maximum, 2; lower", minimum_above_maximum),
    ("Reporting", "ReportInvalid", "NaN and infinity are not, leave them out", annotates('{"loss": NaN}')),
    ("Reporting", "ReportInvalid", "loss: nan must be from", says(loss=float("nan"))),
    ("Reporting", "ReportInvalid", "samples_per_s: -3.0 must be from 0", says(samples_per_s=-3.0)),
    ("Reporting", "ReportInvalid", "samples_per_s: 1000000000000.0 must be from 0 to 1e+09", says(samples_per_s=1e12)),
    ("Reporting", "ReportInvalid", "steps: 3 is less than 50 before", says(steps=3)),
    ("Reporting", "ReportForeign", "job: 'default/b' is another", says(job="default/b", steps=60)),
    ("Reporting", "Silent", "nothing was reported since", falls_silent),
    ("Checkpointing", "NoCheckpoint", "look at /ckpt, or report checkpoint_steps", writes_no_checkpoint),
]


@pytest.mark.parametrize(
    ("condition", "reason", "told", "happens"), CASES, ids=[f"{c[1]}-{n}" for n, c in enumerate(CASES)]
)
def test_it_is_told_with_its_field_and_the_job_runs_on(
    condition: str, reason: str, told: str, happens: Callable[[World], None]
):
    world = running(gpu_milli=1000, maximum=2, checkpoint="/ckpt", checkpoint_every_s=100.0)
    says(steps=50, samples_per_s=10.0)(world)
    world.settle()
    before = world.status()
    happens(world)
    world.settle()
    world.core._decide_at = world.now
    world.turn(ev.Tick())
    world.settle()
    status = world.status()
    found = next(one for one in status.conditions if one.type == condition)
    assert (found.status == "False" or reason == "Invalid", found.reason) == (True, reason)
    assert told in found.message
    assert (
        (status.target, status.running, status.restarts)
        == (before.target, before.running, before.restarts)
        == (2, 2, 0)
    )
    assert status.report.samples_per_s == 10.0, "what was known stands"


def test_a_job_that_saves_nothing_may_not_be_stopped_by_a_policy():
    world = running(gpu_milli=1000, maximum=2, checkpoint="/ckpt", checkpoint_every_s=100.0)
    writes_no_checkpoint(world)
    world.settle()
    assert observe(world.core.state, world.now).may_stop == frozenset()
