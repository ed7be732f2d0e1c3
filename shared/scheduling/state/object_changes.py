"""From the objects beside pods and nodes to a ``ClusterState``: what came, changed or went, by kind and key.

Keys are ``namespace/name``, or the name of a kind without namespaces; kinds are plurals, as the API server serves them.
What a change may help is judged by the coordinator's ``requeueing.py``.
"""

from __future__ import annotations

from shared.model.cluster_objects import DisruptionBudget, PersistentVolume, StorageClass, VolumeClaim, Workload
from shared.model.node_topology import NodeTopology
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import Queue
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.devices_port import DEVICE_KINDS
from shared.scheduling.state.zones_port import ZONE_KINDS

CONTROLLERS = {
    "replicationcontrollers": ("v1", "ReplicationController"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "statefulsets": ("apps/v1", "StatefulSet"),
}

GROUP_SOURCES = {
    "podgroups": GroupSource.NATIVE,
    "podgroups.scheduling.x-k8s.io": GroupSource.PLUGINS,
    "jobs": GroupSource.JOB,
}
"""Kinds of which pod groups are made; the two called podgroups are told apart by the full name of the second."""


def put_object(state: ClusterState, kind: str, key: str, item: object) -> object | None:
    """Take over one object as it is now; what it was before, None if it is new."""
    storage = state.storage
    before: object | None = None
    if kind in DEVICE_KINDS:
        return state.devices.put(kind, key, item) if state.devices is not None else None
    match item:
        case NodeTopology():
            before = state.zones.put(key, item) if state.zones is not None else None
        case VolumeClaim():
            before = storage.claims.get(key)
            storage.claims[key] = item
        case PersistentVolume():
            before = storage.volume(key)
            storage.put_volume(item)
        case StorageClass():
            before = storage.classes.get(key)
            storage.classes[key] = item
        case Workload():
            drop_object(state, kind, key)
            state.workloads.add(item)
        case DisruptionBudget():
            drop_object(state, kind, key)
            state.budgets.append(item)
        case PodGroup():
            before = state.pod_groups.get(item.key)
            state.pod_groups[item.key] = item
        case Queue():
            before = state.queues.get(key)
            state.queues[key] = item
        case dict() if kind == "namespaces":
            before = state.namespaces.get(key)
            state.namespaces[key] = item
        case dict() if kind == "csinodes":
            before = storage.attach_limits.put(key, item)
        case _:
            raise TypeError(f"{kind}: {type(item).__name__} is no object of a scheduling rule")
    return before


def drop_object(state: ClusterState, kind: str, key: str) -> None:
    """The object is gone; an unknown key is fine."""
    if kind in DEVICE_KINDS:
        if state.devices is not None:
            state.devices.drop(kind, key)
        return
    if kind in ZONE_KINDS:
        if state.zones is not None:
            state.zones.drop(key, ZONE_KINDS[kind])
        return
    storage, workloads = state.storage, state.workloads
    namespace, _, name = key.rpartition("/")
    match kind:
        case "persistentvolumeclaims":
            storage.claims.pop(key, None)
        case "persistentvolumes":
            storage.drop_volume(key)
        case "storageclasses":
            storage.classes.pop(key, None)
        case "csinodes":
            storage.attach_limits.drop(key)
        case "namespaces":
            state.namespaces.pop(key, None)
        case "queues":
            state.queues.pop(key, None)
        case _ if kind in GROUP_SOURCES:
            state.pod_groups.pop(group_key(GROUP_SOURCES[kind], namespace, name), None)
        case "services":
            workloads.drop_service(namespace, name)
        case "poddisruptionbudgets":
            state.budgets[:] = [b for b in state.budgets if (b.namespace, b.name) != (namespace, name)]
        case _:
            workloads.controllers.pop((*CONTROLLERS[kind], namespace, name), None)
