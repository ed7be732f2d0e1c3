"""A whole mesh in one place without I/O: the coordinator's core, real agents' cores, binder and API server as data.

Everything happens when the test says so: ``step`` delivers one thing, ``run`` until nothing is left to do. The binder
here is the plainest one that keeps the rules: one pod once, nothing above allocatable, by the same ``check_placement``.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TypeVar

import msgspec
import numpy as np

from services.coordinator.core.core import Core
from services.coordinator.core.events import (
    AgentsChanged,
    BinderChanged,
    ConditionFailed,
    ConditionWritten,
    ControlSeen,
    DecisionsReceived,
    Event,
    IntentGone,
    IntentRecord,
    IntentsListed,
    NodeHeld,
    NominationStored,
    PlanAnswered,
    PodFetched,
    RequestFailed,
    ViewAcked,
)
from services.coordinator.core.instructions import (
    EmitEvent,
    FetchPod,
    HoldNode,
    Instruction,
    PatchCondition,
    SendOffer,
    SendPlan,
    SendView,
    SetTimer,
    StoreNominations,
)
from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.model.cluster_events import Listed, NodeUpserted, PodDeleted, PodUpserted
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.policy.registry import make_policy
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.gates import entry_rejection
from shared.scheduling.shards import Shards
from shared.scheduling.state.cache import ClusterCache
from shared.turns import Tick
from shared.wire.codec import decode, encode
from shared.wire.messages import (
    VERSION,
    Eviction,
    EvictionOutcome,
    EvictionResult,
    Loan,
    Offer,
    Outcome,
    PlacementResult,
    Plan,
    PlanResult,
    ViewUpdate,
)
from shared.wire.records import AgentRecord

T = TypeVar("T")


class Scene:
    """``pods`` and ``nodes``: the API server's truth. ``inbox``: what is on its way to the coordinator."""

    def __init__(
        self, *, agents: int = 2, seed: int = 0, policy: str = "kube-default", settings: CoreSettings | None = None,
        shards: Shards | None = None,
    ) -> None:  # fmt: skip
        self.now = 100.0
        self.seed = seed
        self.policy = policy
        self.core = Core(
            term=7,
            scheduler_name="conclave",
            policy=policy,
            rng=Random(seed),
            settings=settings or CoreSettings(validate=True),
            shards=shards,
        )
        self.agents: dict[str, AgentCore] = {}
        self.records: dict[str, AgentRecord] = {}
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.binder = ClusterCache()
        self.profile = self.core.state.settings.profile
        self.binder_checks = FeasibilityCache(self.binder.table, profile=self.profile.unmeasured)
        self.bindings: list[tuple[str, str]] = []
        self.inbox: deque[Event] = deque()
        self.trace: list[Instruction] = []
        self.timer: float | None = None
        self.lost_answers: set[str] = set()
        self.unanswered: list[tuple[str, Offer | ViewUpdate]] = []
        self.timeouts: deque[tuple[float, Event]] = deque()
        self.hold_plans = False
        self.lost_patches = 0
        self.evicted: list[str] = []
        self.keep_victims = False
        self.unknown_evictions = 0
        self.waiting_evictions = 0
        self.refuse_holds = False
        self.budget_forbids: set[str] = set()
        self.held_plans: list[Plan] = []
        self.control = ControlSeen()
        self.plans: list[Plan] = []
        self.intents: dict[str, str] = {}
        self.nominations: dict[str, str] = {}
        """As etcd has them."""
        self.slow_stores = 0
        self.newest_plan = 0
        self.overcommitted: list[str] = []
        self._versions = 1
        for number in range(agents):
            self.join(f"agent-{number}", tell=False)

    # --- the world ----------------------------------------------------------------------------------------------

    def join(self, agent: str, *, node: str = "", tell: bool = True) -> None:
        self.agents[agent] = AgentCore(make_policy(self.policy), np.random.default_rng(self.seed), profile=self.profile)
        incarnation = f"i{len(self.trace)}-{len(self.agents)}"
        plugins = tuple(f"filter {name}@1.0" for name in self.profile.names)
        self.records[agent] = AgentRecord(
            id=agent, url=f"http://{agent}", incarnation=incarnation, node=node, plugins=plugins
        )
        if tell:
            self.inbox.append(AgentsChanged(tuple(self.records.values())))

    def leave(self, agent: str) -> None:
        del self.agents[agent], self.records[agent]
        self.inbox.append(AgentsChanged(tuple(self.records.values())))

    def add_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.binder.upsert_node(node)
        self.inbox.append(NodeUpserted(node))

    def add_pod(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.binder.observe(pod)
        self.inbox.append(PodUpserted(pod))

    def change_pod(self, uid: str, **changes: object) -> None:
        self._versions += 1
        pod = msgspec.structs.replace(self.pods[uid], resource_version=str(self._versions), **changes)
        self.pods[uid] = pod
        self.binder.observe(pod)
        self.inbox.append(PodUpserted(pod))

    def delete_pod(self, uid: str) -> None:
        del self.pods[uid]
        self.binder.forget(uid)
        self.inbox.append(PodDeleted(uid))

    def replace_leader(self, committed: set[int]) -> None:
        """Another coordinator is elected. Of the plans still at the binder, the ``committed`` ones (by place) have
        become intents, which it will bind; the others were refused, their term being over."""
        intents = []
        for place, plan in enumerate(self.held_plans):
            for placement in plan.placements if place in committed else ():
                pod = self.pods.get(placement.uid)
                if pod is not None and not pod.node_name and not pod.terminating and placement.uid not in self.intents:
                    if check_placement(self.binder_checks, self._class(pod), placement.node) is not None:
                        continue
                    self.intents[placement.uid] = placement.node
                    self.binder.assume(placement.uid, placement.node, pod.pod_class, self.now)
        intents = [IntentRecord(f"/intents/{uid}", ((uid, node),)) for uid, node in sorted(self.intents.items())]
        self.held_plans.clear()
        self.inbox.clear()
        self.timeouts.clear()
        self.timer = None
        self.newest_plan = 0
        term = self.core.state.term + 1
        self.core = Core(
            term=term,
            scheduler_name="conclave",
            policy=self.policy,
            rng=Random(self.seed),
            settings=self.core.state.settings,
        )
        self.inbox.extend(NodeUpserted(node) for node in self.nodes.values())
        self.inbox.extend(PodUpserted(pod) for pod in self.pods.values())
        self.begin(tuple(intents))

    def end_intent(self, uid: str, *, bind: bool) -> None:
        """The binder finishes or withdraws an intent."""
        node = self.intents.pop(uid)
        pod = self.pods.get(uid)
        self.binder.forget(uid)
        if pod is not None and not pod.node_name:
            if bind and not pod.terminating and node in self.nodes:
                self.bindings.append((uid, node))
                self.change_pod(uid, node_name=node)
            else:
                self.change_pod(uid)  # marked before it is withdrawn
        self.inbox.append(IntentGone(f"/intents/{uid}"))

    # --- the coordinator ----------------------------------------------------------------------------------------

    def begin(self, intents: tuple[IntentRecord, ...] = ()) -> None:
        """Everything listed, agents and binder there."""
        self.inbox.append(AgentsChanged(tuple(self.records.values())))
        for shard in self.core.state.shards.names:
            self.inbox.append(BinderChanged("http://binder", 3, shard))
        self.inbox.append(IntentsListed(intents, tuple(self.nominations.items())))
        self.inbox.append(self.control)
        self.inbox.extend([Listed("nodes"), Listed("pods")])

    def deliver(self, *events: Event) -> list[Instruction]:
        """Hand events to the core at once and carry out what it says."""
        instructions = self.core.handle(events, self.now)
        self.trace.extend(instructions)
        for plan_id, opened in self.core.ledger.plans.items():
            if plan_id > self.newest_plan:
                self.newest_plan = plan_id
                self.overcommitted += [p.node for p in opened.plan.placements if excess(self, p.node)]
        for instruction in instructions:
            self._carry_out(instruction)
        return instructions

    def step(self, batch: int = 1) -> bool:
        """Deliver the next ``batch`` of what is on its way."""
        if not self.inbox:
            return False
        self.deliver(*[self.inbox.popleft() for _ in range(min(batch, len(self.inbox)))])
        return True

    def run(self, *, batch: int = 1, until_s: float = 0.0) -> None:
        """Deliver everything; then let time pass up to ``until_s`` more seconds, timer by timer."""
        end = self.now + until_s
        for _ in range(100_000):
            if self.step(batch):
                continue
            timeout = self.timeouts[0][0] if self.timeouts else end + 1
            timer = self.timer if self.timer is not None else end + 1
            if min(timer, timeout) > end:
                break
            if timeout <= timer:
                self.now = max(self.now, timeout)
                self.inbox.append(self.timeouts.popleft()[1])
            else:
                self.now = max(self.now, timer)
                self.timer = None
                self.inbox.append(Tick())
        else:
            raise AssertionError("the scene does not come to rest")
        self.now = max(self.now, end)

    def of(self, kind: type[T]) -> list[T]:
        return [instruction for instruction in self.trace if isinstance(instruction, kind)]

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case SetTimer():
                self.timer = instruction.at
            case SendOffer():
                self._ask(instruction.agent, instruction.offer)
            case SendView():
                self._ask(instruction.agent, instruction.update)
            case SendPlan():
                self.plans.append(instruction.plan)
                if self.hold_plans:
                    self.held_plans.append(instruction.plan)
                else:
                    self.inbox.append(self.bind(instruction.plan))
            case FetchPod():
                self.inbox.append(PodFetched(instruction.uid, self.pods.get(instruction.uid)))
            case PatchCondition():
                if instruction.uid in self.pods and self.lost_patches:
                    self.lost_patches -= 1
                    self.inbox.append(ConditionFailed(instruction.uid))
                elif instruction.uid in self.pods and not self.pods[instruction.uid].node_name:
                    condition = ("False", instruction.reason, instruction.message)
                    changes: dict[str, object] = {"condition": condition}
                    if instruction.nominated is not None:
                        changes["nominated_node"] = instruction.nominated
                    self.change_pod(instruction.uid, **changes)
                    self.inbox.append(ConditionWritten(instruction.uid))
                else:
                    self.inbox.append(ConditionWritten(instruction.uid))
            case StoreNominations():
                self._store(instruction)
            case HoldNode():
                if not self.refuse_holds:
                    held = instruction.hold
                    node = msgspec.structs.replace(self.nodes[instruction.node], held=held, marked=held)
                    self.nodes[instruction.node] = node
                    self.inbox.append(NodeUpserted(node))
                self.inbox.append(NodeHeld(instruction.node, instruction.hold, ok=not self.refuse_holds))
            case EmitEvent():
                pass

    def _class(self, pod: Pod) -> PodClass:
        """As the binder takes it in."""
        return self.core.state.settings.profiles.applied(pod).pod_class

    def _store(self, work: StoreNominations) -> None:
        """etcd has it at once; that it does is heard a second late of the ``slow_stores`` next."""
        for uid, _, node in work.changes:
            if not node:
                self.nominations.pop(uid, None)
            elif self.slow_stores:
                self.slow_stores -= 1
                late = self.now + 1.0
                self.timeouts.append((late, NominationStored(uid, node, work.number)))
                self.nominations[uid] = node
            else:
                self.nominations[uid] = node
                self.inbox.append(NominationStored(uid, node, work.number))

    def _ask(self, agent: str, message: Offer | ViewUpdate) -> None:
        core = self.agents.get(agent)
        if core is None:
            self.inbox.append(RequestFailed(agent, message.message_id, "peer_unreachable"))
        elif agent in self.lost_answers:
            self.unanswered.append((agent, message))
            late = self.now + self.core.state.settings.request_timeout_s
            self.timeouts.append((late, RequestFailed(agent, message.message_id, "peer_unknown")))
        elif isinstance(message, Offer):
            core.now_s = self.now
            decisions = core.decide(decode(encode(message), Offer))
            self.inbox.append(DecisionsReceived(agent, message.message_id, decisions))
        else:
            self.inbox.append(ViewAcked(agent, message.message_id, core.update(decode(encode(message), ViewUpdate))))

    def answer_late(self) -> None:
        """The silent agents answer everything they were asked."""
        silent, self.lost_answers = self.lost_answers, set()
        asked, self.unanswered = self.unanswered, []
        for agent, message in asked:
            self._ask(agent, message)
        self.lost_answers = silent

    def bind(self, plan: Plan) -> PlanAnswered:
        """The binder's part: check at the node's state now, bind, tell the watch."""
        results: list[PlacementResult] = []
        loans: list[Loan] = []
        evictions = [self.evict(eviction) for eviction in plan.evictions]
        for placement in decode(encode(plan), Plan).placements:
            pod = self.pods.get(placement.uid)
            if pod is None or pod.terminating:
                results.append(PlacementResult(placement.unit, Outcome.GONE))
                continue
            if placement.uid in self.intents:
                results.append(PlacementResult(placement.unit, Outcome.UNRESOLVED, self.intents[placement.uid]))
                continue
            if pod.node_name:
                results.append(PlacementResult(placement.unit, Outcome.ELSEWHERE, pod.node_name))
                continue
            if placement.uid in self.binder.accounts:
                self.binder.forget(placement.uid)  # it was lent
            candidates = [placement.node, *placement.alternatives]
            fitting = [n for n in candidates if check_placement(self.binder_checks, self._class(pod), n) is None]
            if not fitting:
                results.append(PlacementResult(placement.unit, Outcome.CONFLICT, candidates[0], "full"))
                continue
            if plan.lend:
                shard = self.core.state.shards.of(fitting[0])
                self.binder.assume(pod.uid, fitting[0], pod.pod_class, self.now)
                loans.append(Loan(pod.uid, fitting[0], shard, 3, 4, pod.resource_version))
                results.append(PlacementResult(placement.unit, Outcome.LENT, fitting[0]))
                continue
            self.bindings.append((pod.uid, fitting[0]))
            self.change_pod(pod.uid, node_name=fitting[0])
            results.append(PlacementResult(placement.unit, Outcome.BOUND, fitting[0], "", 100))
        return PlanAnswered(
            plan.plan_id, PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results, 0, evictions, loans)
        )

    def evict(self, eviction: Eviction) -> EvictionResult:
        """The binder's part of preemption: the pod terminates, and is gone unless the test keeps it."""
        if eviction.uid not in self.pods:
            return EvictionResult(eviction.uid, EvictionOutcome.GONE)
        if eviction.uid in self.budget_forbids and not eviction.force:
            return EvictionResult(eviction.uid, EvictionOutcome.REFUSED, "429")
        if self.waiting_evictions:
            self.waiting_evictions -= 1
            return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, "no answer yet", waits=True)
        if self.unknown_evictions:
            self.unknown_evictions -= 1
            return EvictionResult(eviction.uid, EvictionOutcome.UNKNOWN, "leadership may be lost")
        self.evicted.append(eviction.uid)
        self.change_pod(eviction.uid, terminating=True)
        if not self.keep_victims:
            self.delete_pod(eviction.uid)
        return EvictionResult(eviction.uid, EvictionOutcome.EVICTED)


# --- checkers: pure functions over a scene, empty when the invariant holds ------------------------------------------


def check_bound_once(scene: Scene) -> list[str]:
    """I1: no uid twice among the Bindings."""
    seen: set[str] = set()
    return [uid for uid, _ in scene.bindings if uid in seen or seen.add(uid)]  # type: ignore[func-returns-value]


def check_overcommit(scene: Scene) -> list[str]:
    """I2: nodes that stood above allocatable right after a plan put something there.

    What others bind there later is theirs: it is an excess that we did not make worse, and the binder's check ends it.
    """
    return scene.overcommitted


def excess(scene: Scene, name: str) -> bool:
    """Whether a node is above allocatable in the coordinator's cache, by its accounts and not by its amounts."""
    cache, node = scene.core.state.cache, scene.core.state.cache.table.nodes[scene.core.state.cache.table.row_of[name]]
    assert node is not None
    used: dict[str, int] = {"pods": 0}
    for uid in cache.pods_on(name):
        used["pods"] += 1
        for resource, amount in cache.accounts[uid].pod_class.requests:
            used[resource] = used.get(resource, 0) + amount
    return any(amount > node.allocatable.get(resource, 0) for resource, amount in used.items())


def check_places(scene: Scene) -> list[str]:
    """I3: every pending pod of ours that the core was told of is in exactly one place."""
    if not scene.core.state.started:
        return []
    waiting = {event.pod.uid for event in scene.inbox if isinstance(event, PodUpserted)}
    wrong = []
    for uid, pod in scene.pods.items():
        pending = not pod.node_name and not pod.finished and not pod.terminating and entry_rejection(pod) is None
        pending = pending and not pod.invalid
        if pending and uid not in waiting and len(scene.core.place_of(uid)) != 1:
            wrong.append(f"{uid}: {scene.core.place_of(uid)}")
    return wrong
