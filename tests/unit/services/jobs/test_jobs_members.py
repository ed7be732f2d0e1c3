"""Pods, groups and Services: which are made, which go and which stay."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core.instructions import CreateObject
from services.jobs.core.members import GROUP, SERVICE
from shared.jobs.observation import JobAllocation, JobsObservation
from shared.model.controllers.training_job import WORKER, JobPhase, MadeObject, PodState, WorkerPod
from tests.unit.services.jobs.jobs_world import EPOCH, SETTINGS, World, a_job, conditions, running

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def test_a_job_becomes_a_service_a_group_with_its_minimum_and_workers():
    world = running(requested=3)
    assert sorted(world.pods) == ["a-worker-0", "a-worker-1", "a-worker-2"]
    assert {kind for kind, _ in world.made} == {"PodGroup", "Service"}
    assert world.made["PodGroup", "a"].minimum == 2
    assert (world.phase(), world.status().running, world.status().target) == (JobPhase.RUNNING, 3, 3)
    assert conditions(world)["Ready"] == ("True", "Running")


def test_a_decision_is_in_the_status_before_anything_is_made_for_it():
    world = World()
    world.put_job(a_job())
    world.deliver()
    assert [type(write).__name__ for _, write in world.sent] == ["WriteStatus"]
    world.arrive()
    assert world.sent == []
    world.deliver()
    assert {type(write).__name__ for _, write in world.sent} == {"CreateObject", "WriteStatus"} - {"WriteStatus"} | {
        "CreateObject"
    }


def test_parameter_servers_count_in_the_group_and_go_when_the_workers_have_ended():
    template = {"spec": {"containers": [{"name": "ps", "image": "ps"}]}}
    world = running(ps=1, ps_template=template)
    assert world.made["PodGroup", "a"].minimum == 3
    assert "a-ps-0" in world.pods
    world.end_workers(world.jobs["default/a"])
    world.settle()
    assert world.phase() is JobPhase.SUCCEEDED
    assert sorted(world.pods) == ["a-worker-0", "a-worker-1"], "what has ended stays for its log"
    assert ("PodGroup", "a") not in world.made


def test_workers_are_added_and_taken_away_while_it_runs():
    world = running()
    for wanted in (4, 2):
        world.put_job(replace(world.jobs["default/a"], requested=wanted))
        world.settle()
        assert len(world.running(world.jobs["default/a"])) == wanted
    assert world.status().restarts == 2
    assert world.broken == []


def test_a_raised_minimum_reaches_the_group():
    world = running()
    world.put_job(replace(world.jobs["default/a"], minimum=3, requested=3))
    world.settle()
    assert world.made["PodGroup", "a"].minimum == 3
    assert world.status().target == 3


def test_nothing_is_reshaped_once_a_worker_has_succeeded():
    world = running(requested=3)
    world.change_pod("a-worker-1", state=PodState.SUCCEEDED)
    world.put_job(replace(world.jobs["default/a"], paused=True))
    world.settle()
    assert len(world.pods) == 3
    world.end_workers(world.jobs["default/a"])
    world.settle()
    assert world.phase() is JobPhase.SUCCEEDED


def test_the_first_worker_stays_and_those_that_run_before_those_that_wait():
    world = World(nodes=1)
    world.nodes["n0"] = replace(world.nodes["n0"], gpu_milli=3000)
    world.put_job(a_job(requested=3, gpu_milli=1000, minimum=2))
    world.settle()
    # worker 1 is lost, and a stranger takes its place: it waits while 0 and 2 run
    world.change_pod("a-worker-1", state=PodState.DISRUPTED)
    world.nodes["n0"] = replace(world.nodes["n0"], gpu_milli=2000)
    world.coming.append(ev.JobsNodeSeen(world.nodes["n0"]))
    world.put_job(replace(world.jobs["default/a"], maximum=2, requested=2))
    world.settle()
    assert sorted(world.pods) == ["a-worker-0", "a-worker-2"]
    assert world.broken == []


@pytest.mark.parametrize("kind", [GROUP, SERVICE])
def test_beside_a_group_or_service_of_somebody_else_no_pod_is_made_and_it_is_told(kind: str):
    world = World()
    world.made[kind, "a"] = MadeObject(kind, "default", "a", "theirs")
    world.coming.append(ev.MadeSeen(world.made[kind, "a"]))
    world.put_job(a_job())
    world.settle()
    assert conditions(world)["Ready"] == ("False", "WriteRefused")
    assert world.pods == {}


@pytest.mark.parametrize("kind", [GROUP, SERVICE])
def test_it_is_tried_at_once_when_the_name_is_free_though_its_gpus_were_given_back(kind: str):
    world = World(settings=replace(SETTINGS, start_timeout_s=60.0, decide_every_s=5.0))
    world.made[kind, "a"] = MadeObject(kind, "default", "a", "theirs")
    world.coming.append(ev.MadeSeen(world.made[kind, "a"]))
    world.put_job(a_job(gpu_milli=1000))
    for _ in range(100):
        world.now += 5
        world.turn(ev.Tick())
        world.settle(rounds=10)
        if world.status().unplaced >= 2 and not world.status().target:
            break
    assert conditions(world)["Ready"] == ("False", "WriteRefused")
    assert world.status().retry_at > world.now + EPOCH - 100.0 + 60
    del world.made[kind, "a"]
    world.coming.append(ev.MadeGone(kind, "default/a"))
    world.settle(rounds=50)
    world.now += 5
    world.turn(ev.Tick())
    world.settle(rounds=50)
    assert (world.phase(), world.status().unplaced) == (JobPhase.RUNNING, 0)


def test_a_job_made_anew_under_its_name_waits_for_the_old_pods_to_go():
    world = running()
    old = world.jobs.pop("default/a")
    world.coming.append(ev.JobGone(old.key))
    world.put_job(replace(a_job(), uid="uid-new"))
    world.settle(run=False)
    assert {pod.job for pod in world.pods.values()} == {"uid-a"}
    for name in list(world.pods):  # the garbage collector
        world.remove_pod(name)
    for kind, name in list(world.made):
        del world.made[kind, name]
        world.coming.append(ev.MadeGone(kind, f"default/{name}"))
    world.settle(rounds=200)
    assert {pod.job for pod in world.pods.values()} == {"uid-new"}
    assert all(pod.role == WORKER for pod in world.pods.values())
    assert world.phase() is JobPhase.RUNNING


def test_a_pod_of_another_namespace_is_nobodys_worker_whatever_owner_it_names():
    world = running()
    for number, state in enumerate((PodState.SUCCEEDED, PodState.FAILED)):
        foreign = WorkerPod(f"f{number}", "theirs", "x", state, job="uid-a", role=WORKER, report='{"steps": 9}')
        world.coming.append(ev.JobsPodSeen(foreign))
    world.settle()
    assert (world.phase(), world.status().running, world.status().failures) == (JobPhase.RUNNING, 2, 0)
    assert world.status().report.steps is None
    world.put_job(replace(world.jobs["default/a"], requested=3))
    world.settle()
    assert world.status().target == 3, "it is reshaped as before"


def test_each_worker_that_is_made_prefers_its_own_part_of_the_placement():
    class Spread:
        name = "spread"

        def reset(self, seed: int) -> None:
            pass

        def decide(self, seen: JobsObservation) -> dict[str, JobAllocation]:
            return {job.name: JobAllocation(workers=4, placement={"n1": 2, "n0": 2}) for job in seen.jobs}

    world = World(policy=Spread())
    world.put_job(a_job(gpu_milli=1000))
    preferred: dict[str, str] = {}
    for _ in range(12):
        while world.sent:
            write = world.sent[0][1]
            if isinstance(write, CreateObject) and write.resource.kind == "Pod":
                (term,) = write.body["spec"]["affinity"]["nodeAffinity"][PREFERRED]
                (preferred[write.name],) = term["preference"]["matchExpressions"][0]["values"]
            world.arrive()
        world.deliver()
        if len(preferred) == 4 and "a-worker-1" in world.pods:
            break
    assert sorted(preferred.values()) == ["n0", "n0", "n1", "n1"]
    for name, node in preferred.items():
        world.change_pod(name, state=PodState.RUNNING, node=node)
    world.remove_pod("a-worker-3")
    lost = preferred.pop("a-worker-3")
    world.deliver()
    (write,) = [write for _, write in world.sent if isinstance(write, CreateObject)]
    (term,) = write.body["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert term["preference"]["matchExpressions"][0]["values"] == [lost]
