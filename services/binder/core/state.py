"""What the parts of the core share in one term of leadership: accounting, pods, and the units on their way.

One term is one ``BinderState``: nothing in memory is trusted across terms. A unit's way is in ``in_flight.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from uuid import UUID

from services.binder.core import events
from services.binder.core.gangs import InFlightGang
from services.binder.core.in_flight import LEGAL, BindingStage, InFlightBinding
from services.binder.core.instructions import Instruction
from services.binder.cycle.leavers import Leavers
from shared.backoff import backoff_s
from shared.errors import InvalidTransition
from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import DEFAULT, PluginSet
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.profiles import DEFAULT_ALONE, Profiles
from shared.scheduling.shards import ONLY, Shards
from shared.scheduling.state.cache import ClusterCache
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.story import Story
from shared.turns import Log, Tick
from shared.wire.messages import Loan, Outcome, Placement
from shared.wire.records import Intent, IntentClaim, IntentPod

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class BinderCoreSettings:
    """Bounds and deadlines of the core. Times in seconds."""

    scheduler_name: str = "conclave"
    """Pods of other schedulers are counted, never bound."""
    profiles: Profiles = DEFAULT_ALONE
    """Which schedulerNames are served beside it, and by what their pods are judged."""
    ours: frozenset[str] = field(init=False)
    """All of these names."""
    max_bindings: int = 32
    """Bindings in flight: enough to keep an API server busy, few enough that a stop leaves little unknown. 1-1024."""
    max_evictions: int = 32
    """Evictions in flight; the plans' others wait, each plan's in turn."""
    max_value_pods: int = 512
    """Pods and claims named in one value in etcd, and in one transaction: a larger gang's intent goes on under further
    keys. Of the longest names 512 are some 0.7 MiB; etcd takes 1.5."""
    units_per_turn: int = 500
    """Placements of plans, or pods of inherited intents, that one turn takes up, or of a gang gives back: some 10 ms.
    Further turns do the rest."""
    max_units: int = 16_384
    """Units on their way at a time; plans beyond are told 429."""
    answer_after_s: float = 2.0
    """A plan is answered after so long at the latest, UNRESOLVED for what is still on its way."""
    await_pod_s: float = 0.2
    """How long the watch may lag behind the coordinator's before the pod is read."""
    await_room_s: float = 0.5
    """And so long before a unit is given back whose node is full of pods that are on their way out."""
    max_attempts: int = 3
    """Bindings of one unit before it is given back."""
    retry_s: float = 0.2
    """First pause before a failed read, lookup or mark is made again; doubles up to ``retry_max_s``."""
    retry_max_s: float = 2.0
    """Longest such pause."""
    clear_linger_s: float = 0.05
    """How long finished intents wait for a transaction to ride in before one is made for them alone."""
    lend_s: float = 2.0
    """What was lent to another shard's binder, and is not seen to be bound after so long, is taken back, if it was not
    committed: a loan is used within milliseconds."""
    takeover_grace_s: float = 5.0
    """Plans are accepted after so long though some inherited intents are still open: those are accounted for, and
    their keys cannot be committed twice; one pod that cannot be resolved must not stop the others."""
    sweep_every_s: float = 30.0
    """How often intents in etcd and late confirmations are looked at."""
    compare_every_s: float = 300.0
    """How often the cache is compared with a full list of pods."""
    confirm_after_s: float = 15.0
    """An account that no watch event confirmed for so long is looked up."""
    volumes_again_s: float = 5.0
    """A unit that waits for its volumes is looked at again after so long, whatever the watch says."""
    claims_again_s: float = 5.0
    """A unit whose claims are still being written or given back for an attempt before is looked at again once that is
    over, and after so long whatever was heard."""
    volumes_tell_s: float = 2.0
    """A unit that waits for its volumes longer than that says so on its pod."""
    volumes_wait_s: float = 600.0
    """So long a Binding waits for volumes (kube-scheduler's bindTimeoutSeconds); then the unit is given back."""
    validate: bool = False
    """True: every invariant is checked after each event, and the term ends where one is broken: for tests and bugs."""
    trust_zones: bool = False
    """Of nodes' zones that nobody can know: True takes it as one would wish, False as the worst."""
    profile: PluginSet = DEFAULT
    """Which filters judge; does not change during a term."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ours", self.profiles.names | {self.scheduler_name})


class ConditionsAwaited(NamedTuple):
    """A unit's wait for the binding conditions of one device: success, failure (one that must not hold
    does), timeout, or error: given up for another reason."""

    driver: str
    status: str
    waited_s: float


@dataclass(slots=True)
class BinderStats:
    """Counters of one term, for ``/v1/stats`` and the log."""

    plans: int = 0
    """Plans received."""
    plans_repeated: int = 0
    """Plans received again, and answered from what was known."""
    placements: int = 0
    """Placements in plans."""
    bindings: int = 0
    """Binding calls sent."""
    bound: int = 0
    """Units bound."""
    gangs: int = 0
    """Gangs in plans."""
    gangs_committed: int = 0
    """Gangs whose intent was committed."""
    gangs_refused: int = 0
    """Gangs of which fewer than the minimum could go; nothing of them was committed."""
    gangs_withdrawn: int = 0
    """Committed gangs that were given back whole, nobody being bound."""
    conflicts: int = 0
    """Units none of whose nodes took them any more."""
    gone: int = 0
    """Units whose pod was deleted, recreated or finished."""
    elsewhere: int = 0
    """Units that somebody else had bound."""
    lent: int = 0
    """Units whose room was lent to another shard's binder."""
    refused: int = 0
    """Units given back for good: the API server's refusal, or volumes not bound in time."""
    unresolved: int = 0
    """Units still on their way when their plan had to be answered."""
    unknown_bindings: int = 0
    """Binding calls without an answer; the pod is read."""
    conflicting_bindings: int = 0
    """Binding calls answered 409."""
    transactions: int = 0
    """Transactions in etcd."""
    transaction_ops: int = 0
    """Puts and deletes in them."""
    transactions_refused: int = 0
    """Transactions that a compare refused."""
    transactions_unknown: int = 0
    """Transactions without an answer; etcd is looked at."""
    intents_inherited: int = 0
    """Intents found in etcd that an earlier leader wrote."""
    intents_withdrawn: int = 0
    """Intents given up after their pod had been marked."""
    intents_unreadable: int = 0
    """Intents that cannot be decoded."""
    intents_orphaned: int = 0
    """Intents that no unit belonged to, found by a sweep."""
    pods_awaited: int = 0
    """Units whose pod the watch had not shown yet."""
    pods_marked: int = 0
    """Pods marked, so that a late Binding would be refused."""
    ghost_bindings: int = 0
    """Pods bound to a node that is gone."""
    late_confirmations: int = 0
    """Accounts that no watch event confirmed in time."""
    cache_suspects: int = 0
    """Accounts that differed from a full list of pods."""

    def ended(self, outcome: Outcome) -> None:
        """One more unit ended so."""
        match outcome:
            case Outcome.BOUND:
                self.bound += 1
            case Outcome.CONFLICT:
                self.conflicts += 1
            case Outcome.GONE:
                self.gone += 1
            case Outcome.ELSEWHERE:
                self.elsewhere += 1
            case Outcome.LENT:
                self.lent += 1
            case _:
                self.refused += 1


class PlacementArrival(NamedTuple):
    """A placement of a plan, and the unit key of the gang it is a member of ("": of none). ``lend``, ``loan``: as in
    ``InFlightBinding``."""

    term: int
    plan_id: int
    placement: Placement
    gang: str
    lend: bool = False
    loan: Loan | None = None


class InheritedPod(NamedTuple):
    """A pod of an inherited intent, and the unit key of its gang ("": of none)."""

    intent: Intent
    pod: IntentPod
    gang: str


@dataclass(slots=True)
class BinderAgenda:
    """When a part of the core is to be stepped next, in seconds of the clock; one that is not due is not asked. A time
    may be too early, since nothing is taken back; it is never too late (``BinderCore.validate``)."""

    plans: float = NEVER
    """The oldest open plan is to be answered."""
    sweeps: float = 0.0
    """What should be the same in the cache, the API server and etcd is looked at."""
    claims: float = NEVER
    """A claim that could not be given back is tried again."""


@dataclass(slots=True)
class BinderState:
    """One term's shared state. ``now``: seconds of the clock at the event being handled.

    ``pending``: our pods without a node, as the watch or a read last showed them. ``paused``: until when a unit waits
    for its pod to be seen, or after a request that failed.
    """

    term: int
    settings: BinderCoreSettings
    shard: str = ONLY
    """Ours."""
    shards: Shards = field(default_factory=Shards)
    cluster: ClusterState = field(default_factory=ClusterState)
    cache: ClusterCache = field(init=False)
    """The cluster's amounts: who holds what on which node."""
    feasibility: FeasibilityCache = field(init=False)
    pending: dict[str, Pod] = field(default_factory=dict)
    in_flight: dict[str, InFlightBinding] = field(default_factory=dict)
    gangs: dict[str, InFlightGang] = field(default_factory=dict)
    arriving: deque[PlacementArrival] = field(default_factory=deque)
    """Placements of plans that are not taken up yet, in order."""
    inherited: dict[str, InheritedPod] = field(default_factory=dict)
    """Pods of inherited intents that are not taken up yet, by uid: no plan is taken up for one."""
    left: int = 0
    """How many units this turn may still take up, or give back."""
    unfinished: dict[str, None] = field(default_factory=dict)
    """Gangs whose members are being marked or given back: the next turn goes on."""
    touched: dict[str, None] = field(default_factory=dict)
    """Gangs with news of a member, in order: each is looked at before the turn ends."""
    paused: dict[str, float] = field(default_factory=dict)
    await_volumes: set[str] = field(default_factory=set)
    conditions_awaited: list[ConditionsAwaited] = field(default_factory=list)
    """Ended since it was taken last."""
    leavers: Leavers = field(default_factory=Leavers)
    epoch: float = 0.0
    """Seconds since 1970 at which the core's clock stood at 0."""
    rng: Random = field(default_factory=Random)
    """Names users of shared devices."""
    devices: ClaimedDevices = field(init=False)
    """Slices, classes and claims, and what is assumed of them."""
    zones: NodeZones = field(init=False)
    """The zones of nodes, and who stands in which."""
    stats: BinderStats = field(default_factory=BinderStats)
    out: list[Instruction] = field(default_factory=list)
    story: Story = field(default_factory=Story)
    now: float = 0.0
    agenda: BinderAgenda = field(default_factory=BinderAgenda)
    cause: type[events.Event] = Tick
    """What is being handled: the cause of every move."""

    def __post_init__(self) -> None:
        self.cache = self.cluster.cache
        self.devices = self.cluster.devices = ClaimedDevices(
            self.cluster.table, self.cluster.release, lambda: str(UUID(int=self.rng.getrandbits(128), version=4)),
            self.cluster.pod_groups,
        )  # fmt: skip
        self.zones = self.cache.zones = NodeZones(self.cache, trusting=self.settings.trust_zones)
        self.left = self.settings.units_per_turn
        self.feasibility = FeasibilityCache(self.cluster.table, profile=self.settings.profile.unmeasured)

    @property
    def sole(self) -> bool:
        """Whether all nodes are ours."""
        return self.shards.names == (self.shard,)

    def owns(self, node: str) -> bool:
        """Whether the node is of our shard."""
        return self.shards.of(node) == self.shard

    def observe(self, pod: Pod) -> None:
        """Take over a pod as the API server shows it, on a node or finished."""
        if pod.takes or self.cluster.reserved.taker_of:
            self._observe_reserved(pod)
            if pod.reserves is not None:
                return
        self.cache.observe(pod)
        if pod.finished or not pod.node_name:
            self.cluster.index.drop(pod.uid)
        else:
            self.hold_volumes(pod, pod.node_name)

    def _observe_reserved(self, pod: Pod) -> None:
        """As ``ClusterState`` does. One that has ended gives back what it took."""
        if pod.finished or not pod.node_name:
            self.cluster.forget(pod.uid)
        else:
            self.cluster.observe_reserved(pod)

    def hold_volumes(self, pod: Pod, node_name: str) -> None:
        """Count the volumes of a pod that stands on a node; of others nothing but amounts is kept."""
        relations = pod.relations
        if relations is not None and (relations.claims or relations.disks):
            self.cluster.index.place(pod, node_name)

    def hold_claims(self, binding: InFlightBinding, pod: Pod, node_name: str) -> str:
        """Count the devices that the pod's claims get on a node, and name the claims in the unit. Why they cannot be
        had ("": all are)."""
        why = self.devices.assume(pod, node_name, self.now)
        known = {claim.name: claim for claim in binding.claims}
        committed = binding.stage not in (BindingStage.NEW, BindingStage.AWAITED) or binding.inherited
        found, held = {}, self.devices.holders(pod)
        for claim in self.devices.claims(pod):
            shown, before = self.devices.accounts.shown.get(claim.key), known.get(claim.name)
            if claim.for_extended and claim.owner == pod.uid:
                if before is None and committed:
                    continue  # its intent does not name it: whoever comes after us would not know of it
                found[claim.name] = IntentClaim(claim.name, "", made=True)
            elif held and claim.key in held:  # fellows may use it, of other shards too: not ours to give back
                found[claim.name] = IntentClaim(claim.name, claim.uid, fresh=False, group=True)
            else:
                free = shown is None or shown.allocation is None or shown.reserved_for == (pod.uid,)
                fresh = free or (before is not None and before.fresh and before.uid == claim.uid)
                found[claim.name] = IntentClaim(claim.name, claim.uid, fresh)
        kept = (claim for claim in binding.claims if claim.name not in found)  # something may be written in them
        binding.claims = (*found.values(), *kept)
        return why

    def see_pending(self, pod: Pod) -> Pod:
        """The API server shows a pod of ours so, on no node; the pod as the rules see it."""
        seen = self.pending[pod.uid] = self.devices.described(pod) if pod.extended else pod
        return seen

    def classes_changed(self) -> None:
        """Device classes stand for other extended resources than before."""
        if remapped := self.devices.backed.take_remapped():
            for pod in list(self.pending.values()):
                if pod.extended and any(name in remapped for name, _ in pod.pod_class.requests):
                    self.see_pending(pod)

    def labels(self, node_name: str) -> Mapping[str, str]:
        """A node's labels; none where it is gone."""
        row = self.cache.table.row_of.get(node_name)
        node = self.cache.table.nodes[row] if row is not None else None
        return node.labels if node is not None else {}

    def move(self, binding: InFlightBinding, to: BindingStage) -> None:
        """The unit goes on. ``InvalidTransition``: nothing leads from its stage to ``to`` on what is being handled."""
        if (self.cause, binding.stage, to) not in LEGAL:
            raise InvalidTransition(
                binding.uid, binding.stage.value, to.value, self.cause.__name__, self.story.lines(binding.uid)
            )
        self.story.add(binding.uid, "{} -> {} on {}", binding.stage, to, self.cause)
        binding.stage = to

    def touch(self, gang: str) -> None:
        """There is news of a member of the gang."""
        self.touched[gang] = None

    def emit(self, instruction: Instruction) -> None:
        """Ask the shell for something."""
        self.out.append(instruction)

    def log(self, event: str, *, level: str = "info", **facts: str | int | float) -> None:
        """A line for the operator."""
        self.out.append(Log(event, tuple(facts.items()), level))

    def take_conditions_awaited(self) -> list[ConditionsAwaited]:
        """Those that ended since this was last asked."""
        ended, self.conditions_awaited = self.conditions_awaited, []
        return ended

    def pause(self, binding: InFlightBinding, *, at_least_s: float = 0.0) -> None:
        """Let a failed request of the unit wait, longer each time."""
        settings = self.settings
        binding.failures += 1
        pause_s = backoff_s(binding.failures, first_s=settings.retry_s, most_s=settings.retry_max_s)
        self.paused[binding.uid] = self.now + max(pause_s, at_least_s)
