"""Watches of the API server as events for the core. They translate and decide nothing.

An object that cannot be read is logged; a ResilientAutoscaler that does not decode at all counts as gone, so that
nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from services.autoscaler.core.events import (
    BudgetGone,
    BudgetSeen,
    Event,
    HpaFact,
    HpaGone,
    HpaSeen,
    NodeFact,
    PodFact,
    ScaledListed,
    ScaledNodeGone,
    ScaledNodeSeen,
    ScaledPodGone,
    ScaledPodSeen,
    ScalerGone,
    ScalerSeen,
    SetGone,
    SetSeen,
)
from shared.autoscaling.hpa.convert_seen import pod_facts
from shared.errors import ObjectError
from shared.kube import objects
from shared.kube.cluster_objects import budget_from_api
from shared.kube.pods.convert_requests import effective_requests
from shared.kube.resources import NODES, PODS, DeletedObject, Malformed, Resource, Upserted
from shared.kube.scaling.autoscaling import AUTOSCALERS, autoscaler_from_api
from shared.kube.scaling.scaled_objects import BUDGETS, HPAS, OWNED_SETS, Hpa, last_writer
from shared.model.controllers.autoscaler import TargetRef
from shared.model.resources import CPU, MEMORY, parse_quantity
from shared.ports import Clock, KubeApi
from shared.runtime.kube.reflector import Batch, Reflector, Synced
from shared.runtime.process.service import boottime

log = structlog.get_logger()

Post = Callable[[list[Event]], None]
NEEDED: tuple[Resource[Any], ...] = (PODS, OWNED_SETS, NODES, HPAS, BUDGETS)
"""What must have been listed before anything is decided; our own objects may be none."""
OURS = "conclave"
"""How our writes are called in managedFields: the client's user agent begins so."""


class WatchSource:
    """One watch. ``follow`` is eternal; ``silent_s``: how long the server has said nothing of the kind, None before it
    said anything. What such a watch shows is that old at most: a sound one has a bookmark each minute."""

    def __init__(self, kind: Resource[Any], reflector: Reflector[Any], take: Callable[[Batch[Any]], None]) -> None:
        self.kind = kind
        self._reflector, self._take = reflector, take

    async def follow(self) -> None:
        """Tell what the watch shows."""
        await self._reflector.run(self._take)

    def silent_s(self, now: float) -> float | None:
        """Seconds; ``now``: of the reflector's clock."""
        heard_at = self._reflector.heard_at
        return None if heard_at is None else now - heard_at


def silences(found: Sequence[WatchSource], now: float) -> dict[str, float]:
    """Seconds of silence, by the plural of the kind."""
    return {one.kind.plural: silent_s for one in found if (silent_s := one.silent_s(now)) is not None}


def sources(api: KubeApi, post: Post, clock: Clock = boottime) -> list[WatchSource]:
    """Every watch, to be run."""
    kinds: tuple[tuple[Resource[Any], Callable[[Any], Event], Callable[[objects.ObjectMeta], Event]], ...] = (
        (AUTOSCALERS, lambda item: ScalerSeen(autoscaler_from_api(item)), lambda meta: ScalerGone(_key(meta))),
        (PODS, lambda item: ScaledPodSeen(pod_fact(item)), lambda meta: ScaledPodGone(meta.uid)),
        (OWNED_SETS, _set_seen, lambda meta: SetGone(meta.uid)),
        (NODES, lambda item: ScaledNodeSeen(node_fact(item)), lambda meta: ScaledNodeGone(meta.name)),
        (HPAS, lambda item: HpaSeen(hpa_fact(item)), lambda meta: HpaGone(_key(meta))),
        (BUDGETS, lambda item: BudgetSeen(budget_from_api(item)), lambda meta: BudgetGone(_key(meta))),
    )

    def source(kind: Resource[Any], seen: Callable[[Any], Event], gone: Callable[[Any], Event]) -> WatchSource:
        def take(batch: Batch[Any]) -> None:
            post(events_of(kind, batch, seen, gone))

        # a refused list of HPAs or budgets is no cluster without any: what it would hold back must be known first
        optional = kind not in NEEDED
        return WatchSource(kind, Reflector(api, kind, clock=clock, optional=optional), take)

    return [source(*kind) for kind in kinds]


def events_of(
    kind: Resource[Any], batch: Batch[Any], seen: Callable[[Any], Event], gone: Callable[[Any], Event]
) -> list[Event]:
    """What a batch of one kind's watch tells the core."""
    found: list[Event] = []
    for event in batch:
        match event:
            case Upserted():
                try:
                    found.append(seen(event.object))
                except (ObjectError, ValueError) as error:
                    log.warning("object_unreadable", kind=kind.plural, key=_key(event.object.metadata), error=error)
                    found.append(gone(event.object.metadata))
            case DeletedObject():
                found.append(gone(event.object.metadata))
            case Synced(revision):
                found.append(ScaledListed(kind.plural, served=bool(revision)))
            case Malformed():
                bad = event.object
                log.warning("object_malformed", kind=kind.plural, key=f"{bad.namespace}/{bad.name}", error=bad.error)
                found.append(gone(objects.ObjectMeta(name=bad.name, namespace=bad.namespace, uid=bad.uid)))
    return found


def _key(meta: objects.ObjectMeta) -> str:
    return f"{meta.namespace or ''}/{meta.name}"


def _owner(meta: objects.ObjectMeta) -> objects.OwnerReference | None:
    return next((one for one in meta.owner_references or () if one.controller), None)


def _set_seen(item: objects.KubePod) -> Event:
    owner = _owner(item.metadata)
    return SetSeen(item.metadata.uid, owner.uid if owner is not None and owner.kind == "Deployment" else "")


def pod_fact(pod: objects.KubePod) -> PodFact:
    """A pod. ``ObjectError``: a request that is no quantity."""
    meta, owner = pod.metadata, _owner(pod.metadata)
    held = effective_requests(pod)
    return PodFact(
        uid=meta.uid,
        namespace=meta.namespace or "",
        seen=pod_facts(pod),
        owner=owner.uid if owner is not None else "",
        node=pod.spec.node_name or "",
        created=meta.creation_timestamp or "",
        takes={CPU: held.get(CPU, 0) / 1000, MEMORY: float(held.get(MEMORY, 0))},
    )


def node_fact(node: objects.KubeNode) -> NodeFact:
    """A node. ``ValueError``: an amount that is no quantity."""
    amounts = {
        name: parse_quantity(str(amount), milli=True) / 1000
        for name, amount in (node.status.allocatable or {}).items()
        if name in ("cpu", "memory", "pods")
    }
    cordoned = bool(node.spec.unschedulable)
    ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions or ())
    return NodeFact(
        name=node.metadata.name,
        cpu=amounts.get("cpu", 0.0),
        memory=amounts.get("memory", 0.0),
        pods=int(amounts.get("pods", 0)),
        takes=ready and not cordoned,
        cordoned=cordoned,
    )


def hpa_fact(hpa: Hpa) -> HpaFact:
    """A HorizontalPodAutoscaler."""
    meta, ref, owner = hpa.metadata, hpa.spec.scale_target_ref, _owner(hpa.metadata)
    return HpaFact(
        namespace=meta.namespace or "",
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        ref=TargetRef(ref.api_version, ref.kind, ref.name),
        minimum=1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas,
        maximum=hpa.spec.max_replicas,
        owner=f"{owner.kind}/{owner.name}" if owner is not None else "",
        writer=last_writer(meta, but=OURS),
    )
