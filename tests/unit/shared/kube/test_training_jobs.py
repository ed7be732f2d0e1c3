"""TrainingJobs: what the CRD refuses, what becomes of the rest, what is made of them and told on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shared.kube.pod_groups import PLUGINS_PODGROUPS, PODGROUPS, PODGROUPS_V1ALPHA2, NativePodGroup, native_group
from shared.kube.training.training_jobs import TrainingJobObject, job_from_api
from shared.kube.training.training_pods import TrainingPodRules, group_body, pod_body, service_body
from shared.kube.training.training_status import status_patch
from shared.model.controllers.training_job import JobCondition, JobPhase, JobReport, JobStatus, TrainingJob
from tests.unit.twin.twin_scene import Scene
from twin.custom.controller import CustomResources
from twin.registry.status import ApiError

CRD = Path(__file__).parents[4] / "k8s/components/jobs/training-jobs-crd.yaml"
TEMPLATE = {"spec": {"containers": [{"name": "train", "image": "train", "command": ["torchrun", "train.py"]}]}}
FULL: dict[str, Any] = {
    "workers": {"minimum": 2, "maximum": 8, "requested": 4}, "template": TEMPLATE, "gpuShare": 0.5,
    "parameterServers": {"replicas": 1, "template": TEMPLATE}, "processesPerWorker": 2, "rendezvousPort": 1234,
    "batch": {"size": 256, "minimum": 128, "maximum": 1024}, "checkpoint": {"path": "/ckpt", "intervalSeconds": 60},
    "restartSeconds": 12.5, "priority": 7, "priorityClassName": "high", "queue": "team", "model": "bert",
    "backoffLimit": 5, "paused": True,
}  # fmt: skip


def read(spec: Any, *, status: Any = None, name: str = "a") -> TrainingJob:
    item = {"metadata": {"name": name, "namespace": "default", "uid": "u", "generation": 3, "resourceVersion": "9"}}
    return job_from_api(
        msgspec.json.decode(msgspec.json.encode({**item, "spec": spec, "status": status}), type=TrainingJobObject)
    )


def scene() -> Scene:
    found = Scene()
    CustomResources(found.registry).attach()
    definition = yaml.safe_load(CRD.read_text())
    meta = definition.pop("metadata")
    found.create("customresourcedefinitions.apiextensions.k8s.io", meta["name"], **definition)
    return found


@pytest.fixture(scope="module")
def served() -> Scene:
    return scene()


def test_every_field_is_read():
    job = read(FULL)
    assert job.problem == ""
    assert (job.minimum, job.maximum, job.requested, job.ps, job.gpu_milli, job.processes) == (2, 8, 4, 1, 500, 2)
    assert (job.batch, job.batch_range, job.checkpoint, job.checkpoint_every_s) == (256, (128, 1024), "/ckpt", 60.0)
    assert (job.restart_s, job.priority, job.queue, job.model, job.port) == (12.5, 7, "team", "bert", 1234)
    assert (job.backoff_limit, job.paused, job.priority_class) == (5, True, "high")


def test_what_is_left_out_has_a_default():
    job = read({"template": TEMPLATE})
    assert (job.minimum, job.maximum, job.requested, job.gpu_milli, job.backoff_limit) == (1, 1, 1, 0, 3)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"workers": {"minimum": 5, "maximum": 2}}, "spec.workers.minimum: 5 is more than spec.workers.maximum, 2;"),
        ({"workers": {"minimum": 2, "maximum": 4, "requested": 9}}, "spec.workers.requested: 9 must be from 2 to 4"),
        ({"workers": {"minimum": 0}}, "spec.workers.minimum: 0 must be a whole number from 1 to 1024"),
        ({"workers": {"minimum": "2"}}, "spec.workers.minimum: '2' must be a whole number"),
        ({"gpuShare": 2}, "spec.gpuShare: 2 must be 0.01 to 1"),
        ({"gpuShare": "NaN"}, "spec.gpuShare: 'NaN' must be 0.01 to 1"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers: has none"),
        ({"template": None}, "spec.template.spec.containers: has none"),
        ({"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}}, "restartPolicy: 'Always' cannot be"),
        ({"batch": {"size": 4, "minimum": 8, "maximum": 16}}, "spec.batch.size: 4 must be from batch.minimum, 8"),
        ({"batch": {"size": 4, "minimum": 8}}, "spec.batch: an adaptive batch has minimum and maximum"),
        ({"restartSeconds": -1}, "spec.restartSeconds: -1 must be 0 to"),
        ({"paused": "yes"}, "spec.paused: 'yes' must be true or false"),
        ({"parameterServers": {"replicas": 2}}, "spec.parameterServers.template.spec.containers: has none"),
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_used_is_named_with_its_remedy(change: dict[str, Any], problem: str):
    assert problem in read({"template": TEMPLATE, **change}).problem


def test_a_spec_that_is_no_object_loses_nothing():
    assert "spec.template" in read("x").problem


GPUS = {"nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        ({"containers": [{"resources": {"limits": GPUS, "requests": GPUS}}]}, 2000),
        ({"containers": [{"resources": {"limits": GPUS}}]}, 2000),
        ({"containers": [{"resources": {"limits": GPUS, "requests": {"cpu": 1}}}]}, 2000),
        ({"containers": [{}, {"resources": {"limits": GPUS}}]}, 2000),
        ({"containers": [{}], "initContainers": [{"restartPolicy": "Always", "resources": {"limits": GPUS}}]}, 2000),
        ({"containers": [{"resources": {"limits": {"conclave.io/gpu-milli": "500"}}}]}, 500),
        ({"containers": [{"resources": {"limits": {"cpu": 2}}}]}, 0),
    ],
)
def test_gpus_are_read_off_the_template_as_a_pod_of_it_will_ask(spec: dict[str, Any], held: int):
    assert read({"template": {"spec": spec}}).gpu_milli == held


@pytest.mark.parametrize(
    ("container", "pod", "cpu"),
    [
        ({"limits": {"cpu": 2}}, None, 2000),
        ({"limits": {"cpu": 2}, "requests": {"cpu": 1}}, None, 1000),
        ({}, {"limits": {"cpu": 3}}, 3000),
        ({"limits": {"cpu": 2}}, {"limits": {"cpu": 3}}, 2000),
        ({"limits": {"cpu": 2}}, {"limits": {"cpu": 3}, "requests": {"cpu": "2500m"}}, 2500),
    ],
)
def test_limits_become_requests_as_the_api_server_makes_them(container: Any, pod: Any, cpu: int):
    spec = {"containers": [{"resources": container}], **({"resources": pod} if pod else {})}
    assert dict(read({"template": {"spec": spec}}).amounts)["cpu"] == cpu


# --- the definition -------------------------------------------------------------------------------------------------


def make(served: Scene, name: str, spec: Any) -> Any:
    return served.create(
        "trainingjobs.conclave.io", name, kind="TrainingJob", apiVersion="conclave.io/v1alpha1", spec=spec
    )


def test_the_definition_takes_what_the_service_reads(served: Scene):
    stored = make(served, "full", FULL).fresh()
    assert stored["spec"]["template"] == TEMPLATE, "a pod template is kept as it is"
    assert read(stored["spec"]).problem == ""
    assert make(served, "least", {"template": TEMPLATE}).fresh()["spec"]["workers"] == {"minimum": 1}


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("b", {"workers": {"minimum": 5, "maximum": 2}}, "spec.workers.minimum: is more than spec.workers.maximum"),
        ("b", {"workers": {"minimum": 5}}, None),
        ("b", {"workers": {"minimum": 1, "maximum": 2, "requested": 3}}, "from the minimum to the maximum"),
        ("b", {"gpuShare": 0.001}, "must be 0.01 to 1"),
        ("b", {"batch": {"size": 4, "minimum": 2}}, "give both, or neither"),
        ("b", {"batch": {"size": 1, "minimum": 2, "maximum": 4}}, "from batch.minimum to batch.maximum"),
        ("b", {"parameterServers": {"replicas": 1}}, "spec.parameterServers.template: is missing"),
        ("b", {"template": {"spec": {"containers": []}}}, "containers"),
        ("b" * 51, {}, "at most 50 characters"),
        ("1a", {}, "since a Service has this name"),
        ("b", {"checkpoint": {}}, "path"),
    ],
)
def test_the_definition_refuses_with_the_field_and_the_remedy(
    served: Scene, name: str, change: dict[str, Any], told: str | None
):
    if told is None:
        make(served, "only-minimum", {"template": TEMPLATE, **change})
        return
    with pytest.raises(ApiError, match=told):
        make(served, name, {"template": TEMPLATE, **change})


# --- the status -----------------------------------------------------------------------------------------------------


def test_a_status_that_was_written_is_read_back_as_it_was(served: Scene):
    status = JobStatus(
        phase=JobPhase.RUNNING, observed_generation=1, term=7, target=4, running=3, batch=512, attempt=1, failures=1,
        restarts=2, lost_steps=17, restart_s=12.25, gpu_s=100.5, ran_s=50.25, started=1_795_000_000.0,
        changed=1_795_000_010.0, retry_at=1_795_000_020.0, members="abc",
        report=JobReport(steps=9, loss=0.5, progress=0.25, at=1_795_000_030.0),
        conditions=(JobCondition("Ready", "True", "Running", "4 workers run"),),
    )  # fmt: skip
    stored = make(served, "told", {"template": TEMPLATE}).fresh()
    job = job_from_api(msgspec.convert(stored, TrainingJobObject))
    stored["status"] = status_patch(job, status, "2026-11-23T00:00:00Z")["status"]
    after = msgspec.json.decode(msgspec.json.encode(stored), type=TrainingJobObject)
    assert job_from_api(after).status == status


def test_a_phase_that_somebody_else_wrote_stops_nobody():
    assert read({"template": TEMPLATE}, status={"phase": "Running"}).status.phase is JobPhase.STARTING
    assert read({"template": TEMPLATE}, status={"phase": "Sleeping", "failures": "x"}).status == JobStatus()


def test_a_status_holds_for_the_object_that_was_seen_alone():
    job = read({"template": TEMPLATE})
    assert status_patch(job, JobStatus(), "now")["metadata"] == {"uid": "u", "resourceVersion": "9"}


def test_a_condition_keeps_its_time_while_its_status_is_the_same():
    ready = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "then"}
    job = read({"template": TEMPLATE}, status={"conditions": [ready]})
    for state, at in (("True", "then"), ("False", "now")):
        status = JobStatus(conditions=(JobCondition("Ready", state, "Other", ""),))
        assert status_patch(job, status, "now")["status"]["conditions"][0]["lastTransitionTime"] == at


# --- what is made of it ---------------------------------------------------------------------------------------------


def environment(body: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in body["spec"]["containers"][0]["env"]}


def test_a_worker_knows_all_that_torchrun_needs():
    job = read(FULL)
    body = pod_body(
        job, "worker", 0, rules=TrainingPodRules(report_url="http://jobs:1/"), group=PODGROUPS, token="secret"
    )
    told = environment(body)
    assert told["PET_NNODES"] == "2:8"
    assert told["PET_NPROC_PER_NODE"] == "2"
    assert told["PET_RDZV_ENDPOINT"] == "a-worker-0.a:1234"
    assert (told["PET_RDZV_BACKEND"], told["PET_RDZV_ID"], told["PET_RDZV_CONF"]) == ("c10d", "u", "is_host=1")
    assert told["CONCLAVE_REPORT_URL"] == "http://jobs:1/v1/jobs/default/a/report"
    assert told["CONCLAVE_REPORT_TOKEN"] == "secret"
    assert told["CONCLAVE_CHECKPOINT"] == "/ckpt"
    assert told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1", "or a worker that joins later waits for ever"
    spec = body["spec"]
    assert (spec["hostname"], spec["subdomain"], spec["restartPolicy"]) == ("a-worker-0", "a", "Never")
    assert spec["schedulingGroup"] == {"podGroupName": "a"}
    assert spec["containers"][0]["resources"]["requests"] == {"conclave.io/gpu-milli": "500"}
    assert body["metadata"]["labels"]["conclave.io/queue"] == "team"
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert job.template == TEMPLATE, "the job's own template is not touched"


def of_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "t", "image": "t", **fields}]}}


@pytest.mark.parametrize(
    ("template", "field"),
    [
        (of_container(env="A=1"), "spec.containers[0].env"),
        (of_container(env=["A=1"]), "spec.containers[0].env[0]"),
        (of_container(env=[{"name": {}}]), "spec.containers[0].env[0].name"),
        (of_container(resources=[]), "spec.containers[0].resources"),
        ({"spec": {"containers": ["train"]}}, "spec.containers[0]"),
        ({**TEMPLATE, "metadata": "x"}, "metadata"),
        ({**TEMPLATE, "metadata": {"labels": ["x"]}}, "metadata.labels"),
        ({"spec": {**TEMPLATE["spec"], "affinity": "x"}}, "spec.affinity"),
    ],
)
def test_a_template_that_no_pod_can_be_made_of_is_named_by_its_field(template: dict[str, Any], field: str):
    for spec, part in (
        ({"template": template}, "spec.template"),
        ({"template": TEMPLATE, "parameterServers": {"replicas": 1, "template": template}}, "spec.parameterServers."),
    ):
        problem = read(spec).problem
        assert problem.startswith(part)
        assert f"$.{field}`" in problem


def test_what_a_template_leaves_empty_is_as_if_it_were_left_out():
    template = of_container(env=None, resources=None)
    template["spec"]["affinity"], template["metadata"] = None, None
    job = read({"template": template, "gpuShare": 0.5})
    assert job.problem == ""
    body = pod_body(job, "worker", 0, rules=TrainingPodRules(), group=PODGROUPS, node="n1")
    assert body["spec"]["containers"][0]["resources"]["limits"] == {"conclave.io/gpu-milli": "500"}
    template["spec"]["containers"][0]["resources"] = {"requests": None}
    template["spec"]["affinity"] = {"nodeAffinity": None}
    body = pod_body(
        read({"template": template, "gpuShare": 1}), "worker", 0, rules=TrainingPodRules(), group=PODGROUPS, node="n1"
    )
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"conclave.io/gpu-milli": "1000"}


def test_of_one_variable_the_users_counts():
    env = [{"name": "PET_RDZV_CONF", "value": "join_timeout=60"}, {"name": "PET_MAX_RESTARTS", "value": "3"}]
    job = read({"template": {"spec": {"containers": [{"name": "t", "image": "t", "env": env}]}}})
    told = environment(pod_body(job, "worker", 1, rules=TrainingPodRules(), group=PODGROUPS))
    assert told["PET_RDZV_CONF"] == "join_timeout=60,is_host=0"
    assert told["PET_MAX_RESTARTS"] == "3"
    assert "CONCLAVE_REPORT_TOKEN" not in told


@pytest.mark.parametrize("version", [PODGROUPS, PODGROUPS_V1ALPHA2])
def test_its_group_is_a_gang_of_its_minimum_and_its_servers(version: Any):
    job = read(FULL)
    group = native_group(msgspec.convert(group_body(job, version), version.type))
    assert isinstance(msgspec.convert(group_body(job, version), NativePodGroup), NativePodGroup)
    assert (group.gang, group.min_count, group.problem) == (True, 3, "")


def test_with_the_plug_ins_the_group_is_named_by_a_label():
    job = read(FULL)
    assert group_body(job, PLUGINS_PODGROUPS)["spec"] == {"minMember": 3}
    body = pod_body(job, "ps", 0, rules=TrainingPodRules(), group=PLUGINS_PODGROUPS)
    assert body["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "a"
    assert "schedulingGroup" not in body["spec"]
    assert "PET_NNODES" not in environment(body)


def test_workers_find_each_other_before_they_are_ready():
    spec = service_body(read(FULL))["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["selector"] == {"conclave.io/training-job": "a"}


def test_a_wish_for_a_node_is_no_demand():
    body = pod_body(read(FULL), "worker", 0, rules=TrainingPodRules(), group=PODGROUPS, node="n1")
    (term,) = body["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchExpressions"][0]["values"] == ["n1"]
