"""What a leading coordinator does about its core's instructions; inbox, turns and timer are ``LeaderShell``'s."""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from services.coordinator.core.core import EVENTS_PER_TURN, Core
from services.coordinator.core.events import Event
from services.coordinator.core.instructions import (
    EmitEvent,
    FetchPod,
    FreeClaim,
    HoldNode,
    Instruction,
    KeepRoom,
    KeepWindow,
    PatchCondition,
    PublishPartition,
    SendOffer,
    SendPlan,
    SendView,
    SetTimer,
    StoreNominations,
    TellPodGroup,
    TellQueue,
    WritePointer,
)
from services.coordinator.health.pulse import Pulse
from services.coordinator.inspect.metrics import SchedulerMetrics
from services.coordinator.inspect.throughput import Throughput
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.io.nomination_writes import NominationWrites
from services.coordinator.io.peers import Peers
from services.coordinator.io.reservation_writes import ReservationWrites
from services.coordinator.rollout import pointer
from services.coordinator.rollout.window_ring import WindowRing
from shared.errors import StoreFenced, StoreFull, StoreUnknown
from shared.ports import Clock, CreateRevisionIs, Put, Store
from shared.runtime.leader_shell import LeaderShell, Turn, Validity
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys

log = structlog.get_logger()

PUBLISH_RETRY_S = 0.5


class CoordinatorShell(LeaderShell[Event, Instruction]):
    """One term's shell. ``run`` lasts until the term ends, by an error."""

    def __init__(
        self,
        core: Core,
        *,
        store: Store,
        keys: Keys,
        leadership: Validity,
        clock: Clock,
        failpoints: Failpoints,
        metrics: Metrics,
        scheduler_metrics: SchedulerMetrics | None = None,
    ) -> None:
        super().__init__(core.handle, clock, leadership, term=core.state.term, most_events=EVENTS_PER_TURN)
        self.core = core
        self._store = store
        self._keys = keys
        self._failpoints = failpoints
        self._partition: PublishPartition | None = None
        self._partition_changed = asyncio.Event()
        self.peers: Peers | None = None
        self.writes: KubeWrites | None = None
        self.reservations: ReservationWrites | None = None
        self.windows = WindowRing(store, keys, core.state.term)
        self.nominations = NominationWrites(store, keys, core.state.term, self.post, failpoints)
        self.throughput, self.pulse = Throughput(), Pulse()
        self.latency_ms = metrics.quantiles("schedule_latency_ms")
        self.round_ms = metrics.quantiles("round_ms")
        self.turn_ms = metrics.quantiles("turn_ms")
        self.turn_cpu_ms = metrics.quantiles("turn_cpu_ms")
        self._scheduler_metrics = scheduler_metrics

    def connect(
        self, peers: Peers, writes: KubeWrites, reservations: ReservationWrites | None = None
    ) -> None:  # fmt: skip
        """What the shell talks through; they post back to it, hence not in the constructor."""
        self.peers, self.writes, self.reservations = peers, writes, reservations

    async def run(self) -> None:
        """Eternal; raises what ends the term: ``LeadershipLost``, ``StoreFenced``, or a bug's error."""
        try:
            await super().run()
        finally:
            if self.writes is not None:
                self.writes.close()

    def turned(self, turn: Turn) -> None:
        """Note what the turn took, and what ended in it."""
        self.pulse.turned(turn.ended, took_s=turn.took_s, waited_s=turn.waited_s, events=turn.events)
        self.turn_ms.record(turn.took_s * 1000)
        self.turn_cpu_ms.record(turn.cpu_s * 1000)
        stats, now = self.core.state.stats, self.core.state.now
        self.throughput.mark(now, stats.bound, stats.answers)
        if self._scheduler_metrics is not None:
            self._scheduler_metrics.turn.observe(turn.took_s)
            self._scheduler_metrics.turn_cpu.observe(turn.cpu_s)
        if stats.latencies_s or stats.rounds_s or stats.attempts_s:
            latencies_s, rounds_s = stats.take_samples()
            self.throughput.took(now, latencies_s, rounds_s)
            for latency_s in latencies_s:
                self.latency_ms.record(latency_s * 1000)
            for round_s in rounds_s:
                self.round_ms.record(round_s * 1000)
            if self._scheduler_metrics is not None:
                self._scheduler_metrics.observe(stats, rounds_s)

    def carry_out(self, instruction: Instruction) -> None:
        """Each call runs beside the others and ends in an event."""
        assert self.peers is not None
        assert self.writes is not None
        match instruction:
            case SendOffer():
                self.start(self.peers.offer(instruction))
            case SendPlan():
                self.start(self._send_plan(instruction))
            case SendView():
                self.start(self.peers.view(instruction))
            case SetTimer():
                self.wake_at(instruction.at)
            case StoreNominations():
                self.nominations.submit(instruction)
            case PatchCondition() | EmitEvent() | FetchPod() | TellPodGroup() | TellQueue() | HoldNode() | FreeClaim():
                self.writes.submit(instruction)
            case KeepRoom():
                assert self.reservations is not None
                self.start(self.reservations.reserve(instruction))
            case PublishPartition():
                self._partition = instruction
                self._partition_changed.set()
            case WritePointer():
                self.start(pointer.write(self._store, self._keys, instruction.change, self.core.state.term))
            case KeepWindow():
                self.windows.keep(instruction.window)

    async def _send_plan(self, instruction: SendPlan) -> None:
        """With the failpoints of what is in it: a gang, or the victims of a preemption; each is a ``plan`` too."""
        assert self.peers is not None
        plan = instruction.plan
        steps = ["plan"]
        steps += [name for name, there in (("gang_plan", plan.gangs), ("victims_plan", plan.evictions)) if there]
        for step in steps:
            self._failpoints.reach(f"before_{step}")
        await self.peers.plan(instruction)
        for step in steps:
            self._failpoints.reach(f"after_{step}")

    async def publish_partitions(self) -> None:
        """Write the newest partition under our term; eternal. ``StoreFenced``: somebody else leads."""
        while True:
            await self._partition_changed.wait()
            self._partition_changed.clear()
            partition, term = self._partition, self.core.state.term
            if partition is None:
                continue
            value = msgspec.json.encode({"epoch": partition.epoch, "term": term, "agents": dict(partition.agents)})
            self._failpoints.reach("before_publish")
            compares = [CreateRevisionIs(self._keys.coordinator_leader, term)]
            try:
                result = await self._store.txn(compares, [Put(self._keys.partitions_current, value)])
            except (StoreFull, StoreUnknown) as error:
                log.info("partition_unpublished", error=error)
                await asyncio.sleep(PUBLISH_RETRY_S)
                self._partition_changed.set()
                continue
            if not result.succeeded:
                raise StoreFenced(f"term {term} is over: the partition was not written")
