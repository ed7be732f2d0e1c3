"""Explains one pod from a cluster's API alone, where there is no mesh to ask: by the same rules as a leader.

It reads every object that scheduling rules read, once, and writes nothing. What only a leader knows (its queue, what it
decided) is missing from the answer. A kind that is not served or that we may not read counts as empty and is told in
``missing``; pods and nodes are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from services.cli.explain.text import OFFLINE
from services.cli.server.errors import PodUnknown
from shared.errors import ConfigError, KubeError, KubeRejected, KubeUnknown, ObjectError
from shared.kube.convert import node_from_api, owner_of, pod_from_api
from shared.kube.convert_relations import images_of, node_images
from shared.kube.resources import NODES, PODS, ObjectList
from shared.kube.scheduling_kinds import SCHEDULING_KINDS, SchedulingKind
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.pod_answer import add_verdicts, pod_answer, settled_state
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.object_changes import put_object

if TYPE_CHECKING:
    from shared.ports import KubeApi

CHECK_S, LIST_S = 5.0, 60.0

NODES_TRIED = 100_000
"""Dry runs of preemption: here nobody waits for the loop, so every node is tried."""


async def explain_from_api(kubeconfig: Path | None, context: str, namespace: str, name: str) -> dict[str, Any]:
    """The answer. ``PodUnknown``: no such pod. ``ConfigError``: the cluster cannot be read."""
    from shared.adapters.kube.api import KubeClient
    from shared.adapters.kube.config import KubeConfig

    client = KubeClient(await KubeConfig.load(kubeconfig, context=context or None))
    try:
        await client.check(timeout_s=CHECK_S)
        await client.check_reads(NODES, PODS, timeout_s=CHECK_S)
        return await answer_from(client, namespace, name)
    finally:
        await client.close()


async def answer_from(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    """The answer from what ``api`` shows now. Raises as ``explain_from_api``."""
    try:
        found = await api.get(PODS, namespace=namespace, name=name, timeout_s=CHECK_S)
        if found is None:
            raise PodUnknown(f"there is no pod {namespace}/{name}: it is gone, or was never created")
        nodes, pods = await asyncio.gather(api.list(NODES, timeout_s=LIST_S), api.list(PODS, timeout_s=LIST_S))
    except KubeError as error:
        raise ConfigError(f"the API server does not say what {namespace}/{name} is: {error}") from error
    lists = await asyncio.gather(*(_list(api, kind) for kind in SCHEDULING_KINDS))
    state = ClusterState()
    missing = [f"{bad.kind} {bad.namespace}/{bad.name} ({bad.error})" for bad in (*nodes.malformed, *pods.malformed)]
    for node in nodes.items:
        try:
            state.upsert_node(node_from_api(node), node_images(node))
        except ObjectError as error:
            missing.append(f"node {node.metadata.name} ({error})")
    for raw in pods.items:
        state.observe(pod_from_api(raw))
    for kind, listed in zip(SCHEDULING_KINDS, lists, strict=True):
        missing += _take(state, kind, listed)
    pod = replace(pod_from_api(found), images=images_of(found.spec), owner=owner_of(found.metadata))
    settled = settled_state(pod, None)
    summary = settled or ("pending", pod.condition[2] or "nobody has said why")
    answer = pod_answer(pod, found.metadata.annotations or {}, *summary)
    if settled is None:
        add_verdicts(answer, state, FeasibilityCache(state.table), pod, nodes_tried=NODES_TRIED)
    return {**answer, "source": OFFLINE, "missing": missing}


async def _list(api: KubeApi, kind: SchedulingKind) -> ObjectList[Any] | str:
    """The kind's objects, or why there are none to see. ``ConfigError``: nobody knows."""
    try:
        return await api.list(kind.resource, timeout_s=LIST_S)
    except KubeRejected as error:
        if error.status in (403, 404):
            return f"{kind.name} ({error})"
        raise ConfigError(f"{kind.name}: the API server refuses to list them: {error}") from error
    except KubeUnknown as error:
        raise ConfigError(f"{kind.name}: the API server does not list them: {error}; ask again") from error


def _take(state: ClusterState, kind: SchedulingKind, listed: ObjectList[Any] | str) -> Sequence[str]:
    """Put the objects into the state; what could not be looked at."""
    if isinstance(listed, str):
        return (listed,)
    missing = [f"{kind.name} {bad.namespace}/{bad.name} ({bad.error})" for bad in listed.malformed]
    for item in listed.items:
        key = kind.key(item.metadata)
        try:
            put_object(state, kind.name, key, kind.convert(item))
        except ObjectError as error:
            missing.append(f"{kind.name} {key} ({error})")
    return missing
