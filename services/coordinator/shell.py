"""Runs one term: hands events to the core in batches, carries out what it says, feeds the results back.

Everything that arrived since the last turn of the loop is one batch, so a lone pod is handled at once and a burst
costs one pass. Before each batch leadership is asked for by the clock; on doubt nothing more goes out. It refuses to
decide; the core does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

import msgspec
import structlog

from services.coordinator.core.core import EVENTS_PER_TURN, Core
from services.coordinator.core.events import Event, Tick
from services.coordinator.core.instructions import (
    EmitEvent,
    FetchPod,
    Instruction,
    KeepWindow,
    Log,
    PatchCondition,
    PublishPartition,
    SendOffer,
    SendPlan,
    SendView,
    SetTimer,
    StepDown,
    WritePointer,
)
from services.coordinator.health.pulse import Pulse
from services.coordinator.inspect.metrics import SchedulerMetrics
from services.coordinator.inspect.throughput import Throughput
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.io.peers import Peers
from services.coordinator.rollout import pointer
from services.coordinator.rollout.window_ring import WindowRing
from shared.errors import LeadershipLost, StoreFenced, StoreUnknown
from shared.ports import Clock, CreateRevisionIs, Put, Store
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.failpoints import Failpoints
from shared.wire.keys import Keys

log = structlog.get_logger()

PUBLISH_RETRY_S = 0.5


class Validity(Protocol):
    """What a leader is asked before each batch (``Leadership``)."""

    def is_valid(self, now: float | None = None) -> bool:
        """Whether this process may act as leader now."""
        ...


class Shell:
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
        self.core = core
        self._store = store
        self._keys = keys
        self._leadership = leadership
        self._clock = clock
        self._failpoints = failpoints
        self._inbox: list[Event] = []
        self._turning = False
        self._posted_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] | None = None
        self._partition: PublishPartition | None = None
        self._partition_changed = asyncio.Event()
        self.peers: Peers | None = None
        self.writes: KubeWrites | None = None
        self.windows = WindowRing(store, keys, core.state.term)
        self.throughput, self.pulse = Throughput(), Pulse()
        self.latency_ms = metrics.quantiles("schedule_latency_ms")
        self.round_ms = metrics.quantiles("round_ms")
        self.turn_ms = metrics.quantiles("turn_ms")
        self.turn_cpu_ms = metrics.quantiles("turn_cpu_ms")
        self._scheduler_metrics = scheduler_metrics

    def connect(self, peers: Peers, writes: KubeWrites) -> None:
        """What the shell talks through; they post back to it, hence not in the constructor."""
        self.peers, self.writes = peers, writes

    def post(self, events: Iterable[Event]) -> None:
        """Events for the next turn of the loop."""
        self._inbox.extend(events)
        if self._inbox and not self._turning:
            self._turning, self._posted_at = True, self._clock()
            asyncio.get_running_loop().call_soon(self._turn)

    def post_one(self, event: Event) -> None:
        """One event for the next turn of the loop."""
        self.post((event,))

    async def run(self) -> None:
        """Eternal; raises what ends the term: ``LeadershipLost``, ``StoreFenced``, or a bug's error."""
        self._ended = asyncio.get_running_loop().create_future()
        try:
            await self._ended
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self.writes is not None:
                self.writes.close()
            for task in self._tasks:
                task.cancel()

    def _turn(self) -> None:
        self._turning = False
        if self._ended is None or self._ended.done():
            return
        if not self._leadership.is_valid():
            self._end(LeadershipLost("the lease may have ended"))
            return
        events, self._inbox = self._inbox[:EVENTS_PER_TURN], self._inbox[EVENTS_PER_TURN:]
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        began = self._clock()
        try:
            for instruction in self.core.handle(events, self._clock()):
                self._carry_out(instruction)
        except Exception as error:  # noqa: BLE001  the shell's one guard: it ends the term with this error
            self._end(error)
            return
        ended = self._clock()
        self.pulse.turned(ended, took_s=ended - began, waited_s=began - self._posted_at, events=len(events))
        self._took(time.perf_counter() - began_s, time.thread_time() - began_cpu_s)
        self.post(())  # the rest of a large batch, after whatever else waits for the loop
        stats = self.core.state.stats
        self.throughput.mark(self.core.state.now, stats.bound, stats.answers)
        if stats.latencies_s or stats.rounds_s or stats.attempts_s:
            latencies_s, rounds_s = stats.take_samples()
            self.throughput.took(latencies_s, rounds_s)
            for latency_s in latencies_s:
                self.latency_ms.record(latency_s * 1000)
            for round_s in rounds_s:
                self.round_ms.record(round_s * 1000)
            if self._scheduler_metrics is not None:
                self._scheduler_metrics.observe(stats, rounds_s)

    def _took(self, turn_s: float, cpu_s: float) -> None:
        """A turn lasted so long: nothing else ran on this loop, the answers of the API included."""
        self.turn_ms.record(turn_s * 1000)
        self.turn_cpu_ms.record(cpu_s * 1000)
        if self._scheduler_metrics is not None:
            self._scheduler_metrics.turn.observe(turn_s)
            self._scheduler_metrics.turn_cpu.observe(cpu_s)

    def _end(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _carry_out(self, instruction: Instruction) -> None:
        assert self.peers is not None
        assert self.writes is not None
        match instruction:
            case SendOffer():
                self.start(self.peers.offer(instruction))
            case SendPlan():
                self.start(self.peers.plan(instruction))
            case SendView():
                self.start(self.peers.view(instruction))
            case SetTimer():
                self._set_timer(instruction.at)
            case PatchCondition() | EmitEvent() | FetchPod():
                self.writes.submit(instruction)
            case PublishPartition():
                self._partition = instruction
                self._partition_changed.set()
            case WritePointer():
                self.start(pointer.write(self._store, self._keys, instruction.change, self.core.state.term))
            case KeepWindow():
                self.windows.keep(instruction.window)
            case StepDown():
                self._end(LeadershipLost(instruction.reason))
            case Log():
                getattr(log, instruction.level)(instruction.event, term=self.core.state.term, **dict(instruction.facts))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, at - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.post_one, Tick())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else; its error ends the term."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error)

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
            except StoreUnknown as error:
                log.info("partition_unpublished", error=error)
                await asyncio.sleep(PUBLISH_RETRY_S)
                self._partition_changed.set()
                continue
            if not result.succeeded:
                raise StoreFenced(f"term {term} is over: the partition was not written")
