"""Why pods and pod groups wait, in one table: the reason's word, what it means, what helps, where that is explained.

Conditions, lists, REST, the command line and docs/faq-pending.md take their words from here. Words of rules are
kube-scheduler's plugin names; ``+`` joins several rules that refuse together. Pure.
"""

from __future__ import annotations

from msgspec import Struct

PAGE = "/ui/reasons.html"
"""Where every coordinator serves docs/faq-pending.md, to everybody: a link for who knows the server's address."""

UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"
"""Reasons of the condition PodScheduled, as kube-scheduler sets them. Autoscalers buy nodes for ``Unschedulable``: it
is said only where one more node would help."""

NOT_READY = "NotReadyForScheduling"
"""The reason where none would: what keeps the pod lies in its pod group, its queue or the mesh (KEP-5501's word)."""

NOT_SUPPORTED = "NotSupported"
"""Ours, of a pod that asks for what Conclave does not look at: no new node would help, so autoscalers must not see
``Unschedulable``."""

UNTOLD = ""
"""A moment's state: no condition is written for it."""

IN_TURN, BACKING_OFF, IN_FLIGHT, PAUSED, NO_NODES, NO_AGENTS = (
    "InTurn", "Backoff", "InFlight", "Paused", "NoNodes", "NoAgents",
)  # fmt: skip
INCOMPLETE, GROUP_MISSING, GROUP_INVALID = "Incomplete", "GroupMissing", "GroupInvalid"
QUOTA, UNUSABLE, GATED = "QueueQuota", "QueueUnusable", "SchedulingGated"


class Reason(Struct, frozen=True):
    """``words``: what it means; ``helps``: what would help; ``condition``: the reason of the condition PodScheduled,
    or PodGroupScheduled, that says it, ``UNTOLD`` for none."""

    word: str
    words: str
    helps: str
    condition: str = UNSCHEDULABLE

    @property
    def page(self) -> str:
        """Where it is explained."""
        return f"{PAGE}#{self.word.lower()}"


_ALL = (
    Reason("NodeResourcesFit", "too little is free of what the pod requests",
           "ask for less, add a node, or end pods on the node that is nearest"),
    Reason("ConclaveGpuDevices", "no single GPU device has the share free",
           "end pods that share a device, or ask for a smaller conclave.io/gpu-milli"),
    Reason("ConclaveLatencyLimit", "its latency to the pod's target is above the strict limit, or is not known now",
           "explain tells how far each node is; a nearer node, a wider latencyHardConstraint, or "
           "conclave.io/latency-limit: preferred; where nobody knows: the LatencyTarget, and agents on their nodes"),
    Reason("NodeAffinity", "the labels, or the node, that the pod selects are not there",
           "add nodes that have them, or change nodeSelector or nodeAffinity"),
    Reason("NodeName", "it is not the node that the pod names",
           "add the node that spec.nodeName names, or leave it out"),
    Reason("TaintToleration", "taints that the pod does not tolerate",
           "a toleration, or take the taint away; a node that is not ready is tainted until it is"),
    Reason("NodeDeclaredFeatures", "the kubelet lacks a feature that the pod needs",
           "newer nodes, or a spec without the feature"),
    Reason("NodeUnschedulable", "cordoned, or drained from scheduling",
           "kubectl uncordon NODE; conclave resume NODE for one that was drained from scheduling"),
    Reason("NodePorts", "a host port that it asks for is taken", "another host port, or none"),
    Reason("InterPodAffinity", "a pod that it must be near is not there, or one that it must not be near is",
           "start the one or move the other, or prefer instead of require"),
    Reason("PodTopologySpread", "its spread constraints would be broken",
           "a node in the emptiest domain, a larger maxSkew, or whenUnsatisfiable: ScheduleAnyway"),
    Reason("PodGroupTopology", "outside the domain in which its group must be",
           "room in one domain of its group's topology label"),
    Reason("VolumeBinding", "no volume that suits its claims is reached from there",
           "a volume that suits, a class that provisions one, or room where the volume is"),
    Reason("VolumeZone", "its volume is in another zone", "room in the volume's zone"),
    Reason("NodeVolumeLimits", "the CSI driver attaches no more volumes",
           "detach volumes of the driver, or add a node"),
    Reason("DynamicResources", "it gets no devices there for its claims",
           "devices of the class that are free, or a claim that asks for less; explain says what refuses which"),
    Reason("NodeResourceTopologyMatch", "its kubelet would refuse it: no zone, or set of zones, has all of it free",
           "a request that fits into one zone, or end pods in one; explain shows what is free in each"),
    Reason("VolumeRestrictions", "a claim that it names is not there, or another pod uses the disk or the claim",
           "create the claim; or delete that pod, or claim another volume"),
    Reason("GangScheduling", "the pod group's members cannot be placed together as they are written",
           "give them one template, or make the group smaller", NOT_READY),
    Reason(UNSCHEDULABLE, "the pod group finds no room for its minimum: so many fit and not more",
           "conclave explain podgroup/NAME names who fails, and counts what would let the others in"),
    Reason(NO_NODES, "the cluster has no nodes", "add nodes"),
    Reason(NO_AGENTS, "no agent decides for any node", "start agents; conclave members shows who is there",
           SCHEDULER_ERROR),
    Reason(IN_TURN, "it waits for its turn", "nothing; if it lasts, the queue is longer than a round", UNTOLD),
    Reason(IN_FLIGHT, "it is being placed", "nothing; it is a moment's state", UNTOLD),
    Reason(BACKING_OFF, "its last attempt failed, and it is tried again soon",
           "nothing; its condition says what failed", NOT_READY),
    Reason(PAUSED, "an operator paused scheduling", "conclave resume", UNTOLD),
    Reason(INCOMPLETE, "fewer members of the pod group exist than its minimum",
           "look why the workload creates no more, or lower minCount", NOT_READY),
    Reason(GROUP_MISSING, "the pod group that the pod names is not there",
           "create it, or correct the name in the pod", NOT_READY),
    Reason(GROUP_INVALID, "the pod group, or its members together, cannot be used as they are written",
           "correct what the message names", NOT_READY),
    Reason(QUOTA, "a limit of its queue holds it",
           "wait until pods there end, or raise the limit; conclave queue shows who uses what", NOT_READY),
    Reason(UNUSABLE, "its queue is not there, or cannot be used as it is written",
           "correct the Queue, or the label conclave.io/queue", NOT_READY),
    Reason(GATED, "it has scheduling gates", "the owner of the gates must remove them; explain names them",
           "SchedulingGated"),
    Reason(NOT_SUPPORTED, "it asks for something that Conclave does not look at",
           "create it without, or with schedulerName default-scheduler", NOT_SUPPORTED),
    Reason(SCHEDULER_ERROR, "a field of the pod cannot be read", "correct the field that is named", SCHEDULER_ERROR),
)  # fmt: skip

REASONS = {reason.word: reason for reason in _ALL}
"""By word."""


def means(word: str) -> str:
    """What a reason means, or several joined by ``+``, each of which is that of some nodes; "" for one that another
    version told."""
    found = [REASONS[one].words for one in word.split("+") if one in REASONS]
    return "; ".join(found) if len(found) < 2 else f"each node refuses it for one of these: {'; '.join(found)}"


def remedy(word: str) -> str:
    """What helps in general; of several rules, each of which is that of some nodes, any."""
    return "; or ".join(REASONS[one].helps for one in word.split("+") if one in REASONS)


def page(word: str) -> str:
    """Where the reason, or the first of several, is explained."""
    first = word.partition("+")[0]
    return REASONS[first].page if first in REASONS else ""


ASK_LESS = "ask for less, or raise the limit"
"""What helps a unit that alone asks for more than a limit of its queue: nobody's end does."""

FIRST_GOES = "the first of its queue must go, or be made smaller"
"""What helps a unit behind the first of a FIFO queue, which a limit holds: nothing that is done to the unit itself."""


def of_limit(problem: str) -> str:
    """The reason of what a queue holds back. ``problem``: why the queue cannot be used, "" where a limit is reached."""
    return UNUSABLE if problem else QUOTA
