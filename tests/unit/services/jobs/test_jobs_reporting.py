"""Reports: what is believed of them, and what is told where it is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from shared.jobs.reports import Said
from shared.model.controllers.training_job import JobPhase
from tests.unit.services.jobs.jobs_world import World, conditions, running


def report(world: World, **said: object) -> None:
    world.turn(ev.Reported("default/a", "uid-a", Said(**said)))  # type: ignore[arg-type]
    world.settle()


def test_reports_are_kept_and_a_restart_is_measured_by_the_next_one():
    world = running()
    report(world, steps=90, checkpoint_steps=80, resumed_steps=0, samples_per_s=10.0, progress=0.5)
    world.put_job(replace(world.jobs["default/a"], requested=3))
    world.settle()
    report(world, steps=92, resumed_steps=0)  # from before they were started again
    world.now += 20
    report(world, steps=85, resumed_steps=80)
    status = world.status()
    assert (status.restarts, status.lost_steps, status.report.steps) == (1, 12, 85)
    assert 20 <= status.restart_s < 40
    assert status.report.samples_per_s == 10.0


def test_a_report_that_cannot_be_is_told_and_what_was_before_stands():
    world = running()
    report(world, steps=90)
    for said, reason in (
        ({"samples_per_s": -1.0}, "ReportInvalid"),
        ({"samples_per_s": float("nan")}, "ReportInvalid"),
        ({"progress": 1.5}, "ReportInvalid"),
        ({"steps": 10}, "ReportInvalid"),
        ({"job": "default/b", "steps": 91}, "ReportForeign"),
    ):
        report(world, **said)
        assert conditions(world)["Reporting"] == ("False", reason), said
        assert world.status().report.steps == 90
    report(world, steps=91)
    assert conditions(world)["Reporting"] == ("True", "Reporting")


def test_one_that_stops_reporting_is_told_and_goes_on():
    world = running()
    report(world, steps=90)
    world.now += 400
    world.turn(ev.Tick())
    world.settle()
    assert conditions(world)["Reporting"] == ("False", "Silent")
    assert world.phase() is JobPhase.RUNNING


def test_a_checkpoint_that_never_comes_is_told():
    world = running(checkpoint="/ckpt", checkpoint_every_s=10.0)
    for steps in (10, 20, 30, 40):
        report(world, steps=steps)
        world.now += 15
    world.turn(ev.Tick())
    world.settle()
    assert conditions(world)["Checkpointing"] == ("False", "NoCheckpoint")


def test_an_annotation_is_a_report():
    world = running()
    world.change_pod("a-worker-0", report='{"steps": 7, "loss": 0.5}')
    world.settle()
    assert world.status().report.steps == 7
    world.change_pod("a-worker-0", report='{"steps": NaN}')
    world.settle()
    assert conditions(world)["Reporting"] == ("False", "ReportInvalid")


def test_an_annotation_that_stood_there_before_is_no_news_to_a_new_leader():
    world = running()
    world.change_pod("a-worker-0", report='{"steps": 7}')
    world.settle()
    report(world, steps=50)
    told = world.status().report
    world.die()
    world.now += 100
    world.settle()
    assert world.status().report == told, "neither its steps nor its time is another"
    world.change_pod("a-worker-0", report='{"steps": 60}')
    world.settle()
    assert world.status().report.steps == 60


def test_an_annotation_that_came_while_nobody_led_is_news_where_nothing_is_known():
    world = running()
    world.die()
    world.change_pod("a-worker-0", report='{"steps": 7}')
    world.settle()
    assert world.status().report.steps == 7


def test_what_it_reports_of_its_speed_is_learned_by_the_way_it_runs():
    world = running(gpu_milli=1000, maximum=2)
    for _ in range(3):
        report(world, samples_per_s=100.0)
    speed = world.core.state.jobs["default/a"].speeds.speed(1)
    assert speed is not None
    assert speed.samples_per_s((2,), 1, "") == pytest.approx(100.0, rel=0.01)
