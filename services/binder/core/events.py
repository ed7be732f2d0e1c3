"""What can happen to a binder: every fact its core learns, as frozen data.

The shell turns watches, answers and failures into these; the core learns nothing any other way. Events may come twice
or late (I9). Times are not part of them: ``now`` is an argument of ``BinderCore.handle``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shared.model.cluster_events import ClusterEvent
from shared.model.devices import DeviceClaim
from shared.model.pod import Pod
from shared.turns import Tick
from shared.wire.messages import EvictionResult, Plan
from shared.wire.records import Intent


class StoredIntent(Struct, frozen=True):
    """An intent as etcd holds it. ``intent`` None: its value cannot be read. ``created``: its create_revision."""

    intent: Intent | None
    created: int


class IntentsListed(Struct, frozen=True):
    """All intents there are, by unit key, as of ``revision``. The first list is the takeover's. ``fence``: as in
    ``LookedUp``."""

    intents: Mapping[str, StoredIntent]
    fence: int = 0
    revision: int = 0


class ShardsSeen(Struct, frozen=True):
    """The record of the shards, as etcd has it now: its mod_revision, 0 for none."""

    revision: int


class PlanReceived(Struct, frozen=True):
    """``request`` names the HTTP request that waits for the answer."""

    request: int
    plan: Plan


class Committed(Struct, frozen=True):
    """The transaction succeeded at ``revision``."""

    batch: int
    revision: int


class CommitRefused(Struct, frozen=True):
    """A compare failed (or the store refused it): nothing was written."""

    batch: int


class CommitUnknown(Struct, frozen=True):
    """The transaction may have been applied, or may be later."""

    batch: int


class LookedUp(Struct, frozen=True):
    """What etcd holds, read linearizably after a batch that did not succeed. Terms are 0 where nobody leads.

    ``intents``: only the keys that exist. ``fence``, ``shards``: mod_revision of the shard's fence and of the record of
    the shards, 0 where there is none. ``lenders``: term and fence of each shard that was asked for, read before the
    intents.
    """

    batch: int
    own_term: int
    coordinator_term: int
    intents: Mapping[str, StoredIntent]
    fence: int = 0
    shards: int = 0
    lenders: Mapping[str, tuple[int, int]] = {}


class LookUpFailed(Struct, frozen=True):
    """etcd did not say what became of the batch."""

    batch: int


class BindingAccepted(Struct, frozen=True, gc=False):
    """The API server has bound the pod."""

    uid: str
    attempt: int


class BindingRefused(Struct, frozen=True, gc=False):
    """The API server refused: no effect. ``status`` is HTTP's; ``retry_after_s`` where it asked to come again."""

    uid: str
    attempt: int
    status: int
    message: str = ""
    retry_after_s: float | None = None


class BindingUnknown(Struct, frozen=True, gc=False):
    """No answer: the pod may be bound now, or later."""

    uid: str
    attempt: int


class PodRead(Struct, frozen=True):
    """The answer to ``ReadPod``; None: there is no pod of that name, or it has another uid."""

    uid: str
    pod: Pod | None


class PodReadFailed(Struct, frozen=True):
    """The API server did not say what the pod is."""

    uid: str


class PodMarked(Struct, frozen=True):
    """The answer to ``MarkPod``: the pod's resourceVersion has changed. ``done`` False: refused or unknown."""

    uid: str
    done: bool


class ClaimWritten(Struct, frozen=True):
    """A claim is as it was to be written, and this is it."""

    claim: DeviceClaim


class ClaimUnwritten(Struct, frozen=True):
    """A write was refused, or nobody knows. ``claim``: as it was read afterwards, None: it is not there; ``known``
    False: it was not read, and the write may still come. ``status``: HTTP's, 0 without an answer."""

    key: str
    claim: DeviceClaim | None
    known: bool
    status: int
    message: str = ""
    retry_after_s: float | None = None


class ClaimFreed(Struct, frozen=True):
    """What is left of a claim that was given back, None: it is not there. ``done`` False: it may be as it was.
    ``status``: HTTP's of a refusal, else 0."""

    key: str
    claim: DeviceClaim | None
    done: bool
    status: int = 0


class Evicted(Struct, frozen=True):
    """What became of a victim; ``plan``: (coordinator's term, plan_id)."""

    plan: tuple[int, int]
    result: EvictionResult


class BoundPod(Struct, frozen=True):
    """A pod on a node, not finished, as a full list showed it."""

    namespace: str
    name: str
    node: str


class Compared(Struct, frozen=True):
    """The sweep's full list: every pod on a node, finished ones left out, by uid; ``reservations``: with them."""

    bound: Mapping[str, BoundPod] = {}
    reservations: bool = True


Event = (
    ClusterEvent
    | IntentsListed
    | ShardsSeen
    | PlanReceived
    | Committed
    | CommitRefused
    | CommitUnknown
    | LookedUp
    | LookUpFailed
    | BindingAccepted
    | BindingRefused
    | BindingUnknown
    | PodRead
    | PodReadFailed
    | PodMarked
    | ClaimWritten
    | ClaimUnwritten
    | ClaimFreed
    | Evicted
    | Compared
    | Tick
)
