"""The objects that pods are grouped by, as structs of their JSON, and what the model makes of each. Pure.

Kubernetes' PodGroup in its two versions (they differ in ``disruptionMode`` and in the name of the condition), the
PodGroup of the scheduler plug-ins, and Jobs. A group that cannot be used as it is written is a group with a
``problem``, so that its members and its owner can be told; nothing here raises.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from msgspec import field

from shared.kube import objects as api
from shared.kube.label_selectors import is_qualified_name
from shared.kube.objects import Json, ObjectMeta, Quantities
from shared.kube.resources import Resource
from shared.model.devices import ClaimRef
from shared.model.resources import parse_amount
from shared.model.units.pod_group import (
    GANG_ANNOTATION,
    GANG_BROKEN_ANNOTATION,
    GANG_MIN_COUNT_ANNOTATION,
    GANG_TOPOLOGY_ANNOTATION,
    GANG_TOPOLOGY_PREFERRED_ANNOTATION,
    MAX_MEMBERS,
    GroupSource,
    GroupTopology,
    PodGroup,
    WhenGangBreaks,
    group_key,
)

GROUP, PLUGINS_GROUP = "scheduling.k8s.io", "scheduling.x-k8s.io"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""On a pod: its PodGroup of the scheduler plug-ins, in the pod's namespace."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation, and since 1.28 label, of the pods of an Indexed Job."""
INDEXED = "Indexed"


# --- structs --------------------------------------------------------------------------------------------------------


class GangPolicy(Json, frozen=True):
    min_count: int = 0


class Empty(Json, frozen=True):
    """What says by being there."""


class SchedulingPolicy(Json, frozen=True):
    basic: Empty | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Json, frozen=True):
    key: str = ""


class SchedulingConstraints(Json, frozen=True):
    topology: list[TopologyConstraint] | None = None


class DisruptionMode(Json, frozen=True):
    single: Empty | None = None
    all: Empty | None = None


class NativeSpec(Json, frozen=True):
    """Of both versions: v1alpha2 has the word for the mode, v1beta1 the union."""

    scheduling_policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: list[api.PodResourceClaim] | None = None
    disruption_mode: str | DisruptionMode | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None


class KubeCondition(Json, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class Conditions(Json, frozen=True):
    conditions: list[KubeCondition] | None = None


class NativePodGroup(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NativeSpec = field(default_factory=NativeSpec)
    status: Conditions = field(default_factory=Conditions)


class PodGroupV1alpha2(NativePodGroup, frozen=True):
    """Of Kubernetes 1.36."""


class PodGroupV1beta1(NativePodGroup, frozen=True):
    """Of Kubernetes 1.37."""


class PluginsSpec(Json, frozen=True):
    min_member: int | None = None
    min_resources: Quantities | None = None
    schedule_timeout_seconds: int | None = None


class PluginsStatus(Json, frozen=True):
    phase: str | None = None


class PluginsPodGroup(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PluginsSpec = field(default_factory=PluginsSpec)
    status: PluginsStatus = field(default_factory=PluginsStatus)


class JobSpec(Json, frozen=True):
    completion_mode: str | None = None
    parallelism: int | None = None
    completions: int | None = None


class KubeJobStatus(Json, frozen=True):
    succeeded: int | None = None


class Job(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JobSpec = field(default_factory=JobSpec)
    status: KubeJobStatus = field(default_factory=KubeJobStatus)


PODGROUPS = Resource("PodGroup", GROUP, "v1beta1", "podgroups", True, PodGroupV1beta1)
PODGROUPS_V1ALPHA2 = Resource("PodGroup", GROUP, "v1alpha2", "podgroups", True, PodGroupV1alpha2)
PLUGINS_PODGROUPS = Resource("PodGroup", PLUGINS_GROUP, "v1alpha1", "podgroups", True, PluginsPodGroup)
JOBS = Resource("Job", "batch", "v1", "jobs", True, Job)

CONDITION_TYPES = {
    PODGROUPS.api_version: "PodGroupInitiallyScheduled",
    PODGROUPS_V1ALPHA2.api_version: "PodGroupScheduled",
}
"""What each version calls the condition that says whether the group is scheduled."""


# --- which group a pod is in ----------------------------------------------------------------------------------------


_JOB = (JOBS.api_version, JOBS.kind)


def group_of(pod: api.KubePod, owner: tuple[str, str, str]) -> str:
    """Key of the pod's group, "" where it has none; of two the native one. ``owner``: apiVersion, kind and name."""
    meta, native = pod.metadata, pod.spec.scheduling_group
    namespace, labels = meta.namespace or "", meta.labels or {}
    if native is not None and native.pod_group_name is not None:
        key = group_key(GroupSource.NATIVE, namespace, native.pod_group_name)
    elif labels.get(GROUP_LABEL):
        key = group_key(GroupSource.PLUGINS, namespace, labels[GROUP_LABEL])
    elif owner[:2] == _JOB and (COMPLETION_INDEX in labels or COMPLETION_INDEX in (meta.annotations or {})):
        key = group_key(GroupSource.JOB, namespace, owner[2])
    else:
        return ""
    return sys.intern(key)  # members share one string


# --- PodGroups ------------------------------------------------------------------------------------------------------


def native_group(item: NativePodGroup) -> PodGroup:
    """Kubernetes' own PodGroup, of the version that its type says."""
    resource = PODGROUPS if isinstance(item, PodGroupV1beta1) else PODGROUPS_V1ALPHA2
    spec, wanted = item.spec, CONDITION_TYPES[resource.api_version]
    gang = spec.scheduling_policy.gang
    condition = (wanted, "", "", "")
    for one in item.status.conditions or ():
        if one.type == wanted:
            condition = (wanted, one.status, one.reason or "", one.message or "")
    keys = [one.key for one in (spec.scheduling_constraints or SchedulingConstraints()).topology or ()]
    return _group(
        item.metadata, GroupSource.NATIVE, resource,
        gang=gang is not None,
        min_count=gang.min_count if gang is not None else 1,
        topology=GroupTopology(keys[0]) if keys else None,
        whole=spec.disruption_mode == "PodGroup" or _all(spec.disruption_mode),
        priority=spec.priority,
        never_preempts=spec.preemption_policy == "Never",
        condition=condition,
        problems=(_native_problem(spec), "" if gang is None else _count_problem(
            gang.min_count, "spec.schedulingPolicy.gang.minCount"
        )),
        claims=tuple(
            ClaimRef(one.name, one.resource_claim_name, one.resource_claim_template_name)
            for one in spec.resource_claims or ()
        ),
    )  # fmt: skip


def _all(mode: str | DisruptionMode | None) -> bool:
    return isinstance(mode, DisruptionMode) and mode.all is not None


def _native_problem(spec: NativeSpec) -> str:
    """What of the spec is not understood, or not honoured, here."""
    policy, mode = spec.scheduling_policy, spec.disruption_mode
    if spec.parent_composite_pod_group_name is not None:
        return (
            "spec.parentCompositePodGroupName: CompositePodGroup is not supported by this scheduler;"
            " create the group without it"
        )
    if (policy.basic is None) == (policy.gang is None):
        return "spec.schedulingPolicy: names not exactly one of basic and gang, which this scheduler knows; set one"
    if isinstance(mode, str) and mode not in ("Pod", "PodGroup"):
        return f"spec.disruptionMode: {mode[:64]!r} is not known here; give Pod or PodGroup"
    if isinstance(mode, DisruptionMode) and (mode.single is None) == (mode.all is None):
        return "spec.disruptionMode: names not exactly one of single and all, which this scheduler knows; set one"
    for index, one in enumerate(spec.resource_claims or ()):
        if one.resource_claim_name is None and one.resource_claim_template_name is None:
            where = f"spec.resourceClaims[{index}]"
            return (
                f"{where}: names neither a claim nor a template, which this scheduler knows; create the group with one"
            )
    if len((spec.scheduling_constraints or SchedulingConstraints()).topology or ()) > 1:
        return "spec.schedulingConstraints.topology: this scheduler honours one constraint; leave one"
    return ""


def plugins_group(item: PluginsPodGroup) -> PodGroup:
    """The PodGroup of the scheduler plug-ins. Its phase stands in ``condition``, of which the type is empty."""
    spec, problem = item.spec, ""
    amounts: list[tuple[str, int]] = []
    for name, quantity in sorted((spec.min_resources or {}).items()):
        try:
            amounts.append((name, parse_amount(name, quantity)))
        except ValueError as error:
            problem = f"spec.minResources[{name}]: {error}"
    if any(amount < 0 for _, amount in amounts):
        name = next(name for name, amount in amounts if amount < 0)
        problem, amounts = f"spec.minResources[{name}]: is negative; give an amount of 0 or more", []
    timeout = spec.schedule_timeout_seconds
    if timeout is not None and timeout < 0:
        problem, timeout = f"spec.scheduleTimeoutSeconds: {timeout} is negative; give seconds or leave it out", None
    members = 1 if spec.min_member is None else spec.min_member
    return _group(
        item.metadata, GroupSource.PLUGINS, PLUGINS_PODGROUPS,
        gang=True,
        min_count=members,
        timeout_s=float(timeout) if timeout else None,
        min_resources=tuple(amounts),
        condition=("", item.status.phase or "", "", ""),
        problems=(_count_problem(members, "spec.minMember"), problem),
    )  # fmt: skip


# --- Jobs -----------------------------------------------------------------------------------------------------------


def job_group(item: Job, of_namespace: Mapping[str, str] = {}) -> PodGroup | None:
    """The group that a Job's pods are; None where they are none and nobody asked for one.

    ``of_namespace``: the annotations of its namespace. The minimum is what may still run at once: a Job of 4 that has
    one completion to go is complete with one pod.
    """
    spec, own = item.spec, item.metadata.annotations or {}
    indexed, parallelism = spec.completion_mode == INDEXED, 1 if spec.parallelism is None else spec.parallelism
    wanted, where = own.get(GANG_ANNOTATION), ""
    if wanted is None and indexed:
        wanted, where = of_namespace.get(GANG_ANNOTATION), "namespace "
    if not indexed and wanted is None:
        return None
    problem = ""
    if wanted not in (None, "true", "false"):
        problem = f'{where}metadata.annotations[{GANG_ANNOTATION}]: {wanted[:64]!r} is neither "true" nor "false"'
    elif wanted == "true" and not indexed:
        problem = f"spec.completionMode: only a Job with completionMode {INDEXED} can be a gang; set it to {INDEXED}"
    to_go = parallelism
    if spec.completions is not None:
        to_go = min(parallelism, max(0, spec.completions - (item.status.succeeded or 0)))
    gang = wanted not in (None, "false") and indexed
    count, counted = _asked_count(own, parallelism) if gang else (1, "")
    return _group(
        item.metadata, GroupSource.JOB, JOBS,
        gang=gang,
        min_count=max(1, min(parallelism if count is None else count, to_go)) if gang else 1,
        problems=(problem, counted, _count_problem(parallelism, "spec.parallelism") if gang and parallelism else ""),
    )  # fmt: skip


def _asked_count(annotations: Mapping[str, str], parallelism: int) -> tuple[int | None, str]:
    """(the minimum that the Job's annotation names, None without it; what is wrong with it)."""
    text = annotations.get(GANG_MIN_COUNT_ANNOTATION)
    if text is None:
        return None, ""
    name = f"metadata.annotations[{GANG_MIN_COUNT_ANNOTATION}]"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        return None, f"{name}: {text[:64]!r} is no whole number; give 1 to {parallelism}"
    count = int(text)
    if not 1 <= count <= parallelism:
        return None, f"{name}: {count} is not from 1 to {parallelism}, the Job's parallelism; change one of the two"
    return count, ""


# --- what all have --------------------------------------------------------------------------------------------------


def _group(
    meta: ObjectMeta, source: GroupSource, resource: Resource[Any], *,
    gang: bool, min_count: int, problems: tuple[str, ...], condition: tuple[str, str, str, str] = ("", "", "", ""),
    topology: GroupTopology | None = None, whole: bool = False, priority: int | None = None,
    never_preempts: bool = False,
    timeout_s: float | None = None, min_resources: tuple[tuple[str, int], ...] = (),
    claims: tuple[ClaimRef, ...] = (),
) -> PodGroup:  # fmt: skip
    annotations, namespace = meta.annotations or {}, meta.namespace or ""
    broken, broken_problem = _broken(annotations)
    topology, topology_problem = _topology(annotations, topology)
    return PodGroup(
        key=group_key(source, namespace, meta.name),
        source=source,
        namespace=namespace,
        name=meta.name,
        uid=meta.uid,
        api_version=resource.api_version,
        # a Job's status changes with each pod: that is no news of the group
        resource_version="" if source is GroupSource.JOB else meta.resource_version,
        gang=gang,
        min_count=max(1, min_count),
        topology=topology,
        whole=whole,
        priority=priority,
        never_preempts=never_preempts,
        timeout_s=timeout_s,
        min_resources=min_resources,
        broken=broken,
        labels=meta.labels or {},
        created=meta.creation_timestamp or "",
        deleting=meta.deletion_timestamp is not None,
        condition=condition,
        generation=0 if source is GroupSource.JOB else meta.generation or 0,
        problem=next((one for one in (*problems, broken_problem, topology_problem) if one), ""),
        claims=claims,
    )


def _count_problem(count: int, where: str) -> str:
    if count < 1:
        return f"{where}: {count} is below 1; give 1 or more"
    if count > MAX_MEMBERS:
        return f"{where}: {count} is more than the {MAX_MEMBERS} pods that are placed together here; make it smaller"
    return ""


def _broken(annotations: Mapping[str, str]) -> tuple[WhenGangBreaks, str]:
    text = annotations.get(GANG_BROKEN_ANNOTATION)
    if text is None:
        return WhenGangBreaks.KEEP, ""
    try:
        return WhenGangBreaks(text), ""
    except ValueError:
        words = " or ".join(one.value for one in WhenGangBreaks)
        return (
            WhenGangBreaks.KEEP,
            f"metadata.annotations[{GANG_BROKEN_ANNOTATION}]: {text[:64]!r} is not known; give {words}",
        )


def _topology(annotations: Mapping[str, str], given: GroupTopology | None) -> tuple[GroupTopology | None, str]:
    """The constraint of the spec, or the one that an annotation asks for."""
    asked = {
        name: GroupTopology(annotations[name], required)
        for name, required in ((GANG_TOPOLOGY_ANNOTATION, True), (GANG_TOPOLOGY_PREFERRED_ANNOTATION, False))
        if name in annotations
    }
    if not asked:
        return given, ""
    where = f"metadata.annotations[{next(iter(asked))}]"
    if len(asked) > 1 or given is not None:
        other = GANG_TOPOLOGY_PREFERRED_ANNOTATION if given is None else "spec.schedulingConstraints.topology"
        return given, f"{where}: a group has one topology constraint; remove it or {other}"
    (topology,) = asked.values()
    if not is_qualified_name(topology.key):
        named = f"{topology.key[:64]!r} is not the name of a node label" if topology.key else "names no node label"
        return None, f"{where}: {named}; give one such as topology.kubernetes.io/rack"
    return topology, ""
