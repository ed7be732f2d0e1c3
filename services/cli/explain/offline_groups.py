"""Why a pod group waits, where there is no mesh to ask: from a cluster's API, by the rules themselves.

The same trial as a leader's (``shared/scheduling/explain/group_answer.py``). What only a leader knows is missing: who
is on the way to a node, and what a Queue holds back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.cli.explain.offline import CHECK_S, opened_cluster, workload_answer
from services.cli.explain.text import OFFLINE
from shared.errors import ConfigError, KubeError, KubeRejected
from shared.kube.pod_groups import job_group
from shared.kube.pods.convert import pod_from_api
from shared.kube.resources import NAMESPACES
from shared.kube.scheduling_kinds import JOBS, NATIVE_GROUPS, PLUGINS_GROUPS, SchedulingKind
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.runtime.kube.cluster_reads import ClusterReads, read_cluster
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.explain.group_answer import explain_group as tried
from shared.scheduling.gates import entry_rejection
from shared.scheduling.groups.phase import BROKEN, WAITING, no_object_text, phase, too_few_text
from shared.scheduling.groups.quorum import Roll, reason_of, short_of, why_not_queued
from shared.scheduling.reasons import GROUP_INVALID, INCOMPLETE, UNSCHEDULABLE
from shared.scheduling.state.cluster_state import ClusterState

KIND_OF: Mapping[GroupSource, SchedulingKind] = {
    GroupSource.NATIVE: NATIVE_GROUPS, GroupSource.PLUGINS: PLUGINS_GROUPS, GroupSource.JOB: JOBS,
}  # fmt: skip


async def explain_group(kubeconfig: Path, context: str, namespace: str, name: str) -> dict[str, Any] | None:
    """The answer about a pod group, as a leader gives it; None where there is none. ``ConfigError``: the cluster cannot
    be read."""
    async with opened_cluster(kubeconfig, context) as api:
        return await group_answer(api, namespace, name)


async def explain_job(kubeconfig: Path, context: str, namespace: str, name: str) -> tuple[int, dict[str, Any] | None]:
    """The answer about the group that a Job is (and 0); of another Job as ``explain_workload``."""
    async with opened_cluster(kubeconfig, context) as api:
        return await job_answer(api, namespace, name)


async def job_answer(api: ClusterReads, namespace: str, name: str) -> tuple[int, dict[str, Any] | None]:
    """``explain_job`` from what ``api`` shows now."""
    unseen: list[str] = []
    found = await _answer_of(api, namespace, name, (GroupSource.JOB,), unseen)
    if found is not None:
        return 0, found
    count, found = await workload_answer(api, "job", namespace, name)
    return count, None if found is None else {**found, "missing": [*unseen, *found["missing"]]}


async def group_answer(api: ClusterReads, namespace: str, name: str) -> dict[str, Any] | None:
    """``explain_group`` from what ``api`` shows now: of the first source that has a group of the name, or members."""
    unseen: list[str] = []
    found = await _answer_of(api, namespace, name, tuple(GroupSource), unseen)
    if found is None and unseen:
        raise ConfigError(f"no pod names a group {namespace}/{name}, and not all of its kinds may be read: {unseen[0]}")
    return found


async def _answer_of(
    api: ClusterReads, namespace: str, name: str, sources: tuple[GroupSource, ...], unseen: list[str]
) -> dict[str, Any] | None:
    groups = {source: await _group(api, source, namespace, name, unseen) for source in sources}
    if sources == (GroupSource.JOB,) and groups[GroupSource.JOB] is None:
        return None
    state, raw, missing = await read_cluster(api)
    raw.sort(key=lambda item: item.metadata.creation_timestamp or "")
    pods = [pod for item in raw if (pod := pod_from_api(item)).namespace == namespace and pod.group]
    for source, group in groups.items():
        members = [pod for pod in pods if pod.group == group_key(source, namespace, name)]
        if group is not None or (members and source is not GroupSource.JOB):
            return {
                **_answer(state, group_key(source, namespace, name), group, members),
                "missing": [*unseen, *missing],
            }
    return None


def _answer(state: ClusterState, key: str, group: PodGroup | None, members: list[Pod]) -> dict[str, Any]:
    done = sum(pod.phase == "Succeeded" for pod in members)
    there = [pod for pod in members if not pod.finished and not pod.terminating]
    bound = [pod for pod in there if pod.node_name]
    waiting = sorted(
        (_described(state, pod) for pod in there if not pod.node_name and entry_rejection(pod) is None),
        key=lambda pod: -pod.priority,
    )
    mixed = len({pod.scheduler_name for pod in there}) > 1
    roll = Roll(len(waiting) + len(bound), len(bound), mixed, (), done)
    totals = state.table.totals()
    message = why_not_queued(key, group, roll, totals)
    reason = ""
    if message:
        reason = reason_of(group, message, short_of_nodes=group is not None and message == short_of(group, totals))
    if group is None:
        message = no_object_text(key)
    elif reason == INCOMPLETE:
        message = too_few_text(roll.there, group.min_count, group.min_count - roll.there)
    now = None
    if group is not None:
        now = tried(state, FeasibilityCache(state.table, profile=UNMEASURED), group, waiting, bound)
        if not message and waiting and not now["reached"]:
            reason, message = UNSCHEDULABLE, waiting[0].condition[2] or now["summary"]
    doing = phase(group, away=False, bound=len(bound), waiting=len(waiting), done=done)
    told = doing in (WAITING, BROKEN)
    return {
        "unit": key.partition(":")[2], "phase": doing,
        "summary": message if now is None or reason == GROUP_INVALID else now["summary"],
        "reason": reason if told else "", "message": message if told else "", "queue": "", "blocked": "", "now": now,
        "source": OFFLINE,
    }  # fmt: skip


def _described(state: ClusterState, pod: Pod) -> Pod:
    """As a leader knows it: with what it claims, by which members share claims."""
    return state.devices.described(pod) if state.devices is not None else pod


async def _group(
    api: ClusterReads, source: GroupSource, namespace: str, name: str, unseen: list[str]
) -> PodGroup | None:
    """The group object; None where there is none, or nobody serves its kind. ``unseen``: what we may not read."""
    kind = KIND_OF[source]
    for resource in (kind.resource, *kind.older):
        try:
            item = await api.get(resource, namespace=namespace, name=name, timeout_s=CHECK_S)
        except KubeRejected as error:
            if error.status in (403, 404):
                unseen += [f"{resource.name} ({error})"] if error.status == 403 else []
                continue
            raise ConfigError(f"{kind.name}: the API server refuses {namespace}/{name}: {error}") from error
        except KubeError as error:
            raise ConfigError(f"the API server does not say what {namespace}/{name} is: {error}") from error
        if item is None:
            continue
        if source is not GroupSource.JOB:
            found: object = replace(kind, resource=resource).convert(item)
            assert isinstance(found, PodGroup)
            return found
        group = job_group(item, await _annotations(api, namespace, unseen))
        return group if group is not None and (group.gang or group.problem) else None
    return None


async def _annotations(api: ClusterReads, namespace: str, unseen: list[str]) -> Mapping[str, str]:
    """Of the namespace, which says for its Jobs whether they are gangs."""
    try:
        found = await api.get(NAMESPACES, namespace="", name=namespace, timeout_s=CHECK_S)
    except KubeError as error:
        status = error.status if isinstance(error, KubeRejected) else 0
        if status not in (403, 404):
            raise ConfigError(f"the API server does not say what namespace {namespace} is: {error}") from error
        unseen += [f"{NAMESPACES.name} ({error})"] if status == 403 else []
        return {}
    return (found.metadata.annotations or {}) if found is not None else {}
