"""Keeps a leader's health and its hour of history: measures once a second, judges, notes a step every ten seconds.

    beat (late?) --> pulse       each second: signals of core, shell, writes, lease --> verdict --> /v1/health, metrics
                                 each 10 s: totals and levels --> history

So ``since`` is true however rarely somebody asks, and what is asked for costs the asker nothing. It reads the core and
changes nothing; a turn of the loop costs it two additions.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from services.coordinator.core.core import Core
from services.coordinator.health.history import COUNTED, NAN, STEP_S, HealthHistory
from services.coordinator.health.pulse import Pulse
from services.coordinator.health.verdict import LEVELS, ROLLED_BACK_TOLD_S, RULES, HealthSignals, HealthVerdicts
from services.coordinator.inspect.nodes import resource_shares
from services.coordinator.inspect.overview import queue_counts
from services.coordinator.inspect.throughput import Throughput
from shared.adapters.kube.signs import LostWatch
from shared.policy.rollout.rollout import AUTOMATIC
from shared.ports import Clock
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.etcd_upkeep import EtcdVerdict
from shared.runtime.records.control import rfc3339
from shared.scheduling.places import Place
from shared.wire.records import PolicyPointer

BEAT_S = 0.25
EVERY_S = 1.0


@dataclass(slots=True, kw_only=True)
class Vitals:
    """Of one term. ``backlog``: (writes that are not out, seconds the oldest has waited); ``renewal_s``: what renewing
    the lease took last; ``lost``: watches of the API server that hear nothing; ``etcd``: whether it has room."""

    core: Core
    throughput: Throughput
    clock: Clock
    pulse: Pulse = field(default_factory=Pulse)
    backlog: Callable[[], tuple[int, float]] = lambda: (0, 0.0)
    renewal_s: Callable[[], float] = lambda: 0.0
    lost: Callable[[], Sequence[LostWatch]] = tuple
    etcd: Callable[[], EtcdVerdict] = EtcdVerdict
    wall: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    verdicts: HealthVerdicts = field(default_factory=HealthVerdicts)
    history: HealthHistory = field(default_factory=HealthHistory)
    signals: HealthSignals = field(default_factory=HealthSignals)
    began: str = ""
    _settled_at: float | None = None
    _ended: int = 0
    _ended_at: float = 0.0
    _pointer: PolicyPointer | None = None
    _rolled_back: tuple[float, str] | None = None

    async def run(self) -> None:
        """Eternal."""
        loop = asyncio.get_running_loop()
        self.began = rfc3339(self.wall())
        look_at = loop.time()
        while True:
            due = loop.time() + BEAT_S
            await asyncio.sleep(BEAT_S)
            now = loop.time()
            self.pulse.beat(self.clock(), late_s=max(0.0, now - due))
            if now >= look_at:
                look_at = now + EVERY_S
                self.look()

    def look(self) -> None:
        """Measure, judge, and where a step is over, remember."""
        if not self.core.state.started:
            return
        if self._settled_at is None:
            self._settled_at = self.clock()
        self.signals = self._measured()
        wall = self.wall()
        self.verdicts.judge(self.signals, rfc3339(wall))
        if self.history.due(at := wall.timestamp()):
            self.history.took(at, self._totals(), self._levels(), resource_shares(self.core))

    def _measured(self) -> HealthSignals:
        core, now = self.core, self.clock()
        state, views, pulse = core.state, core.registry.views, self.pulse
        queued, oldest_s = self.backlog()
        opened = [plan.opened_at for plan in core.ledger.plans.values() if not plan.again]
        standstill_s, lost, etcd = self._standstill(now), self.lost(), self.etcd()
        return HealthSignals(
            at=now,
            led_s=now - (self._settled_at if self._settled_at is not None else now),
            turn_longest_s=pulse.longest_s(now),
            turn_busy_share=pulse.busy_share(now),
            events_waiting=pulse.events(now),
            events_waited_s=pulse.waited_s(now),
            agents=len(views),
            suspects=sorted(agent for agent, view in views.items() if view.suspect),
            nodes=len(state.cache.table.row_of),
            nodes_unowned=len(core.registry.ownership.unowned),
            writes_queued=queued,
            writes_oldest_s=oldest_s,
            plans_open=len(core.ledger.plans),
            plans_oldest_s=max(0.0, now - min(opened)) if opened else 0.0,
            unbound_shards=core.ledger.leaderless(),
            shards=len(state.shards.names),
            active_pods=state.queue.count()[Place.ACTIVE] if standstill_s else 0,
            standstill_s=standstill_s,
            paused_by=state.paused.text if state.paused is not None else None,
            etcd_renewal_s=self.renewal_s(),
            etcd_refuses=etcd.refuses,
            etcd_fill=etcd.fill,
            watches_lost=[watch.plural for watch in lost],
            watch_lost_s=max((watch.silent_s for watch in lost), default=0.0),
            rolled_back=self._withdrawn(now),
        )

    def _standstill(self, now: float) -> float:
        """For how long there have been pods to try, and no attempt has ended."""
        state, stats = self.core.state, self.core.state.stats
        ended = stats.bound + stats.parked + stats.losses + stats.given_back + stats.refused + stats.elsewhere
        waits = state.paused is None and bool(self.core.registry.views) and state.queue.has_active()
        if ended != self._ended or not waits:
            self._ended, self._ended_at = ended, now
            return 0.0
        return now - self._ended_at

    def _withdrawn(self, now: float) -> str:
        """Which policy was withdrawn by itself lately: the pointer tells. Who takes one back by hand knows it."""
        before, pointer = self._pointer, self.core.variants.pointer
        self._pointer = pointer
        if before is not None and pointer is not None and pointer.number != before.number:
            gone = None
            if before.candidate is not None and pointer.candidate is None and pointer.active != before.candidate:
                gone = before.candidate
            elif pointer.active != before.active and pointer.active == before.previous:
                gone = before.active
            if gone is not None and pointer.by == AUTOMATIC:
                self._rolled_back = now, f"{gone.title} ({pointer.reason or 'no reason given'})"
            elif gone is None and (pointer.candidate is not None or pointer.active != before.active):
                self._rolled_back = None  # the next one is on its way
        if self._rolled_back is None or now - self._rolled_back[0] > ROLLED_BACK_TOLD_S:
            return ""
        return self._rolled_back[1]

    def _totals(self) -> dict[str, float]:
        stats = self.core.state.stats
        totals = (stats.bound, stats.answers, stats.victims, stats.pods_seen)
        return dict(zip(COUNTED, map(float, totals), strict=True))

    def _levels(self) -> dict[str, float]:
        core, now, seen = self.core, self.clock(), self.signals
        latency, rounds = self.throughput.latency_ms(now), self.throughput.round_ms(now)
        return {
            **{f"pending_{place}": float(count) for place, count in queue_counts(core).items()},
            "latency_p50_ms": latency.p50 if latency is not None else NAN,
            "latency_p99_ms": latency.p99 if latency is not None else NAN,
            "round_p50_ms": rounds.p50 if rounds is not None else NAN,
            "round_p99_ms": rounds.p99 if rounds is not None else NAN,
            "turn_longest_ms": self.pulse.longest_s(now, over_s=STEP_S) * 1000,
            "turn_busy_share": self.pulse.busy_share(now),
            "events_waiting": float(self.pulse.events(now, over_s=STEP_S)),
            "writes_queued": float(seen.writes_queued),
            "nodes": float(seen.nodes),
            "nodes_not_ready": float(sum(not condition.ready for condition in core.state.unhealthy.values())),
            "agents": float(seen.agents),
            "agents_suspect": float(len(seen.suspects)),
            "health": float(LEVELS[self.verdicts.health.verdict]),
        }


def register(metrics: Metrics, vitals: Callable[[], Vitals | None]) -> None:
    """Show the verdict and what it rests on at ``/metrics``; a standby shows zeros."""

    def value(read: Callable[[Vitals], float]) -> float:
        found = vitals()
        return read(found) if found is not None else 0.0

    def severity(code: str) -> float:
        found = vitals()
        findings = found.verdicts.health.findings if found is not None else ()
        return max((LEVELS[finding.severity] for finding in findings if finding.code == code), default=0)

    verdict, *others = GAUGES
    metrics.gauge_of(*verdict[:2], partial(value, verdict[2]))
    by_code = metrics.gauge("health_finding", "What is wrong: 0 nothing, 1 degraded, 2 bad; by code", ["code"])
    for rule in RULES:
        by_code.labels(rule.code).set_function(partial(severity, rule.code))
    for name, text, read in others:
        metrics.gauge_of(name, text, partial(value, read))


GAUGES: tuple[tuple[str, str, Callable[[Vitals], float]], ...] = (
    ("health_verdict", "Of the leader: 0 ok, 1 degraded, 2 bad", lambda v: LEVELS[v.verdicts.health.verdict]),
    (
        "leader_turn_longest_seconds", "Longest time in the last minute in which the leader's loop did nothing else",
        lambda v: v.pulse.longest_s(v.clock()),
    ),
    (
        "leader_turn_busy_ratio", "Share of the last ten seconds spent in turns of the core",
        lambda v: v.pulse.busy_share(v.clock()),
    ),
    (
        "leader_events_waited_seconds", "Longest that an event waited for the core in the last minute",
        lambda v: v.pulse.waited_s(v.clock()),
    ),
    (
        "leader_events_waiting", "Most events that one turn took in, in the last minute",
        lambda v: v.pulse.events(v.clock()),
    ),
    ("writes_queued", "Conditions, events and lookups not out yet", lambda v: v.backlog()[0]),
    ("writes_oldest_seconds", "Age of the oldest of them", lambda v: v.backlog()[1]),
    ("lease_renewal_last_seconds", "What the last renewal of the leader's lease in etcd took", lambda v: v.renewal_s()),
)  # fmt: skip
