"""What can happen to a coordinator: every fact its core learns, as frozen data.

The shell turns watches, answers and failures into these; the core learns nothing any other way. Events may be
delivered twice (I9). Times are not part of them: ``now`` is an argument of ``Core.handle``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import ClusterEvent
from shared.model.pod import Pod
from shared.policy.observation import Policy
from shared.scheduling.shards import ONLY
from shared.turns import Tick
from shared.wire.messages import Decisions, PlanResult, ViewAck
from shared.wire.records import AgentRecord, Drained, Paused, PolicyPointer, PolicyRef, QueueHistoryRecord


class IntentRecord(Struct, frozen=True):
    """A committed plan entry found in etcd: the binder will bind ``pods`` (uid, node) or withdraw them."""

    key: str
    pods: tuple[tuple[str, str], ...]
    reservations: tuple[tuple[str, str], ...] = ()
    """(uid, reservation) of those that are to have room that is kept."""


class AgentsChanged(Struct, frozen=True):
    """Everybody who is registered now."""

    agents: tuple[AgentRecord, ...]


class DecisionsReceived(Struct, frozen=True):
    """``request``: message_id of the offer that this answers."""

    agent: str
    request: int
    decisions: Decisions


class ViewAcked(Struct, frozen=True):
    """``request``: message_id of the view update that this answers."""

    agent: str
    request: int
    ack: ViewAck


class RequestFailed(Struct, frozen=True):
    """An offer or a view update got no usable answer; whether the agent applied it is not known."""

    agent: str
    request: int
    code: str


class BinderChanged(Struct, frozen=True):
    """Who leads the binders of the shard; "" when nobody does."""

    url: str
    term: int
    shard: str = ONLY


class ShardsSeen(Struct, frozen=True):
    """The record of the shards, as etcd has it now: its mod_revision, 0 for none."""

    revision: int


class PlanAnswered(Struct, frozen=True):
    """``round_trip_s``: from sending the plan to this answer."""

    plan_id: int
    result: PlanResult
    round_trip_s: float = 0.0


class PlanFailed(Struct, frozen=True):
    """The plan got no answer. ``refused``: it certainly had no effect (``PeerRejected``)."""

    plan_id: int
    code: str
    refused: bool
    retry_after_s: float | None = None


class IntentsListed(Struct, frozen=True):
    """All intents there were when this leader won; no older leader can add any (the term is compared). ``nominations``:
    (pod uid, node), of pods that were to go there, likewise."""

    intents: tuple[IntentRecord, ...]
    nominations: tuple[tuple[str, str], ...] = ()


class IntentGone(Struct, frozen=True):
    key: str


class PodFetched(Struct, frozen=True):
    """The answer to ``FetchPod``; None: there is no such pod (any more). ``failed``: the API server did not say."""

    uid: str
    pod: Pod | None
    failed: bool = False


class NominationStored(Struct, frozen=True):
    """etcd has it that the pod is to go to the node. ``number``: of the ``StoreNominations`` that asked for it."""

    uid: str
    node: str
    number: int


class NodeHeld(Struct, frozen=True):
    """What became of a ``HoldNode``. ``ok`` False: the API server refuses it, or did not answer. ``gone``: there is no
    such node."""

    node: str
    hold: bool
    ok: bool = True
    gone: bool = False


class ConditionWritten(Struct, frozen=True):
    """A ``PatchCondition`` got through, or there was nothing to write: the pod is bound or gone."""

    uid: str


class ConditionFailed(Struct, frozen=True):
    """A ``PatchCondition`` did not get through, or nobody knows.

    ``refused``: for what it is, not for when it came. ``throttled``: the API server has too much to do, or is silent.
    """

    uid: str
    refused: bool = False
    throttled: bool = False
    retry_after_s: float | None = None


class PointerSeen(Struct, frozen=True):
    """The policy pointer as etcd has it now."""

    pointer: PolicyPointer


class PolicyRead(Struct, frozen=True):
    """A policy that the pointer names was made of its weights, by which nodes are ranked here (``ranked_here.py``)."""

    ref: PolicyRef
    policy: Policy


class ControlSeen(Struct, frozen=True):
    """Everything that operators told the mesh, as etcd has it now. ``settings`` None: as the process was started."""

    paused: Paused | None = None
    drained: tuple[Drained, ...] = ()
    settings: CoreSettings | None = None
    settings_number: int = 0


class QueueHistoryRead(Struct, frozen=True):
    """Past use of queues as an earlier leader kept it. ``time``: when it was read, seconds since 1970."""

    record: QueueHistoryRecord
    time: int


class NodeSample(Struct, frozen=True):
    """What one node used, ``age_s`` before this was posted. None: this ``source`` does not tell it.

    ``disk`` and ``network``: shares of what the node can do. ``delay_us``: round trip to other nodes. ``latencies``:
    (median, spread) by target, in microseconds. ``pressure``: shares of time in which tasks waited for cpu, memory, io.
    ``missing``: what could not be told, for people.
    """

    node: str
    age_s: float
    cpu_millis: int | None
    memory_bytes: int | None
    disk: float | None = None
    network: float | None = None
    source: str = "metrics"
    delay_us: int | None = None
    latencies: Mapping[str, tuple[int, int]] | None = None
    pressure: tuple[float, ...] = ()
    oom_kills: int | None = None
    missing: tuple[str, ...] = ()


class NodesMeasured(Struct, frozen=True):
    """What a source told of some nodes, or of all: the metrics API, Prometheus, agents on their nodes."""

    samples: tuple[NodeSample, ...]


Event = (
    ClusterEvent
    | AgentsChanged
    | DecisionsReceived
    | ViewAcked
    | RequestFailed
    | BinderChanged
    | ShardsSeen
    | PlanAnswered
    | PlanFailed
    | IntentsListed
    | IntentGone
    | PodFetched
    | NodeHeld
    | ConditionWritten
    | ConditionFailed
    | NominationStored
    | PointerSeen
    | PolicyRead
    | ControlSeen
    | NodesMeasured
    | QueueHistoryRead
    | Tick
)
