"""One day of the pool, played by the services' own cores: what happens outside of the mesh, step by step.

Each step: time passes; who was asked to leave leaves when its grace is over; demand is what the traces say; the HPA's
rule scales online services; the backlog is topped up; what was measured a step ago is read; the mesh comes to rest;
use, violations, work and waiting are counted until the next step, and jobs that ended make room.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from lab.mesh.tidal.jobs import OfflineJob, Worker
from lab.mesh.tidal.lending import Lending
from lab.mesh.tidal.levels import (
    GPU,
    GPU_PRIORITY,
    OFFLINE_POOL,
    OFFLINE_PRIORITY,
    ONLINE_POOL,
    ONLINE_PRIORITY,
    POOL,
    TidalLevels,
)
from lab.mesh.tidal.played import PlayedDay
from lab.mesh.tidal.services import TidalService, TidalStep, moment, services_of
from lab.mesh.tidal.waits import Waits, Which
from lab.mesh.world import MeshWorld
from lab.traces.tidal import DAY_S, MIB, JobDraw, TidalTraces, day_of
from shared.model.constraints import PodClass, PreferredTerm, Requirement, SelectorTerm
from shared.model.offline import OfflineTerms
from shared.model.pod import Pod
from shared.model.qos import Qos, lent_cpu, lent_memory
from shared.model.resources import CPU, MEMORY
from shared.model.units.pod_group import GroupSource, PodGroup, WhenGangBreaks, group_key
from shared.wire.messages import EvictionReason

Floats = NDArray[np.float64]
Use = tuple[str, float, float]
"""Name, cores, bytes."""
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the hardware is shared. ``offline``: whether anything runs beside the services; ``pools``: on nodes of its
    own; ``lends``: it asks for what is lent, not for plain cores."""

    name: str
    offline: bool = True
    pools: bool = False
    lends: bool = False


ALONE, POOLS = Arrangement("online-alone", offline=False), Arrangement("two-pools", pools=True)
ONE, LENT = Arrangement("kube-default"), Arrangement("lending", lends=True)
ARRANGEMENTS = (ALONE, POOLS, ONE, LENT)


class Day:
    """``play`` once. ``seed``: which days of the traces, which jobs in which order."""

    def __init__(
        self, traces: TidalTraces, levels: TidalLevels, arrangement: Arrangement, world: MeshWorld, seed: int
    ) -> None:
        self.levels = levels
        self.how = arrangement
        self.world = world
        self.played = PlayedDay()
        self._demand = day_of(traces.tides, seed)
        self.services = services_of(traces.tides, self._demand[:, 0], levels)
        self._demand = self._demand * np.array([[service.peak_cores] for service in self.services])
        self._rows = {name: row for row, name in enumerate(sorted(world.nodes))}
        self._ready = np.zeros((len(self.services), levels.nodes))
        self._replicas: list[dict[str, Which]] = [{} for _ in self.services]
        """By service: its pods."""
        self._on: dict[str, tuple[int, int]] = {}
        """Online pods that are ready: service, node."""
        self._starting: list[tuple[float, str, int, int]] = []
        self._draws = [
            traces.jobs.draw(seed, gpus=1, most_workers=levels.gpu_workers),
            traces.jobs.draw(seed, gpus=0, most_workers=levels.plain_workers, most_millis=levels.executor_millis),
        ]
        self._use = np.random.default_rng([seed, 23])
        self._jobs: dict[str, OfflineJob] = {}
        self._waiting: list[dict[str, OfflineJob]] = [{}, {}]
        self._workers: dict[str, Worker] = {}
        self._leaving: list[tuple[float, str]] = []
        self._waits = Waits()
        self._measured: tuple[float, list[Use], list[Use]] | None = None
        """When what was used last: by nodes, by pods."""
        self._bound_lately: list[Worker] = []
        self._bound = self._made = 0
        self._began_s = world.now
        self._over: dict[int, float] = {}
        """Nodes that lend less than is held there, by more than the margin: since when."""
        self._lending = Lending(levels, world) if arrangement.lends else None

    # --- the day ----------------------------------------------------------------------------------------------------

    def play(self) -> PlayedDay:
        """All of it, the warm-up first."""
        levels = self.levels
        for number in range(round((levels.warm_up_s + levels.hours * 3600) / levels.step_s)):
            self._step(number * levels.step_s - levels.warm_up_s)
        now = self.world.now
        for pods in self._replicas:
            for uid, which in pods.items():
                if not self.world.node_of(uid):
                    self._waits.in_vain(which, now)
        self.played.waits = self._waits.seconds
        self.played.gave_way += [now - since for since in self._over.values()]
        return self.played

    def _step(self, at_s: float) -> None:
        levels, world = self.levels, self.world
        world.rest(for_s=max(0.0, self._began_s + at_s + levels.warm_up_s - world.now))
        self._heard()
        self._let_go()
        demand = self._demand[:, int(at_s) % DAY_S]
        for row, uid, node in self._due():
            self._ready[row, node] += 1
            self._on[uid] = row, node
        before = moment(demand, self._ready, self._offline_cores(), levels)
        for number, service in enumerate(self.services):
            ready = int(self._ready[number].sum())
            used = before.replica[number] / levels.replica_cores
            self._scale(number, service, service.follow(world.now, used, ready, levels))
        if self.how.offline:
            self._top_up()
        if self._lending is not None:
            self._read(self._lending)
        world.rest()
        self._heard()
        self._start()
        now = moment(demand, self._ready, self._offline_cores(), levels)
        if self._lending is not None:
            self._measure(now)
        self._count(at_s, now)

    def _count(self, at_s: float, now: TidalStep) -> None:
        """What happens until the next step."""
        levels, played, speed = self.levels, self.played, now.speed.tolist()
        useful = self._useful_cores(speed)
        ended, done = [], 0.0
        for job in self._jobs.values():
            done += job.advance(self.world.now, levels.step_s, speed, levels)
            if job.left <= 0:
                ended.append(job)
            if job.saved_now:
                self._tell_saved(job)
        for job in ended:
            self._end(job)
        if at_s < 0:
            self._waits.seconds.clear()
            self.played.gave_way.clear()
            self.played.lost = 0.0
            self.played.evictions = self.played.finished = self.played.broken = 0
            self.played.for_use = self.played.for_jobs = 0
            return
        played.done += done
        cores, gpus = levels.nodes * levels.cores, levels.gpu_nodes * levels.gpus_each
        series = played.series
        series.hours.append(at_s / 3600)
        series.online.append(float(now.online.sum()) / cores)
        series.offline.append(useful / cores)
        held = sum(worker.job.asked.gpus for worker in self._workers.values() if worker.node >= 0)
        series.gpus.append(held / gpus)
        series.demanded.append(now.demanded)
        series.violated.append(now.violated)

    # --- online -----------------------------------------------------------------------------------------------------

    def _scale(self, number: int, service: TidalService, replicas: int) -> None:
        pods, world, levels = self._replicas[number], self.world, self.levels
        while len(pods) > replicas:
            uid, which = pods.popitem()  # the newest, as a ReplicaSet does where nodes have as many
            if not world.node_of(uid):
                self._waits.in_vain(which, world.now)
            if uid in self._on:
                row, node = self._on.pop(uid)
                self._ready[row, node] -= 1
            self._starting = [one for one in self._starting if one[1] != uid]
            world.remove(uid)
        new: list[Pod] = []
        while len(pods) < replicas:
            uid = f"{service.name}-{self._made}"
            self._made += 1
            pods[uid] = service.name, world.now, len(new)
            asked = {CPU: levels.replica_cores * 1000, MEMORY: levels.replica_bytes}
            new.append(self._pod(uid, asked, service.name, ONLINE_PRIORITY, ONLINE_POOL, Qos.ONLINE))
        world.add(new)

    def _due(self) -> list[tuple[int, str, int]]:
        """Online pods that are ready by now."""
        ready = [one for one in self._starting if one[0] <= self.world.now]
        self._starting = [one for one in self._starting if one[0] > self.world.now]
        return [(service, uid, node) for _, uid, service, node in ready]

    # --- offline ----------------------------------------------------------------------------------------------------

    def _top_up(self) -> None:
        for kind, waiting in enumerate(self._waiting):
            while len(waiting) < self.levels.backlog:
                job = self._new_job(self._draws[kind])
                waiting[job.name] = self._jobs[job.name] = job
                least = job.least
                key = group_key(GroupSource.NATIVE, NAMESPACE, job.name)
                self.world.group(
                    PodGroup(
                        key, GroupSource.NATIVE, NAMESPACE, job.name, uid=job.name, gang=True, min_count=least,
                        broken=WhenGangBreaks.EVICT,
                    )
                )  # fmt: skip
                self._add(job, job.asked.workers)

    def _new_job(self, draw: JobDraw) -> OfflineJob:
        asked = next(draw)
        self._made += 1
        low, high = self.levels.offline_use
        use = float(self._use.uniform(low, high))
        least = asked.workers if asked.gpus else -(-asked.workers // 2)
        return OfflineJob(f"job-{self._made}", asked, use, least, asked.seconds * asked.workers)

    def _add(self, job: OfflineJob, count: int) -> None:
        cpu, memory = (lent_cpu(), lent_memory()) if self.how.lends else (CPU, MEMORY)
        asked = {cpu: job.asked.cpu_millis, memory: job.asked.memory_bytes}
        if job.asked.gpus:
            asked[GPU] = job.asked.gpus
        priority = GPU_PRIORITY if job.asked.gpus else OFFLINE_PRIORITY
        pods = []
        for _ in range(count):
            worker = job.new_worker()
            self._workers[worker.uid] = worker
            group = group_key(GroupSource.NATIVE, NAMESPACE, job.name)
            pods.append(self._pod(worker.uid, asked, "offline", priority, OFFLINE_POOL, Qos.OFFLINE, group=group))
        self.world.add(pods)

    def _end(self, job: OfflineJob) -> None:
        for uid in job.workers:
            self._waits.gone(uid, self.world.now)
            del self._workers[uid]
            self.world.remove(uid)
        self._leaving = [one for one in self._leaving if one[1] not in job.workers]
        key = group_key(GroupSource.NATIVE, NAMESPACE, job.name)
        self.world.group(PodGroup(key, GroupSource.NATIVE, NAMESPACE, job.name), gone=True)
        del self._jobs[job.name]
        self._waiting[0].pop(job.name, None)
        self._waiting[1].pop(job.name, None)
        self.played.finished += 1

    def _let_go(self) -> None:
        """Who was asked to leave and has had its grace is gone, and its controller makes another."""
        gone = [uid for due, uid in self._leaving if due <= self.world.now]
        self._leaving = [one for one in self._leaving if one[0] > self.world.now]
        for uid in gone:
            self._waits.gone(uid, self.world.now)
            worker = self._workers.pop(uid)
            del worker.job.workers[uid]
            self.world.remove(uid)
            self._add(worker.job, 1)

    def _start(self) -> None:
        """Kubelets have started workers: they run since their Binding, as far as anybody sees."""
        now = self.world.now
        for worker in self._bound_lately:
            if worker.uid in self._workers and not worker.leaving:
                self.world.show(worker.uid, phase="Running", start_time=_text(now))
        self._bound_lately.clear()

    def _tell_saved(self, job: OfflineJob) -> None:
        """The job says on its pods that it has saved."""
        terms = OfflineTerms(returns=True, saved=self.world.now, restart_s=self.levels.restore_s)
        for worker in job.workers.values():
            if worker.node >= 0 and not worker.leaving:
                self.world.show(worker.uid, offline=terms)

    # --- the mesh ---------------------------------------------------------------------------------------------------

    def _heard(self) -> None:
        """Who was placed, and who was asked to leave."""
        world, levels = self.world, self.levels
        for (uid, name), bound_s in zip(world.bindings[self._bound :], world.bound_s[self._bound :], strict=True):
            node = self._rows[name]
            if (worker := self._workers.get(uid)) is not None:
                worker.job.placed(worker, node, bound_s, levels)
                self._bound_lately.append(worker)
                for waiting in self._waiting:
                    waiting.pop(worker.job.name, None)
                continue
            for number, pods in enumerate(self._replicas):
                if uid in pods:
                    self._waits.bound(pods[uid], node, bound_s)
                    self._starting.append((bound_s + levels.start_s, uid, number, node))
        self._bound = len(world.bindings)
        for asked in world.asked:
            worker = self._workers[asked.uid]
            self.played.evictions += 1
            for_job = asked.preemptor in self._workers
            self.played.for_use += asked.reason is EvictionReason.GIVE_WAY
            self.played.for_jobs += for_job
            if asked.reason is EvictionReason.PREEMPTION and not for_job:
                self._waits.asked(asked.uid, worker.node, asked.at_s)
            broken = worker.job.broken
            self.played.lost += worker.job.left_by(worker, levels)
            self.played.broken += worker.job.broken - broken
            self._leaving.append((asked.at_s + levels.grace_s, asked.uid))
        world.asked.clear()

    def _pod(
        self, uid: str, asked: dict[str, int], workload: str, priority: int, pool: str, qos: Qos, group: str = ""
    ) -> Pod:
        there = SelectorTerm(expressions=(Requirement(POOL, "In", (pool,)),))
        without = SelectorTerm(expressions=(Requirement(POOL, "In", (ONLINE_POOL,)),))
        keeps_off = qos is Qos.OFFLINE and GPU not in asked  # whoever needs no GPU leaves those nodes, if it can
        asks = PodClass(
            requests=tuple(sorted(asked.items())),
            score_cpu_millis=asked.get(CPU, 100), score_memory_bytes=asked.get(MEMORY, 200 * MIB),
            affinity_terms=(there,) if self.how.pools else None,
            preferred_terms=(PreferredTerm(100, without),) if keeps_off and not self.how.pools else (),
        )  # fmt: skip
        return Pod(
            uid, NAMESPACE, uid, "", asks, scheduler_name="conclave", workload=workload, priority=priority, qos=qos,
            group=group, owner=("apps/v1", "ReplicaSet", workload), ends=bool(group),
            offline=OfflineTerms(returns=True, restart_s=self.levels.restore_s) if qos is Qos.OFFLINE else None,
        )  # fmt: skip

    def _offline_cores(self) -> Floats:
        """What offline workers would use on each node."""
        cores = np.zeros(self.levels.nodes)
        for worker in self._workers.values():
            if worker.node >= 0:
                cores[worker.node] += worker.cores
        return cores

    def _useful_cores(self, speed: list[float]) -> float:
        """What is used by workers that are at work: not by those who leave, start, or wait for their gang."""
        at_work = [one for job in self._jobs.values() for one in job.at_work(self.world.now, self.levels)]
        return sum(worker.cores * speed[worker.node] for worker in at_work)

    def _measure(self, now: TidalStep) -> None:
        """The metrics server reads what is used; it tells that at the next step."""
        levels = self.levels
        memory = self._ready.sum(axis=0) * levels.replica_used_bytes
        pods: list[Use] = [
            (f"{NAMESPACE}/{uid}", float(now.replica[service]), float(levels.replica_used_bytes))
            for uid, (service, _) in self._on.items()
        ]
        for worker in self._workers.values():
            if worker.node >= 0:
                memory[worker.node] += worker.job.asked.memory_bytes
                used = worker.cores * float(now.speed[worker.node])
                pods.append((f"{NAMESPACE}/{worker.uid}", used, float(worker.job.asked.memory_bytes)))
        nodes: list[Use] = [
            (name, float(now.online[row] + now.offline[row]), float(max(memory[row], MIB)))
            for name, row in self._rows.items()
        ]
        self._measured = self.world.now, nodes, pods

    def _read(self, lending: Lending) -> None:
        """The coordinator hears what was measured a step ago, and nodes lend by it."""
        if self._measured is None:
            return
        names = list(self._rows)
        at_s, used, pods = self._measured
        lending.read(used, pods, at_s)
        began = self.world.now
        for row in self._held_beyond(names):
            self._over.setdefault(row, began)
        self.world.rest()
        beyond = self._held_beyond(names)
        asked_at = {self._workers[asked.uid].node: asked.at_s for asked in self.world.asked}
        for row, since in list(self._over.items()):
            if row not in beyond:
                del self._over[row]
                self.played.gave_way.append(asked_at.get(row, self.world.now) - since)

    def _held_beyond(self, names: list[str]) -> set[int]:
        """Nodes where workers that stay hold more than is lent, by more than the margin."""
        staying, held = np.zeros(len(names)), np.zeros(len(names))
        leaving = {asked.uid for asked in self.world.asked}
        for worker in self._workers.values():
            if worker.node >= 0:
                held[worker.node] += worker.job.asked.cpu_millis
                if not worker.leaving and worker.uid not in leaving:
                    staying[worker.node] += worker.job.asked.cpu_millis
        lent = np.array([self.world.nodes[name].allocatable.get(lent_cpu(), 0) for name in names])
        return set(np.flatnonzero(staying - lent > self.levels.offline_margin * held).tolist())


def _text(now: float) -> str:
    """As the API server writes a time."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
