"""From a cluster dump to a ``ClusterState``: the offline counterpart of the coordinator's watches."""

from __future__ import annotations

from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube import cluster_objects as kube
from shared.kube import objects as api
from shared.kube.cluster_objects import ClusterObjects
from shared.kube.pods.convert import node_from_api, owner_of, pod_class_of, pod_from_api
from shared.kube.pods.convert_relations import images_of, node_images
from shared.model.pod import Pod
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.releases import Release


def load_cluster(dump: ClusterObjects, release: Release = Release.V1_38) -> ClusterState:
    """The state that the dump describes, to be judged by that release's rules. Raises ``ObjectError`` for an object
    that cannot be used.

    Objects without a uid are told apart by name.
    """
    state = ClusterState(release)
    for node in dump.nodes or ():
        state.upsert_node(node_from_api(node), node_images(node))
    for namespace in dump.namespaces or ():
        state.namespaces[namespace.metadata.name] = namespace.metadata.labels or {}
    _load_workloads(state, dump)
    _load_storage(state, dump)
    state.budgets.extend(kube.budget_from_api(item) for item in dump.pdbs or ())
    for raw in dump.pods or ():
        pod = pod_from_api(raw)
        if pod.invalid:
            raise ObjectError(pod.invalid, field=f"pod {pod.key}")
        state.observe(_with_uid(pod))
    return state


def load_pods(objects: ClusterObjects) -> list[Pod]:
    """All pods of the dump with the group that each names, in the order given. Raises ``ObjectError``."""
    return [_with_uid(pod_from_api(raw)) if raw.spec.node_name else incoming_pod(raw) for raw in objects.pods or ()]


def incoming_pod(raw: api.KubePod) -> Pod:
    """The pod that is asked about, as if it were pending even where it names its node. Raises ``ObjectError``."""
    pod = pod_from_api(raw)
    if pod.invalid:
        raise ObjectError(pod.invalid, field=f"pod {pod.key}")
    return replace(
        _with_uid(pod),
        node_name="",
        pod_class=pod_class_of(raw, incoming=True),
        images=images_of(raw.spec),
        owner=owner_of(raw.metadata),
    )


def _with_uid(pod: Pod) -> Pod:
    return pod if pod.uid else replace(pod, uid=pod.key)


def _load_workloads(state: ClusterState, dump: ClusterObjects) -> None:
    for kind, api_version, items in (
        ("Service", "v1", dump.services),
        ("ReplicationController", "v1", dump.replication_controllers),
        ("ReplicaSet", "apps/v1", dump.replica_sets),
        ("StatefulSet", "apps/v1", dump.stateful_sets),
    ):
        for item in items or ():
            state.workloads.add(kube.workload_from_api(item, api_version, kind))


def _load_storage(state: ClusterState, dump: ClusterObjects) -> None:
    storage = state.storage
    for claim in map(kube.claim_from_api, dump.persistent_volume_claims or ()):
        storage.claims[claim.key] = claim
    for volume in map(kube.volume_from_api, dump.persistent_volumes or ()):
        storage.put_volume(volume)
    for storage_class in map(kube.storage_class_from_api, dump.storage_classes or ()):
        storage.classes[storage_class.name] = storage_class
    for node in dump.csi_nodes or ():
        storage.attach_limits.put(node.metadata.name, kube.csi_limits_from_api(node))
