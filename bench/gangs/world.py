"""Coordinator's, agents' and binder's cores in virtual time: ``CoreWorld`` with a real binder in place of plain data.

etcd, the API server and the way between two services take fixed times; a turn of either core takes as much as it took
CPU. What is measured is the CPU of ``Core.handle`` and ``BinderCore.handle_all``.
"""

from __future__ import annotations

import heapq
import math
import time

import msgspec

from bench.saturation.world import BIND_S, WATCH_S, CoreWorld, PhaseTurns
from services.binder.core import events as heard
from services.binder.core import instructions as asked
from services.binder.core.core import EVENTS_PER_TURN, BinderCore
from services.binder.core.state import BinderCoreSettings
from services.coordinator.core import events as seen
from services.coordinator.core.state import CoreSettings as CoordinatorSettings
from shared.model.cluster_events import Listed, NodeUpserted, ObjectChanged, PodDeleted, PodUpserted
from shared.model.units.pod_group import PodGroup
from shared.wire.codec import decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import EvictionOutcome, EvictionResult, Plan

ETCD_S, HOP_S = 0.004, 0.002
WATCHED = (PodUpserted, PodDeleted, NodeUpserted, Listed)


class GangWorld(CoreWorld):
    """``binder_turns`` by phase."""

    def __init__(
        self, *, agents: int, seed: int, grace_s: float = 0.0, policy: str = "kube-default",
        settings: CoordinatorSettings | None = None,
    ) -> None:  # fmt: skip
        super().__init__(agents=agents, seed=seed, grace_s=grace_s, policy=policy, settings=settings)
        self.binder = BinderCore(3, BinderCoreSettings(), Keys())
        self.binder_turns: dict[str, PhaseTurns] = {}
        self._to_binder: list[tuple[float, int, heard.Event]] = []
        self._requests: dict[int, tuple[int, float]] = {}
        self._sent = 0
        self._revision = 1

    def begin(self) -> None:
        """Everything is listed, for both."""
        super().begin()
        self._tell(heard.IntentsListed({}))

    def add_group(self, group: PodGroup) -> None:
        self.post(ObjectChanged("podgroups", f"{group.namespace}/{group.name}", group), WATCH_S)

    def post(self, event: seen.Event, after_s: float = 0.0) -> None:
        super().post(event, after_s)
        if isinstance(event, WATCHED):
            self._tell(event, after_s)

    def confirmed(self, uid: str) -> bool:
        """Whether the coordinator has seen the pod bound."""
        account = self.core.state.cache.accounts.get(uid)
        return account is not None and account.assumed_at is None

    # --- time -------------------------------------------------------------------------------------------------------

    def _next_at(self) -> float:
        return min(super()._next_at(), self._binder_at())

    def _binder_at(self) -> float:
        due = self._to_binder[0][0] if self._to_binder else math.inf
        wakes = self.binder.wake_at
        return due if wakes is None else min(due, wakes)

    def _next_turn(self) -> None:
        if self._binder_at() < super()._next_at():
            self._binder_turn()
        else:
            super()._next_turn()

    def _binder_turn(self) -> None:
        batch: list[heard.Event] = []
        while self._to_binder and self._to_binder[0][0] <= self.now and len(batch) < EVENTS_PER_TURN:
            batch.append(heapq.heappop(self._to_binder)[2])
        turns = self.binder_turns.setdefault(self.phase, PhaseTurns())
        wall, cpu = time.perf_counter(), time.thread_time()
        if self.profile is not None:
            self.profile.enable()
        instructions = self.binder.handle_all(batch or [heard.Tick()], self.now)
        if self.profile is not None:
            self.profile.disable()
        cpu_s, wall_s = time.thread_time() - cpu, time.perf_counter() - wall
        turns.add(cpu_s * 1000, wall_s * 1000, self.now, batch)
        self.now += cpu_s if self.turn_s is None else self.turn_s
        for instruction in instructions:
            self._do(instruction)

    # --- the others -------------------------------------------------------------------------------------------------

    def _tell(self, event: heard.Event, after_s: float = 0.0) -> None:
        self._sequence += 1
        heapq.heappush(self._to_binder, (self.now + after_s, self._sequence, event))

    def _bind(self, plan: Plan) -> None:
        self._sent += 1
        self._requests[self._sent] = plan.plan_id, self.now
        self._tell(heard.PlanReceived(self._sent, decode(encode(plan), Plan)), HOP_S)

    def _do(self, instruction: asked.Instruction) -> None:
        """Carry out what the binder asks for."""
        match instruction:
            case asked.Commit():
                self._revision += 1
                self._tell(heard.Committed(instruction.batch, self._revision), ETCD_S)
            case asked.Bind():
                self._carry_binding(instruction)
            case asked.PlanAnswer():
                plan_id, sent_at = self._requests.pop(instruction.request)
                self.post(seen.PlanAnswered(plan_id, instruction.result, self.now - sent_at + HOP_S), HOP_S)
            case asked.Refuse():
                plan_id, _ = self._requests.pop(instruction.request)
                self.post(seen.PlanFailed(plan_id, instruction.code, True, instruction.retry_after_s), HOP_S)
            case asked.ReadPod():
                self._tell(heard.PodRead(instruction.uid, self.pods.get(instruction.uid)), BIND_S)
            case asked.MarkPod():
                self._tell(heard.PodMarked(instruction.uid, True), BIND_S)
            case asked.Evict():
                self._evict(instruction)
            case asked.ListIntents():
                self._tell(heard.IntentsListed({}), ETCD_S)
            case _:
                pass

    def _carry_binding(self, bind: asked.Bind) -> None:
        request, pod = bind.request, self.pods.get(bind.request.uid)
        if pod is None or pod.resource_version != request.resource_version:
            self._tell(heard.BindingRefused(request.uid, bind.attempt, 404 if pod is None else 409), BIND_S)
            return
        self._change(request.uid, BIND_S + WATCH_S, node_name=request.node_name)
        self.bound[request.uid] = self.now + BIND_S
        self._tell(heard.BindingAccepted(request.uid, bind.attempt), BIND_S)

    def _evict(self, evict: asked.Evict) -> None:
        eviction = evict.eviction
        victim = self.pods.get(eviction.uid)
        outcome = EvictionOutcome.GONE if victim is None else EvictionOutcome.EVICTED
        if victim is not None and not victim.terminating:
            self.evicted.append((eviction.uid, eviction.preemptor))
            if self._grace_s:
                self._show(msgspec.structs.replace(victim, terminating=True), BIND_S)
            del self.pods[eviction.uid]
            self.post(PodDeleted(eviction.uid), BIND_S + self._grace_s + WATCH_S)
        self._tell(heard.Evicted(evict.plan, EvictionResult(eviction.uid, outcome)), BIND_S)
