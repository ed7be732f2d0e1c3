"""What the core wants done, as frozen data. The shell carries it out and reports back by events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shared.model.devices import Allocation, Consumer, DeviceRequest, ExtendedClaim
from shared.ports import BindRequest, Compare, Op
from shared.turns import Log, Stop
from shared.wire.messages import Eviction, PlanResult


class Commit(Struct, frozen=True):
    """Run the transaction; answer ``Committed``, ``CommitRefused`` or ``CommitUnknown``. One at a time."""

    batch: int
    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]
    units: tuple[tuple[int, int], ...] = ()
    """(coordinator's term, unit) of every pod whose intent is put, for those who follow a unit's way."""
    steps: tuple[str, ...] = ()
    """Steps of gangs that it makes, by the names of their failpoints."""


class LookUp(Struct, frozen=True):
    """Read both leaders' keys, the shards, leader and fence of each of ``lenders``, and then these intents; answer
    ``LookedUp`` or ``LookUpFailed``."""

    batch: int
    unit_keys: tuple[str, ...]
    lenders: tuple[str, ...] = ()


class Bind(Struct, frozen=True, gc=False):
    """Send the Binding if our leadership is still valid; answer ``BindingAccepted``, ``Refused`` or ``Unknown``."""

    attempt: int
    request: BindRequest
    cause_id: str
    step: str = ""
    """``gang_first``, ``gang_next``: a member of a gang of which nobody, or somebody, is bound; names failpoints."""
    tells: bool = False
    """The pod's status is to tell of the claim for its extended resources first, which is ``extended``; None: of none.
    The Binding then names the resourceVersion that this makes."""
    extended: ExtendedClaim | None = None
    room: tuple[str, str, str] | None = None
    """Namespace, name and uid of the Reservation for once whose room it takes: that names the pod first."""


class ReadPod(Struct, frozen=True):
    """GET the pod; answer ``PodRead`` or ``PodReadFailed``."""

    uid: str
    namespace: str
    name: str


class MarkPod(Struct, frozen=True):
    """Patch the pod's PodScheduled condition to ``message``, so that Bindings sent before get 409.

    Answer ``PodMarked``. The message is new each time: a patch that changes nothing would leave the resourceVersion.
    A pod that was bound meanwhile is not marked (ADR 0014). ``told``: the pod shows PodScheduled=False already, as far
    as is known.
    """

    uid: str
    namespace: str
    name: str
    message: str
    told: bool = False


class PatchObject(Struct, frozen=True):
    """Merge-patch a claim or a volume. Not answered: the watch shows what came of it, and a net asks again."""

    kind: str
    namespace: str
    name: str
    patch: Mapping[str, Any]


class WriteClaim(Struct, frozen=True):
    """Write a claim with what it is given (``allocation``; None: it has something) and who uses it (``consumers``;
    nobody: it is only marked anew); answer ``ClaimWritten`` or ``ClaimUnwritten``. ``members``: the uids of the pods
    that are in line and use it through their pod group, reserved already or by this. ``made``: for the extended
    resources of its one consumer, with these ``requests`` where it has no ``uid`` yet."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    protected: bool
    mark: str
    allocation: Allocation | None
    consumers: tuple[Consumer, ...]
    made: bool = False
    requests: tuple[DeviceRequest, ...] = ()
    members: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def pods(self) -> tuple[str, ...]:
        """The uids of the pods that it is written for."""
        return (*(one.uid for one in self.consumers if not one.group), *self.members)


class ReleaseClaim(Struct, frozen=True):
    """The pod ``consumer`` does not use the claim after all; ``deallocate``: we gave it what it has, or were about to.
    ``made``: it is the one that is made for the pod's extended resources, and deleted. ``group``: it is reserved for
    the pod's group, and is marked alone, so that nothing of before comes late. Answer ``ClaimFreed``."""

    namespace: str
    name: str
    uid: str
    consumer: str
    deallocate: bool
    made: bool = False
    group: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Evict(Struct, frozen=True):
    """Evict the victim of a plan; answer ``Evicted``."""

    plan: tuple[int, int]
    eviction: Eviction


class PlanAnswer(Struct, frozen=True):
    """Answer the plan's request."""

    request: int
    result: PlanResult


class Refuse(Struct, frozen=True):
    """Refuse the plan's request: stable ``code``, HTTP ``status``."""

    request: int
    code: str
    message: str
    status: int
    retry_after_s: float | None = None


class ListIntents(Struct, frozen=True):
    """List all intents; answer ``IntentsListed``."""


class ListPods(Struct, frozen=True):
    """List all pods, to compare the cache with; answer ``Compared``."""


Instruction = (
    Commit
    | LookUp
    | Bind
    | Evict
    | PatchObject
    | WriteClaim
    | ReleaseClaim
    | ReadPod
    | MarkPod
    | PlanAnswer
    | Refuse
    | ListIntents
    | ListPods
    | Stop
    | Log
)
