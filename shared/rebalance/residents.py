"""A pod that stands, with what a planner of moves must know of it beside what scheduling rules read."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from shared.kube.pods.convert import owner_of, pod_from_api
from shared.kube.pods.standing_pods import SourcedPod
from shared.model.pod import Pod
from shared.scheduling.state.cluster_load import incoming_pod

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
EVICT_ANNOTATION = "descheduler.alpha.kubernetes.io/evict"
NO_EVICTION_ANNOTATION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
KEPT_BY = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    NO_EVICTION_ANNOTATION: "true",
}
"""Annotations by which a pod asks to be left where it is, and the value that says so."""


class Resident(Struct, frozen=True):
    """``pod``: as it stands; ``replacement``: as its owner makes it anew, pending, under the same uid. ``owner``:
    (apiVersion, kind, name). ``created_s``: seconds since 1970, 0 where nobody says. ``kept_by``: the annotation that
    asks for it to stay; ``forced``: one asks for the contrary. ``use``: (milli-cores, bytes) measured; None: not.
    ``unready``: it does not serve, or its kubelet has not said so yet; False where no conditions are told at all.
    """

    pod: Pod
    replacement: Pod
    owner: tuple[str, str, str] = ("", "", "")
    created_s: float = 0.0
    local_storage: bool = False
    volume_claims: bool = False
    mirror: bool = False
    kept_by: str = ""
    forced: bool = False
    use: tuple[float, float] | None = None
    unready: bool = False

    @property
    def uid(self) -> str:
        """Of the pod that stands."""
        return self.pod.uid

    @property
    def stationary(self) -> bool:
        """Whether it belongs to its node: of a DaemonSet, or made by the kubelet itself. A node with such alone is
        not in use."""
        return self.mirror or self.owner[1] in ("DaemonSet", "Node")

    @property
    def workload(self) -> str:
        """``namespace/kind:name`` of what it is a copy of: caps and history count by it."""
        return self.pod.workload or f"{self.pod.namespace}/Pod:{self.pod.name}"


def seconds_of(timestamp: str) -> float:
    """An RFC 3339 time as seconds since 1970; 0.0 where there is none."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except ValueError:
        return 0.0


def resident_from_api(raw: SourcedPod) -> Resident:
    """Of a pod that stands on a node. Raises ``ObjectError`` for one whose replacement cannot be told."""
    meta, volumes, told = raw.metadata, raw.spec.volumes or (), raw.status.conditions or ()
    annotations, owner = meta.annotations or {}, owner_of(meta)
    pod = pod_from_api(raw)
    if not pod.uid:
        pod = replace(pod, uid=pod.key)
    return Resident(
        pod=replace(pod, owner=owner),
        replacement=pending_again(incoming_pod(raw)),
        owner=owner,
        created_s=seconds_of(meta.creation_timestamp or ""),
        local_storage=any(volume.local for volume in volumes),
        volume_claims=any(volume.persistent_volume_claim or volume.ephemeral for volume in volumes),
        mirror=MIRROR_ANNOTATION in annotations,
        kept_by=next((key for key, value in KEPT_BY.items() if annotations.get(key) == value), ""),
        forced=EVICT_ANNOTATION in annotations,
        unready=bool(told) and not any(one.type == "Ready" and one.status == "True" for one in told),
    )


def pending_again(pod: Pod) -> Pod:
    """The pod as its owner makes it anew: on no node, and given nothing yet."""
    pod_class = pod.pod_class
    if pod_class.node_name:
        pod_class = replace(pod_class, node_name="")
    return replace(
        pod, node_name="", phase="Pending", devices=(), nominated_node="", terminating=False, pod_class=pod_class,
        condition=("", "", ""), start_time="",
    )  # fmt: skip
