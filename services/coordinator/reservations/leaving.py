"""What a pod leaves is kept for the next pod of its controller, where its workload asks for that: a rolling update's.

    begins to leave, annotation conclave.io/keep-room --> a Reservation for its controller, on its node, for so long

The Reservation is made while the pod still holds the room, and is nominated to its node until the room is free: nobody
of its priority or a lower one takes it in between.
"""

from __future__ import annotations

from typing import Any

from services.coordinator.core.instructions import KeepRoom
from shared.model.pod import Pod
from shared.model.reservation import KEEPS_ROOM_LABEL
from shared.model.resources import CPU
from shared.scheduling.state.reserved_room import controllers_of


def kept_room(pod: Pod) -> KeepRoom | None:
    """The Reservation to make for a pod that stands and leaves; None: it has no controller that would replace it."""
    controllers = controllers_of(pod)
    if not controllers or pod.reserves is not None or pod.preempted:
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
    return KeepRoom(pod.namespace, f"{pod.name[:240]}-{short}", spec, {KEEPS_ROOM_LABEL: "true"})


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU else str(amount)
