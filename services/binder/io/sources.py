"""What the API server's watches tell the core: batches of pods and nodes as events. Translates and decides nothing."""

from __future__ import annotations

from typing import Any

import structlog

from services.binder.core.events import (
    BoundPod,
    Compared,
    Event,
    KindSynced,
    NodeDeleted,
    NodeUpserted,
    ObjectChanged,
    PodDeleted,
    PodUpserted,
    Source,
    Synced,
)
from shared.kube import objects
from shared.kube.convert import node_from_api, pod_from_api
from shared.kube.resources import Bookmark, Deleted, Malformed, ObjectList, Upserted
from shared.kube.scheduling_kinds import SchedulingKind
from shared.model.pod import FINISHED_PHASES
from shared.runtime.kube import reflector
from shared.runtime.kube.object_source import changes_of, synced

log = structlog.get_logger()


def pod_events(batch: reflector.Batch[Any]) -> list[Event]:
    """What a batch of the pods' watch tells the core."""
    events: list[Event] = []
    for event in batch:
        match event:
            case Upserted():
                events.append(PodUpserted(pod_from_api(event.object)))
            case Deleted():
                events.append(PodDeleted(event.object.metadata.uid))
            case reflector.Synced():
                events.append(Synced(Source.PODS))
            case Malformed():
                bad = event.object
                log.warning("pod_malformed", pod=f"{bad.namespace}/{bad.name}", pod_uid=bad.uid, error=bad.error)
                if event.deleted and bad.uid:
                    events.append(PodDeleted(bad.uid))
            case Bookmark():
                pass
    return events


def node_events(batch: reflector.Batch[Any]) -> list[Event]:
    """What a batch of the nodes' watch tells the core. A node that became unreadable takes nothing more."""
    events: list[Event] = []
    for event in batch:
        match event:
            case Upserted():
                node = node_from_api(event.object)
                if node.invalid:
                    log.warning("node_unreadable", node=node.name, problem=node.invalid)
                events.append(NodeUpserted(node))
            case Deleted():
                events.append(NodeDeleted(event.object.metadata.name))
            case reflector.Synced():
                events.append(Synced(Source.NODES))
            case Malformed():
                log.warning("node_malformed", node=event.object.name, error=event.object.error)
                events.append(NodeDeleted(event.object.name))
            case Bookmark():
                pass
    return events


def object_events(kind: SchedulingKind, batch: reflector.Batch[Any]) -> list[Event]:
    """What a batch of a storage kind's watch tells the core."""
    events: list[Event] = [ObjectChanged(kind.name, key, item) for key, item in changes_of(kind, batch)]
    if synced(batch):
        events.append(KindSynced(kind.name))
    return events


def compared(pods: ObjectList[objects.Pod]) -> Compared:
    """A full list as the sweep wants it."""
    return Compared(
        {
            pod.metadata.uid: BoundPod(pod.metadata.namespace or "", pod.metadata.name, pod.spec.node_name)
            for pod in pods.items
            if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES
        }
    )
