"""Coordinator, agents and binder as real cores, the binder's real calls, and every message through the wire's codec.

Nothing waits for anything here: an answer is there in the next round, so cycles are as full as under load. ``now`` is
virtual, a millisecond a round; where nothing is to be done it goes to what is due next. The same seed gives the same
rounds. Sockets, loops and TLS are left out: the services' shells, the HTTP between them and the client of the API
server are measured by ``bench.drain``.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Coroutine, Iterable, Sequence
from random import Random
from typing import Any

import structlog

from bench.in_process.meters import ETCD, Meter
from bench.in_process.server import NAMESPACE, InProcessServer
from services.binder.core import events as told
from services.binder.core import instructions as to_do
from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings
from services.binder.io.api_calls import ApiCalls
from services.binder.io.store_calls import StoreCalls
from services.coordinator.core import events as seen
from services.coordinator.core import instructions as wanted
from services.coordinator.core.core import EVENTS_PER_TURN, Core
from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.kube.decoding import FrameDecoder
from shared.kube.resources import NODES, PODS
from shared.model.cluster_events import Listed, PodUpserted
from shared.policy.registry import make_policy
from shared.ports import Compare, CreateRevisionIs, Op, Put, TxnResult
from shared.runtime.kube.watches import node_events, pod_events
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.turns import Log, Stop, Tick
from shared.wire.codec import decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import Decisions, Offer, Plan, PlanResult, ViewAck, ViewUpdate
from shared.wire.records import AgentRecord
from tests.fake_kube import at_once
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys()
STEP_S = 0.001
BINDER = "binder"
COORDINATOR_WATCH, COORDINATOR_CORE, COORDINATOR_WIRE = "coordinator watch", "coordinator core", "coordinator wire"
AGENT_CORE, AGENT_WIRE = "agent core", "agent wire"
BINDER_WATCH, BINDER_CORE, BINDER_WIRE, BINDER_CALLS = "binder watch", "binder core", "binder wire", "binder calls"
MOST_ROUNDS = 1_000_000


class _Store(MemoryStore):
    """Its time is not the binder's. ``ops``: operations of transactions so far."""

    def __init__(self, server: MemoryEtcd, meter: Meter) -> None:
        super().__init__(server)
        self._meter = meter
        self.txns = self.ops = self.value_bytes = 0

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        self._meter.enter(ETCD)
        try:
            self.txns += 1
            self.ops += len(ops)
            self.value_bytes += sum(len(op.value) for op in ops if isinstance(op, Put))
            return await super().txn(compares, ops, timeout_s=timeout_s)
        finally:
            self._meter.leave()


class _Valid:
    """The leadership of a binder that has not lost it."""

    def is_valid(self, now: float | None = None) -> bool:
        del now
        return True


class InProcessWorld:
    """``bytes``: of messages between the services, by kind. ``start`` it, ``create`` pods, ``run``."""

    def __init__(
        self, *, nodes: int, agents: int, meter: Meter, seed: int = 0, policy: str = "kube-default",
        settings: CoreSettings | None = None, binder_settings: BinderCoreSettings | None = None,
    ) -> None:  # fmt: skip
        self.now = 1000.0
        self.meter = meter
        self.server = InProcessServer(meter)
        self.etcd = MemoryEtcd(clock=lambda: self.now)
        self.store = _Store(self.etcd, meter)
        self.bytes: Counter[str] = Counter()
        self.events = 0
        """Kubernetes events that were asked for."""
        term = self._lead(KEYS.coordinator_leader)
        self.core = Core(term=term, scheduler_name="conclave", policy=policy, rng=Random(seed), settings=settings)
        self.binder = BinderCore(self._lead(KEYS.binder_leader("0")), binder_settings or BinderCoreSettings(), KEYS)
        self.agents = {f"a{n}": AgentCore(make_policy(policy), Random(f"{seed}-{n}")) for n in range(agents)}
        quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
        log = structlog.wrap_logger(None, wrapper_class=quiet).bind()  # else bound anew at each line
        self._to_coordinator: deque[seen.Event] = deque()
        self._to_binder: deque[told.Event] = deque()
        self._plans: dict[int, int] = {}
        self._requests = 0
        self._calls: list[to_do.Instruction] = []
        self._timer: float | None = None
        self._shown = 0
        self._pod_frames = FrameDecoder(PODS), FrameDecoder(PODS)
        self._api_calls = ApiCalls(
            self.server, self._to_binder.extend, leadership=_Valid(), failpoints=Failpoints(),  # type: ignore[arg-type]
            bind_timeout_s=5.0, bind_ms=ReservoirQuantiles(), bind_seconds=None, log=log,
        )  # fmt: skip
        self._store_calls = StoreCalls(
            self.store, self._to_binder.extend, keys=KEYS, shard="0", failpoints=Failpoints(),
            commit_ms=ReservoirQuantiles(),
            log=log,
        )  # fmt: skip
        self._nodes = self.server.node_lines(nodes)

    def _lead(self, key: str) -> int:
        return self.etcd.txn([CreateRevisionIs(key, 0)], [Put(key, b"{}")]).revision

    # --- what happens -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Nodes are listed, agents and binder are there, views are told."""
        listed = FrameDecoder(NODES)
        frames = [listed(line) for line in self._nodes]
        self._to_coordinator += node_events(frames)
        self._to_binder += node_events(frames)
        self._to_binder += [Listed("nodes"), Listed("pods")]
        records = tuple(AgentRecord(id=name, url=name, incarnation=name) for name in self.agents)
        self._to_coordinator += [
            Listed("nodes"), Listed("pods"), seen.IntentsListed(()), seen.ControlSeen(), seen.AgentsChanged(records),
            seen.BinderChanged(BINDER, self.binder.state.term),
        ]  # fmt: skip
        self._to_binder.append(told.IntentsListed({}))
        self.run()

    def show(self, events: Sequence[PodUpserted]) -> None:
        """Both watches show these, too."""
        self._to_coordinator += events
        self._to_binder += events

    def create(self, names: Iterable[str], shapes: int = 1) -> None:
        """Pending pods."""
        for number, name in enumerate(names):
            self.server.create(name, number % shapes)

    def run(self) -> None:
        """Until every pod that was created is bound and both have seen it so, or nothing moves any more."""
        for _ in range(MOST_ROUNDS):
            self.now += STEP_S
            self._watch()
            if self._coordinate() | self._bind():
                continue
            if self._shown == len(self.server.lines) and not self.binder.busy and not self._waiting():
                return
            due = [at for at in (self._timer, self.binder.wake_at) if at is not None]
            self.now = max(self.now, min(due))
        raise AssertionError("the mesh does not come to rest")

    def unbound(self) -> int:
        """Pods that have no node."""
        return len(self.server.pods) - self.server.bound()

    def _waiting(self) -> bool:
        return any(entry.place.value in ("active", "in_flight") for entry in self.core.state.queue.entries.values())

    # --- a round ----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        fresh = self.server.lines[self._shown : self._shown + EVENTS_PER_TURN]
        if not fresh:
            return
        self._shown += len(fresh)
        for stage, frame, take in (
            (COORDINATOR_WATCH, self._pod_frames[0], self._to_coordinator.extend),
            (BINDER_WATCH, self._pod_frames[1], self._to_binder.extend),
        ):
            self.meter.enter(stage)
            take(pod_events([frame(line) for line in fresh]))
            self.meter.leave()

    def _coordinate(self) -> bool:
        batch = [self._to_coordinator.popleft() for _ in range(min(EVENTS_PER_TURN, len(self._to_coordinator)))]
        if self._timer is not None and self._timer <= self.now:
            self._timer = None
            batch.append(Tick())
        if not batch:
            return False
        self.meter.enter(COORDINATOR_CORE)
        out = self.core.handle(batch, self.now)
        self.meter.leave()
        self.core.state.stats.take_samples()
        self.core.state.stats.take_attempts()
        for instruction in out:
            match instruction:
                case wanted.SetTimer():
                    self._timer = instruction.at
                case wanted.SendOffer():
                    self._offer(instruction.agent, instruction.offer)
                case wanted.SendView():
                    self._view(instruction.agent, instruction.update)
                case wanted.SendPlan():
                    self._plan(instruction.plan)
                case wanted.PatchCondition():
                    self.server.calls["patch"] += 1
                    self._to_coordinator.append(seen.ConditionWritten(instruction.uid))
                case wanted.EmitEvent():
                    self.events += 1
                case wanted.FetchPod():
                    self.server.calls["get"] += 1
                    self._to_coordinator.append(seen.PodFetched(instruction.uid, None, failed=True))
                case Stop():
                    raise AssertionError(instruction.reason)
        return True

    def _offer(self, agent: str, offer: Offer) -> None:
        core = self.agents[agent]
        body = self._sent("offer", COORDINATOR_WIRE, offer)
        message = self._received(AGENT_WIRE, body, Offer)
        core.now_s = self.now
        self.meter.enter(AGENT_CORE)
        decisions = core.decide(message)
        self.meter.leave()
        answer = self._received(COORDINATOR_WIRE, self._sent("decisions", AGENT_WIRE, decisions), Decisions)
        self._to_coordinator.append(seen.DecisionsReceived(agent, offer.message_id, answer))

    def _view(self, agent: str, update: ViewUpdate) -> None:
        core = self.agents[agent]
        message = self._received(AGENT_WIRE, self._sent("view", COORDINATOR_WIRE, update), ViewUpdate)
        self.meter.enter(AGENT_CORE)
        ack = core.update(message)
        self.meter.leave()
        answer = self._received(COORDINATOR_WIRE, self._sent("view ack", AGENT_WIRE, ack), ViewAck)
        self._to_coordinator.append(seen.ViewAcked(agent, update.message_id, answer))

    def _plan(self, plan: Plan) -> None:
        self._requests += 1
        self._plans[self._requests] = plan.plan_id
        received = self._received(BINDER_WIRE, self._sent("plan", COORDINATOR_WIRE, plan), Plan)
        self._to_binder.append(told.PlanReceived(self._requests, received))

    def _bind(self) -> bool:
        calls, self._calls = self._calls, []
        if calls:
            self.meter.enter(BINDER_CALLS)
            for instruction in calls:
                at_once(self._call(instruction))
            self.meter.leave()
        batch = list(self._to_binder)
        self._to_binder.clear()
        wake_at = self.binder.wake_at
        if wake_at is not None and wake_at <= self.now:
            batch.append(Tick())
        if not batch:
            return False
        self.meter.enter(BINDER_CORE)
        out = self.binder.handle_all(batch, self.now)
        self.meter.leave()
        for instruction in out:
            match instruction:
                case to_do.PlanAnswer():
                    self._answer(instruction.request, instruction.result)
                case to_do.Refuse() | Stop():
                    raise AssertionError(instruction)
                case Log() | to_do.ListPods() | to_do.PatchObject() | to_do.Evict():
                    pass
                case _:
                    self._calls.append(instruction)
        return True

    def _call(self, instruction: to_do.Instruction) -> Coroutine[Any, Any, None]:
        match instruction:
            case to_do.Bind():
                return self._api_calls.bind(instruction)
            case to_do.Commit():
                return self._store_calls.commit(instruction)
            case to_do.LookUp():
                return self._store_calls.look_up(instruction)
            case to_do.ListIntents():
                return self._store_calls.list_intents()
        raise AssertionError(f"a drain of pods of {NAMESPACE} needs no {instruction}")

    def _answer(self, request: int, result: PlanResult) -> None:
        answer = self._received(COORDINATOR_WIRE, self._sent("plan result", BINDER_WIRE, result), PlanResult)
        self._to_coordinator.append(seen.PlanAnswered(self._plans.pop(request), answer, STEP_S))

    def _sent(self, kind: str, stage: str, message: Any) -> bytes:
        self.meter.enter(stage)
        body = encode(message)
        self.meter.leave()
        self.bytes[kind] += len(body)
        return body

    def _received(self, stage: str, body: bytes, kind: Any) -> Any:
        self.meter.enter(stage)
        message = decode(body, kind)
        self.meter.leave()
        return message
