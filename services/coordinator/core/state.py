"""What the parts of the core share: the accounting, the queue, the numbers, and the list of instructions.

One term of leadership is one ``CoordinatorState``: a new leader begins with an empty one, because nothing in memory is
trusted across terms (ADR 0058). It holds; the parts beside it decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from msgspec import Struct

from services.coordinator.core.claims import AwaitedClaims
from services.coordinator.core.counters import Stats
from services.coordinator.core.decisions import Recent
from services.coordinator.core.instructions import Instruction
from services.coordinator.cycle.constraints import Constraints
from services.coordinator.groups.domains import DomainKeeper
from services.coordinator.preemption.evictions import LastEvictions
from shared.model.node import Condition
from shared.model.pod import Pod
from shared.model.units.pod_group import PodGroup
from shared.policy.rollout.judging import RolloutSettings
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.places import Place
from shared.scheduling.pod_groups import PodGroups
from shared.scheduling.preemption.delays import NO_DELAYS, Delays
from shared.scheduling.profiles import DEFAULT_ALONE, Profiles
from shared.scheduling.queue import PodQueue
from shared.scheduling.queues.tree import QueueTree
from shared.scheduling.shards import Shards
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.cluster_state import ClusterState
from shared.turns import Log
from shared.wire.records import Drained, Paused

LEAST_REQUEST_TIMEOUT_S = 3.0

NEVER = float("inf")

WORK_PER_TURN = 200
"""What all steps of one turn may do together beside the events and the cycle, in units of some 50 us: 10 ms."""

VERDICT_BYTES = 32 * 1024 * 1024
"""Bound of what is remembered about pod classes, two bytes per node each: 3,000 classes at 5,000 nodes."""

PRESSURES = {
    "MemoryPressure": "memory", "DiskPressure": "disk", "PIDPressure": "pid", "NetworkUnavailable": "network",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Bounds and deadlines of the core."""

    trust_zones: bool = False
    """Of nodes' zones that nobody can know: True takes it as one would wish, False as the worst."""
    profile: PluginSet = DEFAULT
    """Which filters judge and which scores are added; does not change during a term."""
    profiles: Profiles = DEFAULT_ALONE
    """Which schedulerNames are served beside the mesh's own, and by what their pods are judged; nor do these."""
    elsewhere: frozenset[str] = frozenset()
    """Those of all these names whose pods another mesh has: as of another scheduler."""
    batch_units: int = 64
    """Units in one cycle: enough to make hops cheap, few enough that a cycle ends in some 10 ms. 1-1024."""
    dispatch: str = "auto"
    """Whom a cycle asks about a plain class (``cycle.dispatch.Dispatch``): all agents, of many the
    most promising, or one."""
    open_cycles: int = 1
    """Cycles that are open at a time, each asking agents of its own (``cycle.cycle``)."""
    sole_nodes: int = 100
    """An agent is asked alone if it has so many nodes that take the class; kube-scheduler looks at as many at least."""
    plans_in_flight: int = 3
    """Plans at the binder at a time, unless they are of a few units; further cycles wait (backpressure). The next offer
    goes out meanwhile."""
    offer_deadline_s: float = 0.3
    """A cycle goes on without agents that are silent for so long, or for some times the usual cycle if that is more."""
    request_timeout_s: float = LEAST_REQUEST_TIMEOUT_S
    """After so long an answer cannot come any more: the shell's HTTP deadline. Well above ``offer_deadline_s``."""
    units_per_turn: int = 400
    """Units that one turn gives nodes to, or hears the end of: some 10 ms. Of larger gangs others do the rest."""
    asked_agents: int = 16
    """Of more than twice so many agents those alone are asked that own the most promising nodes, so many; 0: all are
    (``cycle.promising``)."""
    extra_candidates: int = 2
    """Next-best nodes per unit group beyond one per unit; as many alternatives per placement."""
    max_losses: int = 5
    """Lost races in a row after which a unit backs off instead of trying again at once."""
    suspect_retry_s: float = 1.0
    """How often an agent whose request failed is asked again."""
    agents_grace_s: float = 5.0
    """Without any agent for so long, pods are told so in their condition."""
    confirm_after_s: float = 15.0
    """A placement that no watch event confirmed for so long is looked up with a GET."""
    sweep_every_s: float = 5.0
    """How often late confirmations are looked for."""
    borrow_s: float = 5.0
    """A gang that spans shards waits so long for what their binders lend, a takeover long; then it is tried anew."""
    plan_retry_s: float = 0.05
    """First pause before a failed plan is sent again; doubles up to ``plan_retry_max_s``."""
    plan_retry_max_s: float = 0.5
    """Longest pause before a failed plan is sent again."""
    classes_per_agent: int = 1024
    """Class definitions an agent is made to remember before it is told to forget them."""
    rebalance_share: float = 0.25
    """Nodes are dealt anew when the largest general partition exceeds the mean by this share (plus 8)."""
    notices_in_flight: int = 48
    """Conditions of pending pods on their way to the API server at a time; fewer while it is throttled or silent."""
    notice_repeat_s: float = 60.0
    """A pending pod's message that differs in its counts alone is not written again before so long."""
    preemption_strict: bool = False
    """True: disruption budgets are never violated; False: they are where no other victims would do."""
    preemption_delays: Delays = NO_DELAYS
    """How long units that find no room wait before anybody is asked to leave for them, by priority."""
    hold_always: bool = False
    """True: nodes where room is made or kept are closed though no other scheduler is at work (``holds.py``)."""
    offline_eviction: bool = False
    """True: offline pods are evicted from nodes where less is lent than they hold."""
    offline_margin: float = 0.05
    """So much of what they hold may be missing before anybody leaves for it."""
    offline_grace_s: float = 0.0
    """For so long a node is short before anybody leaves for it."""
    offline_min_runtime_s: float = 0.0
    """For so long after its start an offline pod does not give way, unless it says otherwise."""
    keep_room: bool = False
    """True: what a pod leaves is kept for its controller's next, where its annotation asks for that."""
    offline_preemption: bool = False
    """True: an offline pod that may be evicted counts one below its priority, and preempts no online one."""
    objects_grace_s: float = 5.0
    """How long a new leader waits for lists of other kinds than pods, nodes, agents and intents; then it begins."""
    gang_timeout_s: float = 300.0
    """How long nodes are kept for a gang that does not come about, and a broken one is waited for."""
    gang_patience_s: float = 60.0
    """A gang that has found no room for so long has nodes kept for it, one gang at a time; 0: none has."""
    speed: float = 1.0
    """Pods live so many seconds per second: above 1 only against a twin that plays faster than life."""
    validate: bool = False
    """True: every invariant is checked after each batch of events, and the term ends where one is broken."""
    rollout: RolloutSettings = field(default_factory=RolloutSettings)
    """How much proof a candidate policy needs at each step."""


class NodeHealth(Struct, frozen=True):
    """A node's conditions that are not as they should be: for people, no rule reads them."""

    conditions: tuple[Condition, ...]

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it is."""
        return all(condition.type != "Ready" for condition in self.conditions)

    @property
    def pressure(self) -> list[str]:
        """What it is short of, by kubectl's names in small letters."""
        return [PRESSURES[found.type] for found in self.conditions if found.type in PRESSURES]


@dataclass(slots=True)
class Agenda:
    """When each part of the core is to be stepped next, in seconds of the clock; a part that is not due is not asked.

    A part says so itself: ``now`` as work comes, a deadline as it learns of one, and both anew at the end of a step.
    Nothing is taken back, so a time may be too early; it is never too late (``validate.py``). All are due at first.
    """

    sweep: float = 0.0
    """The nets under lost events: pods parked for long, partitions that drifted apart."""
    latencies: float = 0.0
    """Measured latencies that nobody has renewed, which end."""
    results: float = 0.0
    """Answers to plans that are not taken in yet."""
    ledger: float = 0.0
    """Plans to be sent again, placements that nobody confirms."""
    views: float = 0.0
    """Agents that lack nodes, are late, or are to be asked again."""
    waking: float = 0.0
    """Changes that may have helped parked pods."""
    evaluation: float = 0.0
    """A policy's window is over, or a change of the pointer was not seen."""
    telling: float = 0.0
    """Conditions of pending pods."""

    def next(self) -> float:
        """The earliest."""
        return min(
            self.sweep, self.latencies, self.results, self.ledger, self.views, self.waking, self.evaluation,
            self.telling,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod with scheduling gates, or without the claims that it names. ``number``: the how manieth that was seen;
    ``since``: then; ``lacks``: what is the matter with its claims."""

    pod: Pod
    since: float
    number: int
    lacks: str = ""


@dataclass(slots=True)
class CoordinatorState:
    """One term's shared state. ``now``: seconds of the clock at the event being handled."""

    term: int
    scheduler_name: str
    policy: str
    settings: CoreSettings
    rng: Random
    shards: Shards = field(default_factory=Shards)
    """What the nodes are divided into; does not change during a term."""
    cluster: ClusterState = field(default_factory=ClusterState)
    cache: ClusterCache = field(init=False)
    """The amounts: who holds what on which node."""
    feasibility: FeasibilityCache = field(init=False)
    constraints: Constraints = field(init=False)
    queue: PodQueue = field(default_factory=PodQueue)
    groups: PodGroups = field(init=False)
    """Which members every pod group has."""
    queues: QueueTree = field(default_factory=QueueTree)
    """The Queue objects, which units wait in them and which pods count; stands empty while there are none."""
    nodes_version: int = 0
    """Counts nodes that came, went or changed otherwise than in how much they lend."""
    totals_version: int = 0
    """Counts the same, and changes of how much they lend."""
    domains: DomainKeeper = field(init=False)
    ending: dict[str, dict[str, Pod]] = field(default_factory=dict)
    """Namespaces that are being deleted, each with its pods that nobody tries any more, by uid."""
    gated: dict[str, GatedPod] = field(default_factory=dict)
    """Our pods that are not tried because of their scheduling gates, or since claims of theirs are not there, by uid,
    in the order in which they were seen."""
    gated_seen: int = 0
    """Counts them."""
    awaited_claims: AwaitedClaims = field(default_factory=AwaitedClaims)
    """Pods that lack claims, gated or parked."""
    devices: ClaimedDevices = field(init=False)
    """Slices, classes and claims, and what is assumed of them."""
    claiming: dict[str, str] = field(default_factory=dict)
    """Keys of pod groups that have claims for all members, by uid."""
    sole: dict[str, dict[str, None]] = field(default_factory=dict)
    """Claims that have devices and are reserved for one consumer alone, by its uid, as the watch shows them."""
    to_leave: dict[str, None] = field(default_factory=dict)
    """Keys of pod groups of which something changed: whether they hold devices in vain is looked at as the turn ends.
    """
    freed_at: dict[str, str] = field(default_factory=dict)
    """Claims that were to be freed as the turn ended, lately, and at which resourceVersion."""
    zones: NodeZones = field(init=False)
    """The zones of nodes, and who stands in which."""
    reservations: dict[str, Pod] = field(default_factory=dict)
    """Reserve pods of all Reservations there are, as they were shown last, by uid."""
    reservations_served: bool = False
    """Whether those are all: they were listed, and still may be."""
    spared: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """Nodes that say that room is kept there, or bear all by which autoscalers leave it alone (``Node.reserved``)."""
    others: set[str] = field(default_factory=set)
    """Pending pods of other schedulers, by uid; ``others_at``: when one of them was placed, or went."""
    others_at: float = float("-inf")
    untried: dict[str, tuple[Pod, float]] = field(default_factory=dict)
    """Our pods that cannot be read or ask for what is not supported, by uid; since when."""
    stats: Stats = field(default_factory=Stats)
    recent: Recent = field(default_factory=Recent)
    evicted: LastEvictions = field(default_factory=LastEvictions)
    out: list[Instruction] = field(default_factory=list)
    """What the shell is asked for."""
    now: float = 0.0
    agenda: Agenda = field(default_factory=Agenda)
    work: int = WORK_PER_TURN
    """What the step at hand may still do before the turn ends, in units of some 50 us of one core."""
    epoch: float | None = None
    """Seconds since 1970 at which the core's clock stood at 0; None: nobody has said."""
    started: bool = False
    started_at: float = 0.0
    paused: Paused | None = None
    """By whom and why no cycle begins; None: scheduling goes on."""
    drained: dict[str, Drained] = field(default_factory=dict)
    """By node name, also of nodes that are not there (any more)."""
    unhealthy: dict[str, NodeHealth] = field(default_factory=dict)
    """Nodes with a condition that is not as it should be, by name."""
    messages: int = 0
    """The last message_id given."""
    ours: frozenset[str] = field(init=False)
    """Whose pods are ours, by the schedulerName that they say."""
    budgets_version: int = 0
    """Counts changes of disruption budgets."""

    def __post_init__(self) -> None:
        self.cache = self.cluster.cache
        self.ours = (self.settings.profiles.names | {self.scheduler_name}) - self.settings.elsewhere
        if self.settings.profiles.weighs_required:
            self.cluster.index.weigh_required()
        self.devices = self.cluster.devices = ClaimedDevices(
            self.cluster.table, self.cluster.release, groups=self.cluster.pod_groups
        )
        self.zones = self.cache.zones = NodeZones(
            self.cache, trusting=self.settings.trust_zones, gpus=self.settings.profile.gpu_shares.unit
        )
        self.feasibility = FeasibilityCache(
            self.cluster.table, profile=self.settings.profile, cache_bytes=VERDICT_BYTES
        )
        self.groups = PodGroups(self.cluster.pod_groups, self.ours)
        self.domains = DomainKeeper(self.cluster, self.feasibility, self.groups)
        self.constraints = Constraints(self.cluster, self.feasibility, self.domains)

    def see_gated(self, pod: Pod, lacks: str = "") -> None:
        """A pod of ours has scheduling gates, or ``lacks`` claims."""
        before = self.gated.get(pod.uid)
        self.gated_seen += before is None
        number, since = (self.gated_seen, self.now) if before is None else (before.number, before.since)
        self.gated[pod.uid] = GatedPod(pod, since, number, lacks)

    @property
    def gated_count(self) -> int:
        """Our pods that are not tried because of their scheduling gates, or of their pod group."""
        return len(self.gated) + self.queue.count()[Place.GATED]

    def timeout_s(self, group: PodGroup | None) -> float:
        """How long nodes are kept for a gang that does not come about, and a broken one is waited for."""
        own = group.timeout_s if group is not None else None
        return self.settings.gang_timeout_s if own is None else own

    def attempted(self, uid: str, result: str) -> None:
        """An attempt to place the pod in flight ended as ``result`` (unschedulable, error); told before it moves on."""
        entry = self.queue.entries.get(uid)
        if entry is not None:
            self.stats.attempts_s.append((result, self.now - entry.since, entry.pod.scheduler_name))

    def log(self, event: str, *, level: str = "info", **facts: str | int | float) -> None:
        """A line for the operator."""
        self.out.append(Log(event, tuple(facts.items()), level))
