"""Nothing is taken from a job that runs for one whose pods the API server does not make."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core import observing
from services.jobs.core.unplaced import REFUSED_S
from shared.model.controllers.training_job import JobPhase, MadeObject, WorkerPod
from tests.unit.services.jobs.jobs_world import EPOCH, SETTINGS, World, a_job, conditions

NO_CLASS = 'Pod b-worker-0: pods "b-worker-0" is forbidden: no PriorityClass with name nosuch was found'
QUOTA = 'pods "b-worker-0" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=4, limited: pods=4'


def contended(forbidden: dict[str, str], **more: object) -> World:
    """``a`` has all four GPUs, two above its minimum; then ``b`` comes, of which pods are forbidden."""
    world = World(nodes=1, settings=replace(SETTINGS, decide_every_s=5.0))
    world.put_job(a_job(gpu_milli=1000, requested=4, checkpoint="/c"))
    world.settle()
    world.now += 1000.0  # it has rested since it grew
    assert world.status().running == 4
    world.forbidden = forbidden
    world.put_job(a_job("b", gpu_milli=1000, created=EPOCH + 1, checkpoint="/c", **more))
    world.settle(rounds=20)
    return world


def pass_time(world: World, seconds: float) -> None:
    end = world.now + seconds
    while world.now < end:
        world.now += 5.0
        world.turn(ev.Tick())
        world.settle(rounds=8)


def test_a_job_whose_pods_are_refused_takes_nothing_and_says_why():
    world = contended({"b-worker-0": NO_CLASS})
    assert (world.status().running, world.status().restarts, world.phase("default/b")) == (4, 0, JobPhase.PENDING)
    assert conditions(world, "default/b")["Ready"] == ("False", "WriteRefused")
    assert "no PriorityClass with name nosuch" in world.status("default/b").conditions[0].message
    assert not any(pod.job == "uid-b" for pod in world.pods.values())
    world.forbidden = {}
    pass_time(world, 70.0)
    assert (world.phase("default/b"), world.status().target) == (JobPhase.RUNNING, 2)
    assert world.broken == []


def test_switched_off_the_job_that_runs_is_stopped_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(observing, "gpus_may_move", lambda state: False)
    world = contended({"b-worker-0": NO_CLASS, "b-worker-1": NO_CLASS})
    assert (world.status().target, world.status("default/b").target) == (2, 2)


def test_parameter_servers_are_asked_about_too_and_a_new_spec_at_once():
    template = {"spec": {"containers": [{"name": "ps", "image": "ps"}]}}
    world = contended({"b-ps-0": NO_CLASS}, ps=1, ps_template=template)
    assert (world.status().target, world.phase("default/b")) == (4, JobPhase.PENDING)
    world.put_job(replace(world.jobs["default/b"], ps=0, ps_template={}))
    world.settle(rounds=12)
    assert world.status("default/b").target == 2


@pytest.mark.parametrize("kind", ["Pod", "Service"])
def test_beside_a_name_that_is_somebody_elses_nothing_is_taken(kind: str):
    world = World(nodes=1, settings=replace(SETTINGS, decide_every_s=5.0))
    world.put_job(a_job(gpu_milli=1000, requested=4, checkpoint="/c"))
    if kind == "Pod":
        world.pods["b-worker-1"] = WorkerPod("theirs", "default", "b-worker-1", created=EPOCH)
        world.unfit = {"b-worker-1"}
        world.coming.append(ev.JobsPodSeen(world.pods["b-worker-1"]))
    else:
        world.made["Service", "b"] = MadeObject("Service", "default", "b", "theirs", "")
        world.coming.append(ev.MadeSeen(world.made["Service", "b"]))
    world.settle()
    world.now += 1000.0
    world.put_job(a_job("b", gpu_milli=1000, created=EPOCH + 1))
    world.settle(rounds=20)
    assert (world.status().target, conditions(world, "default/b")["Ready"]) == (4, ("False", "WriteRefused"))
    if kind == "Pod":
        world.remove_pod("b-worker-1")
        world.unfit.clear()
    else:
        del world.made["Service", "b"]
        world.coming.append(ev.MadeGone("Service", "default/b"))
    pass_time(world, 70.0)
    assert (world.phase("default/b"), world.status().target) == (JobPhase.RUNNING, 2)


def test_a_quota_that_jobs_of_the_namespace_hold_may_come_free_by_the_decision():
    world = contended({"b-worker-0": QUOTA})
    assert (world.status().target, world.status("default/b").target) == (2, 2)
    world.forbidden = {}
    pass_time(world, 70.0)
    assert (world.phase(), world.phase("default/b")) == (JobPhase.RUNNING, JobPhase.RUNNING)


def test_what_is_refused_after_all_is_given_back_within_the_minute_that_a_quota_may_take():
    world = contended({"b-worker-1": QUOTA})
    assert (world.status().target, world.status("default/b").target) == (2, 2)
    pass_time(world, REFUSED_S + 45.0)
    assert world.status("default/b").target == 0
    assert "exceeded quota" in world.status("default/b").conditions[0].message
