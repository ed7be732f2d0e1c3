"""What rules and amounts are called before people, and what would help where it takes no numbers to say. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from shared.model.constraints import PodClass, Taint
from shared.scheduling.explain.rule_numbers import term_text
from shared.scheduling.matching.tolerance import PREFER_NO_SCHEDULE, tolerated

CHANGES = {
    "NodeName": "add the node that spec.nodeName names",
    "ConclaveGpuDevices": "free GPU devices on one of them, or ask for less of conclave.io/gpu-milli",
    "ConclaveLatencyLimit": "wait for a reading within its limit, widen latencyHardConstraint, or set "
    "conclave.io/latency-limit to preferred",
    "PodTopologySpread": "take pods that its constraints select from a fuller domain, add a node to an emptier one, "
    "raise maxSkew, or set whenUnsatisfiable to ScheduleAnyway",
    "InterPodAffinity": "start the pod that it must be near, or move the one that it must not be near; "
    "or prefer instead of require",
    "NodeVolumeLimits": "detach volumes of the driver from one of them, or add a node",
    "SchedulingGates": "remove its scheduling gates",
    "PodGroupTopology": "make room in one domain of its group's topology, or label more nodes",
}
"""What would help, by plugin, where it takes no numbers to say."""


VOLUME_CHANGES = (
    ("non-existent", "bring back the volume, or delete the claim and what it stood for"),
    ("waiting for ephemeral volume controller", "wait: the claim is made for it; see whether that controller runs"),
    ("persistentvolumeclaim", "create the claim that it names, or name one that can be used"),
    ("unbound immediate", "wait for its claims to be bound: create their storage class, or volumes that fit them"),
    ("was not created for pod", "delete the claim that has the name of its ephemeral volume"),
    ("persistentvolume ", "bring back the volume, or delete the claim and what it stood for"),
    ("find available persistent volumes", "create a volume that fits its claim, or name a class that can make one"),
    ("no available disk", "delete the pod that uses the disk, or wait for it to end"),
    ("ReadWriteOncePod", "delete the pod that uses the claim, or wait for it to end"),
)
"""What would help by a part of the reason; else a node that reaches the volume."""


def ports_text(pod_class: PodClass) -> str:
    """The host ports that the class asks for: ``TCP 80, UDP 53``."""
    return ", ".join(f"{port.protocol} {port.port}" for port in pod_class.host_ports)


def affinity_change(reasons: Sequence[str]) -> str:
    """What would help a pod that other pods keep away for these reasons."""
    text = "; ".join(reasons)
    if "existing pods anti-affinity" in text:
        return "move the pods that must not have it near, or add a node in a topology domain without them"
    if "anti-affinity" in text:
        return (
            "move the pods that it must not be near, add a node in a topology domain without them, or prefer instead "
            "of require"
        )
    return "start the pod that it must be near where there is room for both, or prefer instead of require"


def volume_change(reasons: Sequence[str]) -> str:
    """What would help a pod that a volume rule refuses for these reasons."""
    text = "; ".join(reasons)
    return next((change for part, change in VOLUME_CHANGES if part in text), "add a node that reaches its volume")


def selection_text(pod_class: PodClass) -> str:
    """What the class selects nodes by."""
    parts = [f"{key}={value}" for key, value in pod_class.node_selector]
    if pod_class.affinity_terms:
        parts.append(" or ".join(filter(None, map(term_text, pod_class.affinity_terms))))
    return ", ".join(filter(None, parts)) or "its required node affinity"


def refusing_taints(pod_class: PodClass, taints: Sequence[Taint]) -> list[Taint]:
    """The taints that keep the class away."""
    return [
        taint for taint in taints
        if taint.effect != PREFER_NO_SCHEDULE and not tolerated(pod_class.tolerations, taint)
    ]  # fmt: skip


def taint_text(taint: Taint) -> str:
    """``key=value:effect``, as kubectl writes it."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
