"""Watches of the API server as events for a core: each call follows one kind for ever and posts what changes.

They translate and decide nothing. An object that cannot be used is logged; the others go on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import structlog
from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube.contents import node_content, pod_content
from shared.kube.objects import KubeNode, KubePod
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.kube.pods.convert_relations import node_images
from shared.kube.resources import NODES, PODS, DeletedObject, Malformed, Upserted
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, RESERVATION_KIND, SchedulingKind
from shared.model import node as node_model
from shared.model import pod as pod_model
from shared.model.cluster_events import (
    ClusterEvent,
    Listed,
    NodeDeleted,
    NodeUpserted,
    ObjectChanged,
    ObjectUnreadable,
    PodDeleted,
    PodUpserted,
    PositionLost,
)
from shared.model.units.pod_group import GroupSource
from shared.ports import KubeApi
from shared.runtime.kube.reflector import Batch, Reflector, Synced, WatchPositionLost
from shared.runtime.kube.shared_watches import SharedWatch
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.process import Standby

log = structlog.get_logger()

Post = Callable[[list[ClusterEvent]], None]


class Watches:
    """How the roles of a process follow the API server, pods, nodes and further kinds: one watch each for all of them.

    ``roles``: the further kinds that each role follows; it follows each once. ``images``: nodes are read with those
    that they have. ``patience_s``: how long the first role waits for the others before lists are made; None: until
    ``begin``."""

    def __init__(
        self,
        api: KubeApi,
        *roles: Collection[SchedulingKind],
        images: bool = False,
        patience_s: float | None = None,
    ) -> None:
        followers = max(1, len(roles))
        shared = partial(SharedWatch, patience_s=patience_s)
        self._pods = shared(pod_reflector(api), pod_from_api, followers=followers)
        self._nodes = shared(
            node_reflector(api), partial(_node_and_images, images=images), followers=followers, exact=False
        )
        self._reads: dict[str, Callable[[SchedulingKind, Any], ObjectChanged | ObjectUnreadable]] = {}
        self._objects: dict[str, SharedWatch] = {}
        self._mirrors = False
        for name, kind in {kind.name: kind for role in roles for kind in role}.items():
            several = sum(kind in role for role in roles)
            self._reads[name] = _as_it_is if several > 1 else read_object
            self._objects[name] = shared(
                object_reflector(api, kind), partial(read_object, kind) if several > 1 else _itself,
                followers=several, exact=False,
            )  # fmt: skip

    def begin(self) -> None:
        """Begin with those who follow: others of this process may be long in coming, or never come."""
        for watch in self._all():
            watch.begin()

    def while_others_lead(
        self,
        standby: Standby,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
        on_leader: Callable[[bool], None],
        stand_by: Callable[[], Coroutine[Any, Any, None]],
    ) -> Callable[[bool], None]:
        """``on_leader``, which hears of each leader whether it is we; a standby that is warm mirrors from the first one
        on that is not, after ``stand_by``. Who has led, and hears of its successor, is about to end."""

        def saw(ours: bool) -> None:
            on_leader(ours)
            wanted = self._mirrors or any(watch.was_wanted() for watch in self._all())
            if not ours and standby == "warm" and not wanted:
                self._mirrors = True
                spawn("mirror", self.mirror(stand_by))

        return saw

    async def mirror(self, stand_by: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Keep what there is for roles to come (ADR 0058); eternal. ``stand_by``: who wants to ``attend``, first."""
        if stand_by is not None:
            await stand_by()
        async with asyncio.TaskGroup() as group:
            for watch in self._all():
                group.create_task(watch.mirror())

    def age_s(self, now: float) -> float:
        """How old what is known of nodes and pods may be; infinite before both are listed."""
        heard = [watch.heard_at() for watch in (self._nodes, self._pods)]
        return max(math.inf if at is None else now - at for at in heard)

    def register(self, metrics: Metrics) -> None:
        """Show ``figures`` at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("mirror", self.figures)
        metrics.gauge_of(
            "mirrored_objects", "Objects kept for the time when this process leads", lambda: self.figures()["objects"]
        )
        metrics.gauge_of(
            "mirror_warm", "1 while this process knows all that a leader lists", lambda: self.figures()["warm"]
        )

    def figures(self) -> dict[str, Any]:
        """How many objects are kept for roles to come, and whether such a role would be told all without a list."""
        return {"objects": sum(map(len, self._all())), "warm": all(watch.is_warm() for watch in self._all())}

    def attend(
        self, learn: Post, *, job_groups: bool = True, images: bool = False, drop_malformed: bool = False
    ) -> bool:
        """Let who is to follow pods and nodes, and ``attended`` then, learn of them while this process stands by, from
        before the mirror begins. False: it has begun, or there are several roles; nothing is learned."""
        if any(watch.was_wanted() for watch in (self._pods, self._nodes)):
            return False
        told = partial(_nodes_told, learn, images=images, drop_malformed=drop_malformed)
        return self._nodes.attend(told) and self._pods.attend(partial(_pods_told, learn, job_groups=job_groups))

    async def follow_pods(self, post: Post, *, job_groups: bool = True, attended: bool = False) -> None:
        """Every pod; eternal. See ``pod_events``. Changes that nothing is made of are left out."""
        await self._pods.follow(partial(_pods_told, post, job_groups=job_groups), attended=attended)

    async def follow_nodes(
        self, post: Post, *, images: bool = False, drop_malformed: bool = False, attended: bool = False
    ) -> None:
        """Every node; eternal. See ``node_events``. Changes that nothing is made of are left out."""
        told = partial(_nodes_told, post, images=images, drop_malformed=drop_malformed)
        await self._nodes.follow(told, attended=attended)

    async def follow_objects(
        self, kind: SchedulingKind, post: Post, *, saw: Callable[[Batch[Any]], None] | None = None
    ) -> None:
        """One of the other kinds that rules read; eternal. One that is not served or not ours to read counts as empty.

        ``saw`` is shown each batch before it is posted: as the API server shows it, where one role alone follows."""
        read = self._reads[kind.name]

        def take(batch: Batch[Any]) -> None:
            if saw is not None:
                saw(batch)
            post(object_events(kind, batch, read=read))

        await self.follow(kind, take)

    async def follow_reservations(self, post: Post) -> None:
        """Reservations, each as its reserve pod; eternal. Where they are not served there are none."""
        read = self._reads[RESERVATION_KIND.name]
        await self.follow(RESERVATION_KIND, lambda batch: post(reservation_events(batch, read=read)))

    async def follow(self, kind: SchedulingKind, deliver: Callable[[Batch[Any]], None]) -> None:
        """One of the other kinds as it comes; eternal."""
        await self._objects[kind.name].follow(deliver)

    def _all(self) -> list[SharedWatch]:
        return [self._pods, self._nodes, *self._objects.values()]


def _itself(item: Any) -> Any:
    return item


def _pods_told(post: Post, batch: Batch[Any], *, job_groups: bool) -> None:
    post(pod_events(batch, job_groups=job_groups, read=_itself))


def _nodes_told(post: Post, batch: Batch[Any], *, images: bool, drop_malformed: bool) -> None:
    read, read_images = itemgetter(0), itemgetter(1)
    post(node_events(batch, images=images, drop_malformed=drop_malformed, read=read, read_images=read_images))


def _as_it_is(_kind: SchedulingKind, item: Any) -> Any:
    return item


def _node_and_images(node: KubeNode, *, images: bool) -> tuple[node_model.Node, Mapping[str, int]]:
    return node_from_api(node), node_images(node) if images else {}


def pod_reflector(api: KubeApi) -> Reflector[KubePod]:
    """The watch of all pods."""
    return Reflector(api, PODS, content=pod_content)


def node_reflector(api: KubeApi) -> Reflector[KubeNode]:
    """The watch of all nodes."""
    return Reflector(api, NODES, content=node_content)


def object_reflector(api: KubeApi, kind: SchedulingKind) -> Reflector[Any]:
    """The watch of one of the other kinds."""
    return Reflector(api, kind.resource, optional=True, older=kind.older, ordered=kind.name == DEVICE_CLAIMS.name)


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
                if not job_groups and pod.group.startswith(f"{GroupSource.JOB.value}:"):
                    pod = replace(pod, group="")
                events.append(PodUpserted(pod))
            case DeletedObject():
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
            case DeletedObject():
                events.append(NodeDeleted(event.object.metadata.name))
            case Synced():
                events.append(Listed(NODES.plural))
            case Malformed():
                log.warning("node_malformed", node=event.object.name, error=event.object.error)
                if event.deleted or drop_malformed:
                    events.append(NodeDeleted(event.object.name))
    return events


def reservation_events(
    batch: Batch[Any],
    *,
    read: Callable[[SchedulingKind, Any], ObjectChanged | ObjectUnreadable] | None = None,
) -> list[ClusterEvent]:
    """What a batch of the reservations' watch tells a core: of each its reserve pod."""
    events: list[ClusterEvent] = []
    for event in batch:
        match event:
            case Upserted():
                changed = (read or read_object)(RESERVATION_KIND, event.object)
                if isinstance(changed, ObjectChanged) and isinstance(changed.item, pod_model.Pod):
                    events.append(PodUpserted(changed.item))
            case DeletedObject():
                events.append(PodDeleted(event.object.metadata.uid))
            case Synced():
                events.append(Listed(RESERVATION_KIND.name, event.served, event.refused))
            case Malformed():
                bad = event.object
                log.warning("reservation_malformed", reservation=f"{bad.namespace}/{bad.name}", error=bad.error)
                if event.deleted and bad.uid:
                    events.append(PodDeleted(bad.uid))
    return events


def read_object(kind: SchedulingKind, found: Any) -> ObjectChanged | ObjectUnreadable:
    """An object of another kind, as a core is told. One that cannot be used counts as gone, or stays as it was."""
    key = kind.key(found.metadata)
    item: object | None = None
    try:
        item = kind.convert(found)
    except ObjectError as error:
        log.warning("object_unreadable", kind=kind.name, key=key, error=error)
        if kind.kept:
            return ObjectUnreadable(kind.name, key, found.metadata.resource_version)
    return ObjectChanged(kind.name, key, item)


def object_events(
    kind: SchedulingKind,
    batch: Batch[Any],
    *,
    read: Callable[[SchedulingKind, Any], ObjectChanged | ObjectUnreadable] = read_object,
) -> list[ClusterEvent]:
    """What a batch of another kind's watch tells a core. ``read``: what becomes of an object that is in it."""
    events: list[ClusterEvent] = []
    for event in batch:
        match event:
            case Upserted():
                events.append(read(kind, event.object))
            case DeletedObject():
                events.append(ObjectChanged(kind.name, kind.key(event.object.metadata), None))
            case Synced():
                events.append(Listed(kind.name, served=event.served))
            case WatchPositionLost():
                events.append(PositionLost(kind.name))
            case Malformed():
                bad = event.object
                log.warning("object_malformed", kind=kind.name, key=f"{bad.namespace}/{bad.name}", error=bad.error)
                key = f"{bad.namespace}/{bad.name}" if kind.resource.namespaced else bad.name
                if event.deleted or not kind.kept:
                    events.append(ObjectChanged(kind.name, key, None))
                else:
                    events.append(ObjectUnreadable(kind.name, key, bad.resource_version))
    return events
