"""Judges pods by the rules themselves where there is no mesh to ask: from a cluster's API, or from files.

``answer_from`` reads every object that scheduling rules read, once, and writes nothing. What only a leader knows
(its queue, what it decided) is missing from the answer. A kind that is not served or that we may not read counts as
empty and is told in ``missing``, but for kinds of devices and zones that are not served; pods and nodes are needed.

``answers`` judges what-if questions in bulk, in the oracle's format: one JSON line in, one out; it talks to no cluster.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from services.cli.explain.text import OFFLINE
from services.cli.explain.workloads import owns
from services.cli.server.errors import PodUnknown
from shared.errors import ConfigError, KubeError, ObjectError
from shared.kube.cluster_objects import AskedInput, ObjectQuestion
from shared.kube.pod_groups import native_group, plugins_group
from shared.kube.pods.convert import owner_of, pod_from_api
from shared.kube.pods.convert_asks import device_pod_from_api
from shared.kube.pods.convert_devices import allocation_json, request_json
from shared.kube.pods.convert_relations import images_of
from shared.kube.resources import NODES, PODS
from shared.model.devices import DeviceClaim
from shared.runtime.kube.cluster_reads import LIST_S, ClusterReads, read_cluster
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.claims import held_by
from shared.scheduling.devices.dynamic_resources import Devices
from shared.scheduling.devices.extended import CLAIM_NAME
from shared.scheduling.devices.load import load_inventory
from shared.scheduling.explain.claims_whatif import ClaimsOutcome, NodeAllocations, what_if_claims
from shared.scheduling.explain.groups_whatif import what_if_units
from shared.scheduling.explain.pod_answer import add_verdicts, pod_answer, settled_state
from shared.scheduling.explain.whatif import FILTER, WhatIfOutcome, what_if
from shared.scheduling.framework import Rejection
from shared.scheduling.preemption.preemption import EvictionCandidate, Preemption
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster, load_pods
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.object_changes import put_object
from shared.scheduling.state.releases import Release

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient

T = TypeVar("T")

CHECK_S = 5.0


NODES_TRIED = 100_000
"""Dry runs of preemption: here nobody waits for the loop, so every node is tried."""


async def explain_pod(kubeconfig: Path, context: str, namespace: str, name: str) -> dict[str, Any]:
    """The answer about one pod. ``PodUnknown``: there is none. ``ConfigError``: the cluster cannot be read."""
    async with opened_cluster(kubeconfig, context) as api:
        return await answer_from(api, namespace, name)


async def explain_workload(
    kubeconfig: Path, context: str, kind: str, namespace: str, name: str
) -> tuple[int, dict[str, Any] | None]:
    """How many pods of a workload wait, and the answer about the one that has waited longest; None where none does.

    ``ConfigError``: the cluster cannot be read.
    """
    async with opened_cluster(kubeconfig, context) as api:
        return await workload_answer(api, kind, namespace, name)


@asynccontextmanager
async def opened_cluster(kubeconfig: Path | None, context: str) -> AsyncIterator[KubeClient]:
    from shared.adapters.kube.api import KubeClient
    from shared.adapters.kube.config import KubeConfig

    client = KubeClient(await KubeConfig.load(kubeconfig, context=context or None))
    try:
        await client.check(timeout_s=CHECK_S)
        await client.check_reads(NODES, PODS, timeout_s=CHECK_S)
        yield client
    finally:
        await client.close()


async def workload_answer(api: ClusterReads, kind: str, namespace: str, name: str) -> tuple[int, dict[str, Any] | None]:
    """``explain_workload`` from what ``api`` shows now."""
    try:
        pods = await api.list(PODS, timeout_s=LIST_S)
    except KubeError as error:
        raise ConfigError(f"the API server does not list the pods of {kind} {namespace}/{name}: {error}") from error
    waiting = [
        pod.metadata
        for pod in pods.items
        if pod.metadata.namespace == namespace
        and not pod.spec.node_name
        and pod.status.phase in (None, "Pending")
        and owns(kind, name, *owner_of(pod.metadata)[1:])
    ]
    if not waiting:
        return 0, None
    oldest = min(waiting, key=lambda meta: (meta.creation_timestamp or "", meta.name))
    return len(waiting), await answer_from(api, namespace, oldest.name)


async def answer_from(api: ClusterReads, namespace: str, name: str) -> dict[str, Any]:
    """``explain_pod`` from what ``api`` shows now."""
    try:
        found = await api.get(PODS, namespace=namespace, name=name, timeout_s=CHECK_S)
    except KubeError as error:
        raise ConfigError(f"the API server does not say what {namespace}/{name} is: {error}") from error
    if found is None:
        raise PodUnknown(f"there is no pod {namespace}/{name}: it is gone, or was never created")
    state, _, missing = await read_cluster(api)
    pod = replace(pod_from_api(found), images=images_of(found.spec), owner=owner_of(found.metadata))
    settled = settled_state(pod, None)
    summary = settled or ("pending", pod.condition[2] or "nobody has said why")
    answer = pod_answer(pod, found.metadata.annotations or {}, *summary)
    if settled is None:
        feasibility = FeasibilityCache(state.table, profile=UNMEASURED)
        add_verdicts(answer, state, feasibility, pod, nodes_tried=NODES_TRIED)
        if pod.pod_class.latency_strict and pod.pod_class.latency_target:
            missing = [*missing, f"how far nodes are from {pod.pod_class.latency_target}: no object says it"]
    return {**answer, "source": OFFLINE, "missing": missing}


_decoder = msgspec.json.Decoder(ObjectQuestion)


def answers(lines: Iterable[bytes], release: Release = Release.V1_36) -> Iterator[dict[str, Any]]:
    """One answer per question, by the rules of that release, blank lines left out. Raises ``ConfigError`` with the
    number of a line it cannot use."""
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            question = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"line {number}: {error}; "
                "give one JSON object per line with id and input (nodes, pods, and pod, podGroups or pluginsPodGroups)"
            ) from error
        try:
            yield answer(question, release)
        except ObjectError as error:
            raise ConfigError(f"line {number}: {error}; correct this object or leave it out") from error


def answer(question: ObjectQuestion, release: Release = Release.V1_36) -> dict[str, Any]:
    """The verdict for one question. Raises ``ObjectError`` for an object that cannot be used."""
    state = load_cluster(question.input, release)
    if question.input.pod is None:
        return {"id": question.id, **_units_json(state, question.input)}
    pod, feasibility = incoming_pod(question.input.pod), FeasibilityCache(state.table, profile=UNMEASURED)
    inventory = load_inventory(question.input, release)
    if inventory is None:
        return {"id": question.id, **verdict_json(what_if(state, feasibility, pod))}
    devices = Devices(inventory, _selectors(release))
    asks = replace(device_pod_from_api(question.input.pod), uid=pod.uid)
    for group in map(native_group, question.input.pod_groups or ()):
        asks = held_by(asks, group, inventory.claims) if group.key == pod.group else asks
    found = what_if_claims(state, feasibility, pod, devices, asks, time.time(), lambda: str(uuid4()))
    return {"id": question.id, **claims_verdict_json(found)}


@lru_cache
def _selectors(release: Release) -> Selectors:
    """Compiled selectors outlive one question."""
    return Selectors(release)


def _units_json(state: ClusterState, asked: AskedInput) -> dict[str, Any]:
    """The oracle's form of what becomes of all pending pods; ``reordered``: groups that it would not
    place, and the mesh would."""
    groups = [native_group(item) for item in asked.pod_groups or ()]
    groups += [plugins_group(item) for item in asked.plugins_pod_groups or ()]
    for group in groups:
        if group.problem:
            raise ObjectError(group.problem, field=f"PodGroup {group.title}")
        if group.claims:
            why = "spec.resourceClaims: --batch does not say where units go that share claims; ask about one pod"
            raise ObjectError(why, field=f"PodGroup {group.title}")
        put_object(state, "podgroups", group.title, group)
    pods = load_pods(asked)
    names = {pod.uid: pod.name for pod in pods}
    found = what_if_units(state, pods, max(1, asked.cycles))
    answered: dict[str, Any] = {"bound": sorted(names[uid] for uid in found.bound)}
    if found.gated:
        answered["preEnqueue"] = {names[uid]: _rejection_json(why) for uid, why in sorted(found.gated.items())}
    if found.reordered:
        answered["reordered"] = {
            group: sorted(names[uid] for uid in nodes) for group, nodes in sorted(found.reordered.items())
        }
    return answered


def verdict_json(outcome: WhatIfOutcome) -> dict[str, Any]:
    """The oracle's form of a verdict."""
    infeasible = {
        name: _rejection_json(found.rejection) | ({} if found.stage == FILTER else {"stage": found.stage})
        for name, found in outcome.infeasible.items()
    }
    scores = {
        name: {**dict(sorted(found.items())), "total": outcome.totals[name]} for name, found in outcome.scores.items()
    }
    preemption = outcome.preemption or Preemption()
    return {
        "feasible": list(outcome.feasible),
        "infeasible": infeasible,
        "scores": scores,
        "best": list(outcome.best),
        "preEnqueue": None if outcome.gated is None else _rejection_json(outcome.gated),
        "preemption": _preemption_json(preemption),
        "preemptionReason": preemption.reason,
    }


def claims_verdict_json(found: ClaimsOutcome) -> dict[str, Any]:
    """The oracle's form of a verdict about a pod that may claim devices."""
    answered = verdict_json(found.outcome)
    if found.gated is not None:
        answered["preEnqueue"] = _rejection_json(found.gated)
    allocations = {
        name: [
            {"claim": claim.key, **allocation_json(allocation), **_made_json(claim, here)}
            for claim, allocation in here.claims
        ]
        for name, here in found.allocations.items()
    }
    post_filter: dict[str, Any] = {}
    if found.unblock is not None and found.unblock.deallocate:
        post_filter["deallocated"] = found.unblock.deallocate[0].key
        if len(found.unblock.deallocate) > 1:
            post_filter["deallocatedAnyOf"] = [claim.key for claim in found.unblock.deallocate]
    elif found.unblock is not None and found.unblock.delete is not None:
        post_filter["deleted"] = found.unblock.delete.key
    return {**answered, "aborted": found.aborted, "allocations": allocations, "postFilter": post_filter}


def _made_json(claim: DeviceClaim, here: NodeAllocations) -> dict[str, Any]:
    """Of the claim that is made for extended resources: what it asks, and who is served by what."""
    if claim.name != CLAIM_NAME:
        return {}
    if not claim.requests:
        return {"bindFails": True}
    mappings = [
        {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
        for one in here.mapped
    ]
    return {"requests": [request_json(one) for one in claim.requests], "requestMappings": mappings}


def _rejection_json(rejection: Rejection) -> dict[str, Any]:
    return {"plugin": rejection.plugin, "code": rejection.code.value, "reasons": sorted(rejection.reasons)}


def _preemption_json(preemption: Preemption) -> dict[str, Any] | None:
    if not preemption.best:
        return None
    best = sorted(preemption.best, key=lambda candidate: candidate.node_name)
    found: dict[str, Any] = {"nominated": best[0].node_name}
    if len(best) > 1:
        found["nominatedAnyOf"] = [candidate.node_name for candidate in best]
    found["victims"] = [pod.key for pod in best[0].victims]
    found["candidates"] = {c.node_name: _candidate_json(c) for c in preemption.candidates}
    return found


def _candidate_json(candidate: EvictionCandidate) -> dict[str, Any]:
    found: dict[str, Any] = {"victims": [pod.key for pod in candidate.victims]}
    if candidate.violations:
        found["pdbViolations"] = candidate.violations
    return found
