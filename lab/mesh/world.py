"""A mesh that places pods as it does in service: the coordinator's core, agents' cores, the binder's core, and every
message between them as bytes; API server and etcd as a dictionary, the clock as a number.

Nothing is drawn but by the seed, nothing waits, no process is started: what comes out does not depend on the machine.
It is what the services run (ADR 0065), so figures of a policy here are those of the mesh with so many agents, not of
one decider that sees everything. Left out are the shells: sockets, watches that break, processes that die.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from services.binder.core import events as told
from services.binder.core import instructions as to_do
from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings
from services.coordinator.core import events as seen
from services.coordinator.core import instructions as wanted
from services.coordinator.core.core import Core
from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.errors import ConfigError
from shared.model.cluster_events import ClusterEvent, Listed, NodeUpserted, ObjectChanged, PodDeleted, PodUpserted
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.power import PUBLISHED, PowerCurves
from shared.model.units.pod_group import PodGroup
from shared.model.units.reservation import RESERVATION_ANNOTATION, ReservationPhase
from shared.policy.observation import Policy
from shared.scheduling.cycle.profile import PluginSet
from shared.turns import Log, Tick
from shared.wire.codec import decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import (
    Decisions,
    EvictionOutcome,
    EvictionReason,
    EvictionResult,
    Offer,
    Plan,
    PlanResult,
    ViewAck,
    ViewUpdate,
)
from shared.wire.records import AgentRecord, Drained, PolicyPointer, PolicyRef

PER_NODE = "per-node"
BINDER = "binder"
KEYS = Keys()
COORDINATOR_TERM, BINDER_TERM = 7, 3
MOST_TURNS = 1_000_000


@dataclass(frozen=True, slots=True)
class Agents:
    """How many agents decide; ``count`` 0: one on each node, for that node."""

    count: int

    @classmethod
    def parse(cls, text: str) -> Agents:
        """Of ``--agents``. Raises ``ConfigError``."""
        if text == PER_NODE:
            return cls(0)
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
            raise ConfigError(f"--agents: {text!r} is neither a number of 1 to 1000 nor {PER_NODE}")
        return cls(int(text))

    def __str__(self) -> str:
        return str(self.count) if self.count else PER_NODE

    def records(self, nodes: Sequence[Node]) -> list[AgentRecord]:
        """The agents that are registered."""
        homes = [""] * self.count if self.count else [node.name for node in nodes]
        names = [f"agent-{place:04}" for place in range(len(homes))]
        return [
            AgentRecord(id=name, url=name, incarnation=name, node=home) for name, home in zip(names, homes, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class AskedToLeave:
    """A pod was asked to leave at ``at_s``, and is terminating since."""

    at_s: float
    uid: str
    reason: EvictionReason
    preemptor: str = ""
    """For whose sake: a pod's uid, a broken gang, a node that lends less, or nobody."""


class MeshWorld:
    """``add`` pods, ``remove`` them, ``tell`` what sensors read, ``rest``; ``node_of`` says where a pod is bound.
    ``power``: what the nodes draw, where no ``settings`` say it. ``first``: what else the watches show at the start;
    ``drained``: by operators. ``unanswered``: instructions that nobody here carries out. A pod that is evicted is
    terminating and among ``asked`` until whoever plays its kubelet removes it."""

    def __init__(
        self, nodes: Sequence[Node], agents: Agents, make: Callable[[], Policy], ref: PolicyRef, *, seed: int,
        settings: CoreSettings | None = None, power: PowerCurves = PUBLISHED, first: Sequence[ClusterEvent] = (),
        drained: Iterable[str] = (), unanswered: Collection[type] = (),
        scheduler_name: str = "conclave",
    ) -> None:  # fmt: skip
        self.now = 1000.0
        settings = settings or CoreSettings(profile=PluginSet(power=power))
        self.core = Core(
            term=COORDINATOR_TERM, scheduler_name=scheduler_name, policy=ref.name, rng=Random(seed), settings=settings
        )
        self.binder = BinderCore(BINDER_TERM, BinderCoreSettings(), KEYS)
        records = agents.records(nodes)
        self.agents = {
            record.id: AgentCore(make(), Random(f"{seed} {record.id}"), ref=ref, profile=settings.profile)
            for record in records
        }
        self.pods: dict[str, Pod] = {}
        self.nodes = {node.name: node for node in nodes}
        self.bindings: list[tuple[str, str]] = []
        """(uid, node), in the order in which they were made."""
        self.reasons: dict[str, tuple[str, str]] = {}
        """(reason, message) that pods were told last why they wait, by uid."""
        self.bound_s: list[float] = []
        """When each of them was."""
        self.asked: list[AskedToLeave] = []
        """Who was asked to leave, in this order; whoever reads them may clear them."""
        self.offers = self.offer_bytes = 0
        """Messages that asked agents, and what they came to."""
        self._revision = 1000
        self._requests = 0
        self._plans: dict[int, int] = {}
        self._timer: float | None = None
        self._to_coordinator: deque[seen.Event] = deque(NodeUpserted(node) for node in nodes)
        self._to_binder: deque[told.Event] = deque(NodeUpserted(node) for node in nodes)
        self._unanswered = tuple(unanswered)
        self._to_coordinator += first
        self._to_binder += first
        self.pods |= {event.pod.uid: event.pod for event in first if isinstance(event, PodUpserted)}
        self._to_coordinator += [
            Listed("nodes"), Listed("pods"), seen.IntentsListed(()),
            seen.ControlSeen(drained=tuple(Drained(node=name, by="", reason="", since="") for name in drained)),
            seen.AgentsChanged(tuple(records)), seen.BinderChanged(BINDER, BINDER_TERM),
            seen.PointerSeen(PolicyPointer(active=ref, number=1)),
        ]  # fmt: skip
        self._to_binder += [Listed("nodes"), Listed("pods"), told.IntentsListed({})]
        self.rest()

    # --- what happens -----------------------------------------------------------------------------------------------

    def add(self, pods: Iterable[Pod]) -> None:
        """Pods are created."""
        for pod in pods:
            self._show(pod)

    def remove(self, uid: str) -> None:
        """A pod has ended and is deleted."""
        del self.pods[uid]
        self._both(PodDeleted(uid))

    def show(self, uid: str, **changes: object) -> None:
        """A pod is another now: it runs, or says something new of itself."""
        self._show(replace(self.pods[uid], **changes))

    def leave(self, uid: str, reason: EvictionReason = EvictionReason.PREEMPTION, preemptor: str = "") -> None:
        """Somebody asks the pod to leave."""
        if not self.pods[uid].terminating:
            self.asked.append(AskedToLeave(self.now, uid, reason, preemptor))
            self._show(replace(self.pods[uid], terminating=True))

    def change(self, node: Node) -> None:
        """A node is another now."""
        self.nodes[node.name] = node
        self._both(NodeUpserted(node))

    def group(self, group: PodGroup, *, gone: bool = False) -> None:
        """A pod group is created or changed, or is gone."""
        self._both(ObjectChanged("podgroups", group.title, None if gone else group))

    def tell(self, event: seen.NodesMeasured) -> None:
        """Sensors have read."""
        self._to_coordinator.append(event)

    def node_of(self, uid: str) -> str:
        """Where the pod is bound; "": nowhere."""
        return self.pods[uid].node_name

    def rest(self, for_s: float = 0.0) -> None:
        """Until nobody has anything to do; then let time pass, timer by timer, for so many seconds more."""
        end = self.now + for_s
        for _ in range(MOST_TURNS):
            if self._coordinate() | self._bind():
                continue
            due = [at for at in (self._timer, self.binder.wake_at) if at is not None and at <= end]
            if not due:
                self.now = max(self.now, end)
                return
            self.now = max(self.now, min(due))
        raise AssertionError("the mesh does not come to rest")

    # --- the API server ---------------------------------------------------------------------------------------------

    def _show(self, pod: Pod) -> None:
        self._revision += 1
        pod = replace(pod, resource_version=str(self._revision))
        self.pods[pod.uid] = pod
        self._both(PodUpserted(pod))

    def _both(self, event: NodeUpserted | PodUpserted | PodDeleted | ObjectChanged) -> None:
        self._to_coordinator.append(event)
        self._to_binder.append(event)

    # --- the coordinator and its agents -----------------------------------------------------------------------------

    def _coordinate(self) -> bool:
        batch = list(self._to_coordinator)
        self._to_coordinator.clear()
        if self._timer is not None and self._timer <= self.now:
            self._timer = None
            batch.append(Tick())
        if not batch:
            return False
        for instruction in self.core.handle(batch, self.now):
            match instruction:
                case wanted.SetTimer():
                    self._timer = instruction.at
                case wanted.SendOffer():
                    self._offer(instruction.agent, instruction.offer)
                case wanted.SendView():
                    self._view(instruction.agent, instruction.update)
                case wanted.SendPlan():
                    self._requests += 1
                    self._plans[self._requests] = instruction.plan.plan_id
                    plan = decode(encode(instruction.plan), Plan)
                    self._to_binder.append(told.PlanReceived(self._requests, plan))
                case wanted.PatchCondition():
                    self.reasons[instruction.uid] = (instruction.reason, instruction.message)
                    self._to_coordinator.append(seen.ConditionWritten(instruction.uid))
                case wanted.FetchPod():
                    self._to_coordinator.append(seen.PodFetched(instruction.uid, self.pods.get(instruction.uid)))
                case wanted.StoreNominations():
                    stored = [(uid, node) for uid, _, node in instruction.changes if node]
                    self._to_coordinator += [seen.NominationStored(*one, instruction.number) for one in stored]
                case wanted.HoldNode():
                    self.change(replace(self.nodes[instruction.node], held=instruction.hold))
                    self._to_coordinator.append(seen.NodeHeld(instruction.node, instruction.hold))
                case wanted.EmitEvent() | Log() | wanted.PublishPartition() | wanted.KeepWindow():
                    pass  # for people
                case wanted.TellPodGroup() | wanted.TellQueue():
                    pass  # for people too
                case _:
                    self._left(instruction)
        return True

    def _offer(self, agent: str, offer: Offer) -> None:
        body = encode(offer)
        self.offers += 1
        self.offer_bytes += len(body)
        core = self.agents[agent]
        core.now_s = self.now
        answer = decode(encode(core.decide(decode(body, Offer))), Decisions)
        self._to_coordinator.append(seen.DecisionsReceived(agent, offer.message_id, answer))

    def _view(self, agent: str, update: ViewUpdate) -> None:
        answer = decode(encode(self.agents[agent].update(decode(encode(update), ViewUpdate))), ViewAck)
        self._to_coordinator.append(seen.ViewAcked(agent, update.message_id, answer))

    def _left(self, instruction: object) -> None:
        if not isinstance(instruction, self._unanswered):
            raise AssertionError(f"this world has nobody who would {instruction}")

    # --- the binder, etcd and Bindings ------------------------------------------------------------------------------

    def _bind(self) -> bool:
        batch = list(self._to_binder)
        self._to_binder.clear()
        if (wake_at := self.binder.wake_at) is not None and wake_at <= self.now:
            batch.append(Tick())
        if not batch:
            return False
        for instruction in self.binder.handle_all(batch, self.now):
            match instruction:
                case to_do.Commit():
                    self._revision += 1
                    self._to_binder.append(told.Committed(instruction.batch, self._revision))
                case to_do.Bind():
                    self._bound(instruction)
                case to_do.Evict():
                    self._evict(instruction)
                case to_do.PlanAnswer():
                    result = decode(encode(instruction.result), PlanResult)
                    plan = self._plans.pop(instruction.request)
                    self._to_coordinator.append(seen.PlanAnswered(plan, result, 0.001))
                case to_do.ListIntents():  # a net, while all that was committed is being bound
                    self._to_binder.append(told.IntentsListed({}, revision=self._revision))
                case to_do.ReadPod():
                    self._to_binder.append(told.PodRead(instruction.uid, self.pods.get(instruction.uid)))
                case Log() | to_do.ListPods():
                    pass
                case _:
                    self._left(instruction)
        return True

    def _bound(self, instruction: to_do.Bind) -> None:
        request = instruction.request
        pod = self.pods.get(request.uid)
        if pod is None or pod.node_name or pod.resource_version != request.resource_version:
            self._to_binder.append(told.BindingRefused(request.uid, instruction.attempt, 409, "precondition"))
            return
        self.bindings.append((request.uid, request.node_name))
        self.bound_s.append(self.now)
        takes = request.annotations.get(RESERVATION_ANNOTATION, "")
        bound = replace(pod, node_name=request.node_name, takes=takes or pod.takes)
        if bound.reserves is not None:  # room is kept from now on, for nobody's rules to see by its labels
            terms = replace(bound.reserves, phase=ReservationPhase.AVAILABLE)
            bound = replace(bound, reserves=terms, labels={}, nominated_node="")
        self._show(bound)
        self._to_binder.append(told.BindingAccepted(request.uid, instruction.attempt))

    def _evict(self, instruction: to_do.Evict) -> None:
        eviction = instruction.eviction
        outcome = EvictionOutcome.GONE
        if eviction.uid in self.pods:
            outcome = EvictionOutcome.EVICTED
            if self.pods[eviction.uid].reserves is not None:  # given up, which is done at once
                self.remove(eviction.uid)
            else:
                self.leave(eviction.uid, EvictionReason(eviction.reason), eviction.preemptor)
        self._to_binder.append(told.Evicted(instruction.plan, EvictionResult(eviction.uid, outcome)))
