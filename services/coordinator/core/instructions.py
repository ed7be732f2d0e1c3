"""What the core wants done, as frozen data. The shell carries it out and reports back by events.

None of these waits for another: each stands alone, and losing one costs latency, never correctness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shared.model.units.pod_group import PodGroup
from shared.model.units.queue import Queue, QueueStatus
from shared.policy.rollout.rollout import PointerChange
from shared.turns import Log, Stop
from shared.wire.messages import Offer, Plan, ViewUpdate
from shared.wire.records import PolicyWindow


class SendOffer(Struct, frozen=True):
    """POST the offer; answer with ``DecisionsReceived`` or ``RequestFailed``."""

    agent: str
    url: str
    offer: Offer


class SendView(Struct, frozen=True):
    """POST the view update; answer with ``ViewAcked`` or ``RequestFailed``."""

    agent: str
    url: str
    update: ViewUpdate


class SendPlan(Struct, frozen=True):
    """POST the plan to the binder leader; answer with ``PlanAnswered`` or ``PlanFailed``. Idempotent."""

    url: str
    plan: Plan


class PatchCondition(Struct, frozen=True):
    """PodScheduled=False with this reason and message, unless the pod is bound or gone (ADR 0014).

    Answered with ``ConditionWritten`` or ``ConditionFailed``. ``told``: as far as is known the pod shows
    PodScheduled=False already. ``nominated``: its nominated node from now on ("": none any more); None leaves the
    nomination as it is.
    """

    uid: str
    namespace: str
    name: str
    reason: str
    message: str
    told: bool = False
    nominated: str | None = None


class StoreNominations(Struct, frozen=True):
    """Write to etcd under the term where pods are to go: (uid, ``namespace/name``, node), node "": nowhere any more.
    Each that goes somewhere is answered with ``NominationStored`` and the ``number``, however long that takes, or not
    at all where something newer of that pod was asked for meanwhile."""

    changes: tuple[tuple[str, str, str], ...]
    number: int


class TellPodGroup(Struct, frozen=True):
    """Write the pod group's scheduling condition, where its API has one, and an event about it.

    ``condition`` (status, reason, message). Not answered: the watch shows what came of it, and the core says it again
    where that is something else. A newer one for the same group replaces one that has not been sent.
    """

    group: PodGroup
    condition: tuple[str, str, str]


class TellQueue(Struct, frozen=True):
    """Write the status of a Queue object. Not answered: the watch shows it, and the core asks again where it does not.
    A newer one for the same queue replaces one that has not been sent."""

    queue: Queue
    status: QueueStatus


class HoldNode(Struct, frozen=True):
    """Close a node to other schedulers by a taint, or (``hold`` False) open it again. Answered by ``NodeHeld``."""

    node: str
    hold: bool


class KeepRoom(Struct, frozen=True):
    """Make a Reservation for what the pod ``pod`` with ``uid`` leaves, which goes with that one's controller. Not
    answered: the watch shows it."""

    namespace: str
    name: str
    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    pod: str = ""
    uid: str = ""


class EmitEvent(Struct, frozen=True, gc=False):
    """A Kubernetes event about a pod, or what ``regarding`` says; a hint for people, its loss is not reported."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    type: str
    reason: str
    action: str
    note: str
    cause_id: str = ""
    """Of the attempt it is about, where there is one."""
    kind: frozenset[str] = frozenset()
    """What of the note is its reason: a later event of the same pod, reason and kind is the same again."""
    regarding: tuple[str, str] = ("v1", "Pod")
    """apiVersion and kind of the object that it is about."""


class FetchPod(Struct, frozen=True):
    """GET the pod; answer with ``PodFetched`` (a pod of the same name but another uid counts as none)."""

    uid: str
    namespace: str
    name: str


class FreeClaim(Struct, frozen=True):
    """Take away what a claim was given: it keeps the pod ``consumer`` from every node, and nobody else used it at
    ``resource_version``. Where it has changed since, nothing is done. ``delete``: an attempt had made it for the pod's
    extended resources.

    Not answered: the watch shows what came of it, and the next attempt asks again.
    """

    namespace: str
    name: str
    uid: str
    consumer: str
    resource_version: str
    delete: bool = False


class PublishPartition(Struct, frozen=True):
    """Write ``partitions/current`` under the term: the agents that the partition is computed from, and its epoch."""

    epoch: int
    agents: tuple[tuple[str, str], ...]


class WritePointer(Struct, frozen=True):
    """Write the policy pointer under the term if it is still what the change starts from; the watch tells what is."""

    change: PointerChange


class KeepWindow(Struct, frozen=True):
    """Keep what a window of policies measured, for people; number and time are the shell's."""

    window: PolicyWindow


class SetTimer(Struct, frozen=True):
    """Deliver ``Tick`` at ``at`` seconds of the core's clock; replaces the timer set before."""

    at: float


Instruction = (
    SendOffer
    | SendView
    | SendPlan
    | PatchCondition
    | StoreNominations
    | TellPodGroup
    | TellQueue
    | HoldNode
    | KeepRoom
    | FreeClaim
    | EmitEvent
    | FetchPod
    | PublishPartition
    | WritePointer
    | KeepWindow
    | SetTimer
    | Stop
    | Log
)
