"""A pod as the scheduler sees it, keyed by uid; ``namespace/name`` is for people."""

from __future__ import annotations

from msgspec import Struct

from shared.model.constraints import PodClass
from shared.model.devices import ContainerAsk, DevicePod, ExtendedClaim
from shared.model.offline import OfflineTerms
from shared.model.qos import Qos
from shared.model.terms.relations import Relations
from shared.model.units.reservation import Reservation

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})

DEVICES_ANNOTATION = "conclave.io/gpu-devices"
"""On a bound pod: the indices of the GPU devices it uses, comma-separated ("0" or "2,5")."""

LATENCY_SOFT_ANNOTATION = "latencySoftConstraint"
LATENCY_HARD_ANNOTATION = "latencyHardConstraint"
"""On a pod: the latency to its users that it would like, and the most it bears, in milliseconds ("20", "30"). The names
are those of the thesis whose policy ``el`` reads them."""

LATENCY_TARGET_ANNOTATION = "conclave.io/latency-target"
"""On a pod: the LatencyTarget that it serves, to which its limits apply; without it: the users in general."""

LATENCY_LIMIT_ANNOTATION = "conclave.io/latency-limit"
"""On a pod: ``strict``: it goes to no node that is beyond its hard limit; ``preferred``, as without it: a wish."""

POLICY_ANNOTATION = "conclave.io/policy"
"""On a bound pod: the policy and version that placed it (``kube-default@1``)."""

CAUSE_ANNOTATION = "conclave.io/cause-id"
"""On a bound pod: the ``cause_id`` of the attempt that placed it, as in every service's log and in its trace."""

PREEMPTIBLE_ANNOTATION = "conclave.io/preemptible"
"""On any pod: "false" keeps it from ever being evicted for a pod of higher priority."""


class Pod(Struct, frozen=True, gc=False):
    """One pod at one resourceVersion.

    ``condition``: (status, reason, message) of PodScheduled as last written, so that an unchanged reason costs no
    write. ``devices``: what the annotation names. ``invalid``: why the pod cannot be scheduled as it is written.
    ``relations``: what it demands of other pods, domains and volumes. ``start_time``: RFC 3339 in UTC, "" before it
    starts. ``images`` and ``owner`` (apiVersion, kind, name of the controlling owner) are kept of pending pods only,
    ``owner`` also of those that took or leave room that is kept.
    ``never_preempts``: preemptionPolicy Never. ``preempted``: a scheduler marked it as its victim.
    ``preemptible`` False: it opted out of being one. ``workload``: what it is a copy of (``workload_key``).
    ``unsupported``: what of a pending pod's spec decides where it may run and is not honoured here; it must wait.
    ``group``: key of the pod group it is a member of; "": it is a scheduling unit of its own. ``ends`` False: it does
    not end by itself, since a controller keeps it running. ``asks``: the devices that it claims; None: none.
    ``extended``: its containers, where one requests an extended resource, which a device class may stand for;
    ``extended_claim``: what its status tells of the claim that was made for those.
    ``claimed``: what its claims ask, for the rules; equal where they ask alike (``ClaimedDevices.alike``).
    ``refused``: the reason with which a kubelet's managers refused it on its node; "": they did not.
    ``qos``: which side of the pool it is on; ``qos_doubt``: what of it contradicts that, for people; "": nothing.
    ``offline``: how an offline pod gives way; None: it is not offline.
    ``reserves``: of a reserve pod, for whom it keeps room; ``takes``: uid of the Reservation whose room a bound pod
    took, of a reserve pod its own; ``keep_room_s``: so long what it leaves is kept for the next pod of its controller.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    pod_class: PodClass
    scheduler_name: str = ""
    node_name: str = ""
    phase: str = ""
    priority: int = 0
    terminating: bool = False
    gates: tuple[str, ...] = ()
    created: str = ""
    condition: tuple[str, str, str] = ("", "", "")
    devices: tuple[int, ...] = ()
    nominated_node: str = ""
    invalid: str = ""
    labels: dict[str, str] = {}
    relations: Relations | None = None
    start_time: str = ""
    images: tuple[str, ...] = ()
    owner: tuple[str, str, str] = ("", "", "")
    never_preempts: bool = False
    preempted: bool = False
    preemptible: bool = True
    workload: str = ""
    unsupported: str = ""
    group: str = ""
    ends: bool = True
    asks: DevicePod | None = None
    claimed: tuple[int | str, ...] = ()
    extended: tuple[ContainerAsk, ...] = ()
    extended_claim: ExtendedClaim | None = None
    refused: str = ""
    qos: Qos = Qos.ONLINE
    qos_doubt: str = ""
    offline: OfflineTerms | None = None
    reserves: Reservation | None = None
    takes: str = ""
    keep_room_s: int = 0

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Succeeded or Failed: holds no resources."""
        return self.phase in FINISHED_PHASES
