"""Reservations as a snapshot holds them: what decides, typed, and nothing that only their makers need. Pure.

Those that are over keep nothing, and are left out; so are environments and whatever else a template holds.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from shared.kube import objects as api
from shared.kube.objects import Json, ObjectMeta
from shared.kube.reservations import ReservationObject, reserve_pod_from_api


class KeptController(Json, frozen=True):
    kind: str = ""
    name: str = ""


class KeptOwner(Json, frozen=True):
    controller: KeptController | None = None
    selector: api.KubeLabelSelector | None = None
    pod: str | None = None


class KeptTemplate(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: api.PodSpec = field(default_factory=api.PodSpec)


class KeptNodes(Json, frozen=True):
    names: list[str] | None = None
    selector: api.KubeLabelSelector | None = None


class KeptSpec(Json, frozen=True):
    template: KeptTemplate | None = None
    owners: list[KeptOwner] | None = None
    namespaces: list[str] | None = None
    nodes: KeptNodes | None = None
    ttl_seconds: int | None = None
    expiration_time: str | None = None
    priority: int | None = None
    allocate_once: bool | None = None


class KeptTaker(Json, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class KeptStatus(Json, frozen=True):
    """``devices``: numbers of GPUs."""

    phase: str = ""
    node: str | None = None
    devices: list[int] | None = None
    current_owners: list[KeptTaker] | None = None


class KeptReservation(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: KeptSpec = field(default_factory=KeptSpec)
    status: KeptStatus = field(default_factory=KeptStatus)


def kept_reservation(item: ReservationObject) -> dict[str, Any] | None:
    """As plain JSON; None: it is over. Raises ``msgspec.ValidationError``: it cannot be read, and so keeps nothing."""
    reserve = reserve_pod_from_api(item)
    if reserve.finished:
        return None
    spec = dict(item.spec) if isinstance(item.spec, dict) else {}
    if (amounts := spec.pop("resources", None)) is not None:  # by the name that a container has
        spec["template"] = {"spec": {"containers": [{"name": "room", "resources": {"requests": amounts}}]}}
    status = dict(item.status) if isinstance(item.status, dict) else {}
    status["devices"] = list(reserve.devices) or None
    document = {"metadata": msgspec.to_builtins(item.metadata), "spec": spec, "status": status}
    found: dict[str, Any] = msgspec.to_builtins(msgspec.convert(document, KeptReservation))
    return found


def object_of(kept: KeptReservation) -> ReservationObject:
    """The object again."""
    status = msgspec.to_builtins(kept.status)
    if kept.status.devices:
        status["devices"] = ",".join(map(str, kept.status.devices))
    return ReservationObject(kept.metadata, msgspec.to_builtins(kept.spec), status)
