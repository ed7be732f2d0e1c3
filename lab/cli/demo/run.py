"""One demo from start to end: processes, nodes, pods, kills, and the figures. ``command.py`` parses and prints.

    etcd -> twin -> mesh schedules -> nodes -> pods (and kills) -> everything settled -> stop -> audit -> result

The run ends when every pod is bound or has been shown unschedulable for a while, pods that finish have finished, and
every kill has recovered; or when nothing has moved for ``STUCK_S``. Whatever ends it, all processes are ended.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import msgspec

from lab.cli.demo.board import BOUND, FINISHED, PENDING, RUNNING, UNSCHEDULABLE, DemoProgress, PodBoard
from lab.cli.demo.kills import Kills
from lab.cli.demo.result import DemoResult, DemoSettings, StatsBook, build_result
from lab.cli.demo.tidal import mesh_flags
from lab.cli.demo.users import Users, agent_flags, opened_users
from lab.cli.demo.viewed_mesh import ViewedMesh
from lab.cli.demo.workload import submit
from services.cli.local.etcd_keeper import EtcdKeeper
from services.cli.local.mesh import free_ports, write_secret, write_tokens
from services.cli.local.supervisor import Child, ChildSpec, ProcessUsage, Supervisor
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.errors import ConfigError, StoreError
from shared.kube import objects as api
from shared.kube.pods.convert import node_from_api
from shared.kube.resources import PODS, DeletedObject, Upserted
from shared.runtime.kube.reflector import Reflector
from shared.runtime.process.process import ProcessSettings, store_opener
from shared.runtime.records.policies import read_pointer
from shared.scheduling.partition import kind_of
from twin.model.clock import ScaledClock

T = TypeVar("T")

START_TIMEOUT_S = 30.0
REFRESH_S = 0.25
STATS_S = 1.0
STABLE_S = 2.0
UNSCHEDULABLE_STABLE_S = 4.0
BACKOFF_STABLE_S = 12.0
"""Where capacity may have come back (pods that finished, an agent that was away), a pod may wait out its longest
backoff of 10 s (kube-scheduler's) before it is tried again."""
STUCK_S = 60.0
QUIET_S = 400.0
"""Virtual seconds that a timed workload may stand still: longer than any of its pods runs."""


async def run_demo(settings: DemoSettings) -> DemoResult:
    """One demo. ``ConfigError``: something could not be started."""
    return await Demo(settings).run()


class Demo:
    """One run. ``run`` does everything."""

    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.board = PodBoard()
        self.planned = settings.workload.expected
        self.notes: list[str] = []
        self.stats = StatsBook()
        self._started_s = time.monotonic()
        self._first_pod_s: float | None = None
        self._submitting = asyncio.Event()
        self._submitted_all = False
        self._usage: dict[str, list[ProcessUsage]] = {}
        self._stuck = ""
        self._learning: dict[str, Any] = {}
        self._users: Users | None = None

    def note(self, text: str) -> None:
        """A line for the person watching."""
        self.notes.append(text)

    async def run(self) -> DemoResult:
        """Everything. ``ConfigError``: something could not be started."""
        settings = self.settings
        with DemoProgress(quiet=settings.quiet) as progress:
            async with AsyncExitStack() as stack:
                etcd = EtcdKeeper(settings.mesh.state_dir / "etcd", on_event=lambda e: self.note(f"etcd: {e}"))
                stack.push_async_callback(etcd.stop)
                await etcd.start()
                supervisor = Supervisor(settings.mesh.state_dir / "logs", on_event=self._on_event)
                stack.push_async_callback(supervisor.close)
                twin = await self._start_twin(supervisor)
                client = KubeClient(await KubeConfig.load(settings.mesh.kubeconfig))
                stack.push_async_callback(client.close)
                await submit(client, _each(settings.workload.kinds))
                if settings.workload.phases:
                    self._users = await stack.enter_async_context(
                        opened_users(settings.mesh.state_dir, settings.workload.phases)
                    )
                store = store_opener(ProcessSettings(etcd=(etcd.endpoint,)))()
                stack.push_async_callback(store.close)
                mesh_settings = replace(
                    settings.mesh,
                    etcd=etcd.endpoint,
                    etcd_own=True,
                    etcd_quota_mb=etcd.quota_mb,
                    admin_ports=free_ports(settings.mesh.coordinators),
                    agent_flags=agent_flags(settings.mesh.state_dir) if settings.workload.phases else (),
                    coordinator_flags=mesh_flags(settings.mesh.speed) if settings.workload.name == "tidal" else (),
                )
                write_tokens(mesh_settings)
                mesh = ViewedMesh(mesh_settings, supervisor, store)
                mesh.start()
                await mesh.wait_scheduling(on_wait=lambda missing: self._waiting(progress, missing))
                if (leader := (await mesh.refresh()).coordinator) is not None:
                    self.note(f"admin API and dashboard: {leader.record.admin_url}/ui")
                    self.note(f"its tokens: {mesh_settings.admin_token_file}")
                kills = await self._submit_and_watch(client, mesh, etcd, progress)
                await self._read_stats(mesh)
                self._learning = await read_learning(mesh)
                self._take_usage(supervisor, etcd)
                self._show(progress, mesh, "stopping")
                mesh_names = [name for name in supervisor.children if name != twin.spec.name]
                await supervisor.stop(*mesh_names)
                await supervisor.stop(twin.spec.name)
        restarts = {c.spec.name: c.restarts for c in supervisor.children.values()} | {"etcd": etcd.restarts}
        return build_result(
            settings,
            [recovery.to_json() for recovery in kills.recoveries],
            stats=self.stats,
            usage=self._usage,
            restarts=restarts,
            stuck=self._stuck,
            elapsed_s=time.monotonic() - self._started_s,
            learning=self._learning,
            served=self._users.served if self._users is not None else None,
        )

    def _on_event(self, event: str, child: Child) -> None:
        if event == "restart":
            self.note(f"{child.spec.name} ended with {child.exit_code} and is started again")

    def _waiting(self, progress: DemoProgress, missing: str) -> None:
        phase = f"starting ({missing})" if missing else "scheduling"
        progress.show(phase, time.monotonic() - self._started_s, {}, self.notes)

    async def _start_twin(self, supervisor: Supervisor) -> Child:
        mesh, token_file = self.settings.mesh, self.settings.mesh.state_dir / "twin-token"
        write_secret(token_file)
        argv = (
            sys.executable, "-m", "twin", "--port", str(self.settings.port), "--token-file", str(token_file),
            "--kubeconfig-out", str(mesh.kubeconfig), "--audit", str(self.settings.audit_file), "--simulate",
            "--speed", f"{mesh.speed:g}",
        )  # fmt: skip
        # it keeps the cluster in memory, so it is never started again
        twin = supervisor.start(ChildSpec("twin", "twin", argv, restart=False))
        await supervisor.ready(twin, timeout_s=START_TIMEOUT_S)
        return twin

    # --- the run itself -------------------------------------------------------------------------------------------

    async def _submit_and_watch(
        self, client: KubeClient, mesh: ViewedMesh, etcd: EtcdKeeper, progress: DemoProgress
    ) -> Kills:
        workload = self.settings.workload
        kills = Kills(
            self.settings.kills,
            mesh,
            etcd,
            nodes={
                node["metadata"]["name"]: kind_of(node_from_api(msgspec.convert(node, api.KubeNode)))
                for node in workload.nodes
            },
            rng=Random(mesh.settings.seed),
            note=self.note,
            before_kill=lambda: self._read_stats(mesh),
        )
        targets = self._users.targets() if self._users is not None else []
        await submit(client, _each([*workload.nodes, *workload.before, *targets]))
        if self._users is not None:
            await self._measured(mesh, self._users, progress)
        watching = asyncio.create_task(self._watch(Reflector(client, PODS), kills))
        submitting = asyncio.create_task(self._submit(client, kills))
        killing = asyncio.create_task(self._kill(kills))
        polling = asyncio.create_task(self._poll(mesh))
        changing = asyncio.create_task(self._change_delays())
        tasks = (watching, submitting, killing, polling, changing)
        try:
            while not self._settled(kills):
                for task in tasks:
                    if task.done():
                        task.result()
                if mesh.supervisor.failure.done():
                    mesh.supervisor.failure.result()
                self._show(progress, mesh, "running")
                await asyncio.sleep(REFRESH_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return kills

    async def _measured(self, mesh: ViewedMesh, users: Users, progress: DemoProgress) -> None:
        """Until the leader knows the delays, so that first pods are placed by them. ``ConfigError``: it does not."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not users.served.known:
                    await mesh.refresh()
                    await self._read_stats(mesh)
                    self._show(progress, mesh, "agents measure")
                    await asyncio.sleep(REFRESH_S)
        except TimeoutError:
            logs = mesh.supervisor.log_dir
            raise ConfigError(f"agents do not measure the delays after {START_TIMEOUT_S:g} s; see {logs}") from None

    async def _watch(self, reflector: Reflector[Any], kills: Kills) -> None:
        async for batch in reflector.batches():
            now_s = time.monotonic()
            for event in batch:
                if isinstance(event, Upserted):
                    bound = self.board.seen(event.object, now_s)
                    if bound is not None:
                        kills.bound(bound)
                elif isinstance(event, DeletedObject):
                    self.board.gone(event.object.metadata.name, now_s)

    async def _submit(self, client: KubeClient, kills: Kills) -> None:
        await submit(client, self._due_pods(kills), lambda name: self.board.submitted(name, time.monotonic()))
        self._submitted_all = True
        await asyncio.Event().wait()

    async def _due_pods(self, kills: Kills) -> AsyncIterator[dict[str, Any]]:
        """The workload's pods when they are due, then more until the last kill has recovered."""
        workload, speed = self.settings.workload, self.settings.mesh.speed
        self._first_pod_s = time.monotonic()
        self._submitting.set()
        clock = ScaledClock(self._first_pod_s, speed)
        for arrival in workload.pods:
            if workload.timed:
                await asyncio.sleep(max(0.0, clock.real(arrival.at_s) - time.monotonic()))
            yield arrival.pod
        for arrival in workload.extra():
            if kills.settled:
                return
            await asyncio.sleep(arrival.at_s / speed if workload.timed else arrival.at_s)
            self.planned += 1
            yield arrival.pod

    async def _kill(self, kills: Kills) -> None:
        await self._submitting.wait()
        assert self._first_pod_s is not None
        await kills.run(self._first_pod_s)
        await asyncio.Event().wait()

    async def _change_delays(self) -> None:
        await self._submitting.wait()
        if self._users is not None and self._first_pod_s is not None:
            await self._users.play(ScaledClock(self._first_pod_s, self.settings.mesh.speed).real, self.note)
        await asyncio.Event().wait()

    async def _poll(self, mesh: ViewedMesh) -> None:
        while True:
            await mesh.refresh()
            await self._read_stats(mesh)
            await asyncio.sleep(STATS_S)

    async def _read_stats(self, mesh: ViewedMesh) -> None:
        leader = mesh.view.coordinator
        if leader is not None:
            stats = await mesh.get(leader.record.url, "/v1/stats")
            self.stats.put(leader.record.incarnation, stats)
            if self._users is not None:
                told = (stats or {}).get("coordinator") or {}
                status = await mesh.get(leader.record.url, "/v1/status") or {}
                waiting = any(agent["suspect"] for agent in status.get("agents") or ())
                self._users.served.looked(
                    time.time(), told.get("measured") or {}, silences=told.get("silences", 0), waiting=waiting
                )

    def _settled(self, kills: Kills) -> bool:
        """Whether the run is over; sets ``_stuck`` when it is because nothing moves any more."""
        board, still_s = self.board, time.monotonic() - max(self.board.changed_s, self._first_pod_s or 0.0)
        waiting = board.count(PENDING)
        unfinished = board.count(BOUND, RUNNING) if self.settings.workload.timed else 0
        if self._submitted_all and kills.settled and waiting == 0 and unfinished == 0:
            if not board.count(UNSCHEDULABLE):
                return still_s >= STABLE_S
            freed = self.settings.workload.timed or self.settings.kills
            return still_s >= (BACKOFF_STABLE_S if freed else UNSCHEDULABLE_STABLE_S)
        # Between two arrivals of a slow run, and while pods run, nothing has to move; while pods wait, something has.
        quiet_s = 0.0 if waiting or not self.settings.workload.timed else QUIET_S / self.settings.mesh.speed
        patience_s = STUCK_S + quiet_s
        if self._first_pod_s is not None and still_s > patience_s:
            self._stuck = f"nothing moved for {patience_s:g} s: {waiting} pods pending, {unfinished} unfinished"
            return True
        return False

    def _show(self, progress: DemoProgress, mesh: ViewedMesh, phase: str) -> None:
        now_s, board, view = time.monotonic(), self.board, mesh.view
        leader, binders = view.coordinator, [leading for _, leading in sorted(view.binders.items())]
        figures = {
            "submitted": f"{board.total} of {self.planned}",
            "pending": str(board.count(PENDING)),
            "bound": f"{board.placed} ({board.rate(now_s):.0f} pods/s)",
            "running": str(board.count(RUNNING)),
            "finished": str(board.count(FINISHED)),
            "unschedulable": str(board.count(UNSCHEDULABLE)),
            "coordinator": f"{leader.record.identity} (term {leader.term})" if leader else "nobody leads",
            "binder": ", ".join(leading.record.identity for leading in binders) or "nobody leads",
            "agents": str(len(view.agents)),
            "restarts": str(sum(child.restarts for child in mesh.supervisor.children.values())),
        }
        progress.show(phase, now_s - self._started_s, figures, self.notes)

    # --- the figures ----------------------------------------------------------------------------------------------

    def _take_usage(self, supervisor: Supervisor, etcd: EtcdKeeper) -> None:
        for child in supervisor.children.values():
            self._usage.setdefault(child.spec.service, []).append(child.usage())
        self._usage["etcd"] = [etcd.usage()]


async def read_learning(mesh: ViewedMesh) -> dict[str, Any]:
    """The policy pointer and the learner's figures; what does not answer is left out."""
    found: dict[str, Any] = {}
    try:
        pointer = (await read_pointer(mesh.store, mesh.keys)).pointer
    except (StoreError, ConfigError):
        pointer = None
    if pointer is not None:
        found |= {
            "active": pointer.active.title,
            "candidate": pointer.candidate.title if pointer.candidate is not None else "",
            "stage": pointer.stage,
            "percent": pointer.percent,
            "changes": pointer.number,
            "reason": pointer.reason,
        }
    learner = mesh.supervisor.children.get("learner-0")
    if learner is not None and learner.ready_line:
        stats = await mesh.get(learner.url, "/v1/stats")
        found["learner"] = (stats or {}).get("learner", {})
    return found


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item
