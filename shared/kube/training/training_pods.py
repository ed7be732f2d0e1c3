"""What a TrainingJob is made of in the cluster: its pods, its pod group and its Service, as bodies of requests. Pure.

A worker is one pod that runs ``torchrun``, which takes its flags from ``PET_*`` variables; so an image that starts
``torchrun train.py`` needs no flag of ours. Names are stable, so that making a pod twice makes it once. Whatever the
user's template says already is left as it is, but for what ties the pod to its job: labels, group, host name, restart
policy.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from shared.hostport import join_host_port
from shared.kube.pod_groups import GROUP, GROUP_LABEL
from shared.kube.resources import Resource
from shared.kube.training.training_jobs import TRAINING_JOBS
from shared.model.controllers.training_job import (
    ATTEMPT_LABEL,
    BOUNDS_ANNOTATION,
    INDEX_LABEL,
    JOB_LABEL,
    MADE_OF_LABEL,
    PROGRAM_ANNOTATION,
    ROLE_LABEL,
    WORKER,
    TrainingJob,
)
from shared.model.offline import INTERVAL_ANNOTATION, RESTART_ANNOTATION
from shared.model.resources import GPU_MILLI
from shared.model.units.queue import QUEUE_LABEL

RENDEZVOUS_CONF = "PET_RDZV_CONF"
RESTARTS = 1000
"""torchrun counts a lost worker as a restart of its own; what ends a job is its ``backoffLimit``, which we count."""


DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""What ``kubectl logs`` shows of several containers."""

SHARED_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set for torch 2.4 and later, seen in 2.13: where the first worker shares its store, it tells its address in the first
round alone, and a worker that joins later waits for it until its time is over. Without sharing, each round tells it."""


class TrainingPodRules(Struct, frozen=True, kw_only=True):
    """What holds for the pods of every job. ``report_url``: where the service takes reports; "": it takes none."""

    scheduler_name: str = "conclave"
    report_url: str = ""


def pod_name(job: str, role: str, index: int) -> str:
    """Of one pod of a job."""
    return f"{job}-{role}-{index}"


def made_of(job: TrainingJob, role: str) -> str:
    """A digest of what of the spec a pod is made of: where it is another, the pod is not like those made now. Of what
    is written in the spec and not of the body that follows from it, so that a release that builds pods otherwise makes
    none anew. Left out: bounds (``TrainingJob.bounds``), and what differs from pod to pod or is decided."""
    worker = role == WORKER
    parts = (
        job.template if worker else job.ps_template, job.port, job.batch, job.checkpoint, job.queue, job.priority_class,
        job.status.rendezvous, (job.processes, job.gpu_milli if job.gpu_share else 0) if worker else (),
    )  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def group_minimum(job: TrainingJob) -> int:
    """The least that the job runs with: its workers' minimum in force, and all parameter servers."""
    return job.least + job.ps


def pod_body(
    job: TrainingJob,
    role: str,
    index: int,
    *,
    rules: TrainingPodRules,
    group: Resource[Any],
    token: str = "",
    node: str = "",
) -> dict[str, Any]:
    """A pod of the job's current attempt. ``group``: the version of PodGroups that is served; ``token``: by which it
    reports; ``node``: where a policy would like it, "" anywhere."""
    template = copy.deepcopy(dict(job.template if role == WORKER else job.ps_template))
    name = pod_name(job.name, role, index)
    given: Mapping[str, Any] = template.get("metadata") or {}
    spec: dict[str, Any] = template["spec"]
    labels = {**(given.get("labels") or {}), **_labels(job), ROLE_LABEL: role, INDEX_LABEL: str(index)}
    labels[ATTEMPT_LABEL] = str(job.status.attempt)
    labels[MADE_OF_LABEL] = made_of(job, role)
    if group.group == GROUP:
        spec["schedulingGroup"] = {"podGroupName": job.name}
    else:
        labels[GROUP_LABEL] = job.name
    spec.setdefault("schedulerName", rules.scheduler_name)
    spec["restartPolicy"] = "Never"
    spec["hostname"], spec["subdomain"] = name, job.name
    if job.priority_class:
        spec.setdefault("priorityClassName", job.priority_class)
    container = spec["containers"][0]
    _give_environment(container, _environment(job, role, index, rules, token))
    if role == WORKER and job.gpu_share:
        resources = container["resources"] = container.get("resources") or {}
        for part in ("requests", "limits"):
            resources[part] = {**(resources.get(part) or {}), GPU_MILLI: str(job.gpu_milli)}
    if node:
        _prefer(spec, node)
    annotations = {**_terms(job), **(given.get("annotations") or {}), BOUNDS_ANNOTATION: job.bounds}
    if container.get("name"):
        annotations[PROGRAM_ANNOTATION] = container["name"]
        annotations.setdefault(DEFAULT_CONTAINER, container["name"])
    metadata: dict[str, Any] = {
        "name": name, "namespace": job.namespace, "labels": labels, "annotations": annotations,
        "ownerReferences": [owner_reference(job)],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _terms(job: TrainingJob) -> dict[str, str]:
    """What is lost when the pod is evicted, as far as the job knows; its template may say otherwise."""
    found = {}
    if job.checkpoint and job.checkpoint_every_s:
        found[INTERVAL_ANNOTATION] = f"{job.checkpoint_every_s:g}"
    if job.status.restart_s:
        found[RESTART_ANNOTATION] = f"{job.status.restart_s:g}"
    return found


def _labels(job: TrainingJob) -> dict[str, str]:
    return {JOB_LABEL: job.name, **({QUEUE_LABEL: job.queue} if job.queue else {})}


def owner_reference(job: TrainingJob) -> dict[str, Any]:
    """What makes the garbage collector take an object along with its job."""
    return {
        "apiVersion": TRAINING_JOBS.api_version, "kind": TRAINING_JOBS.kind, "name": job.name, "uid": job.uid,
        "controller": True,
    }  # fmt: skip


def rendezvous_host(job: TrainingJob) -> str:
    """Where the worker is found that the others meet at: its host name under the job's headless Service."""
    return f"{pod_name(job.name, WORKER, job.status.rendezvous)}.{job.name}"


def _environment(job: TrainingJob, role: str, index: int, rules: TrainingPodRules, token: str) -> list[dict[str, Any]]:
    """``torchrun``'s own variables (torch.distributed.run, ``PET_`` and the option's name), and ours."""
    host, worker = rendezvous_host(job), role == WORKER
    values: dict[str, str] = {
        "CONCLAVE_JOB": job.key,
        "CONCLAVE_JOB_ROLE": role,
        "CONCLAVE_WORKER_INDEX": str(index),
        "CONCLAVE_MIN_WORKERS": str(job.least),
        "CONCLAVE_MAX_WORKERS": str(job.maximum),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(job.port),
    }
    if job.status.batch or job.batch:
        values["CONCLAVE_BATCH"] = str(job.status.batch or job.batch)
    if job.checkpoint:
        values["CONCLAVE_CHECKPOINT"] = job.checkpoint
    if rules.report_url and token and worker:
        values["CONCLAVE_REPORT_URL"] = f"{rules.report_url.rstrip('/')}/v1/jobs/{job.key}/report"
        values["CONCLAVE_REPORT_TOKEN"] = token
    if worker:
        values |= {
            "PET_NNODES": job.bounds,
            "PET_NPROC_PER_NODE": str(job.processes),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": join_host_port(host, job.port),
            "PET_RDZV_ID": job.uid,
            RENDEZVOUS_CONF: f"is_host={int(index == job.status.rendezvous)}",
            "PET_MAX_RESTARTS": str(RESTARTS),
            SHARED_STORE: "1",
        }
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    if worker:
        # the address that the others reach it by, also where host names resolve late
        found.append({"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return found


def _give_environment(container: dict[str, Any], values: list[dict[str, Any]]) -> None:
    """Ours first, so that the user's may refer to them; of one name the user's counts."""
    own: list[dict[str, Any]] = container.get("env") or []
    by_name = {one.get("name"): one for one in own}
    conf = by_name.get(RENDEZVOUS_CONF)
    if conf is not None and "is_host" not in str(conf.get("value", "")):
        is_host = next((one["value"] for one in values if one["name"] == RENDEZVOUS_CONF), "")
        conf["value"] = ",".join(filter(None, (str(conf.get("value") or ""), is_host)))
    container["env"] = [*(one for one in values if one["name"] not in by_name), *own]


def _prefer(spec: dict[str, Any], node: str) -> None:
    affinity = spec["affinity"] = spec.get("affinity") or {}
    terms = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    wished = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    terms[preferred] = [
        *(terms.get(preferred) or ()), {"weight": 100, "preference": {"matchExpressions": [wished]}},
    ]  # fmt: skip


def group_body(job: TrainingJob, group: Resource[Any]) -> dict[str, Any]:
    """The job's PodGroup, of the version that is served."""
    return {
        "apiVersion": group.api_version,
        "kind": group.kind,
        "metadata": {
            "name": job.name, "namespace": job.namespace, "labels": _labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        **group_patch(group_minimum(job), group),
    }  # fmt: skip


def group_patch(minimum: int, group: Resource[Any]) -> dict[str, Any]:
    """A merge patch of the group's minimum."""
    if group.group == GROUP:
        return {"spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}
    return {"spec": {"minMember": minimum}}


def service_body(job: TrainingJob) -> dict[str, Any]:
    """The headless Service that gives the pods their host names. Before they are ready too: they must meet first."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.name, "namespace": job.namespace, "labels": _labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_LABEL: job.name},
            "ports": [{"name": "rendezvous", "port": job.port, "targetPort": job.port}],
        },
    }  # fmt: skip
