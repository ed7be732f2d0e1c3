"""One reading of a pod: each case as kubelet, scheduler and control plane of 1.36 write it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shared.kube.pod_groups import PODGROUPS
from shared.kube.training.training_pods import TrainingPodRules, pod_body
from shared.kube.training.worker_pods import LOST_S, WorkerPodObject, as_of, refused, worker_pod
from shared.model.controllers.training_job import PodState, TrainingJob, WorkerPod

JOB = TrainingJob(
    namespace="default", name="a", uid="job", resource_version="1", minimum=2, maximum=4,
    template={"spec": {"containers": [{"name": "train", "image": "i"}, {"name": "logs", "image": "l"}]}},
)  # fmt: skip
S = PodState
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}


def ended(code: int, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), **more}}


def waits(reason: str, message: str = "m") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def containers(**states: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "state": state} for name, state in states.items()]


def read(
    status: dict[str, Any], spec: dict[str, Any] | None = None, meta: dict[str, Any] | None = None, node: str = "n1"
) -> WorkerPod:
    body = pod_body(JOB, "worker", 3, rules=TrainingPodRules(), group=PODGROUPS)
    body["metadata"] = {**body["metadata"], "uid": "p", **(meta or {})}
    body["spec"] = {**body["spec"], "nodeName": node, **(spec or {})}
    body["status"] = status
    return worker_pod(msgspec.convert(body, WorkerPodObject))


@pytest.mark.parametrize(
    "reason",
    [
        "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
        "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError",
        "CrashLoopBackOff", "SomethingThatALaterKubeletSays",
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["the program", "a sidecar before it", "an init container"])
def test_a_container_that_the_kubelet_retries_is_stuck_and_says_why(reason: str, where: str):
    status: dict[str, Any] = {"phase": "Pending", "containerStatuses": containers(train=waits(reason), logs=CREATING)}
    spec: dict[str, Any] = {}
    if where != "the program":
        spec["initContainers"] = [{"name": "first", **({"restartPolicy": "Always"} if "sidecar" in where else {})}]
        status["containerStatuses"] = containers(train={"waiting": {"reason": "PodInitializing"}})
        status["initContainerStatuses"] = containers(first=waits(reason))
    pod = read(status, spec)
    assert (pod.state, pod.cause) == (S.STUCK, reason)
    assert "m" in pod.message


@pytest.mark.parametrize(
    ("states", "phase", "state"),
    [
        ({"train": ended(0), "logs": RUNS}, "Running", S.SUCCEEDED),
        ({"train": ended(1), "logs": RUNS}, "Running", S.FAILED),
        ({"train": ended(0), "logs": ended(1)}, "Failed", S.SUCCEEDED),
        ({"train": ended(1), "logs": ended(0)}, "Failed", S.FAILED),
        ({"train": RUNS, "logs": ended(1)}, "Running", S.RUNNING),
        ({"train": RUNS, "logs": waits("ImagePullBackOff")}, "Pending", S.RUNNING),
        ({"istio-proxy": RUNS, "train": ended(1), "logs": ended(0)}, "Running", S.FAILED),
        ({"istio-proxy": RUNS, "train": CREATING}, "Pending", S.STARTING),
        ({"istio-proxy": RUNS, "train": waits("ErrImagePull")}, "Pending", S.STUCK),
    ],
)
def test_what_the_program_does_counts_and_not_what_stands_beside_it(
    states: dict[str, Any], phase: str, state: PodState
):
    injected = [{"name": "istio-proxy"}] if "istio-proxy" in states else []
    spec = {"containers": [*injected, {"name": "train"}, {"name": "logs"}]}
    pod = read({"phase": phase, "containerStatuses": containers(**states)}, spec)
    assert pod.state is state
    assert pod.holds == (phase not in ("Succeeded", "Failed"))


def test_a_native_sidecar_neither_runs_nor_ends_a_worker():
    spec = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    for program, state in ((RUNS, S.RUNNING), (ended(3), S.FAILED), (ended(0), S.SUCCEEDED), (CREATING, S.STARTING)):
        for sidecar in (RUNS, ended(1), waits("CrashLoopBackOff")):
            status = {
                "phase": "Running", "containerStatuses": containers(train=program),
                "initContainerStatuses": containers(proxy=sidecar),
            }  # fmt: skip
            expected = S.STUCK if program is CREATING and "waiting" in sidecar else state
            assert read(status, spec).state is expected, (program, sidecar)


@pytest.mark.parametrize(
    "reason",
    [
        "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage", "OutOfnvidia.com/gpu",
        "OutOfexample.com/fpga",
        "TopologyAffinityError", "SMTAlignmentError",
        "EmptyPodSharedPoolError", "NodePorts", "NodeAffinity", "NodeName",
        "TaintToleration", "UnexpectedAdmissionError", "NodeShutdown", "PodFeatureUnsupported",
        "VolumeAttachmentLimitExceeded", "SysctlForbidden", "AppArmor", "SomethingThatALaterKubeletSays",
    ],
)  # fmt: skip
def test_what_a_kubelet_refuses_is_no_failure(reason: str):
    pod = read({"phase": "Failed", "reason": reason, "message": "Pod was rejected: it cannot be"})
    assert (pod.state, pod.cause, pod.holds) == (S.DISRUPTED, reason, False)
    assert refused(pod)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, "Evicted"),
        ({"reason": "Preempting", "message": "Preempted in order to admit critical pod"}, "Preempting"),
        (
            {"reason": "Terminated", "message": "Pod was terminated in response to node shutdown."},
            "Terminated",
        ),
        ({"reason": "NodeLost"}, "NodeLost"),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "PreemptionByScheduler",
        ),
        ({"containerStatuses": containers(train=ended(137, "ContainerStatusUnknown"))}, "ContainerStatusUnknown"),
        ({"containerStatuses": containers(train=ended(255, "Unknown"))}, "Unknown"),
    ],
)
def test_what_is_taken_away_is_no_failure_and_no_refusal(status: dict[str, Any], cause: str):
    pod = read({"phase": "Failed", "containerStatuses": containers(train=ended(137)), **status})
    assert (pod.state, pod.cause) == (S.DISRUPTED, cause)
    assert not refused(pod)


def test_a_worker_that_is_killed_on_its_way_out_is_disrupted_before_its_phase_says_so():
    marked = [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]
    status = {"phase": "Running", "conditions": marked}
    assert read({**status, "containerStatuses": containers(train=RUNS)}).state is S.RUNNING
    assert read({**status, "containerStatuses": containers(train=ended(137))}).state is S.DISRUPTED
    assert read({**status, "containerStatuses": containers(train=ended(0))}).state is S.SUCCEEDED


@pytest.mark.parametrize(
    ("status", "cause", "says"),
    [
        ({"containerStatuses": containers(train=ended(137, "OOMKilled"))}, "OOMKilled", "exit code 137"),
        ({"containerStatuses": containers(train=ended(1, message="no CUDA"))}, "Error", "no CUDA"),
        ({"reason": "DeadlineExceeded", "message": "Pod was active too long"}, "DeadlineExceeded", "too long"),
        ({"initContainerStatuses": containers(first=ended(2))}, "InitContainerFailed", "first: exit code 2"),
        ({"reason": "Error"}, "Error", "Error"),
        ({}, "", ""),
    ],
)
def test_what_the_template_brings_about_is_a_failure(status: dict[str, Any], cause: str, says: str):
    pod = read({"phase": "Failed", **status}, {"initContainers": [{"name": "first"}]})
    assert (pod.state, pod.cause) == (S.FAILED, cause)
    assert says in pod.message


def test_a_program_that_is_to_be_started_again_in_place_has_not_ended():
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    for own in ({"restartPolicy": "OnFailure"}, {"restartPolicy": "Never", "restartPolicyRules": rules}):
        spec = {"containers": [{"name": "train", **own}]}
        status = {"phase": "Running", "containerStatuses": containers(train=ended(42))}
        assert read(status, spec).state is S.STARTING
        back_off = {**waits("CrashLoopBackOff"), "name": "train"}
        status["containerStatuses"] = [{"name": "train", "state": back_off, "lastState": ended(42)}]
        assert (read(status, spec).state, read(status, spec).cause) == (S.STUCK, "CrashLoopBackOff")
        assert "exit code 42" in read(status, spec).message
        status = {"phase": "Failed", "containerStatuses": containers(train=ended(1))}
        assert read(status, spec).state is S.FAILED


def test_a_training_that_admission_lets_begin_anew_has_ended_all_the_same():
    state = {"name": "train", "state": waits("CrashLoopBackOff"), "lastState": ended(1)}
    pod = read({"phase": "Running", "containerStatuses": [state]}, {"restartPolicy": "Always"})
    assert (pod.state, pod.holds) == (S.FAILED, True)


@pytest.mark.parametrize(
    ("status", "spec", "cause", "says"),
    [
        ({}, {}, "", ""),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "QueueQuota", "message": "queue q"}]},
            {}, "QueueQuota", "queue q",
        ),
        ({}, {"schedulingGates": [{"name": "example.com/later"}]}, "SchedulingGated", "example.com/later"),
    ],
)  # fmt: skip
def test_a_pod_without_a_node_says_what_its_scheduler_says(
    status: dict[str, Any], spec: dict[str, Any], cause: str, says: str
):
    pod = read({"phase": "Pending", **status}, spec, node="")
    assert (pod.state, pod.cause) == (S.WAITING, cause)
    assert says in pod.message


def test_a_pod_on_its_way_says_what_it_waits_for():
    conditions = [{"type": "PodReadyToStartContainers", "status": "False"}]
    volumes = read({"phase": "Pending", "conditions": conditions, "containerStatuses": containers(train=CREATING)})
    assert (volumes.state, "volumes" in volumes.message) == (S.STARTING, True)
    status = {"phase": "Pending", "initContainerStatuses": containers(fetch=RUNS)}
    fetching = read(status, {"initContainers": [{"name": "fetch"}]})
    assert (fetching.state, fetching.cause) == (S.STARTING, "PodInitializing")


def test_a_pod_that_is_deleted_leaves_and_is_lost_when_nobody_confirms_it():
    for status in (
        {"phase": "Running", "containerStatuses": containers(train=RUNS)},
        {"phase": "Failed", "containerStatuses": containers(train=ended(143))},
    ):
        pod = read(status, meta={"deletionTimestamp": "2026-01-01T00:00:30Z"})
        assert pod.state is S.LEAVING
        assert as_of(pod, pod.leave_by + LOST_S - 1).state is S.LEAVING
        assert as_of(pod, pod.leave_by + LOST_S + 1).state is S.LOST
    assert as_of(read({"phase": "Running"}), 1e12).state is S.RUNNING


def test_a_pod_says_how_often_it_saves_and_what_a_restart_costs_unless_its_template_says_otherwise():
    job = replace(JOB, checkpoint="/data", checkpoint_every_s=300.0, status=replace(JOB.status, restart_s=42.5))
    said = pod_body(job, "worker", 0, rules=TrainingPodRules(), group=PODGROUPS)["metadata"]["annotations"]
    assert said["conclave.io/checkpoint-interval-seconds"] == "300"
    assert said["conclave.io/restart-seconds"] == "42.5"
    own = {**job.template, "metadata": {"annotations": {"conclave.io/restart-seconds": "7"}}}
    said = pod_body(replace(job, template=own), "worker", 0, rules=TrainingPodRules(), group=PODGROUPS)["metadata"][
        "annotations"
    ]
    assert said["conclave.io/restart-seconds"] == "7"
    assert (
        "conclave.io/restart-seconds"
        not in pod_body(JOB, "worker", 0, rules=TrainingPodRules(), group=PODGROUPS)["metadata"]["annotations"]
    )


def test_a_pod_is_whose_it_says_and_knows_what_it_was_made_of():
    pod = read({"phase": "Running"})
    assert (pod.job, pod.role, pod.index, pod.bounds) == ("job", "worker", 3, "2:4")
    assert len(pod.made_of) == 16
    stranger = read({"phase": "Running"}, meta={"ownerReferences": []})
    assert stranger.job == ""


def test_what_a_pod_was_made_of_is_told_by_what_would_set_workers_apart():
    from shared.kube.training.training_pods import made_of

    same = [{"minimum": 1}, {"maximum": 9}, {"requested": 3}, {"priority": 5}, {"backoff_limit": 0}, {"paused": True}]
    other: list[dict[str, Any]] = [
        {"port": 1}, {"processes": 8}, {"template": {"spec": {"containers": [{"name": "train", "image": "j"}]}}},
        {"checkpoint": "/c"}, {"batch": 64}, {"queue": "q"}, {"priority_class": "p"},
        {"status": replace(JOB.status, rendezvous=1)},
    ]  # fmt: skip
    assert {made_of(replace(JOB, **change), "worker") for change in same} == {made_of(JOB, "worker")}
    assert len({made_of(replace(JOB, **change), "worker") for change in other}) == len(other)
    assert made_of(JOB, "worker") == "26ab7f3f076cd724", "a release that changes it starts every job anew"
