"""A cluster as its API server shows it once: everything that scheduling rules read, for whoever keeps no watch.

A kind that is not served or that we may not read counts as empty and is told, but for kinds of devices and zones that
are not served; pods and nodes are needed. Reads only.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from shared.errors import ConfigError, KubeError, KubeRejected, KubeUnknown, ObjectError
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.kube.pods.convert_relations import node_images
from shared.kube.resources import NODES, PODS, ObjectList, Resource
from shared.kube.scheduling_kinds import DEVICE_KINDS, NATIVE_GROUPS, SCHEDULING_KINDS, ZONE_KINDS, SchedulingKind
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.object_changes import put_object

T = TypeVar("T")

READ = (*SCHEDULING_KINDS, NATIVE_GROUPS)
"""Kinds beside pods and nodes: of pod groups, which claims of devices their members share."""

SELDOM = frozenset({*(kind.name for kind in DEVICE_KINDS), *(kind.name for kind in ZONE_KINDS), NATIVE_GROUPS.name})
"""Kinds that many clusters lack."""

LIST_S = 60.0


class ClusterReads(Protocol):
    """What is asked of an API server here; a snapshot answers it too."""

    async def list(self, resource: Resource[T], *, timeout_s: float = 60.0) -> ObjectList[T]:
        """As ``KubeApi.list``."""
        ...

    async def get(self, resource: Resource[T], *, namespace: str, name: str, timeout_s: float = 5.0) -> T | None:
        """As ``KubeApi.get``."""
        ...


async def read_cluster(
    api: ClusterReads, kind_of_pods: Resource[Any] = PODS
) -> tuple[ClusterState, list[Any], list[str]]:
    """(everything that scheduling rules read, the pods as they are, what could not be read). ``kind_of_pods``: what
    each decodes to, where more of them is asked for than rules read."""
    wanted = api.list(NODES, timeout_s=LIST_S), api.list(kind_of_pods, timeout_s=LIST_S)
    try:
        nodes, pods = await asyncio.gather(*wanted)
    except KubeError as error:
        raise ConfigError(f"the API server does not list nodes and pods: {error}") from error
    lists = await asyncio.gather(*(list_kind(api, kind) for kind in READ))
    state = ClusterState()
    state.devices = ClaimedDevices(state.table, groups=state.pod_groups)
    state.cache.zones = NodeZones(state.cache)
    missing = [f"{bad.kind} {bad.namespace}/{bad.name} ({bad.error})" for bad in (*nodes.malformed, *pods.malformed)]
    for node in nodes.items:
        try:
            state.upsert_node(node_from_api(node), node_images(node))
        except ObjectError as error:
            missing.append(f"node {node.metadata.name} ({error})")
    for raw in pods.items:
        state.observe(pod_from_api(raw))
    for kind, there in zip(READ, lists, strict=True):
        missing += _take(state, kind, there)
    return state, list(pods.items), missing


@dataclasses.dataclass(frozen=True, slots=True)
class UnlistedKind:
    """A kind that the API server does not show us. ``why`` may say who we are."""

    name: str
    status: int
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})"


async def list_kind(api: ClusterReads, kind: SchedulingKind, *, silent: bool = False) -> ObjectList[Any] | UnlistedKind:
    """The kind's objects, or why there are none to see. ``silent``: that nobody serves it is not worth a word.
    ``ConfigError``: nobody knows."""
    try:
        return await api.list(kind.resource, timeout_s=LIST_S)
    except KubeRejected as error:
        if error.status == 404 and kind.older:
            older, *oldest = kind.older
            return await list_kind(api, dataclasses.replace(kind, resource=older, older=tuple(oldest)), silent=silent)
        if error.status == 404 and (silent or kind.name in SELDOM):
            return ObjectList((), "")  # a cluster without them has no devices or zones to look at
        if error.status in (403, 404):
            return UnlistedKind(kind.name, error.status, str(error))
        raise ConfigError(f"{kind.name}: the API server refuses to list them: {error}") from error
    except KubeUnknown as error:
        raise ConfigError(f"{kind.name}: the API server does not list them: {error}; ask again") from error


def _take(state: ClusterState, kind: SchedulingKind, found: ObjectList[Any] | UnlistedKind) -> Sequence[str]:
    """Put the objects into the state; what could not be looked at."""
    if isinstance(found, UnlistedKind):
        return (str(found),)
    missing = [f"{kind.name} {bad.namespace}/{bad.name} ({bad.error})" for bad in found.malformed]
    for item in found.items:
        key = kind.key(item.metadata)
        try:
            put_object(state, kind.name, key, kind.convert(item))
        except ObjectError as error:
            missing.append(f"{kind.name} {key} ({error})")
    return missing
