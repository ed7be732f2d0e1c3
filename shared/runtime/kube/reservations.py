"""Reservations at the API server: making one, looking at it, giving it back, and what we write of it.

    create --our queue, policies, binder--> take_node (Available) --a pod's Binding--> end (Succeeded)
                                                 |--time over, preempted, room lost--> end (Expired, Failed)

Whoever wants room kept creates one and watches ``status.phase``; deleting it gives the room back at once, whatever its
phase. Each write of ours names uid and resourceVersion: who was deposed meanwhile, or has not seen what others wrote,
is refused (409).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shared.errors import KubeRejected
from shared.kube.objects import OwnerReference
from shared.kube.reservations import CONDITION, RESERVATIONS, reserve_pod_from_api
from shared.model.pod import Pod
from shared.model.units.reservation import ReservationPhase
from shared.ports import BindRequest, KubeApi

TAKER_S = 2.0
"""For naming a taker: a pod's Binding waits for that."""
TRIES = 3
"""Of a write that others keep overtaking."""


class ReservationName(NamedTuple):
    """One Reservation; with a ``uid`` the very one."""

    namespace: str
    name: str
    uid: str = ""


def body_of(
    where: ReservationName, spec: Mapping[str, Any], *, owner: OwnerReference | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The object. ``owner``: with whom it goes, by the API server's garbage collector: its workload, of the same
    namespace."""
    meta: dict[str, Any] = {"namespace": where.namespace, "name": where.name}
    if labels:
        meta["labels"] = dict(labels)
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    return {"apiVersion": RESERVATIONS.api_version, "kind": RESERVATIONS.kind, "metadata": meta, "spec": dict(spec)}


async def create(
    api: KubeApi, where: ReservationName, spec: Mapping[str, Any], *, owner: OwnerReference | None = None,
    labels: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Ask for room. ``KubeRejected``: 409 one of that name is there, 404 the cluster has no such kind, 403, 422."""
    await api.create(RESERVATIONS, namespace=where.namespace, body=body_of(where, spec, owner=owner, labels=labels))


async def look(api: KubeApi, where: ReservationName) -> Pod | None:
    """Its reserve pod: ``reserves`` has the phase, ``node_name`` the node, ``invalid`` what is wrong. None: it is not
    there, or another of its name is."""
    found = await api.get(RESERVATIONS, namespace=where.namespace, name=where.name)
    if found is None or (where.uid and found.metadata.uid != where.uid):
        return None
    return reserve_pod_from_api(found)


async def give_back(api: KubeApi, where: ReservationName) -> bool:
    """Delete it; its room is free as soon as our watches show that. False: it was gone, or is another by now."""
    try:
        await api.delete(RESERVATIONS, namespace=where.namespace, name=where.name, uid=where.uid)
    except KubeRejected as error:
        if error.status in (404, 409):
            return False
        raise
    return True


async def take_node(api: KubeApi, where: ReservationName, *, version: str, node: str, devices: str) -> None:
    """Its room is kept on the node from now on: what a Binding is to a pod."""
    status = {"phase": ReservationPhase.AVAILABLE.value, "node": node, "devices": devices or None}
    await _write(api, where, version, {**status, **_condition("True", "Available", f"room is kept on {node}")})


async def name_taker(api: KubeApi, where: ReservationName, request: BindRequest) -> None:
    """The pod of the Binding is about to take it."""
    owner = {"namespace": request.namespace, "name": request.name, "uid": request.uid}
    patch = {"metadata": {"uid": where.uid}, "status": {"currentOwners": [owner]}}
    await api.patch(
        RESERVATIONS, namespace=where.namespace, name=where.name, patch=patch, subresource="status", strategy="merge",
        wait_when_busy=False, timeout_s=TAKER_S,
    )  # fmt: skip


async def end(
    api: KubeApi, where: ReservationName, *, version: str, phase: ReservationPhase, reason: str, message: str,
    owners: Sequence[Pod] = (),
) -> None:  # fmt: skip
    """It keeps nothing any more."""
    status: dict[str, Any] = {"phase": phase.value, "endedAt": _now(), **_owners(owners)}
    await _write(api, where, version, {**status, **_condition("False", reason, message)})


async def tell(
    api: KubeApi, where: ReservationName, *, version: str, reason: str, message: str, owners: Sequence[Pod] = (),
    ready: bool = False,
) -> None:  # fmt: skip
    """Why it waits, or who shares it."""
    await _write(api, where, version, {**_owners(owners), **_condition(str(ready), reason, message)})


async def mark(api: KubeApi, where: ReservationName, reason: str, message: str) -> bool:
    """Say why it waits, by which every write that was sent before and names its older version is refused. False: it
    stands, is over, or is gone; nothing was written."""
    for _ in range(TRIES):
        found = await look(api, where)
        if found is None or found.node_name or found.finished:
            return False
        try:
            await tell(api, where, version=found.resource_version, reason=reason, message=message)
        except KubeRejected as error:
            if error.status not in (404, 409):
                raise
        else:
            return True
    return False


async def standing(api: KubeApi) -> list[Pod] | None:
    """The reserve pods that stand on nodes; none where the kind is not served; None: that is not ours to know."""
    try:
        found = await api.list(RESERVATIONS)
    except KubeRejected as error:
        if error.status in (403, 404):
            return [] if error.status == 404 else None
        raise
    pods = (reserve_pod_from_api(item) for item in found.items)
    return [pod for pod in pods if pod.node_name and not pod.finished]


async def _write(api: KubeApi, where: ReservationName, version: str, status: Mapping[str, Any]) -> None:
    patch = {"metadata": {"uid": where.uid, "resourceVersion": version}, "status": status}
    await api.patch(
        RESERVATIONS, namespace=where.namespace, name=where.name, patch=patch, subresource="status", strategy="merge",
        wait_when_busy=False,
    )  # fmt: skip


def _owners(pods: Sequence[Pod]) -> dict[str, Any]:
    return {"currentOwners": [{"namespace": pod.namespace, "name": pod.name, "uid": pod.uid} for pod in pods] or None}


def _condition(status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "conditions": [
            {
                "type": CONDITION, "status": status, "reason": reason, "message": message[:1024],
                "lastTransitionTime": _now(),
            }
        ]
    }  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
