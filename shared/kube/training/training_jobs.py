"""TrainingJob objects (``conclave.io/v1alpha1``) as typed structs, and their conversion to the model. Pure.

A field that cannot be used never loses the job: it is told in ``TrainingJob.problem``, with the remedy, and what runs
of the job stays as it is. So the structs are lenient: what the CRD's schema refuses may still come from one that was
changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import field

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.objects import Json, ObjectMeta
from shared.kube.pod_groups import PLUGINS_PODGROUPS, PODGROUPS, PODGROUPS_V1ALPHA2
from shared.kube.pods.convert_requests import effective_requests, with_default_requests
from shared.kube.resources import Resource
from shared.kube.spec_reader import SpecReader, field_at
from shared.kube.training.training_status import seconds_of, status_from_api, times_from_api
from shared.model.controllers.training_job import (
    MAX_NAME,
    MAX_WORKERS,
    GpuNode,
    MadeObject,
    TrainingJob,
)
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE, PODS
from shared.model.units.queue import QUEUE_LABEL

GPU_RESOURCES = (GPU_MILLI, "nvidia.com/gpu", "amd.com/gpu")
"""What GPUs are asked for by; the first that a pod or node names counts."""
GPU_TYPE_LABELS = ("conclave.io/gpu-model", "nvidia.com/gpu.product")

MAX_BATCH = 1 << 40


class TrainingJobObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Any = None
    status: Any = None


class _Variable(Json, frozen=True):
    name: str = ""


class _TemplateContainer(Json, frozen=True):
    env: list[_Variable] | None = None


class _TemplateSpec(Json, frozen=True):
    containers: list[_TemplateContainer] | None = None


class _TemplateMeta(Json, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Json, frozen=True):
    """What ``training_pods`` builds upon: where it is otherwise, no pod can be made. The rest the API server judges."""

    metadata: _TemplateMeta | None = None
    spec: _TemplateSpec = field(default_factory=_TemplateSpec)


class _PodOfTemplate(Json, frozen=True):
    spec: api.PodSpec = field(default_factory=api.PodSpec)


TRAINING_JOBS = Resource("TrainingJob", "conclave.io", "v1alpha1", "trainingjobs", True, TrainingJobObject)
SERVICES = Resource("Service", "", "v1", "services", True, api.PartialObject)

GROUP_VERSIONS = (PODGROUPS, PODGROUPS_V1ALPHA2, PLUGINS_PODGROUPS)
"""Which PodGroup a job becomes: the first that is served."""


def job_from_api(item: TrainingJobObject) -> TrainingJob:
    """The job; what is wrong with it in ``problem``."""
    meta, spec = item.metadata, item.spec
    read, at = SpecReader(), partial(field_at, spec)
    minimum = read.whole(*at("workers.minimum"), 1, MAX_WORKERS, 1)
    maximum = read.whole(*at("workers.maximum"), 1, MAX_WORKERS, minimum)
    if minimum > maximum:
        read.refuse(
            "workers.minimum", minimum,
            f"is more than spec.workers.maximum, {maximum}; lower the one or raise the other",
        )  # fmt: skip
        maximum = minimum
    requested = read.whole(*at("workers.requested"), 1, MAX_WORKERS, maximum)
    if not minimum <= requested <= maximum:
        read.refuse("workers.requested", requested, f"must be from {minimum} to {maximum}, the minimum and the maximum")
        requested = min(max(requested, minimum), maximum)
    template = _template(read, *at("template"), needed=True)
    ps = read.whole(*at("parameterServers.replicas"), 0, MAX_WORKERS, 0)
    ps_template = _template(read, *at("parameterServers.template"), needed=ps > 0)
    share = _share(read, spec)
    amounts, ps_amounts = _amounts(read, "template", template), _amounts(read, "parameterServers.template", ps_template)
    gpus = share or gpu_milli(amounts)
    if share and template and _template_gpus(template):
        read.refuse("gpuShare", share / MILLI_PER_DEVICE, "is given beside GPUs in the template's requests; keep one")
    batch, batch_range = _batch(read, spec)
    if len(meta.name) > MAX_NAME:
        read.problems.append(
            f"metadata.name: has {len(meta.name)} characters; at most {MAX_NAME}: pods are named by it"
        )
    paused = read.flag(*at("paused"))
    return TrainingJob(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation or 0,
        created=seconds_of(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        minimum=minimum,
        maximum=maximum,
        requested=requested,
        template=template,
        ps=ps,
        ps_template=ps_template,
        gpu_milli=gpus,
        ps_gpu_milli=gpu_milli(ps_amounts),
        amounts=counted({**amounts, **({GPU_MILLI: share} if share else {})}),
        ps_amounts=counted(ps_amounts),
        gpu_share=share > 0,
        processes=read.whole(*at("processesPerWorker"), 1, 64, 1),
        port=read.whole(*at("rendezvousPort"), 1, 65_535, 29_400),
        batch=batch,
        batch_range=batch_range,
        checkpoint=read.text(*at("checkpoint.path")),
        checkpoint_every_s=read.seconds(*at("checkpoint.intervalSeconds"), 0.0),
        restart_s=read.seconds(*at("restartSeconds"), 30.0),
        priority=read.whole(*at("priority"), -1_000_000_000, 1_000_000_000, 0),
        priority_class=read.text(*at("priorityClassName")),
        queue=read.text(*at("queue")) or _labels_of(template).get(QUEUE_LABEL, ""),
        model=read.text(*at("model")),
        backoff_limit=read.whole(*at("backoffLimit"), 0, 1000, 3),
        paused=paused,
        problem="; ".join(read.problems),
        status=status_from_api(item.status),
        times=times_from_api(item.status),
    )


def _share(read: SpecReader, spec: Any) -> int:
    """Thousandths of a device; 0: it asks for none this way."""
    _, value = field_at(spec, "gpuShare")
    if value is None:
        return 0
    try:
        share = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        share = math.nan
    if 0.01 <= share <= 1.0:
        return round(share * MILLI_PER_DEVICE)
    read.refuse("gpuShare", value, "must be 0.01 to 1, a share of one GPU; whole ones go into the template")
    return 0


def _template_gpus(template: Mapping[str, Any]) -> bool:
    found = repr(template.get("spec", {}).get("containers"))
    return any(name in found for name in GPU_RESOURCES)


def _batch(read: SpecReader, spec: Any) -> tuple[int, tuple[int, int] | None]:
    at = partial(field_at, spec)
    size = read.whole(*at("batch.size"), 1, MAX_BATCH, 0)
    (_, least), (_, most) = at("batch.minimum"), at("batch.maximum")
    if least is None and most is None:
        return size, None
    if least is None or most is None:
        read.problems.append("spec.batch: an adaptive batch has minimum and maximum; give both, or neither")
        return size, None
    low = read.whole(*at("batch.minimum"), 1, MAX_BATCH, size)
    high = read.whole(*at("batch.maximum"), 1, MAX_BATCH, size)
    if low > high or not low <= size <= high:
        read.refuse("batch.size", size, f"must be from batch.minimum, {low}, to batch.maximum, {high}")
        return size, None
    return size, (low, high)


def _template(read: SpecReader, name: str, value: Any, *, needed: bool) -> Mapping[str, Any]:
    spec = value.get("spec") if isinstance(value, Mapping) else None
    if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list) and spec["containers"]:
        policy = spec.get("restartPolicy")
        if policy not in (None, "Never"):
            read.refuse(f"{name}.spec.restartPolicy", policy, "cannot be; leave it out, or write Never")
        try:
            msgspec.convert(value, _Template)
            msgspec.convert(value, _PodOfTemplate)
        except msgspec.ValidationError as error:
            read.problems.append(f"spec.{name}: {error}; write it as a pod has it")
            return {}
        return value  # type: ignore[no-any-return]  # a mapping, as was just seen
    if needed or value is not None:
        read.problems.append(f"spec.{name}.spec.containers: has none; write a pod template with one container")
    return {}


def _amounts(read: SpecReader, name: str, template: Mapping[str, Any]) -> dict[str, int]:
    """What a pod of the template at ``name`` asks for, by resource."""
    try:
        return requests_of_template(template)
    except ObjectError as error:
        read.problems.append(f"spec.{name}.{error}")
        return {}


def gpu_resource(amounts: Mapping[str, int]) -> str:
    """The resource among these that GPUs are asked for by; "" for none."""
    return next((name for name in GPU_RESOURCES if amounts.get(name)), "")


def gpu_milli(amounts: Mapping[str, int]) -> int:
    """Thousandths of GPUs among amounts by resource name."""
    name = gpu_resource(amounts)
    return amounts.get(name, 0) * (1 if name == GPU_MILLI else MILLI_PER_DEVICE)


def requests_of_template(template: Mapping[str, Any]) -> dict[str, int]:
    """What a pod of the template asks for, by resource. Raises ``ObjectError`` naming the field."""
    if not template:
        return {}
    spec = msgspec.convert(template["spec"], api.PodSpec)  # as it was read, it fits
    return effective_requests(api.KubePod(spec=with_default_requests(spec)))


def counted(requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """What a pod counts as in a Queue: what it asks for, and itself."""
    return tuple(sorted((name, amount) for name, amount in {**requests, PODS: 1}.items() if amount > 0))


def _labels_of(template: Mapping[str, Any]) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


# --- nodes, and what we make ------------------------------------------------------------------------------------


def owner_of(meta: ObjectMeta) -> str:
    """The uid of the TrainingJob that controls it; "" where none does."""
    for one in meta.owner_references or ():
        if one.controller and one.kind == TRAINING_JOBS.kind and one.api_version == TRAINING_JOBS.api_version:
            return one.uid
    return ""


def gpu_node(item: api.KubeNode) -> GpuNode:
    """A node's GPUs; amounts that cannot be read count as none."""
    from shared.kube.pods.convert import node_from_api

    node = node_from_api(item)
    labels = node.labels
    kind = next((labels[name] for name in GPU_TYPE_LABELS if name in labels), "")
    is_open = node.ready and not node.unschedulable and not node.deleting and not node.invalid
    amounts = tuple(sorted(node.allocatable.items()))
    return GpuNode(node.name, gpu_milli(node.allocatable), kind, is_open, node.ready, amounts)


def made_object(kind: str, item: Any) -> MadeObject:
    """A PodGroup of any version, or a Service."""
    meta: ObjectMeta = item.metadata
    minimum = 0
    if kind == PODGROUPS.kind:
        gang = getattr(getattr(item.spec, "scheduling_policy", None), "gang", None)
        minimum = gang.min_count if gang is not None else getattr(item.spec, "min_member", None) or 0
    queue = (meta.labels or {}).get(QUEUE_LABEL, "")
    deleting = meta.deletion_timestamp is not None
    return MadeObject(kind, meta.namespace or "", meta.name, meta.uid, owner_of(meta), minimum, deleting, queue)
