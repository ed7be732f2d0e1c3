"""What follows from where a pod is: each row of the table, and its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core import members
from services.jobs.core.following import TABLE, Goes
from shared.kube.training.worker_pods import LOST_S
from shared.model.controllers.training_job import JobPhase, PodState, WorkerPod
from tests.unit.services.jobs.jobs_world import EPOCH, SETTINGS, World, a_job, conditions, running

QUICK = replace(SETTINGS, start_timeout_s=60.0, decide_every_s=5.0)
S = PodState


def passes(world: World, seconds: float) -> None:
    end = world.now + seconds
    while world.now < end:
        world.now += 5
        world.turn(ev.Tick())
        world.settle(rounds=10)


def message(world: World, key: str = "default/a") -> str:
    return world.status(key).conditions[0].message


def made_anew(world: World, before: dict[str, WorkerPod]) -> set[str]:
    return {name for name, pod in world.pods.items() if name not in before or before[name].uid != pod.uid}


def test_each_state_has_its_row():
    assert set(TABLE) == set(PodState)
    assert {state for state, row in TABLE.items() if row.fills} == {S.WAITING, S.STARTING, S.STUCK, S.RUNNING}
    assert {state for state, row in TABLE.items() if row.fails} == {S.FAILED}
    assert {state: row.goes for state, row in TABLE.items() if row.goes is not Goes.NOT} == {
        S.FAILED: Goes.NEXT_ATTEMPT, S.DISRUPTED: Goes.AT_ONCE,
    }  # fmt: skip
    assert {state for state, row in TABLE.items() if row.elsewhere} == {S.LOST}
    assert {state: row.patience for state, row in TABLE.items() if row.patience} == {
        S.WAITING: 1.0, S.STUCK: 1.0, S.STARTING: 3.0,
    }  # fmt: skip


# --- Stuck, Starting ------------------------------------------------------------------------------------------------


def stuck(state: PodState, **more: Any) -> World:
    """A job whose second worker gets a node and does not begin there, and one that waits for its GPUs."""
    world = World(settings=QUICK, nodes=1)
    world.become["a-worker-1"] = state
    world.put_job(a_job(gpu_milli=2000, maximum=2, **more))
    world.settle(rounds=10)
    if "a-worker-1" in world.pods:
        world.change_pod("a-worker-1", cause="ImagePullBackOff", message="container train: no such image")
    world.put_job(a_job("b", gpu_milli=2000, maximum=2, created=EPOCH + 1))
    world.settle(rounds=10)
    return world


def test_a_worker_that_cannot_pull_its_image_is_told_at_once_and_gives_its_gpus_back():
    world = stuck(S.STUCK)
    assert (world.phase(), conditions(world)["Ready"]) == (JobPhase.STARTING, ("False", "ImagePullBackOff"))
    assert "a-worker-1 on n0" in message(world)
    assert "no such image" in message(world)
    passes(world, 70)
    assert (world.phase(), world.status().target, world.status().failures) == (JobPhase.PENDING, 0, 0)
    assert conditions(world)["Ready"] == ("False", "ImagePullBackOff")
    assert "no such image" in message(world)
    assert "given back until" in message(world)
    assert world.phase("default/b") is JobPhase.RUNNING


def test_the_cause_stays_told_when_somebody_else_leads():
    world = stuck(S.STUCK)
    passes(world, 70)
    said = message(world)
    world.die()
    passes(world, 20)
    assert (conditions(world)["Ready"][1], message(world)) == ("ImagePullBackOff", said)


def test_an_image_that_takes_its_time_has_more_of_it_and_a_users_step_before_has_any():
    world = stuck(S.STARTING)
    passes(world, 100)
    assert world.phase() is JobPhase.STARTING
    passes(world, 100)
    assert (world.phase(), world.status().target) == (JobPhase.PENDING, 0)
    world = stuck(S.STARTING)
    world.change_pod("a-worker-1", cause="PodInitializing", message="init container fetch runs")
    passes(world, 600)
    assert world.phase() is JobPhase.STARTING
    assert "init container fetch runs" in message(world)


def test_growth_that_is_stuck_is_given_back_and_the_job_runs_on():
    world = World(settings=QUICK, nodes=1)
    world.become = dict.fromkeys(("a-worker-2", "a-worker-3"), S.STUCK)
    world.put_job(a_job(gpu_milli=1000, requested=4))
    world.settle()
    assert (world.phase(), world.status().target, world.status().running) == (JobPhase.RESHAPING, 4, 2)
    passes(world, 70)
    assert (world.status().target, world.phase(), sorted(world.pods)) == (
        2,
        JobPhase.RUNNING,
        ["a-worker-0", "a-worker-1"],
    )


def test_what_nobody_can_start_never_stops_a_job_without_a_checkpoint_that_runs():
    for checkpoint, target in (("", 2), ("/ckpt", 0)):
        world = World(settings=QUICK, nodes=1)
        world.put_job(a_job(gpu_milli=1000, maximum=2, checkpoint=checkpoint))
        world.settle()
        world.become["a-worker-1"] = S.STUCK
        world.remove_pod("a-worker-1")
        passes(world, 90)
        assert world.status().target == target, checkpoint


# --- Succeeded, Failed ----------------------------------------------------------------------------------------------


def test_a_sidecar_that_outlives_the_training_neither_keeps_the_job_running_nor_its_gpus():
    for state, phase in ((S.SUCCEEDED, JobPhase.SUCCEEDED), (S.FAILED, JobPhase.FAILED)):
        world = running(gpu_milli=1000, backoff_limit=0)
        for pod in world.running(world.jobs["default/a"]):
            world.change_pod(pod.name, state=state, holds=True)
        world.settle()
        assert world.phase() is phase
        assert not any(pod.holds for pod in world.pods.values()), "a sidecar alone holds no GPU"


def test_a_failed_attempt_with_sidecars_is_tried_again():
    world = running(gpu_milli=1000)
    for pod in world.running(world.jobs["default/a"]):
        world.change_pod(pod.name, state=S.FAILED, holds=True)
    world.settle()
    assert (world.phase(), world.status().failures, world.status().attempt) == (JobPhase.RUNNING, 1, 1)


# --- Disrupted ------------------------------------------------------------------------------------------------------


def test_a_worker_that_a_kubelet_refuses_again_and_again_is_made_ever_more_rarely_and_it_is_told():
    world = running(settings=replace(SETTINGS, retry_first_s=10.0, retry_most_s=100.0), gpu_milli=1000, maximum=2)
    world.become["a-worker-1"] = S.DISRUPTED
    said = {"cause": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu", "holds": False}
    made = 0
    for _ in range(200):
        pod = world.pods.get("a-worker-1")
        if pod is not None and not pod.ended:
            made += 1
            world.change_pod("a-worker-1", state=S.DISRUPTED, node="n0", **said)
        world.now += 1.0
        world.turn(ev.Tick())
        world.settle(rounds=3, run=False)
    assert 3 <= made <= 8
    assert world.status().failures == 0
    assert conditions(world)["Ready"] == ("False", "PodRefused")
    assert "OutOfcpu" in message(world)
    world.become.clear()
    passes(world, 200)
    assert world.phase() is JobPhase.RUNNING


def test_workers_that_go_down_with_one_that_was_taken_away_fail_nothing():
    world = running(requested=3)
    world.change_pod("a-worker-1", state=S.DISRUPTED, cause="Evicted")
    world.change_pod("a-worker-2", state=S.FAILED)
    world.settle()
    assert (world.phase(), world.status().failures, world.status().running) == (JobPhase.RUNNING, 0, 3)


def test_workers_that_fail_because_the_one_they_meet_at_was_deleted_fail_nothing():
    world = running(requested=3)
    world.change_pod("a-worker-0", state=S.LEAVING, leave_by=EPOCH + world.now)
    world.settle(rounds=1, run=False)
    world.change_pod("a-worker-1", state=S.FAILED)
    world.change_pod("a-worker-2", state=S.FAILED)
    world.settle()
    assert (world.phase(), world.status().failures) == (JobPhase.RUNNING, 0)
    world.change_pod("a-worker-1", state=S.FAILED)
    world.settle()
    assert (world.phase(), world.status().failures) == (JobPhase.RUNNING, 1), "with all there it is its own fault"


def test_workers_that_fail_beside_a_node_that_is_not_heard_of_fail_nothing_and_the_node_is_told():
    world = running(requested=3)
    for name, node in (("a-worker-0", "n0"), ("a-worker-1", "n0"), ("a-worker-2", "n1")):
        world.change_pod(name, node=node)
    world.coming.append(ev.JobsNodeSeen(replace(world.nodes["n1"], ready=False, open=False)))
    passes(world, 40)
    assert "node n1 of a-worker-2 is not ready" in message(world)
    world.change_pod("a-worker-0", state=S.FAILED)
    world.settle()
    assert world.status().failures == 0


# --- Leaving, Lost --------------------------------------------------------------------------------------------------


def lost_worker(name: str, **more: Any) -> World:
    world = running(settings=QUICK, gpu_milli=1000, maximum=2, **more)
    world.stay.add(name)
    world.change_pod(name, state=S.LEAVING, leave_by=EPOCH - 100.0 + world.now + 30.0)
    world.settle(rounds=5)
    return world


def test_a_worker_on_its_way_out_is_waited_for_under_its_name():
    world = lost_worker("a-worker-1", requested=2)
    passes(world, 30 + LOST_S - 10)
    assert sorted(world.pods) == ["a-worker-0", "a-worker-1"]


def test_a_worker_that_takes_long_to_leave_is_nothing_that_does_not_fit():
    world = lost_worker("a-worker-1", requested=2, checkpoint="/c")
    world.change_pod("a-worker-1", leave_by=EPOCH + world.now + 3600.0)
    passes(world, 300)
    assert (world.phase(), world.status().target) == (JobPhase.RESTARTING, 2)
    world.stay.clear()
    passes(world, 20)
    assert (world.phase(), world.status().unplaced) == (JobPhase.RUNNING, 0)


def test_a_worker_that_is_lost_is_replaced_under_another_name_and_told():
    world = lost_worker("a-worker-1", requested=2)
    world.unfit.add("a-worker-2")
    passes(world, 30 + LOST_S + 40)
    assert sorted(world.pods) == ["a-worker-0", "a-worker-1", "a-worker-2"]
    assert conditions(world)["Ready"][1] == "PodLost"
    assert "delete Node n0 if it is no more" in message(world)
    world.unfit.clear()
    passes(world, 10)
    assert (world.phase(), world.status().running, world.status().failures) == (JobPhase.RUNNING, 2, 0)
    world.stay.clear()  # the node came back
    passes(world, 60)
    assert (world.phase(), sorted(world.pods)) == (JobPhase.RUNNING, ["a-worker-0", "a-worker-2"])


def test_where_the_worker_is_lost_that_all_meet_at_they_meet_elsewhere():
    world = lost_worker("a-worker-0", requested=2, checkpoint="/c")
    before = dict(world.pods)
    passes(world, 30 + LOST_S + 60)
    assert world.status().rendezvous == 1
    assert made_anew(world, before) == {"a-worker-1", "a-worker-2"}, "all of them know where"
    assert (world.phase(), world.status().failures) == (JobPhase.RUNNING, 0)
    world.die()
    world.settle()
    assert (world.status().rendezvous, world.phase()) == (1, JobPhase.RUNNING)
    world.stay.clear()  # the node came back
    world.put_job(replace(world.jobs["default/a"], port=29_500))
    before = world.status().restarts
    passes(world, 60)
    assert (world.status().rendezvous, world.status().restarts - before) == (1, 1), "made anew once, and where they met"
    world.put_job(replace(world.jobs["default/a"], paused=True))
    passes(world, 30)
    assert (world.status().rendezvous, world.phase()) == (0, JobPhase.PAUSED)


def test_a_job_that_is_paused_is_paused_though_a_pod_of_it_is_lost():
    world = lost_worker("a-worker-1", requested=2)
    world.put_job(replace(world.jobs["default/a"], paused=True))
    passes(world, 30 + LOST_S + 40)
    assert world.phase() is JobPhase.PAUSED
    world.put_job(replace(world.jobs["default/a"], paused=False))
    passes(world, 10)
    assert (world.phase(), sorted(world.pods)) == (JobPhase.RUNNING, ["a-worker-0", "a-worker-1", "a-worker-2"])


def test_switched_off_a_lost_worker_is_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(TABLE, S.LOST, TABLE[S.LEAVING])  # type: ignore[arg-type]
    world = lost_worker("a-worker-1", requested=2, checkpoint="")
    passes(world, 300)
    assert (world.phase(), sorted(world.pods)) == (JobPhase.RESTARTING, ["a-worker-0", "a-worker-1"])


# --- the spec a pod was made of -------------------------------------------------------------------------------------


def alike(world: World) -> bool:
    return len({(pod.made_of, pod.bounds) for pod in world.pods.values()}) == 1


@pytest.mark.parametrize(
    "change",
    [{"port": 29_500}, {"processes": 8}, {"template": {"spec": {"containers": [{"name": "train", "image": "v2"}]}}}],
)
def test_a_spec_that_sets_workers_apart_makes_all_of_them_anew_in_one_restart(change: dict[str, Any]):
    world = running(checkpoint="/c", requested=3)
    before = dict(world.pods)
    world.put_job(replace(world.jobs["default/a"], **change))
    world.settle()
    assert made_anew(world, before) == {"a-worker-0", "a-worker-1", "a-worker-2"}
    assert alike(world)
    assert (world.phase(), world.status().restarts, world.status().failures) == (JobPhase.RUNNING, 1, 0)


def test_without_a_checkpoint_it_runs_on_as_it_was_made_and_says_so():
    world = running(requested=3)
    before = dict(world.pods)
    world.put_job(replace(world.jobs["default/a"], port=29_500))
    world.settle()
    assert (made_anew(world, before), world.phase()) == (set(), JobPhase.RUNNING)
    assert "its spec has changed" in message(world)
    world.remove_pod("a-worker-2")
    world.settle()
    assert (world.phase(), alike(world)) == (JobPhase.RUNNING, True), (
        "where one is to be made, all are: unlike they never meet"
    )
    assert "its spec has changed" not in message(world)


def test_other_bounds_wait_until_a_worker_is_made_beside_those_that_stand():
    world = running(checkpoint="/c", requested=2, maximum=2)
    before = dict(world.pods)
    world.put_job(replace(world.jobs["default/a"], maximum=8))
    world.settle()
    assert made_anew(world, before) == set()
    world.put_job(replace(world.jobs["default/a"], requested=4))
    world.settle()
    assert (alike(world), world.status().running, world.status().restarts) == (True, 4, 1)
    assert {pod.bounds for pod in world.pods.values()} == {"2:8"}
    before = dict(world.pods)
    world.put_job(replace(world.jobs["default/a"], maximum=3, requested=3))
    world.settle()
    assert (made_anew(world, before), world.status().running, alike(world)) == (set(), 3, True)
    assert world.broken == []


def test_a_raised_minimum_makes_the_group_anew_with_the_workers():
    world = running(checkpoint="/c", requested=2)
    group = world.made["PodGroup", "a"]
    world.put_job(replace(world.jobs["default/a"], minimum=3, requested=3))
    world.settle()
    assert (world.made["PodGroup", "a"].minimum, alike(world), world.status().running) == (3, True, 3)
    assert group.uid


def test_switched_off_workers_of_unlike_specs_stand_side_by_side(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(members, "outdated", lambda *_: [])
    world = running(checkpoint="/c", requested=2)
    world.put_job(replace(world.jobs["default/a"], requested=3, port=1))
    world.settle()
    assert not alike(world)


def test_a_spec_that_changes_again_amid_the_restart_holds():
    world = running(checkpoint="/c", requested=3)
    for port in (1, 2, 3):
        world.put_job(replace(world.jobs["default/a"], port=port))
        world.settle(rounds=2)
    world.die()
    world.settle()
    assert (world.phase(), alike(world), len(world.pods)) == (JobPhase.RUNNING, True, 3)


# --- names ----------------------------------------------------------------------------------------------------------


def test_a_name_that_is_somebody_elses_is_told_and_taken_when_it_is_free():
    for owner in ("", "uid-of-a-former-job"):
        world = World()
        stranger = WorkerPod("s", "default", "a-worker-1", S.RUNNING, "n0", job=owner)
        world.pods["a-worker-1"] = stranger
        world.coming.append(ev.JobsPodSeen(stranger))
        world.put_job(a_job())
        passes(world, 100)
        assert conditions(world)["Ready"] == ("False", "WriteRefused")
        assert "Pod default/a-worker-1 is there and not this job's; delete it" in message(world)
        world.remove_pod("a-worker-1")
        world.settle()
        assert world.phase() is JobPhase.RUNNING


def test_a_name_that_is_taken_and_that_no_watch_shows_is_told():
    world = World()
    world.pods["a-worker-1"] = WorkerPod("s", "default", "a-worker-1", S.RUNNING, "n0")
    world.put_job(a_job())
    passes(world, 60)
    assert conditions(world)["Ready"] == ("False", "WriteRefused")
    assert "no watch shows it" in message(world)
    del world.pods["a-worker-1"]
    passes(world, 100)
    assert world.phase() is JobPhase.RUNNING


# --- Waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["QueueQuota", "SchedulingGated", "QueueUnusable"])
def test_what_a_scheduler_says_of_a_worker_is_the_jobs_reason(cause: str):
    world = World(settings=QUICK, nodes=1)
    world.unfit = {"a-worker-0", "a-worker-1"}
    world.put_job(a_job(gpu_milli=1000, maximum=2))
    world.settle(rounds=10)
    world.change_pod("a-worker-1", cause=cause, message="queue research: cpu 80 of maximum 80 is used")
    world.settle(rounds=10)
    assert conditions(world)["Ready"] == ("False", cause)
    assert "cpu 80 of maximum 80" in message(world)
    passes(world, 70)
    assert conditions(world)["Ready"] == ("False", cause), "not DoesNotFit: no node would have helped"


def test_what_the_nodes_lack_is_told_in_the_schedulers_words():
    world = World(settings=QUICK, nodes=1)
    world.unfit = {"a-worker-0", "a-worker-1"}
    world.put_job(a_job(gpu_milli=1000, maximum=2))
    world.settle(rounds=10)
    world.change_pod("a-worker-0", cause="Unschedulable", message="0/1 nodes are available: 1 Insufficient cpu")
    world.settle(rounds=10)
    assert conditions(world)["Ready"] == ("False", "Starting")
    assert "Insufficient cpu" in message(world)
    passes(world, 70)
    assert conditions(world)["Ready"] == ("False", "DoesNotFit")
    assert "Insufficient cpu" in message(world)
