"""A TrainingJob from creation to end on a real control plane, with what kubelets report of its pods.

Hollow kubelets run what has no annotation of its own; of pods with ``hollow/ignore`` the test writes the status, as a
kubelet of 1.36 does (``pkg/kubelet``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.conftest import ROOT, STEADY, RunningPlane, mesh_of, running
from tests.real.hollow import hollow_node, now

WITHIN_S = 90.0
GPU = "nvidia.com/gpu"
BY_HAND = {"hollow/ignore": "true"}
QUICK = ("--start-timeout-s", "15", "--retry-first-s", "1", "--decide-every-s", "5", "--validate", "true", *STEADY)

one_agent = pytest.mark.parametrize("cluster", ["1"], indirect=True)
"""For what kubelets report: how many agents place the pods makes no difference to that."""


@pytest.fixture(scope="module", params=["0", "1", "4"])
def cluster(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningPlane]:
    """The plane with two nodes of 4 GPUs, Queues and TrainingJobs, and a mesh of so many agents that runs them."""
    for file in ("k8s/base/queues-crd.yaml", "k8s/components/jobs/training-jobs-crd.yaml"):
        plane.kubectl("apply", "-f", str(ROOT / file))
    for crd in ("queues", "trainingjobs"):
        plane.kubectl("wait", "--for=condition=Established", f"crd/{crd}.conclave.io", "--timeout=60s")
    for name in ("gpu-0", "gpu-1"):
        plane.kubectl("create", "-f", "-", stdin=json.dumps(hollow_node(name, cpu="64", gpus=4)))
        plane.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=60s")
    folder = tmp_path_factory.mktemp("mesh")
    with mesh_of(plane, folder, "--agents", request.param) as ready:
        told = dict(part.split("=", 1) for part in ready.split()[1:])
        command = (sys.executable, "-m", "services.jobs", "--id", "jobs-0", "--kubeconfig", str(plane.kubeconfig))
        reach = ("--etcd", told["etcd"], "--token-file", told["token-file"])
        with running(folder, "jobs", *command, *reach, *QUICK, ready=lambda line: line.startswith("ready")):
            yield plane
    plane.kubectl("delete", "node", "gpu-0", "gpu-1")
    plane.kubectl("delete", "queues.conclave.io", "--all")


class Job:
    """One TrainingJob of a test."""

    def __init__(self, plane: RunningPlane, namespace: str, name: str) -> None:
        self.plane, self.namespace, self.name = plane, namespace, name

    def apply(self, annotations: dict[str, str], *, gpus: int = 1, image: str = "x", **spec: Any) -> None:
        resources = {"requests": {"cpu": "100m"}, "limits": {GPU: str(gpus)}}  # the server makes requests of limits
        program = {"name": "train", "image": image, "resources": resources}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"containers": [program, {"name": "logs", "image": "l"}]},
        }
        body = {
            "apiVersion": "conclave.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": self.name},
            "spec": {"template": template, "checkpoint": {"path": "/c"}, "restartSeconds": 1, **spec},
        }  # fmt: skip
        self.plane.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(body))

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.get("trainingjob", self.name, "-n", self.namespace)
        return found.get("status") or {}

    def ready(self) -> tuple[str, str]:
        """(reason, message)."""
        for one in self.status().get("conditions", ()):
            if one["type"] == "Ready":
                return one["reason"], one["message"]
        return "", ""

    def pods(self) -> dict[str, dict[str, Any]]:
        selector = f"conclave.io/training-job={self.name}"
        found = self.plane.get("pods", "-n", self.namespace, "-l", selector)["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def bound(self, count: int) -> dict[str, dict[str, Any]]:
        def all_bound() -> bool:
            pods = [pod for pod in self.pods().values() if "deletionTimestamp" not in pod["metadata"]]
            return len(pods) == count and all(pod["spec"].get("nodeName") for pod in pods)

        until(all_bound, lambda: f"{count} pods of {self.name} are bound: {self.ready()}")
        return self.pods()

    def until_phase(self, phase: str) -> None:
        until(lambda: self.status().get("phase") == phase, lambda: f"{self.name} is {phase}: {self.status()}")

    def until_ready(self, reason: str) -> str:
        until(lambda: self.ready()[0] == reason, lambda: f"{self.name} says {reason}: {self.status()}")
        return self.ready()[1]

    def say(self, pod: str, phase: str, train: dict[str, Any], **more: Any) -> None:
        """As its kubelet: its program's state, while its other container runs, or has ended with it."""
        logs = {"running": {"startedAt": now()}} if phase in ("Running", "Pending") else ended(0)
        states = {"train": train, "logs": logs}
        containers = [
            {
                "name": name, "image": "x", "imageID": "x", "ready": "running" in state, "restartCount": 0,
                "state": {"running": None, "waiting": None, "terminated": None, **state},
            }
            for name, state in states.items()
        ]  # fmt: skip
        patch = {"status": {"phase": phase, "containerStatuses": containers, **more}}
        self.plane.kubectl("patch", "pod", pod, "-n", self.namespace, "--subresource=status", "-p", json.dumps(patch))

    def run_all(self) -> None:
        for name, pod in self.pods().items():
            if "deletionTimestamp" not in pod["metadata"]:
                self.say(name, "Running", {"running": {"startedAt": now()}})

    def confirm_ends(self) -> None:
        """As kubelets that have stopped what was to stop."""
        for name, pod in self.pods().items():
            if "deletionTimestamp" in pod["metadata"]:
                self.plane.kubectl(
                    "delete", "pod", name, "-n", self.namespace, "--force", "--grace-period=0", "--ignore-not-found"
                )

    def gone(self) -> None:
        self.plane.kubectl("delete", "trainingjob", self.name, "-n", self.namespace)

        def none() -> bool:
            self.confirm_ends()
            return not self.pods()

        until(none, lambda: f"no pod of {self.name} is left")


def ended(code: int) -> dict[str, Any]:
    at = now()
    return {
        "terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": at, "finishedAt": at}
    }


def until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    """Of another process's doing: there is nothing to await but what kubectl shows."""
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end, f"not within {WITHIN_S:g} s: {what()}"
        time.sleep(0.2)


@pytest.fixture
def job(cluster: RunningPlane, namespace: str) -> Iterator[Job]:
    made = Job(cluster, namespace, "a")
    yield made
    made.gone()


def conclave(plane: RunningPlane, *arguments: str) -> str:
    command = (str(Path(sys.executable).with_name("conclave")), *arguments)
    told = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_a_job_comes_grows_and_ends(job: Job) -> None:
    job.apply({"hollow/run-seconds": "20"}, workers={"minimum": 2, "maximum": 4, "requested": 4})
    job.until_phase("Running")
    until(lambda: job.status()["runningWorkers"] == 4, lambda: f"4 workers run: {job.status()}")
    job.until_phase("Succeeded")


@one_agent
def test_a_sidecar_that_outlives_the_training_does_not_keep_it(job: Job) -> None:
    job.apply(BY_HAND, workers={"minimum": 2, "maximum": 2}, backoffLimit=1)
    job.bound(2)
    job.run_all()
    job.until_phase("Running")
    for name in job.pods():
        job.say(name, "Running", ended(1))
    until(lambda: job.status().get("failures") == 1, lambda: f"one failure is counted: {job.status()}")

    def anew() -> bool:
        job.confirm_ends()
        pods = job.pods().values()
        return len(pods) == 2 and all(pod["metadata"]["labels"]["conclave.io/attempt"] == "1" for pod in pods)

    until(anew, lambda: f"the next attempt is made: {job.status()}")
    job.bound(2)
    job.run_all()
    job.until_phase("Running")
    for name in job.pods():
        job.say(name, "Running", ended(0))
    job.until_phase("Succeeded")
    until(
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in job.pods().values()),
        lambda: "what still holds GPUs is deleted",
    )


@one_agent
@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError"])
def test_a_worker_that_cannot_begin_is_told_and_gives_its_gpus_back(job: Job, reason: str) -> None:
    job.apply(BY_HAND, workers={"minimum": 2, "maximum": 2}, gpus=4)
    for name in job.bound(2):
        job.say(name, "Pending", {"waiting": {"reason": reason, "message": "it cannot be"}})
    assert "it cannot be" in job.until_ready(reason)
    until(lambda: job.status().get("targetWorkers") == 0, lambda: f"its GPUs are given back: {job.status()}")
    assert job.ready()[0] == reason
    assert "given back until" in job.ready()[1]
    assert reason in conclave(job.plane, "jobs", "list", "--kubeconfig", str(job.plane.kubeconfig))


@one_agent
@pytest.mark.parametrize("reason", ["OutOfnvidia.com/gpu", "TopologyAffinityError", "NodePorts", "TaintToleration"])
def test_a_worker_that_a_kubelet_refuses_is_made_again_and_no_failure(job: Job, reason: str) -> None:
    job.apply(BY_HAND, workers={"minimum": 2, "maximum": 2})
    first = job.bound(2)["a-worker-1"]["metadata"]["uid"]
    refused = {"status": {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {reason}"}}
    job.plane.kubectl(
        "patch", "pod", "a-worker-1", "-n", job.namespace, "--subresource=status", "-p", json.dumps(refused)
    )

    def anew() -> bool:
        job.confirm_ends()
        pod = job.pods().get("a-worker-1")
        return pod is not None and pod["metadata"]["uid"] != first

    until(anew, lambda: f"it is made again: {job.status()}")
    job.bound(2)
    job.run_all()
    job.until_phase("Running")
    assert job.status().get("failures", 0) == 0


def test_workers_of_unlike_specs_never_stand_side_by_side(job: Job) -> None:
    job.apply({}, workers={"minimum": 2, "maximum": 2})
    job.until_phase("Running")
    before = {pod["metadata"]["uid"] for pod in job.pods().values()}
    job.apply({}, workers={"minimum": 2, "maximum": 4, "requested": 2}, image="v2", rendezvousPort=29_500)

    def anew() -> bool:
        pods = job.pods().values()
        return len(pods) >= 2 and not before & {pod["metadata"]["uid"] for pod in pods}

    until(anew, lambda: f"all workers are made anew: {job.status()}")
    until(lambda: job.status()["runningWorkers"] >= 2, lambda: f"its workers run: {job.status()}")
    told = [
        {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]} for pod in job.pods().values()
    ]
    assert {(env["PET_NNODES"], env["PET_RDZV_ENDPOINT"]) for env in told} == {("2:4", "a-worker-0.a:29500")}


@one_agent
def test_a_name_that_is_somebody_elses_is_told_and_taken_when_it_is_free(job: Job) -> None:
    other = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-worker-1", "annotations": BY_HAND},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"},
    }  # fmt: skip
    job.plane.kubectl("create", "-n", job.namespace, "-f", "-", stdin=json.dumps(other))
    job.apply({}, workers={"minimum": 2, "maximum": 2})
    assert f"Pod {job.namespace}/a-worker-1 is there and not this job's" in job.until_ready("WriteRefused")
    job.plane.kubectl("delete", "pod", "a-worker-1", "-n", job.namespace)
    job.until_phase("Running")


@one_agent
def test_beside_a_service_of_somebody_else_no_gpus_are_held(job: Job) -> None:
    """Workers without their Service have no names, and would never meet."""
    other = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "selector": {"app": "other"}},
    }  # fmt: skip
    job.plane.kubectl("create", "-n", job.namespace, "-f", "-", stdin=json.dumps(other))
    job.apply({}, workers={"minimum": 2, "maximum": 2})
    assert f"Service {job.namespace}/a is there and not the job's" in job.until_ready("WriteRefused")
    until(lambda: job.status().get("targetWorkers") == 0, lambda: f"its GPUs are given back: {job.status()}")
    assert job.pods() == {}
    job.plane.kubectl("delete", "service", "a", "-n", job.namespace)
    job.until_phase("Running")


@one_agent
def test_what_the_api_server_refuses_is_told_in_its_words(job: Job) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}},
    }  # fmt: skip
    job.plane.kubectl("create", "-n", job.namespace, "-f", "-", stdin=json.dumps(quota))
    job.apply({}, workers={"minimum": 2, "maximum": 2})
    assert "exceeded quota: few" in job.until_ready("WriteRefused")


@one_agent
def test_for_pods_that_are_not_made_nothing_is_taken_from_a_job_that_runs(job: Job) -> None:
    job.apply({}, workers={"minimum": 2, "maximum": 8, "requested": 8})
    until(lambda: job.status().get("runningWorkers") == 8, lambda: f"it has every GPU: {job.status()}")
    restarts = job.status().get("restarts", 0)
    other = Job(job.plane, job.namespace, "b")
    other.apply({}, workers={"minimum": 2, "maximum": 2}, priorityClassName="nosuch")
    try:
        assert "no PriorityClass with name nosuch was found" in other.until_ready("WriteRefused")
        assert (job.status()["runningWorkers"], job.status().get("restarts", 0)) == (8, restarts)
        other.apply({}, workers={"minimum": 2, "maximum": 2}, priorityClassName="system-cluster-critical")
        other.until_phase("Running")
    finally:
        other.gone()


def test_a_worker_whose_node_is_lost_is_replaced_under_another_name(job: Job) -> None:
    job.apply(BY_HAND, workers={"minimum": 2, "maximum": 2})
    job.bound(2)
    job.run_all()
    job.until_phase("Running")
    job.plane.kubectl(
        "delete", "pod", "a-worker-1", "-n", job.namespace, "--wait=false", "--grace-period=1"
    )  # its kubelet never confirms it
    until(lambda: "a-worker-2" in job.pods(), lambda: f"another takes its place: {job.status()}")
    job.bound(3 - 1)
    job.run_all()
    job.until_phase("Running")
    assert job.status().get("failures", 0) == 0


def test_a_queue_is_read_before_anything_is_decided(job: Job) -> None:
    queue = {
        "apiVersion": "conclave.io/v1alpha1", "kind": "Queue", "metadata": {"name": "research"},
        "spec": {"namespaces": [job.namespace], "maximum": {GPU: "2"}},
    }  # fmt: skip
    plane = job.plane
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(queue))
    try:
        until(
            lambda: "status" in plane.get("queues.conclave.io", "research"), lambda: "the coordinator knows the Queue"
        )
        job.apply({}, workers={"minimum": 4, "maximum": 8, "requested": 8})
        assert "queue research: nvidia.com/gpu 0 of maximum 2 is used" in job.until_ready("QueueQuota")
        assert job.pods() == {}
        why = conclave(plane, "jobs", "why", "a", "-n", job.namespace, "--kubeconfig", str(plane.kubeconfig))
        assert "queue research" in why
        assert "conclave queue" in why
        queue["spec"]["maximum"][GPU] = "6"  # type: ignore[index]
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(queue))
        job.until_phase("Running")
        until(lambda: job.status()["runningWorkers"] == 6, lambda: f"it grows to its quota: {job.status()}")
    finally:
        plane.kubectl("delete", "queue.conclave.io", "research", "--ignore-not-found")
