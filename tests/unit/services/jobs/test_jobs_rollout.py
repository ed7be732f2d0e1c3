"""A policy that is rolled out beside the settings': shadow, canary, active, and back by itself."""

from __future__ import annotations

from math import inf, isfinite

import pytest

from services.jobs.core import events as ev
from services.jobs.core.instructions import WriteRollout
from services.jobs.io.rollouts import ROLLOUT
from shared.decide.canary import in_canary
from shared.decide.judging import Judge
from shared.decide.rollout import Rollout
from shared.decide.stages import Stage
from shared.errors import ConfigError
from shared.jobs.domain import JOBS
from shared.jobs.guard import JobsGuard
from shared.jobs.observation import JobAllocation, JobsObservation
from shared.jobs.online.learned import Way
from shared.jobs.policies.elastic import Elastic
from shared.model.controllers.training_job import JobPhase
from tests.unit.services.jobs.jobs_world import EPOCH, World, a_job


class Tight:
    """As few workers for everybody as may be."""

    name = "tight"

    def reset(self, seed: int) -> None: ...

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        return {job.name: JobAllocation(workers=job.minimum) for job in seen.jobs}


class Broken(Tight):
    """It fails."""

    name = "broken"

    def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
        raise ZeroDivisionError("no jobs")


def make(name: str) -> JobsGuard:
    if name == "missing":
        raise ConfigError("policy: missing needs torch, which is not installed here; choose another")
    if name == "corrupt":
        raise ValueError("not a zip file")
    return JobsGuard({"tight": Tight, "broken": Broken, "same": Elastic}[name]())


def world_with(stage: Stage, candidate: str = "tight", *, jobs: int = 1, percent: int = 10, **judge: float) -> World:
    """Jobs that run as the settings' policy gives them, then a candidate."""
    world = World(nodes=jobs)
    world.make = make
    world.judge = lambda: Judge(JOBS, **judge)
    world.die()  # a leader that knows how to make them
    for number in range(jobs):
        world.put_job(a_job(f"j{number}", gpu_milli=1000, created=EPOCH + number, requested=4, checkpoint="/ckpt"))
    world.settle()
    follow(world, Rollout(stage=stage, candidate=candidate, percent=percent, since=stage.value))
    return world


def follow(world: World, rollout: Rollout, revision: int = 7) -> None:
    world.turn(ev.RolloutSeen(rollout, revision))


def decides(world: World, times: int = 1) -> None:
    for _ in range(times):
        world.now += 100
        world.core._decide_at = world.now
        world.turn(ev.Tick())
        world.settle(rounds=3)


def written(world: World) -> list[WriteRollout]:
    return [one for one in world.told if isinstance(one, WriteRollout)]


@pytest.mark.parametrize("stage", [Stage.CANDIDATE, Stage.SHADOW])
def test_before_the_canary_nothing_is_done_for_it(stage: Stage):
    world = world_with(stage, most_worse=inf)
    decides(world, 3)
    assert (world.status("default/j0").target, world.phase("default/j0")) == (4, JobPhase.RUNNING)
    assert world.core.deciding.pair.judge.window.short > 0, "and it is compared"


def test_active_it_decides_for_all():
    world = world_with(Stage.ACTIVE, most_worse=inf)
    decides(world, 2)
    assert world.status("default/j0").target == 2


def test_in_the_canary_it_decides_for_its_share_of_the_jobs():
    world = world_with(Stage.CANARY, jobs=12, percent=40, most_worse=inf)
    decides(world, 2)
    lane = {key for key, job in world.jobs.items() if in_canary(job.uid, "tight", 40)}
    assert 0 < len(lane) < 12
    assert {key for key, job in world.jobs.items() if job.status.target == 2} == lane


@pytest.mark.parametrize("stage", [Stage.SHADOW, Stage.CANARY, Stage.ACTIVE])
def test_one_that_is_worse_goes_back_by_itself_and_what_it_decided_is_mended(stage: Stage):
    world = world_with(stage, percent=100)
    decides(world, 12)
    (back,) = written(world)
    assert (back.rollout.stage, back.rollout.candidate, back.revision) == (Stage.NONE, "tight", 7)
    assert "worse than its teacher" in back.rollout.reason
    assert world.core.stats.rollouts_back == 1
    assert world.status("default/j0").target == 4


def test_with_the_safeguard_switched_off_it_stays():
    world = world_with(Stage.ACTIVE, most_worse=inf)
    decides(world, 12)
    assert world.core.deciding.pair.rollout.on
    assert world.status("default/j0").target == 2


def test_one_that_fails_again_and_again_goes_back_and_no_job_is_touched():
    world = world_with(Stage.ACTIVE, "broken")
    decides(world, 4)
    (back,) = written(world)
    assert back.rollout.reason.startswith("it failed: broken: ZeroDivisionError")
    assert (world.status("default/j0").target, world.status("default/j0").restarts) == (4, 0)


@pytest.mark.parametrize(("name", "told"), [("missing", "needs torch"), ("corrupt", "ValueError: not a zip file")])
def test_one_that_cannot_be_had_here_goes_back_and_says_why(name: str, told: str):
    world = world_with(Stage.SHADOW, name)
    decides(world)
    assert told in written(world)[0].rollout.reason


def test_a_good_window_is_written_and_judging_goes_on():
    world = world_with(Stage.SHADOW, "same", length_s=300.0)
    decides(world, 5)
    told = written(world)[0].rollout
    assert (told.stage, told.good, told.ratio) == (Stage.SHADOW, 1, 1.0)
    follow(world, told, 8)
    assert world.core.deciding.pair.judge.window.ratio == (1.0, 0.0)
    assert world.core.deciding.pair.revision == 8


def test_a_new_leader_goes_on_with_the_candidate_as_etcd_says():
    world = world_with(Stage.ACTIVE, most_worse=inf)
    decides(world, 2)
    world.die()
    world.settle()
    assert world.core.deciding.pair.candidate is None, "until the record was read"
    follow(world, Rollout(stage=Stage.ACTIVE, candidate="tight", since="active"))
    decides(world, 2)
    assert world.status("default/j0").target == 2


def test_figures_of_a_window_that_come_to_etcd_first_do_not_bring_back_what_went_back():
    """The write of a good window and that of going back compare the same revision: only one of them holds."""
    world = world_with(Stage.ACTIVE, percent=100)
    decides(world, 12)
    (back,) = written(world)
    follow(world, Rollout(stage=Stage.ACTIVE, candidate="tight", since="active", good=1), 8)
    again = written(world)[-1]
    assert (again.rollout, again.revision) == (back.rollout, 8)
    decides(world, 2)
    assert world.status("default/j0").target == 4
    follow(world, Rollout(stage=Stage.SHADOW, candidate="tight", since="later"), 9)
    assert world.core.deciding.pair.rollout.on, "who sets it again is heard"


def test_a_new_leader_decides_nothing_before_it_has_read_the_record():
    world = world_with(Stage.ACTIVE, most_worse=inf)
    decides(world, 2)
    world.die()
    world.core.missing.add(ROLLOUT)
    world.settle()
    assert world.status("default/j0").target == 2, "the policy of the settings would have made it 4"
    follow(world, Rollout(stage=Stage.ACTIVE, candidate="tight", since="active"))
    world.turn(ev.JobsListed(ROLLOUT))
    decides(world, 2)
    assert (world.status("default/j0").target, world.status("default/j0").restarts) == (2, 1)


def test_a_job_whose_speeds_cannot_be_compared_stops_no_decision():
    world = world_with(Stage.SHADOW, most_worse=inf)
    for workers, speed in ((1, 1e-300), (2, 1e9)):
        world.core.state.jobs["default/j0"].speeds.add(Way(workers, 1, 1), speed)
    decides(world, 2)
    assert isfinite(world.core.deciding.pair.judge.window.short)
