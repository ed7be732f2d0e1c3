"""Watches of the API server as events for a core: each function follows one kind for ever and posts what changes.

They translate and decide nothing. An object that cannot be used is logged; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube.contents import node_content, pod_content
from shared.kube.convert import node_from_api, pod_from_api
from shared.kube.convert_relations import node_images
from shared.kube.objects import Node, Pod
from shared.kube.resources import NODES, PODS, Deleted, Malformed, Upserted
from shared.kube.scheduling_kinds import SchedulingKind
from shared.model import node as node_model
from shared.model import pod as pod_model
from shared.model.cluster_events import (
    ClusterEvent,
    Listed,
    NodeDeleted,
    NodeUpserted,
    ObjectChanged,
    PodDeleted,
    PodUpserted,
)
from shared.model.pod_group import Source
from shared.ports import KubeApi
from shared.runtime.kube.reflector import Batch, Reflector, Synced

log = structlog.get_logger()

Post = Callable[[list[ClusterEvent]], None]


class Watches:
    """How a leader follows the API server: each call watches for itself (``SharedWatches``: one watch for several)."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def follow_pods(self, post: Post, *, job_groups: bool = True) -> None:
        """Every pod; eternal. See ``pod_events``. Changes that nothing is made of are left out."""
        await pod_reflector(self._api).run(lambda batch: post(pod_events(batch, job_groups=job_groups)))

    async def follow_nodes(self, post: Post, *, images: bool = False, drop_malformed: bool = False) -> None:
        """Every node; eternal. See ``node_events``. Changes that nothing is made of are left out."""
        await node_reflector(self._api).run(
            lambda batch: post(node_events(batch, images=images, drop_malformed=drop_malformed))
        )

    async def follow_objects(
        self, kind: SchedulingKind, post: Post, *, saw: Callable[[Batch[Any]], None] | None = None
    ) -> None:
        """One of the other kinds that rules read; eternal. One that is not served or not ours to read counts as empty.

        ``saw`` is shown each batch before it is posted."""

        def take(batch: Batch[Any]) -> None:
            if saw is not None:
                saw(batch)
            post(object_events(kind, batch))

        await object_reflector(self._api, kind).run(take)


def pod_reflector(api: KubeApi) -> Reflector[Pod]:
    """The watch of all pods."""
    return Reflector(api, PODS, content=pod_content)


def node_reflector(api: KubeApi) -> Reflector[Node]:
    """The watch of all nodes."""
    return Reflector(api, NODES, content=node_content)


def object_reflector(api: KubeApi, kind: SchedulingKind) -> Reflector[Any]:
    """The watch of one of the other kinds."""
    return Reflector(api, kind.resource, optional=True, older=kind.older)


def pod_events(
    batch: Batch[Any], *, job_groups: bool = True, read: Callable[[Any], pod_model.Pod] = pod_from_api
) -> list[ClusterEvent]:
    """What a batch of the pods' watch tells a core. ``job_groups`` False: pods of Jobs are in no group, because the
    Jobs are not ours to read and their pods would wait for them for ever. ``read``: the model of what is in it."""
    events: list[ClusterEvent] = []
    for event in batch:
        match event:
            case Upserted():
                pod = read(event.object)
                if not job_groups and pod.group.startswith(f"{Source.JOB.value}:"):
                    pod = replace(pod, group="")
                events.append(PodUpserted(pod))
            case Deleted():
                events.append(PodDeleted(event.object.metadata.uid))
            case Synced():
                events.append(Listed(PODS.plural))
            case Malformed():
                bad = event.object
                log.warning("pod_malformed", pod=f"{bad.namespace}/{bad.name}", pod_uid=bad.uid, error=bad.error)
                if event.deleted and bad.uid:
                    events.append(PodDeleted(bad.uid))
    return events


def node_events(
    batch: Batch[Any],
    *,
    images: bool = False,
    drop_malformed: bool = False,
    read: Callable[[Any], node_model.Node] = node_from_api,
    read_images: Callable[[Any], Mapping[str, int]] = node_images,
) -> list[ClusterEvent]:
    """What a batch of the nodes' watch tells a core. ``images``: with what each node has. ``read``, ``read_images``:
    the model of what is in it.

    A node that cannot be read any more stays as it was; with ``drop_malformed`` it counts as gone."""
    events: list[ClusterEvent] = []
    for event in batch:
        match event:
            case Upserted():
                node = read(event.object)
                if node.invalid:
                    log.warning("node_unreadable", node=node.name, problem=node.invalid)
                events.append(NodeUpserted(node, read_images(event.object) if images else None))
            case Deleted():
                events.append(NodeDeleted(event.object.metadata.name))
            case Synced():
                events.append(Listed(NODES.plural))
            case Malformed():
                log.warning("node_malformed", node=event.object.name, error=event.object.error)
                if event.deleted or drop_malformed:
                    events.append(NodeDeleted(event.object.name))
    return events


def read_object(kind: SchedulingKind, found: Any) -> ObjectChanged:
    """An object of another kind, as a core is told. One that cannot be used counts as gone."""
    key = kind.key(found.metadata)
    item: object | None = None
    try:
        item = kind.convert(found)
    except ObjectError as error:
        log.warning("object_unreadable", kind=kind.name, key=key, error=error)
    return ObjectChanged(kind.name, key, item)


def object_events(
    kind: SchedulingKind,
    batch: Batch[Any],
    *,
    read: Callable[[SchedulingKind, Any], ObjectChanged] = read_object,
) -> list[ClusterEvent]:
    """What a batch of another kind's watch tells a core. ``read``: what becomes of an object that is in it."""
    events: list[ClusterEvent] = []
    for event in batch:
        match event:
            case Upserted():
                events.append(read(kind, event.object))
            case Deleted():
                events.append(ObjectChanged(kind.name, kind.key(event.object.metadata), None))
            case Synced():
                events.append(Listed(kind.name))
            case Malformed():
                bad = event.object
                log.warning("object_malformed", kind=kind.name, key=f"{bad.namespace}/{bad.name}", error=bad.error)
                key = f"{bad.namespace}/{bad.name}" if kind.resource.namespaced else bad.name
                events.append(ObjectChanged(kind.name, key, None))
    return events
