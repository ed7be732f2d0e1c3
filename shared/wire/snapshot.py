"""A snapshot: one cluster at one moment, and what its mesh knew, as one file that decides again elsewhere. Pure.

The file is gzipped JSON (``packed.py``). Unpacked it is also a line of ``conclave explain --batch``: ``input`` has that
format, with the kinds beside it that a mesh reads and kube-scheduler does not. Objects hold what scheduling reads, no
more; of annotations those that a rule reads; no message of anybody, no environment, no secret. Names are pseudonyms
(``shared/kube/pseudonyms.py``) unless its maker kept them.

A file of another format is refused by its number, never guessed at; what could not be read is named in ``missing``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from shared.errors import ConfigError
from shared.kube.cluster_objects import ClusterObjects
from shared.kube.nodes.katalyst import CustomNodeResource
from shared.kube.nodes.node_topology import NodeResourceTopology
from shared.kube.pod_groups import Job, PluginsPodGroup, PodGroupV1alpha2
from shared.kube.queues import QueueObject
from shared.kube.reservations_kept import KeptReservation, object_of
from shared.kube.scheduling_kinds import GROUP_KINDS, QUEUE_KIND, RESERVATION_KIND, SCHEDULING_KINDS, SchedulingKind
from shared.wire.packed import packed, unpacked
from shared.wire.records import PolicyPointer

FORMAT = 1
WRITER = "conclave snapshot"
AGAIN = "take the snapshot again"

KINDS: tuple[SchedulingKind, ...] = (*SCHEDULING_KINDS, *GROUP_KINDS, QUEUE_KIND, RESERVATION_KIND)
"""What is kept beside nodes and pods."""

FIELDS: Mapping[str, str] = {
    "persistentvolumeclaims": "persistentVolumeClaims", "persistentvolumes": "persistentVolumes",
    "storageclasses": "storageClasses", "csinodes": "csiNodes", "deviceclasses": "deviceClasses",
    "resourceslices": "resourceSlices", "resourceclaims": "resourceClaims", "devicetaintrules": "deviceTaintRules",
    "noderesourcetopologies": "nodeTopologies", "customnoderesources": "customNodeResources",
    "namespaces": "namespaces", "services": "services",
    "replicationcontrollers": "replicationControllers", "replicasets": "replicaSets",
    "statefulsets": "statefulSets", "poddisruptionbudgets": "pdbs", "podgroups": "podGroups",
    "podgroups.scheduling.x-k8s.io": "pluginsPodGroups", "jobs": "jobs", "queues": "queues",
    "reservations": "reservations",
}  # fmt: skip
"""Where in ``input`` each kind of ``KINDS`` is, by its name."""


DECIDING = (
    "asked_agents", "batch_units", "dispatch", "gang_patience_s", "gang_timeout_s", "gpu_shares", "hold_nodes", "lend",
    "load_parts", "offer_deadline_ms", "offline_eviction", "offline_grace_s", "offline_margin", "offline_min_runtime_s",
    "offline_preemption", "open_cycles", "plans_in_flight", "plugins", "policy", "preemption_delay", "preemption_pdb",
    "scheduler_name", "seed", "unknown_zones", "workload_speed",
)  # fmt: skip
"""Settings by which other decisions would come out."""


class SnapshotInput(ClusterObjects, frozen=True, kw_only=True):
    """The objects, by kind."""

    pod_groups: list[PodGroupV1alpha2] | None = None
    plugins_pod_groups: list[PluginsPodGroup] | None = None
    jobs: list[Job] | None = None
    queues: list[QueueObject] | None = None
    reservations: list[KeptReservation] | None = None
    node_topologies: list[NodeResourceTopology] | None = None
    custom_node_resources: list[CustomNodeResource] | None = None
    cycles: int = 1

    def of(self, kind: SchedulingKind) -> Sequence[Any]:
        """The objects of one of ``KINDS``."""
        name = FIELDS[kind.name]
        found: Sequence[Any] | None = getattr(self, _ATTRIBUTES[name])
        if kind is RESERVATION_KIND:
            return tuple(object_of(one) for one in found or ())
        return found or ()


_ATTRIBUTES = {item.encode_name: item.name for item in msgspec.structs.fields(SnapshotInput)}


class ConsideredNode(Struct, frozen=True):
    """One node that was looked at for a pod. ``accepted`` False: the policy advised against it."""

    node: str
    score: float
    accepted: bool = True


class DecisionSeen(Struct, frozen=True):
    """One placement, as the leader remembers it; the chosen node is the first of ``considered``."""

    time: str
    namespace: str
    name: str
    uid: str
    node: str
    policy: str
    considered: list[ConsideredNode] = []


class NodeMeasured(Struct, frozen=True):
    """What a node used, so long ago; ``latencies``: (median, spread) in microseconds by target."""

    node: str
    age_s: float
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk: float | None = None
    network: float | None = None
    source: str = "snapshot"
    delay_us: int | None = None
    latencies: dict[str, tuple[int, int]] | None = None


class AgentSeen(Struct, frozen=True):
    """An agent; ``node``: the one that it serves, "" for any."""

    node: str = ""


class MeshFacts(Struct, frozen=True, kw_only=True):
    """What the leader knew beside the objects. ``settings``: those that decide, as they were in force. ``cards``: by
    digest, of the policies that the pointer names; not in files. ``queue``: uids of pending pods in order of arrival.
    ``decisions``: the last ones, oldest first."""

    scheduler_name: str = "conclave"
    settings: dict[str, int | float | str | list[str]] = {}
    policy: str = ""
    pointer: PolicyPointer | None = None
    cards: dict[str, dict[str, Any]] = {}
    agents: list[AgentSeen] = []
    paused: bool = False
    drained: list[str] = []
    queue: list[str] = []
    measured: list[NodeMeasured] = []
    decisions: list[DecisionSeen] = []
    missing: list[str] = []


class Snapshot(Struct, frozen=True, kw_only=True):
    """``at``: RFC 3339. ``missing``: what could not be read, a line each. ``mesh`` None: the cluster alone was read."""

    snapshot: int
    id: str
    conclave: str
    kubernetes: str
    at: str
    names: Literal["hashed", "kept"]
    missing: list[str] = []
    mesh: MeshFacts | None = None
    input: SnapshotInput = field(default_factory=SnapshotInput)


class _Head(Struct):
    snapshot: int | None = None
    conclave: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")


def encode_snapshot(document: Mapping[str, Any]) -> bytes:
    """The file of a ``Snapshot`` as plain JSON values. The same values give the same bytes."""
    return packed(_encoder.encode(document))


def decode_snapshot(data: bytes, name: str) -> Snapshot:
    """The snapshot in a file called ``name``. Raises ``ConfigError`` naming what is wrong with it."""
    text = unpacked(data, name, writer=WRITER, again=AGAIN)
    try:
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}; give a file of '{WRITER}'") from None
    if head.snapshot is None:
        raise ConfigError(f"{name}: is no snapshot; give a file of '{WRITER}'")
    if head.snapshot != FORMAT:
        raise ConfigError(
            f"{name}: format {head.snapshot} is not {FORMAT}, which this version reads; use conclave"
            f" {head.conclave[:32] or 'of the version that wrote it'}, or {AGAIN}"
        )
    try:
        found = msgspec.json.decode(text, type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}; the file is damaged, {AGAIN}") from None
    _check(found, name)
    return found


def _check(found: Snapshot, name: str) -> None:
    """What every reader may rely on."""
    nodes = [node.metadata.name for node in found.input.nodes or ()]
    if not nodes or len(set(nodes)) != len(nodes) or not all(nodes):
        raise ConfigError(f"{name}: input.nodes: none, or two of one name; {AGAIN}")
    uids = [pod.metadata.uid for pod in found.input.pods or ()]
    if not all(uids) or len(set(uids)) != len(uids):
        raise ConfigError(f"{name}: input.pods: a pod without uid, or two of one uid; {AGAIN}")
