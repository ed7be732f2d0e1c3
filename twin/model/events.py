"""What goes into the cluster model and what comes out: plain data, no behaviour.

Events are levels, not edges: a ``PodSeen`` says how the pod is now, so hearing it twice, or not hearing one in between,
changes nothing. Instructions are requests; the shell may fail to carry one out (the object is gone), and the next event
tells the model so.
"""

from __future__ import annotations

from dataclasses import dataclass

from twin.model.usage import FOREVER, NO_LIMITS, UsageLimits, UsageProfile


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as it is. ``managed`` False: some other kubelet's; the model leaves it alone.

    ``failed``: its machine is down (``conclave.io/twin-fail``). ``ready`` is the Ready condition as last written, ""
    where there is none yet. ``taints``: (key, effect) of those on it.
    """

    name: str
    managed: bool
    failed: bool = False
    ready: str = ""
    taints: frozenset[tuple[str, str]] = frozenset()
    limits: UsageLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The node was deleted: its pods are garbage."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod as it is. ``node`` is empty while it is unbound.

    ``grace_s`` is None unless the pod is being deleted. ``unreachable_s``: how long it tolerates an unreachable node;
    None for ever, 0 not at all.
    """

    uid: str
    namespace: str
    name: str
    node: str
    phase: str = "Pending"
    grace_s: float | None = None
    unreachable_s: float | None = 300.0
    profile: UsageProfile = FOREVER


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod was removed from the API."""

    uid: str


Event = NodeSeen | NodeGone | PodSeen | PodGone


@dataclass(frozen=True, slots=True)
class PodRef:
    """Whom an instruction means: the uid guards against a new pod of the same name."""

    uid: str
    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True)
class RunPod:
    """Write phase Running: all containers started and ready, with these addresses."""

    pod: PodRef
    pod_ip: str
    host_ip: str


@dataclass(frozen=True, slots=True)
class FinishPod:
    """Write phase Succeeded (``exit_code`` 0) or Failed."""

    pod: PodRef
    exit_code: int


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Delete with grace period 0: the containers have ended, or the node is gone."""

    pod: PodRef


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Delete gracefully: the pod no longer tolerates its unreachable node."""

    pod: PodRef


@dataclass(frozen=True, slots=True)
class SetNodeReady:
    """Write the Ready condition: ``True``, or ``Unknown`` once the node's silence is noticed."""

    node: str
    status: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class SetNodeTaints:
    """Remove and add taints (key, effect) that the node life cycle owns."""

    node: str
    remove: frozenset[tuple[str, str]]
    add: frozenset[tuple[str, str]]


Instruction = RunPod | FinishPod | RemovePod | EvictPod | SetNodeReady | SetNodeTaints
