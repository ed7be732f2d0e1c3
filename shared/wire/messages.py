"""Every message between services, as msgpack arrays: kind, version, message_id, follows, term, then the body.

Rules (docs/checklist-new-message.md): kinds and field order never change; fields are appended with a default, so an old
reader skips what it does not know and a new one fills in what is missing; durations, never timestamps; every list,
string and number is bounded. HTTP messages are hints or requests: losing one costs latency, never correctness.

``message_id`` counts up per sender; ``follows`` is the message_id of the message that this one answers or follows
(0: none); ``term`` is the sender's (coordinator) or the one it answers under. A unit's ``cause_id`` in logs is
``term-unit`` in hex, which every message carries.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Meta, Struct

from shared.model.constraints import NO_NORMS, HostPort, Norms, PodClass, Taint
from shared.wire.bounds import Count, Feature, LongText, Text
from shared.wire.demand import Demand
from shared.wire.readings import (
    MAX_PEERS,
    MAX_TARGETS,
    Boot,
    NodeReading,
    NodeUse,
    ProbePeer,
    ProbeTarget,
    Standing,
    TargetLatency,
)
from shared.wire.residents import Residents

VERSION = 1
"""Major version. A message of another one is refused and counted."""

SCORE_SCALE = 1_000_000
"""Scores travel as integers: millionths."""

MAX_SCORE_MICROS = 2**53
Micros = Annotated[int, Meta(ge=-MAX_SCORE_MICROS, le=MAX_SCORE_MICROS)]

MAX_UNITS = 4096
MAX_NODES_PER_PAGE = 512
MAX_USAGES = 65536
MAX_ANSWERS = 65536


class Message(Struct, frozen=True, array_like=True, gc=False):
    """The envelope."""

    version: int
    message_id: Count
    follows: Count
    term: Count


class NodeUsage(Struct, frozen=True, array_like=True, gc=False):
    """Accounting of one node: ``slot`` names it until the view's epoch ends; ``requested`` follows the view's
    ``resources``; ``device_free``: free thousandths per GPU device; ``claimed_free``: those that claims leave, where
    a policy sees them; ``zones``: of each zone with its GPUs (``NodeTable.zones_free``), where pods are aligned."""

    slot: Count
    generation: Count
    requested: Annotated[list[int], Meta(max_length=256)]
    score_cpu_millis: int
    score_memory_bytes: int
    ports: Annotated[list[HostPort], Meta(max_length=4096)] = []
    device_free: Annotated[list[int], Meta(max_length=64)] = []
    claimed_free: Annotated[list[int], Meta(max_length=1024)] = []
    zones: Annotated[list[Annotated[list[int], Meta(min_length=5, max_length=16)]], Meta(max_length=16)] = []


class NodeRow(Struct, frozen=True, array_like=True, gc=False):
    """A node that is new to the agent's view, or whose static half changed; ``latency_us`` -1: not known.
    ``drained``: it is unschedulable only because an operator drained it from our scheduling; the cluster itself lets
    pods on it. ``features``: those it declares that some pod may need."""

    name: Text
    labels: Annotated[dict[str, str], Meta(max_length=1024)]
    taints: Annotated[list[Taint], Meta(max_length=256)]
    unschedulable: bool
    allocatable: Annotated[dict[str, int], Meta(max_length=256)]
    usage: NodeUsage
    latency_us: int = -1
    drained: bool = False
    features: Annotated[list[Text], Meta(max_length=64)] = []


class View(Struct, frozen=True, array_like=True, gc=False):
    """A piece of an agent's view: applies on ``base`` (0: start from nothing) and leads to ``revision``.

    Any other base is a gap: the agent answers ``resync`` and gets everything again, page by page.
    """

    epoch: Count
    base: Count
    revision: Count
    resources: Annotated[list[Text], Meta(max_length=256)] = []
    nodes: Annotated[list[NodeRow], Meta(max_length=MAX_NODES_PER_PAGE)] = []
    usages: Annotated[list[NodeUsage], Meta(max_length=MAX_USAGES)] = []
    removed: Annotated[list[Count], Meta(max_length=MAX_USAGES)] = []


class ClassDefinition(Struct, frozen=True, array_like=True, gc=False):
    """A pod class under a number that is valid until the epoch ends or ``forget_classes``.

    ``candidate``: its units are judged by the policy that is being rolled out, not by the active one. ``workload``:
    what its units are copies of (``WorkloadName``); 0: the policy does not look at it.
    """

    class_id: Count
    pod_class: PodClass
    candidate: bool = False
    workload: Count = 0


SlotSet = Annotated[list[Count], Meta(max_length=MAX_USAGES)] | Annotated[bytes, Meta(max_length=MAX_USAGES // 8)]
"""Slots, as numbers or as a bitmap (bit i of byte n: slot 8n + i), whichever is smaller."""


MAX_EXTRA = 16
"""Next-best candidates that an offer may ask for beyond one per unit."""


class RowGuidance(Struct, frozen=True, array_like=True, gc=False):
    """What an agent cannot see from its own nodes, about one unit: ``allowed``: the only slots to look at; ``levels``:
    what is added to the scores of slots, 0 elsewhere; ``distinct``: how many different nodes are wanted, best first."""

    allowed: SlotSet
    levels: Annotated[list[tuple[int, SlotSet]], Meta(max_length=MAX_USAGES)] = []
    distinct: Annotated[int, Meta(ge=1, le=2 * MAX_UNITS)] = 1


class UnitGroup(Struct, frozen=True, array_like=True, gc=False):
    """Units of one class that are to be placed, in queue order; ``norms`` are the class's cluster-wide maxima.

    With ``guidance`` the answer names different nodes for the first unit, and the coordinator deals them to all; where
    several units are named, a node again for each further unit that it is expected to get.
    ``counted``: so many of the best nodes are counted as given a unit each while the groups after this one are judged.
    """

    class_id: Count
    units: Annotated[list[Count], Meta(min_length=1, max_length=MAX_UNITS)]
    norms: Norms = NO_NORMS
    guidance: RowGuidance | None = None
    counted: Annotated[int, Meta(ge=0, le=MAX_UNITS)] = 0


class Offer(Message, frozen=True, tag=1):
    """Coordinator to agent: who takes these units? ``extra``: how many next-best candidates beyond one per unit.

    ``cluster``: means over all nodes, least and greatest (``policy.usage.views.SUMMARY``), for policies that compare
    an agent's nodes with them; empty where no policy does. ``pointer``: number of the policy pointer that the
    coordinator goes by; 0: of none. ``samples``: measurements of the agent's nodes that it has not been told of.
    ``residents``: which workloads stand there, for policies that look at what workloads use; None where no policy does.
    ``demand``: what all pods ask for, where a policy goes by it; None: as the agent was told last.
    """

    epoch: Count
    view: View | None
    groups: Annotated[list[UnitGroup], Meta(max_length=MAX_UNITS)]
    classes: Annotated[list[ClassDefinition], Meta(max_length=MAX_UNITS)] = []
    forget_classes: bool = False
    extra: Annotated[int, Meta(ge=0, le=MAX_EXTRA)] = 2
    cluster: Annotated[list[Feature], Meta(max_length=64)] = []
    pointer: Count = 0
    samples: Annotated[list[NodeUse], Meta(max_length=MAX_USAGES)] = []
    residents: Residents | None = None
    demand: Demand | None = None


class Answer(Struct, frozen=True, array_like=True, gc=False):
    """One node for one unit: ``accept`` is the policy's advice, ``score`` in millionths, ``generation`` the node's
    that it was judged at."""

    unit: Count
    slot: Count
    accept: bool
    score: Micros
    generation: Count
    policy_version: Count


class Refusal(Struct, frozen=True, array_like=True, gc=False):
    """No node of this agent is feasible for the units of one class: how many nodes gave which reason."""

    class_id: Count
    nodes: Count
    reasons: Annotated[dict[LongText, Count], Meta(max_length=256)]
    plugins: Annotated[list[Text], Meta(max_length=64)]


class LaneReport(Struct, frozen=True, array_like=True, gc=False):
    """By which policy (``name@version``) an answer's groups were judged: ``groups`` of them in ``spent_us`` of CPU
    time. ``candidate``: those of candidate classes. ``fallen``: classes that the heuristic had to judge instead.
    ``own``: those of classes whose profile names this policy; an agent that does not know profiles tells of none."""

    policy: Text
    candidate: bool = False
    groups: Count = 0
    spent_us: Count = 0
    fallen: Annotated[list[Count], Meta(max_length=MAX_UNITS)] = []
    own: Text = ""


class PolicyFailure(Struct, frozen=True, array_like=True, gc=False):
    """What a policy did wrong (``shared/decide/guard.py``), and how often since this agent loaded it. Told again and
    again, so that losing an answer loses nothing. ``own``: the policy as a profile names it, which is no part of a
    roll-out; "": the mesh's."""

    policy: Text
    sha256: Text
    failure: Text
    count: Count
    own: Text = ""


class Decisions(Message, frozen=True, tag=2):
    """Agent to coordinator, the answer to an offer. ``revision`` is the view's it rests on; 0 asks for a resync.

    ``unknown_classes``: groups that were not judged because their class is not known here. ``lanes``: by which policy
    the others were judged; empty: all of them by the active policy of the offer's pointer.
    """

    revision: Count
    answers: Annotated[list[Answer], Meta(max_length=MAX_ANSWERS)]
    refusals: Annotated[list[Refusal], Meta(max_length=MAX_UNITS)] = []
    unknown_classes: Annotated[list[Count], Meta(max_length=MAX_UNITS)] = []
    lanes: Annotated[list[LaneReport], Meta(max_length=64)] = []
    failures: Annotated[list[PolicyFailure], Meta(max_length=16)] = []


class ViewUpdate(Message, frozen=True, tag=3):
    """Coordinator to agent: a piece of the view without an offer."""

    view: View


class ViewAck(Message, frozen=True, tag=4):
    """Agent to coordinator: the revision the view stands at; 0 asks for a resync."""

    revision: Count


class Placement(Struct, frozen=True, array_like=True, gc=False):
    """Pod to node. ``alternatives``: next-best nodes to try before giving the unit back; ``waited_us``: since the
    coordinator saw the pod; ``reservation``: uid of that whose room on the node it is to have."""

    unit: Count
    uid: Text
    namespace: Text
    name: Text
    resource_version: Text
    node: Text
    alternatives: Annotated[list[Text], Meta(max_length=16)] = []
    policy: Text = ""
    policy_version: Count = 0
    score: Micros = 0
    waited_us: Count = 0
    reservation: Text = ""


class EvictionReason(IntEnum):
    """Why a pod is to leave."""

    PREEMPTION = 0
    """A pod of higher priority needs the room."""
    RECLAIM = 1
    """Its queue borrowed what another takes back."""
    OVER_LIMIT = 2
    """Its queue uses more than its limits, which were lowered."""
    BROKEN_GANG = 3
    """Its pod group runs fewer members than its minimum, and asks for it."""
    GIVE_WAY = 4
    """It is offline, and less is lent on a node than offline pods hold there."""


class Eviction(Struct, frozen=True, array_like=True, gc=False):
    """A victim: it is to leave ``node`` for the sake of ``preemptor``: a pod's uid, the key of a broken gang, the name
    of a node that lends less, or nobody (""). ``force``: delete it where its disruption budget forbids an eviction,
    since no choice without that violation was left. ``unprotected``: no disruption budget covers it, so it may be
    deleted as kube-scheduler does."""

    uid: Text
    namespace: Text
    name: Text
    preemptor: Text
    node: Text
    force: bool = False
    reason: Annotated[int, Meta(ge=0, le=15)] = 0
    unprotected: bool = False


class Gang(Struct, frozen=True, array_like=True, gc=False):
    """Placements of a plan that are committed together: at least ``min_count`` of them, or none.

    ``members``: the ``unit`` of each, in order of preference: those beyond the minimum are the first to be left out.
    ``unit``: the number of the whole; ``group``: the pod group's key. Members that are bound already are not counted
    in ``min_count``, which may thus be 0 or 1.
    """

    unit: Count
    group: Text
    members: Annotated[list[Count], Meta(min_length=1, max_length=MAX_UNITS)]
    min_count: Count


class Loan(Struct, frozen=True, array_like=True, gc=False):
    """Room on a node of one shard, kept by its binder for a pod that another shard's binder commits.

    ``uid``: the pod's; ``shard``, ``term``, ``fence``: the lender's, and the mod_revision of its fence in etcd: the
    transaction that rests on the loan compares both. ``resource_version``: of the pod that was judged; ``devices``: GPU
    devices picked for it.
    """

    uid: Text
    node: Text
    shard: Text
    term: Count
    fence: Count
    resource_version: Text
    devices: Annotated[list[Count], Meta(max_length=1024)] = []


class Plan(Message, frozen=True, tag=5):
    """Coordinator to binder: commit and bind these. ``plan_id`` with the term makes it idempotent.

    Every placement has a ``unit`` of its own; those named in ``gangs`` stand or fall together. ``lend``: commit none of
    them, keep their room for the binder of another shard, each by itself (the gang is for binders that do not know of
    this: one that cannot reach its minimum); ``loans``: what other shards' binders keep for placements of
    this plan on their nodes, as they said it.
    """

    plan_id: Count
    placements: Annotated[list[Placement], Meta(max_length=MAX_UNITS)]
    evictions: Annotated[list[Eviction], Meta(max_length=MAX_UNITS)] = []
    gangs: Annotated[list[Gang], Meta(max_length=MAX_UNITS)] = []
    lend: bool = False
    loans: Annotated[list[Loan], Meta(max_length=MAX_UNITS)] = []


class Outcome(IntEnum):
    """What became of a placement."""

    BOUND = 0
    """The API server has it on ``node``."""
    CONFLICT = 1
    """Given back to be tried again: no candidate fits (``node``: the first, ``reason``: why it does not), its Binding
    did not succeed, or (no ``node``) its gang is given back. Nothing is bound."""
    GONE = 2
    """The pod was deleted or recreated. Nothing is bound."""
    ELSEWHERE = 3
    """Already bound to ``node``, not by this plan."""
    UNRESOLVED = 4
    """Committed, but the outcome of the Binding is not known yet; the binder goes on; wait for the watch."""
    REFUSED = 5
    """The API server refuses the Binding for good, or volumes did not come in time (``reason``). Nothing is bound."""
    LENT = 6
    """Its room on ``node`` is kept for another shard's binder, as its ``Loan`` says. Nothing is committed."""


class PlacementResult(Struct, frozen=True, array_like=True, gc=False):
    """``bind_us``: from the plan's arrival to the Binding being sent; 0 when none was sent. ``conflicts``: nodes
    that were refused first; ``settled_us``: from the plan's arrival to this unit's end, 0: not known."""

    unit: Count
    outcome: Annotated[int, Meta(ge=0, le=15)]
    node: Text = ""
    reason: LongText = ""
    bind_us: Count = 0
    conflicts: Count = 0
    settled_us: Count = 0


class EvictionOutcome(IntEnum):
    """What became of a victim."""

    EVICTED = 0
    """The API server has taken the eviction or deletion; the pod is leaving."""
    GONE = 1
    """There is no such pod any more."""
    REFUSED = 2
    """A disruption budget forbids it and it was not to be forced, or it is not allowed (``reason``)."""
    UNKNOWN = 3
    """No answer: it may be leaving; the watch tells."""


class EvictionResult(Struct, frozen=True, array_like=True, gc=False):
    """``waits``: of UNKNOWN, that the binder has not sent it, or has no answer yet: a plan that asks for it again hears
    the end."""

    uid: Text
    outcome: Annotated[int, Meta(ge=0, le=15)]
    reason: LongText = ""
    waits: bool = False


class PlanResult(Message, frozen=True, tag=6):
    """Binder to coordinator, the answer to a plan. ``elapsed_us``: from arrival to this answer; ``loans``: one for each
    result that is LENT."""

    plan_id: Count
    results: Annotated[list[PlacementResult], Meta(max_length=MAX_UNITS)]
    elapsed_us: Count = 0
    evictions: Annotated[list[EvictionResult], Meta(max_length=MAX_UNITS)] = []
    loans: Annotated[list[Loan], Meta(max_length=MAX_UNITS)] = []


class Transition(Struct, frozen=True, array_like=True, gc=False):
    """One step of one node's agent: state and action at a decision, reward and next state when it was read.

    ``s_tm1`` and ``s_t`` are the policy's features of that node; ``a_tm1`` 1: accepted, 0: rejected. The discount is
    the learner's: a scheduler's work has no end, so none of these is terminal.
    """

    s_tm1: Annotated[list[Feature], Meta(max_length=256)]
    a_tm1: Annotated[int, Meta(ge=0, le=1)]
    r_t: Feature
    s_t: Annotated[list[Feature], Meta(max_length=256)]


class Transitions(Message, frozen=True, tag=7):
    """Agent to learner: what it lived through. ``policy`` (its name) says what the features mean; ``dropped``: how many
    were thrown away so far because nobody took them in time."""

    agent: Text
    policy: Text
    transitions: Annotated[list[Transition], Meta(max_length=MAX_UNITS)]
    dropped: Count = 0


class TransitionsAck(Message, frozen=True, tag=8):
    """Learner to agent: how many it took; the others did not fit the policy that it trains."""

    taken: Count


class Readings(Message, frozen=True, tag=9):
    """Agent or sensor to the leading coordinator: what its node uses, and where it stands. A hint; newer ones follow.

    ``incarnation``: as registered; only the node that this registration serves may be spoken of. ``probed_at``: where
    it answers probes. ``boot``: of a sensor alone, which is not registered: its ``agent`` is its node's name.
    """

    agent: Text
    incarnation: Text
    readings: Annotated[list[NodeReading], Meta(max_length=4)] = []
    standing: Standing | None = None
    latencies: Annotated[list[TargetLatency], Meta(max_length=MAX_TARGETS)] = []
    probed_at: ProbePeer | None = None
    boot: Boot | None = None


class ReadingsAck(Message, frozen=True, tag=10):
    """Coordinator to agent or sensor: when the next readings are wanted, and what to probe with which keys.

    ``keys``: of probes between agents, the one to sign with first, then the one that follows it in a minute; each
    leader has its own. ``peers``: some other agents, to begin with. ``targets``: all there are.
    """

    every_ms: Annotated[int, Meta(ge=100, le=3_600_000)]
    keys: Annotated[list[Annotated[bytes, Meta(min_length=16, max_length=64)]], Meta(max_length=2)] = []
    peers: Annotated[list[ProbePeer], Meta(max_length=MAX_PEERS)] = []
    targets: Annotated[list[ProbeTarget], Meta(max_length=MAX_TARGETS)] = []


AnyMessage = (
    Offer | Decisions | ViewUpdate | ViewAck | Plan | PlanResult | Transitions | TransitionsAck | Readings | ReadingsAck
)

KINDS: dict[int, type[Message]] = {
    1: Offer,
    2: Decisions,
    3: ViewUpdate,
    4: ViewAck,
    5: Plan,
    6: PlanResult,
    7: Transitions,
    8: TransitionsAck,
    9: Readings,
    10: ReadingsAck,
}


def score_to_wire(score: float) -> int:
    """Millionths, clipped; finite input (NaN never leaves an agent)."""
    return max(-MAX_SCORE_MICROS, min(MAX_SCORE_MICROS, round(score * SCORE_SCALE)))
