"""The places of a pending pod, what takes it from one to another, and which moves there are.

``TRANSITIONS`` says it exactly: which cause takes a pod from which place to which; the queue makes the moves, and any
other raises ``InvalidTransition``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Place(Enum):
    """Where a pending pod is."""

    __hash__ = object.__hash__  # looked up at every move

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


class OwnEvent(Enum):
    """Why a pod came into a place, where that was no event of the cluster."""

    __hash__ = object.__hash__  # looked up at every move

    SEEN = "seen"
    CHANGED = "changed"
    ATTEMPT_FAILED = "attempt_failed"
    RACE_LOST = "race_lost"
    BACKOFF_COMPLETE = "backoff_complete"
    TIMEOUT = "timeout"
    WOKEN = "roused"
    GATED = "gated"
    QUOTA = "quota"
    JOINED = "joined"


class ClusterEvent(Enum):
    """What happened in the cluster that may make a pod schedulable."""

    __hash__ = object.__hash__  # looked up at every move

    NODE_ADDED = "node_added"
    NODE_ALLOCATABLE = "node_allocatable"
    NODE_LABELS = "node_labels"
    NODE_TAINTS = "node_taints"
    NODE_FEATURES = "node_features"
    NODE_TOPOLOGY = "node_topology"
    NODE_LATENCY = "node_latency"
    NODE_DELETED = "node_deleted"
    POD_ADDED = "pod_added"
    POD_LABELS = "pod_labels"
    POD_DELETED = "pod_deleted"
    CLAIM_CHANGED = "claim_changed"
    VOLUME_CHANGED = "volume_changed"
    STORAGE_CLASS_CHANGED = "storage_class_changed"
    CSI_NODE_CHANGED = "csi_node_changed"
    NAMESPACE_LABELS = "namespace_labels"
    DEVICE_CLAIM_CHANGED = "device_claim_changed"
    RESOURCE_SLICE_CHANGED = "resource_slice_changed"
    DEVICE_CLASS_CHANGED = "device_class_changed"
    AGENT_JOINED = "agent_joined"
    MEMBER_ADDED = "member_added"
    POD_GROUP_ADDED = "pod_group_added"
    POD_GROUP_CHANGED = "pod_group_changed"


Cause = OwnEvent | ClusterEvent | None
"""Why a pod goes to another place; None: ``pop`` takes it."""

_HELPED = {
    Place.UNSCHEDULABLE: {Place.ACTIVE, Place.BACKOFF},
    Place.GATED: {Place.ACTIVE, Place.BACKOFF},
}  # fmt: skip

TRANSITIONS: Mapping[Cause, Mapping[Place, set[Place]]] = {
    OwnEvent.SEEN: {Place.ACTIVE: {Place.ACTIVE, Place.GATED}},  # a new pod begins there
    OwnEvent.CHANGED: {
        place: {Place.ACTIVE} for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
    },
    # from GATED: a queue's quota held it back, and does no longer
    None: {place: {Place.IN_FLIGHT} for place in (Place.ACTIVE, Place.BACKOFF, Place.GATED)},
    OwnEvent.ATTEMPT_FAILED: {Place.IN_FLIGHT: {Place.BACKOFF, Place.UNSCHEDULABLE}},
    OwnEvent.RACE_LOST: {Place.IN_FLIGHT: {Place.ACTIVE, Place.UNSCHEDULABLE}},
    OwnEvent.BACKOFF_COMPLETE: {Place.BACKOFF: {Place.ACTIVE}},
    OwnEvent.GATED: {place: {Place.GATED} for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE)},
    OwnEvent.QUOTA: {Place.ACTIVE: {Place.GATED}},
    # a pod that begins to move with the others of its group goes where they are going
    OwnEvent.JOINED: {
        Place.ACTIVE: {Place.BACKOFF},
        Place.BACKOFF: {Place.ACTIVE},
        Place.UNSCHEDULABLE: {Place.ACTIVE, Place.BACKOFF},
    },
    **dict.fromkeys((OwnEvent.TIMEOUT, OwnEvent.WOKEN, *ClusterEvent), _HELPED),
}
"""By cause, and from where: where a pod may go. ``remove`` takes it out from anywhere."""

LEGAL = frozenset(
    (cause, start, to) for cause, moves in TRANSITIONS.items() for start, ends in moves.items() for to in ends
)
"""The same as single moves."""
