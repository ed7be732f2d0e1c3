"""The jobs core, case by case: what a user asks for, and what becomes of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core.instructions import Create
from services.jobs.policies import policy_named
from shared.jobs.observation import Allocation, Observation
from shared.jobs.registry import POLICIES
from shared.jobs.reports import Said
from shared.model.training_job import WORKER, Phase, WorkerPod
from tests.unit.services.jobs.jobs_world import EPOCH, World, a_job

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def running(**more: object) -> World:
    """A world whose one job runs."""
    world = World()
    world.put_job(a_job(**more))
    world.settle()
    return world


def conditions(world: World) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in world.status().conditions}


def test_a_job_becomes_a_service_a_group_with_its_minimum_and_workers():
    world = running(requested=3)
    assert sorted(world.pods) == ["a-worker-0", "a-worker-1", "a-worker-2"]
    assert {kind for kind, _ in world.made} == {"PodGroup", "Service"}
    assert world.made["PodGroup", "a"].minimum == 2
    assert (world.phase(), world.status().running, world.status().target) == (Phase.RUNNING, 3, 3)
    assert conditions(world)["Ready"] == ("True", "Running")


def test_a_decision_is_in_the_status_before_anything_is_made_for_it():
    world = World()
    world.put_job(a_job())
    world.deliver()
    assert [type(write).__name__ for _, write in world.sent] == ["WriteStatus"]
    world.arrive()
    assert world.sent == []
    world.deliver()
    assert {type(write).__name__ for _, write in world.sent} == {"Create", "WriteStatus"} - {"WriteStatus"} | {"Create"}


def test_parameter_servers_count_in_the_group_and_go_when_the_workers_have_ended():
    template = {"spec": {"containers": [{"name": "ps", "image": "ps"}]}}
    world = running(ps=1, ps_template=template)
    assert world.made["PodGroup", "a"].minimum == 3
    assert "a-ps-0" in world.pods
    world.end_workers(world.jobs["default/a"])
    world.settle()
    assert world.phase() is Phase.SUCCEEDED
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


def test_paused_it_holds_nothing_and_resumed_it_goes_on():
    world = running()
    world.put_job(replace(world.jobs["default/a"], paused=True))
    world.settle()
    assert (world.phase(), world.pods) == (Phase.PAUSED, {})
    assert conditions(world)["Ready"] == ("False", "Paused")
    world.put_job(replace(world.jobs["default/a"], paused=False))
    world.settle()
    assert world.phase() is Phase.RUNNING
    assert world.status().restarts == 1


def test_a_failed_attempt_counts_once_and_is_tried_again():
    world = running()
    job = world.jobs["default/a"]
    world.end_workers(job, "Failed")  # all of them: the first took the rendezvous along
    world.settle()
    assert (world.phase(), world.status().failures, world.status().attempt) == (Phase.RUNNING, 1, 1)
    assert {pod.attempt for pod in world.pods.values()} == {1}


def test_it_fails_when_it_failed_too_often():
    world = running(backoff_limit=1)
    for _ in range(2):
        assert world.phase() is Phase.RUNNING
        world.end_workers(world.jobs["default/a"], "Failed")
        world.settle()
    assert world.phase() is Phase.FAILED
    assert conditions(world)["Failed"] == ("True", "BackoffLimitExceeded")


def test_an_evicted_worker_is_no_failure():
    world = running()
    world.change_pod("a-worker-1", phase="Failed", disrupted=True)
    world.settle()
    assert (world.phase(), world.status().failures) == (Phase.RUNNING, 0)


def test_nothing_is_reshaped_once_a_worker_has_succeeded():
    world = running(requested=3)
    world.change_pod("a-worker-1", phase="Succeeded")
    world.put_job(replace(world.jobs["default/a"], paused=True))
    world.settle()
    assert len(world.pods) == 3
    world.end_workers(world.jobs["default/a"])
    world.settle()
    assert world.phase() is Phase.SUCCEEDED


def test_a_job_that_is_made_invalid_stays_as_it_is():
    world = running()
    world.put_job(
        replace(world.jobs["default/a"], problem="spec.workers.minimum: 5 is more than the maximum", requested=4)
    )
    world.settle()
    assert len(world.running(world.jobs["default/a"])) == 2
    assert conditions(world)["Ready"] == ("True", "Invalid")


def test_the_first_worker_stays_and_those_that_run_before_those_that_wait():
    world = World(nodes=1)
    world.nodes["n0"] = replace(world.nodes["n0"], gpu_milli=3000)
    world.put_job(a_job(requested=3, gpu_milli=1000, minimum=2))
    world.settle()
    # worker 1 is lost, and a stranger takes its place: it waits while 0 and 2 run
    world.change_pod("a-worker-1", phase="Failed", disrupted=True)
    world.nodes["n0"] = replace(world.nodes["n0"], gpu_milli=2000)
    world.coming.append(ev.NodeSeen(world.nodes["n0"]))
    world.put_job(replace(world.jobs["default/a"], maximum=2, requested=2))
    world.settle()
    assert sorted(world.pods) == ["a-worker-0", "a-worker-2"]
    assert world.broken == []


def test_a_waiting_job_says_what_it_needs_and_what_there_is():
    world = World(nodes=1)
    world.put_job(a_job("big", gpu_milli=4000, minimum=2))
    world.settle()
    ready = world.status("default/big").conditions[0]
    assert (ready.reason, ready.message) == (
        "Waiting", "it needs 2 workers of 4 GPUs; 4 of 4 GPUs are free, 0 jobs that wait come before it",
    )  # fmt: skip


def test_a_job_that_grew_gives_back_what_another_needs_for_its_minimum():
    world = World(nodes=1)
    world.put_job(a_job("first", gpu_milli=1000, minimum=1, maximum=4, requested=4))
    world.settle()
    assert world.status("default/first").running == 4
    world.put_job(a_job("second", gpu_milli=1000, minimum=2, maximum=2, created=EPOCH + 1))
    world.settle()
    assert {key: one.status.running for key, one in world.jobs.items()} == {"default/first": 2, "default/second": 2}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_whoever_decides_jobs_of_unknown_speed_run_and_are_not_stopped(name: str):
    world = World(policy=policy_named(name, 0))
    for number in range(2):
        job = a_job(f"j{number}", gpu_milli=1000, created=EPOCH + number, requested=3, checkpoint="/ckpt")
        world.put_job(job)
    world.settle()
    assert {job.status.phase for job in world.jobs.values()} == {Phase.RUNNING}
    assert world.broken == []
    assert world.core.policy_problem == ""


class Broken:
    """A policy that raises."""

    name = "broken"

    def reset(self, seed: int) -> None: ...

    def decide(self, seen: Observation) -> dict[str, Allocation]:
        raise ZeroDivisionError("no jobs")


def test_where_a_policy_fails_everything_stays_as_it_was_decided_last():
    world = running()
    world.core.policy = Broken()
    world.put_job(a_job("late", created=EPOCH + 5))
    world.settle()
    assert world.phase() is Phase.RUNNING
    assert world.core.stats.policy_failures >= 1
    assert "no jobs" in world.core.policy_problem
    assert world.phase("default/late") is Phase.PENDING


class Zero(Broken):
    """A policy that wants everybody to have nothing, and the impossible."""

    def decide(self, seen: Observation) -> dict[str, Allocation]:
        return {job.name: Allocation(workers=0) for job in seen.jobs} | {"nobody": Allocation(workers=9)}


def test_nobody_without_a_checkpoint_is_scaled_to_zero_by_a_policy():
    world = running()
    world.core.policy = Zero()
    world.now += 700
    world.turn(ev.Tick())
    world.settle()
    assert world.phase() is Phase.RUNNING
    assert "may not be stopped" in world.status().conditions[0].message


def test_with_a_checkpoint_it_may_be_stopped():
    world = running(checkpoint="/ckpt")
    world.core.policy = Zero()
    world.now += 700
    world.turn(ev.Tick())
    world.settle()
    assert (world.phase(), world.pods) == (Phase.PENDING, {})


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
    assert world.phase() is Phase.RUNNING


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


def test_a_group_of_somebody_else_under_its_name_is_told():
    world = World()
    from shared.model.training_job import MadeObject

    world.made["PodGroup", "a"] = MadeObject("PodGroup", "default", "a", "theirs")
    world.coming.append(ev.MadeSeen(world.made["PodGroup", "a"]))
    world.put_job(a_job())
    world.settle()
    assert conditions(world)["Ready"] == ("False", "WriteRefused")


def test_gpu_time_is_counted_over_leaders():
    world = running(gpu_milli=1000, maximum=2)
    for _ in range(4):
        world.now += 25
        world.turn(ev.Tick())
        world.settle()
    before = world.status().gpu_s
    assert before > 150
    world.die()
    world.settle()
    assert world.status().gpu_s >= before


def test_somebody_elses_gang_is_a_job_of_fixed_size():
    world = World(nodes=1)
    from services.jobs.core.observing import observe
    from shared.model.training_job import WorkerPod

    for number in range(2):
        name = f"other-{number}"
        world.pods[name] = WorkerPod(name, "default", name, "Running", "n0", gpu_milli=1000, group="train")
        world.coming.append(ev.PodSeen(world.pods[name]))
    world.put_job(a_job(gpu_milli=1000, minimum=3, maximum=3, requested=3))
    world.settle()
    seen = observe(world.core.state, world.now).observation
    (other,) = (job for job in seen.jobs if job.name == "group:default/train")
    assert (other.minimum, other.maximum, other.workers, dict(other.placement)) == (2, 2, 2, {"n0": 2})
    assert world.phase() is Phase.PENDING, "two GPUs are left, and it needs three"


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
    assert world.phase() is Phase.RUNNING


def test_a_refused_worker_is_told_until_it_is_not_wanted_any_more():
    world = running()
    world.put_job(replace(world.jobs["default/a"], requested=3))
    while not any(getattr(write, "name", "") == "a-worker-2" for _, write in world.sent):
        world.deliver()
        others = [at for at, (_, write) in enumerate(world.sent) if getattr(write, "name", "") != "a-worker-2"]
        if others:
            world.arrive(others[0])
        world.now += 1
        world.turn(ev.Tick())
    at = next(at for at, (_, write) in enumerate(world.sent) if getattr(write, "name", "") == "a-worker-2")
    _, write = world.sent.pop(at)
    world.turn(ev.Wrote(write.write, ev.Outcome.REFUSED, "exceeded quota: gpus"))
    while world.sent:
        world.arrive()
    world.deliver()
    assert conditions(world)["Ready"] == ("True", "WriteRefused")
    assert "exceeded quota" in world.status().conditions[0].message
    world.put_job(replace(world.jobs["default/a"], requested=2))
    world.now += 5
    world.settle()
    assert conditions(world)["Ready"] == ("True", "Running")
    assert world.core.state.writes.waits == {}


def test_a_pod_of_another_namespace_is_nobodys_worker_whatever_owner_it_names():
    world = running()
    for number, phase in enumerate(("Succeeded", "Failed")):
        foreign = WorkerPod(f"f{number}", "theirs", "x", phase, job="uid-a", role=WORKER, report='{"steps": 9}')
        world.coming.append(ev.PodSeen(foreign))
    world.settle()
    assert (world.phase(), world.status().running, world.status().failures) == (Phase.RUNNING, 2, 0)
    assert world.status().report.steps is None
    world.put_job(replace(world.jobs["default/a"], requested=3))
    world.settle()
    assert world.status().target == 3, "it is reshaped as before"


def test_gpus_that_were_decided_and_are_not_yet_written_are_not_given_twice():
    world = World(nodes=1)
    world.put_job(a_job(gpu_milli=1000, maximum=2))
    world.settle()
    world.now += 1000
    world.put_job(replace(world.jobs["default/a"], maximum=4))
    world.deliver()
    world.turn(ev.Tick())
    held = [world.sent.pop() for _ in list(world.sent)]  # the API server takes no status of it just now
    assert [write.status.target for _, write in held] == [4]  # type: ignore[union-attr]
    world.put_job(a_job("b", gpu_milli=1000))
    world.now += 1
    world.deliver()
    world.turn(ev.Tick())
    jobs = world.core.state.jobs
    decided = {key: seen.wish.workers if seen.wish else seen.job.status.target for key, seen in jobs.items()}
    assert decided == {"default/a": 2, "default/b": 2}, "4 GPUs"
    world.turn(ev.Wrote(held[0][1].write, ev.Outcome.UNKNOWN))
    world.settle()
    assert (world.status().target, world.status("default/b").target) == (2, 2)


def test_a_wish_beyond_bounds_that_were_lowered_is_forgotten_once_it_is_met():
    world = running(requested=4)
    world.put_job(replace(world.jobs["default/a"], maximum=3, requested=3))
    world.deliver()
    world.core.state.jobs["default/a"].wish = Allocation(workers=4)
    world.settle()
    assert world.status().target == 3
    assert world.core.state.jobs["default/a"].wish is None


def test_a_spec_that_became_invalid_still_holds_its_workers_gpus():
    from services.jobs.core.observing import observe

    world = running(gpu_milli=1000, maximum=2)
    world.put_job(replace(world.jobs["default/a"], gpu_milli=0, template={}, problem="spec.template: is wrong"))
    world.deliver()
    (job,) = observe(world.core.state, world.now).observation.jobs
    assert job.workers * job.gpus_per_worker == 2.0


def test_what_is_known_of_pods_and_writes_goes_with_them():
    world = running()
    world.change_pod("a-worker-1", report='{"steps": 7}')
    world.settle()
    seen = world.core.state.jobs["default/a"]
    assert len(seen.read_annotations) == 1
    world.remove_pod("a-worker-1")
    world.deliver()
    assert seen.read_annotations == {}
    (write,) = [write for _, write in world.sent if getattr(write, "name", "") == "a-worker-1"]
    world.turn(ev.JobGone("default/a"))
    world.turn(ev.Wrote(write.write, ev.Outcome.REFUSED, "the namespace is being terminated"))
    assert world.core.state.writes.waits == {}


def test_a_refusal_is_told_on_the_job_that_it_is_about_alone():
    world = running()
    world.put_job(a_job("a-b", requested=3))
    world.settle()
    world.core.state.writes.failed(("Pod", "default", "a-b-worker-3"), world.now, "exceeded quota")
    world.turn(ev.JobSeen(world.jobs["default/a"]), ev.JobSeen(world.jobs["default/a-b"]))
    world.settle(rounds=2)
    assert conditions(world)["Ready"] == ("True", "Running")
    assert world.status("default/a-b").conditions[0].reason == "WriteRefused"


def test_a_failure_that_leaves_the_phase_as_it_is_is_counted_and_told():
    world = running(requested=4, minimum=1)
    world.change_pod("a-worker-3", terminating=True)
    world.deliver()
    while world.sent:
        world.arrive()
    world.deliver()
    assert world.phase() is Phase.RESHAPING
    world.told.clear()
    world.change_pod("a-worker-2", phase="Failed", message="exit 1")
    world.settle(run=False, rounds=4)
    assert (world.phase(), world.status().failures, world.core.stats.failures) == (Phase.RESHAPING, 1, 1)
    assert [one.type for one in world.told if getattr(one, "type", "") == "Warning"] == ["Warning"]


def test_time_is_counted_for_the_workers_that_ran_in_it():
    world = running(gpu_milli=1000, maximum=2, minimum=1)
    seen = world.core.state.jobs["default/a"]
    world.turn(ev.PodSeen(replace(world.pods["a-worker-0"], created=EPOCH + 1)))  # counted up to now
    before = world.status().gpu_s + seen.gpu_s
    world.now += 20
    world.turn(ev.PodGone(world.pods["a-worker-1"].uid))
    assert world.status().gpu_s + seen.gpu_s - before == pytest.approx(40.0)


def test_each_worker_that_is_made_prefers_its_own_part_of_the_placement():
    class Spread:
        name = "spread"

        def reset(self, seed: int) -> None:
            pass

        def decide(self, seen: Observation) -> dict[str, Allocation]:
            return {job.name: Allocation(workers=4, placement={"n1": 2, "n0": 2}) for job in seen.jobs}

    world = World(policy=Spread())
    world.put_job(a_job(gpu_milli=1000))
    preferred: dict[str, str] = {}
    for _ in range(12):
        while world.sent:
            write = world.sent[0][1]
            if isinstance(write, Create) and write.resource.kind == "Pod":
                (term,) = write.body["spec"]["affinity"]["nodeAffinity"][PREFERRED]
                (preferred[write.name],) = term["preference"]["matchExpressions"][0]["values"]
            world.arrive()
        world.deliver()
        if len(preferred) == 4 and "a-worker-1" in world.pods:
            break
    assert sorted(preferred.values()) == ["n0", "n0", "n1", "n1"]
    for name, node in preferred.items():
        world.change_pod(name, phase="Running", node=node)
    world.remove_pod("a-worker-3")
    lost = preferred.pop("a-worker-3")
    world.deliver()
    (write,) = [write for _, write in world.sent if isinstance(write, Create)]
    (term,) = write.body["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert term["preference"]["matchExpressions"][0]["values"] == [lost]
