"""What a pod leaves is kept for the next pod of its controller, where its workload asks for that: a rolling update's.

    begins to leave, annotation conclave.io/keep-room --> a Reservation for its controller, on its node, for so long

The Reservation is made while the pod still holds the room, and is nominated to its node until the room is free: nobody
of its priority or a lower one takes it in between. Who may annotate pods need not be one who may make Reservations: so
this is off by default, and of one controller's room so much is kept at a time.
"""

from __future__ import annotations

from typing import Any

from services.coordinator.core.instructions import KeepRoom
from shared.model.pod import Pod
from shared.model.resources import CPU
from shared.model.units.reservation import KEEPS_ROOM_LABEL
from shared.scheduling.state.room.reserved_room import controllers_of

MOST_AT_A_TIME = 32
"""Pods of one controller whose room is kept: more leave by deletion in a loop than by a rolling update."""


class LeftRoom:
    """One term's: until when it was asked to keep room, by namespace and controller."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str, str], list[float]] = {}

    def keep(self, pod: Pod, now: float) -> KeepRoom | None:
        """As ``kept_room``; None too where enough is kept for the pod's controller."""
        room = kept_room(pod)
        if room is None:
            return None
        self._until = {key: left for key, all_ in self._until.items() if (left := [at for at in all_ if at > now])}
        until = self._until.setdefault((pod.namespace, *controllers_of(pod)[-1]), [])
        if len(until) >= MOST_AT_A_TIME:
            return None
        until.append(now + pod.keep_room_s)
        return room


def kept_room(pod: Pod) -> KeepRoom | None:
    """The Reservation to make for a pod that stands and leaves; None: it has no controller that would replace it, or
    is a member of a pod group, whose pods take no reservation: to its replacement the room would be taken."""
    controllers = controllers_of(pod)
    if not controllers or pod.reserves is not None or pod.preempted or pod.group:
        return None
    kind, name = controllers[-1]
    pod_class = pod.pod_class
    container: dict[str, Any] = {
        "name": "room",
        "resources": {"requests": {key: _quantity(key, amount) for key, amount in pod_class.requests}},
    }
    if pod_class.host_ports:
        container["ports"] = [
            {"containerPort": port.port, "hostPort": port.port, "hostIP": port.ip, "protocol": port.protocol}
            for port in pod_class.host_ports
        ]
    tolerations = [
        {key: value for key, value in zip(("key", "operator", "value", "effect"), one, strict=True) if value}
        for one in ((t.key, t.operator, t.value, t.effect) for t in pod_class.tolerations)
    ]
    spec = {
        "template": {
            "spec": {
                "containers": [container],
                "tolerations": tolerations,
                **({"schedulerName": pod.scheduler_name} if pod.scheduler_name else {}),
            }
        },
        "owners": [{"controller": {"kind": kind, "name": name}}],
        "nodes": {"names": [pod.node_name]},
        "ttlSeconds": pod.keep_room_s,
        "priority": max(-(10**9), min(pod.priority, 10**9)),
    }
    short = pod.uid.replace("-", "")[:8].lower() or "0"
    return KeepRoom(pod.namespace, f"{pod.name[:240]}-{short}", spec, {KEEPS_ROOM_LABEL: "true"}, pod.name, pod.uid)


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU else str(amount)
