"""A unit on its way through the binder, and the only moves that it may make.

The key of an in-flight binding is the pod's uid, also the key of its intent in etcd, unless it is a member of a gang
(``gangs.py``): then the gang's intent names it, and CHECKED lasts until that is committed::

    plan --> AWAITED --(pod known)--> CHECKED --(intent committed)--> COMMITTED --> BINDING --> settled
                |  checked, assumed;      |                             ^  |  409, unknown |
                |  full: ``leavers.py``   |                             |  |               |
                v                         v                             |  v               v
             settled              settled (lent,            RENEWING <--+ READING <--------+
          (no candidate)            refused, stale)      (newer resourceVersion)   |
                                                                                   v
    takeover --> COMMITTED (inherited)                                          MARKING --> READING --> settled

An intent is in etcd from COMMITTED until after the unit is settled, and a settled unit is never touched again: late
answers find no binding. ``TRANSITIONS`` says it exactly: which event may take a unit from which stage to which; any
other move raises ``InvalidTransition``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.binder.core import events
from shared.model import cluster_events
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import CAUSE_ANNOTATION, DEVICES_ANNOTATION, POLICY_ANNOTATION
from shared.model.units.reservation import RESERVATION_ANNOTATION
from shared.model.units.unit import cause_id
from shared.ports import BindRequest
from shared.turns import Tick
from shared.wire.messages import Loan, Outcome, Placement
from shared.wire.records import Intent, IntentClaim, IntentPod


class BindingStage(Enum):
    """Where a unit is on its way; see the module's diagram."""

    __hash__ = object.__hash__  # it is looked up at every move

    NEW = "new"
    AWAITED = "awaited"
    CHECKED = "checked"
    COMMITTED = "committed"
    BINDING = "binding"
    READING = "reading"
    RENEWING = "renewing"
    MARKING = "marking"
    SETTLED = "settled"


_NEW, _AWAITED, _CHECKED, _COMMITTED = (
    BindingStage.NEW,
    BindingStage.AWAITED,
    BindingStage.CHECKED,
    BindingStage.COMMITTED,
)
_BINDING, _READING, _RENEWING, _MARKING = (
    BindingStage.BINDING,
    BindingStage.READING,
    BindingStage.RENEWING,
    BindingStage.MARKING,
)
_SETTLED = BindingStage.SETTLED
_ENDS = {stage: {_SETTLED} for stage in (_AWAITED, _CHECKED, _COMMITTED, _BINDING, _READING, _RENEWING, _MARKING)}
_RECALLED = {_COMMITTED: {_MARKING, _SETTLED}, _BINDING: {_MARKING}}
_INHERITED = {_NEW: {_COMMITTED}, _COMMITTED: {_READING, _MARKING, _SETTLED}}

TRANSITIONS: Mapping[type[events.Event], Mapping[BindingStage, set[BindingStage]]] = {
    events.PlanReceived: {_NEW: {_AWAITED}, _AWAITED: {_CHECKED, _SETTLED}, _CHECKED: {_SETTLED}},
    cluster_events.PodUpserted: {**_ENDS, _AWAITED: {_CHECKED, _SETTLED}},
    cluster_events.PodDeleted: {**_ENDS, _AWAITED: {_CHECKED, _SETTLED}},
    events.Evicted: {_AWAITED: {_CHECKED, _SETTLED}},
    cluster_events.NodeUpserted: _RECALLED,
    cluster_events.NodeDeleted: _RECALLED,
    events.Committed: {_CHECKED: {_COMMITTED, _SETTLED}, _RENEWING: {_COMMITTED}},
    events.LookedUp: {**_INHERITED, _CHECKED: {_COMMITTED, _SETTLED}, _RENEWING: {_COMMITTED}},
    events.IntentsListed: _INHERITED,
    events.BindingAccepted: {_BINDING: {_SETTLED}},
    events.BindingRefused: {_BINDING: {_COMMITTED, _READING, _MARKING, _SETTLED}},
    events.BindingUnknown: {_BINDING: {_READING}},
    events.PodRead: {_AWAITED: {_CHECKED, _SETTLED}, _READING: {_COMMITTED, _RENEWING, _MARKING, _SETTLED}},
    events.PodReadFailed: {_AWAITED: {_SETTLED}},
    events.ClaimFreed: {_COMMITTED: {_SETTLED}},
    events.PodMarked: {_MARKING: {_READING}},
    Tick: {
        **_INHERITED,
        _AWAITED: {_CHECKED, _SETTLED},
        _CHECKED: {_SETTLED},
        _COMMITTED: {_BINDING, _READING, _MARKING, _SETTLED},
        _READING: {_READING},
        _RENEWING: {_SETTLED},
        _MARKING: {_READING},
    },
}
"""By what happened, and from where: where a unit may go. ``Tick`` stands for all that time and room make possible."""

LEGAL = frozenset(
    (cause, start, to) for cause, moves in TRANSITIONS.items() for start, ends in moves.items() for to in ends
)
"""The same as single moves."""


@dataclass(slots=True)
class InFlightBinding:
    """One unit on its way. ``node``: where it is to go; ``rv``: the resourceVersion its Binding names.

    ``loose``: a Binding of it may be under way that we do not know the end of (an earlier leader's, or one of ours
    that got no answer); then it may be given up only after its pod has been marked. ``withdrawing``: as what it is
    given up, once that is decided. ``asking``: a read or a mark of its pod is under way.
    """

    uid: str
    namespace: str
    name: str
    rv: str
    node: str
    unit: int
    coordinator_term: int
    plan_id: int
    policy: str
    arrived: float
    gang: str = ""
    """The unit key of the gang that it is a member of."""
    placement: Placement | None = None
    lend: bool = False
    """It is to be lent: its room is kept for another shard's binder, and it is not committed here."""
    loan: Loan | None = None
    """What another shard's binder keeps for it, where its node is of that shard."""
    devices: tuple[int, ...] = ()
    reservation: str = ""
    """The uid of the Reservation whose room on its node it is to have; "": of none."""
    pod_class: PodClass | None = None
    checked_node: Node | None = None
    """The node as it was when it was found to take the unit."""
    stage: BindingStage = BindingStage.NEW
    inherited: bool = False
    loose: bool = False
    withdrawing: Outcome | None = None
    asking: bool = False
    attempts: int = 0
    failures: int = 0
    conflicts: int = 0
    reason: str = ""
    bind_us: int = 0
    room_until: float = 0.0
    """While its candidates are full, and somebody leaves one of them, it waits for that room until then."""
    reservation_until: float = 0.0
    """Until then it waits for the reservation to be shown where it was bound just now."""
    told: bool = False
    """Its pod says that it waits for its volumes."""
    selected: set[str] = field(default_factory=set)
    """Claims of its pod that were seen to select its node."""
    extended: bool = False
    """Its pod requests extended resources, which a device class may stand for."""
    claims: tuple[IntentClaim, ...] = ()
    """Its claims of devices, as its intent names them."""
    claimed: set[str] = field(default_factory=set)
    """Claims of devices that were written for it, by us and in this attempt."""
    to_free: set[str] = field(default_factory=set)
    """Claims that it leaves if it is not bound: they were written for it, or may have been."""
    unanswered: set[str] = field(default_factory=set)
    """Claims of which a write for it got no answer."""
    conditions_told: bool = False
    """Whether it was counted what came of waiting for its devices' binding conditions."""
    given_back: bool = False
    """Whether it has left, or is leaving, what an earlier leader may have written for it."""

    @property
    def cause_id(self) -> str:
        """The id under which every service logs this unit."""
        return cause_id(self.coordinator_term, self.unit)

    def request(self) -> BindRequest:
        """The Binding that is sent for it."""
        annotations = {CAUSE_ANNOTATION: self.cause_id}
        if self.policy:
            annotations[POLICY_ANNOTATION] = self.policy
        if self.devices:
            annotations[DEVICES_ANNOTATION] = ",".join(map(str, self.devices))
        if self.reservation:
            annotations[RESERVATION_ANNOTATION] = self.reservation
        return BindRequest(self.namespace, self.name, self.uid, self.rv, self.node, annotations)

    def entry(self, unit: int = 0) -> IntentPod:
        """The pod as its intent names it."""
        return IntentPod(
            uid=self.uid, ns=self.namespace, name=self.name, rv=self.rv, node=self.node, devices=self.devices,
            unit=unit, claims=self.claims, reservation=self.reservation,
        )  # fmt: skip

    def intent(self, term: int, shard: str) -> Intent:
        """What is written to etcd for it under the ``term`` of the shard's binder."""
        return Intent(
            plan_id=self.plan_id,
            coordinator_term=self.coordinator_term,
            unit=self.unit,
            pods=(self.entry(),),
            term=term,
            policy=self.policy,
            shard=shard,
        )
