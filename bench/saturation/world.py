"""The coordinator's core and real agents' cores in virtual time, everything else as plain data: no process, no socket.

A turn of the core takes as much virtual time as it took CPU, so what arrives meanwhile is one batch, as in the shell's
loop; answers, Bindings, patches and watch events take fixed times. What is measured is the CPU of ``Core.handle``.
"""

from __future__ import annotations

import cProfile
import gc
import heapq
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from typing import Any

import msgspec
import numpy as np

from services.coordinator.core import events as seen
from services.coordinator.core import instructions as wanted
from services.coordinator.core.core import EVENTS_PER_TURN, Core
from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.model.cluster_events import Listed, NodeUpserted, PodDeleted, PodUpserted
from shared.model.node import Node
from shared.model.pod import Pod
from shared.policy.registry import make_policy
from shared.turns import Tick
from shared.wire.codec import decode, encode
from shared.wire.messages import (
    VERSION,
    EvictionOutcome,
    EvictionResult,
    Offer,
    Outcome,
    PlacementResult,
    Plan,
    PlanResult,
    ViewUpdate,
)
from shared.wire.records import AgentRecord

ANSWER_S, BIND_S, WATCH_S, PATCH_S, STORE_S = 0.003, 0.008, 0.002, 0.005, 0.004
EMBEDDED = "embedded"
"""The leader's own agent, of a world of no others: asked in its process, it answers at once."""

LONG_MS = 50.0
LONGEST_KEPT = 5


@dataclass(slots=True)
class PhaseTurns:
    """What the turns of one phase took."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    events: int = 0
    agents_cpu_s: float = 0.0
    longest: list[tuple[float, float, dict[str, int]]] = field(default_factory=list)
    """CPU ms, virtual time, events by kind: of the longest turns."""

    def add(self, cpu_ms: float, wall_ms: float, at: float, batch: Sequence[object]) -> None:
        self.cpu_ms.append(cpu_ms)
        self.wall_ms.append(wall_ms)
        self.events += len(batch)
        if len(self.longest) < LONGEST_KEPT or cpu_ms > self.longest[-1][0]:
            kinds = dict(Counter(type(event).__name__ for event in batch))
            self.longest.append((round(cpu_ms, 1), round(at, 2), kinds))
            self.longest.sort(key=lambda turn: -turn[0])
            del self.longest[LONGEST_KEPT:]


class CoreWorld:
    """``now``: virtual seconds. ``phase`` names what is measured at the moment."""

    turn_s: float | None = None
    """Virtual seconds of a turn; None: as long as it took CPU, so that counts differ from run to run."""

    def __init__(
        self, *, agents: int, seed: int, grace_s: float = 0.0, bind_s: float = BIND_S, policy: str = "kube-default",
        settings: CoreSettings | None = None,
    ) -> None:  # fmt: skip
        self.now = 1000.0
        self.turns: dict[str, PhaseTurns] = {}
        self.phase = ""
        self.pods: dict[str, Pod] = {}
        self.told: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.evicted: list[tuple[str, str]] = []
        self.patches = 0
        self.profile: cProfile.Profile | None = None
        self._grace_s, self._bind_s = grace_s, bind_s
        self._versions = 0
        self._sequence = 0
        self._due: list[tuple[float, int, seen.Event]] = []
        self._timer: float | None = None
        self._nodes: dict[str, Node] = {}
        self.core = Core(term=7, scheduler_name="conclave", policy=policy, rng=Random(seed), settings=settings)
        names = [f"agent-{number}" for number in range(agents)] or [EMBEDDED]
        self._agents = {name: AgentCore(make_policy(policy), np.random.default_rng(seed)) for name in names}

    # --- what happens -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Agents and binder are there, everything is listed."""
        records = tuple(AgentRecord(id=name, url=f"http://{name}", incarnation=name) for name in self._agents)
        for event in (
            seen.AgentsChanged(records), seen.BinderChanged("http://binder", 3), seen.IntentsListed(()),
            seen.ControlSeen(), Listed("nodes"), Listed("pods"),
        ):  # fmt: skip
            self.post(event)

    def add_node(self, body: dict[str, Any]) -> None:
        name = body["metadata"]["uid"] = body["metadata"]["name"]
        self._nodes[name] = node_from_api(msgspec.convert(body, api.KubeNode))
        self.post(NodeUpserted(self._nodes[name]))

    def add_pod(self, body: dict[str, Any], at: float | None = None) -> str:
        """Its uid. ``at``: when it was to come; the core may have been busy since."""
        uid = body["metadata"]["uid"] = f"uid-{body['metadata']['name']}"
        self._versions += 1
        body["metadata"]["resourceVersion"] = str(self._versions)
        self.created[uid] = self.now if at is None else at
        self._show(pod_from_api(msgspec.convert(body, api.KubePod)), 0.0)
        return uid

    def remove_pod(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.post(PodDeleted(uid), WATCH_S)

    def post(self, event: seen.Event, after_s: float = 0.0) -> None:
        self._sequence += 1
        heapq.heappush(self._due, (self.now + after_s, self._sequence, event))

    # --- time -------------------------------------------------------------------------------------------------------

    def run(self, until: float) -> None:
        """Let everything happen that is due up to then."""
        while self._next_at() <= until:
            self.now = max(self.now, self._next_at())
            self._next_turn()
        self.now = max(self.now, until)

    def _next_at(self) -> float:
        """When the core's next turn is due."""
        due = self._due[0][0] if self._due else math.inf
        return due if self._timer is None else min(due, self._timer)

    def _next_turn(self) -> None:
        batch: list[seen.Event] = []
        while self._due and self._due[0][0] <= self.now and len(batch) < EVENTS_PER_TURN:
            batch.append(heapq.heappop(self._due)[2])
        if self._timer is not None and self._timer <= self.now:
            self._timer = None
            batch.append(Tick())
        self._turn(batch)

    def rest(self, most_s: float) -> bool:
        """Run until nothing waits in active or in flight and no search goes on; False after ``most_s``."""
        end = self.now + most_s
        while self.now < end:
            self.run(self.now + 0.1)
            places = {entry.place.value for entry in self.core.state.queue.entries.values()}
            quiet = not self.core.preemptor.searches and not self.core.reporter.waiting
            if quiet and not places & {"active", "in_flight", "backoff"}:
                return True
        return False

    def _turn(self, batch: list[seen.Event]) -> None:
        turns = self.turns.setdefault(self.phase, PhaseTurns())
        wall, cpu = time.perf_counter(), time.thread_time()
        if self.profile is not None:
            self.profile.enable()
        instructions = self.core.handle(batch, self.now)
        if self.profile is not None:
            self.profile.disable()
        cpu_s, wall_s = time.thread_time() - cpu, time.perf_counter() - wall
        self.core.state.stats.take_samples()
        turns.add(cpu_s * 1000, wall_s * 1000, self.now, batch)
        self.now += cpu_s if self.turn_s is None else self.turn_s
        for instruction in instructions:
            self._carry_out(instruction)

    # --- the others -------------------------------------------------------------------------------------------------

    def _show(self, pod: Pod, after_s: float = WATCH_S) -> None:
        self.pods[pod.uid] = pod
        self.post(PodUpserted(pod), after_s)

    def _change(self, uid: str, after_s: float = WATCH_S, **changes: Any) -> None:
        self._versions += 1
        pod = msgspec.structs.replace(self.pods[uid], resource_version=str(self._versions), **changes)
        self._show(pod, after_s)

    def _carry_out(self, instruction: wanted.Instruction) -> None:
        match instruction:
            case wanted.SetTimer():
                self._timer = instruction.at
            case wanted.SendOffer():
                self._ask(instruction.agent, instruction.offer)
            case wanted.SendView():
                self._ask(instruction.agent, instruction.update)
            case wanted.SendPlan():
                self._bind(instruction.plan)
            case wanted.FetchPod():
                self.post(seen.PodFetched(instruction.uid, self.pods.get(instruction.uid)), PATCH_S)
            case wanted.PatchCondition():
                self._patch(instruction)
            case wanted.StoreNominations():
                for uid, _, node in filter(itemgetter(2), instruction.changes):
                    self.post(seen.NominationStored(uid, node, instruction.number), STORE_S)
            case wanted.HoldNode():
                self._hold(instruction)
            case _:
                pass

    def _hold(self, work: wanted.HoldNode) -> None:
        self._nodes[work.node] = msgspec.structs.replace(self._nodes[work.node], held=work.hold)
        self.post(NodeUpserted(self._nodes[work.node]), PATCH_S)
        self.post(seen.NodeHeld(work.node, work.hold), PATCH_S)

    def _patch(self, patch: wanted.PatchCondition) -> None:
        self.patches += 1
        if patch.uid not in self.pods:
            self.post(seen.ConditionWritten(patch.uid), PATCH_S)
            return
        self.told.setdefault(patch.uid, self.now)
        changes: dict[str, object] = {"condition": ("False", patch.reason, patch.message)}
        if patch.nominated is not None:
            changes["nominated_node"] = patch.nominated
        self._change(patch.uid, PATCH_S, **changes)
        self.post(seen.ConditionWritten(patch.uid), PATCH_S)

    def _ask(self, agent: str, message: Offer | ViewUpdate) -> None:
        core, cpu = self._agents[agent], time.thread_time()
        event: seen.Event
        if isinstance(message, Offer):
            core.now_s = self.now
            event = seen.DecisionsReceived(agent, message.message_id, core.decide(decode(encode(message), Offer)))
        else:
            event = seen.ViewAcked(agent, message.message_id, core.update(decode(encode(message), ViewUpdate)))
        self.turns[self.phase].agents_cpu_s += time.thread_time() - cpu
        self.post(event, 0.0 if agent == EMBEDDED else ANSWER_S)

    def _bind(self, plan: Plan) -> None:
        results = []
        evictions = []
        for eviction in plan.evictions:
            victim = self.pods.get(eviction.uid)
            if victim is None:
                evictions.append(EvictionResult(eviction.uid, EvictionOutcome.GONE))
                continue
            if not victim.terminating:
                self.evicted.append((eviction.uid, eviction.preemptor))
                if self._grace_s:
                    self._change(eviction.uid, BIND_S, terminating=True)
                del self.pods[eviction.uid]
                self.post(PodDeleted(eviction.uid), BIND_S + self._grace_s + WATCH_S)
            evictions.append(EvictionResult(eviction.uid, EvictionOutcome.EVICTED))
        for placement in plan.placements:
            pod = self.pods.get(placement.uid)
            if pod is None:
                results.append(PlacementResult(placement.unit, Outcome.GONE))
                continue
            self._change(placement.uid, self._bind_s, node_name=placement.node)
            self.bound[placement.uid] = self.now + self._bind_s
            results.append(PlacementResult(placement.unit, Outcome.BOUND, placement.node, "", 100))
        result = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results, 0, evictions)
        self.post(seen.PlanAnswered(plan.plan_id, result, self._bind_s), self._bind_s + WATCH_S)


def settle_garbage() -> None:
    """As a service does once it is ready."""
    gc.collect()
    gc.freeze()
