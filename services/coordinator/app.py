"""The coordinator's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd only) --elected--> lead: list, take over, schedule --lost--> exit code 3

A standby holds no Kubernetes watch and no state: what it would know could only be stale (ADR 0006). It does read its
kubeconfig and ask the API server's version first, so that a wrong one is found at start and not at the takeover.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import structlog

from services.coordinator.core.core import Core
from services.coordinator.core.events import Event
from services.coordinator.health.monitor import Vitals
from services.coordinator.http.peer_routes import Admin
from services.coordinator.inspect.metrics import SchedulerMetrics
from services.coordinator.io import control
from services.coordinator.io.cluster_identity import ClusterIdentity
from services.coordinator.io.cluster_lease import ClusterLease, mesh_id
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.io.peers import Peers
from services.coordinator.io.sources import (
    follow_agents,
    follow_binder,
    follow_inherited_intents,
    namespace_metas,
    node_events,
    object_events,
    pod_events,
)
from services.coordinator.io.totals import Totals
from services.coordinator.rollout import pointer
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.shell import Shell
from services.coordinator.usage import sampling as measuring
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.peers.client import PeerClient
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from shared.errors import LeadershipLost
from shared.kube.resources import NAMESPACES, NODES, PODS
from shared.kube.scheduling_kinds import SCHEDULING_KINDS, SchedulingKind
from shared.policy.observation import Need
from shared.ports import Store
from shared.runtime.http.peers import build_app
from shared.runtime.kube.reflector import Batch, Reflector
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.registration import listed
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.log_tail import LogTail
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.process.health import Standing
from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.process import (
    await_store,
    check_etcd,
    hops_of,
    identity,
    keys_of,
    new_incarnation,
    open_listener,
    our_version,
    peering,
    say_ready,
    say_serving,
    store_opener,
    url_of,
)
from shared.runtime.process.service import Service, boottime
from shared.runtime.records.control import rfc3339
from shared.wire.records import MemberRecord

if TYPE_CHECKING:
    from services.coordinator.http.opening import AdminListener

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Outside:
    """What a leader reaches the world through."""

    store: Store
    api: KubeClient
    client: PeerClient
    failpoints: Failpoints
    url: str
    """Ours, as the others are told."""
    cluster: ClusterLease | None = None
    """None: nobody keeps a second mesh out."""
    scheduler_metrics: SchedulerMetrics | None = None
    hops: Hops | None = None


async def main(service: Service, settings: CoordinatorSettings, tail: LogTail | None = None) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server.

    ``tail``: the last lines of the log, for the admin API's dumps."""
    service_id = identity(settings)
    hops = hops_of(settings, "coordinator", service_id)
    metrics, admin, peers = Metrics("coordinator"), Admin(service_id), peering(settings)
    admin.register(metrics)
    peers.standing.register(metrics)
    plugins = plugins_of(settings.plugins)
    plugins.follow(peers.standing.note)
    scheduler_metrics = SchedulerMetrics(metrics, profile=settings.scheduler_name, core=lambda: admin.core)
    app = build_app(
        metrics,
        authenticator=peers.authenticator,
        ready=lambda: service.ready,
        settings=settings,
        routes=admin.routes(),
    )
    listener = await open_listener(settings, app)
    store = store_opener(settings)()
    access = await KubeConfig.load(settings.kubeconfig, context=settings.context or None)
    api = KubeClient(access)
    admin.cluster = ClusterIdentity(setting=settings.cluster_name, context=access.cluster_name)
    url = url_of(settings, listener)
    serving: AdminListener | None = None
    try:
        await await_store(store, settings)
        await check_etcd(store, settings)
        await api.check()
        service.spawn("credentials", access.keep_fresh())
        service.spawn("log_level", control.follow_log_level(store, keys_of(settings), settings))
        cluster = await _cluster_lease(settings, store, api, peers.standing)
        failpoints = Failpoints.from_environment()
        outside = Outside(store, api, peers.client, failpoints, url, cluster, scheduler_metrics, hops)
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_lost(term: int, reason: str) -> None:
            if not lost.done():
                lost.set_result(f"term {term} is over: {reason}")

        incarnation = new_incarnation()
        if settings.admin_listen:
            serving = await _open_admin(service, settings, admin, store, metrics, tail)
        admin_url = serving.url if serving is not None else ""
        record = LeaderRecord(
            identity=service_id, incarnation=incarnation, url=url, admin_url=admin_url, version=our_version()
        )
        member = MemberRecord(
            id=service_id,
            url=url,
            incarnation=incarnation,
            version=our_version(),
            admin_url=admin_url,
            plugins=plugins.titles,
        )
        async with (
            LeaseThread(store_opener(settings), hung_after_s=settings.hung_after_s) as thread,
            listed(
                service,
                thread,
                key=keys_of(settings).member("coordinator", service_id),
                record=member,
                lease_ttl_s=settings.lease_ttl_s,
                standing=peers.standing,
            ),
            Leadership(
                thread,
                key=keys_of(settings).coordinator_leader,
                record=record,
                settings=LeaseSettings.for_ttl(settings.lease_ttl_s),
                on_lost=on_lost,
            ) as leadership,
        ):
            admin.leadership = leadership
            service.mark_ready()
            if serving is not None:
                say_serving("admin", service_id, serving.url)
            say_ready("coordinator", service_id, url)
            try:
                await _campaign(service, settings, leadership, lost, outside, admin, metrics)
            finally:
                if serving is not None:
                    serving.stop()
    finally:
        if serving is not None:
            await serving.close()
        await listener.close()
        await peers.client.close()
        await api.close()
        await store.close()
        hops.close()


async def _cluster_lease(
    settings: CoordinatorSettings, store: Store, api: KubeClient, standing: Standing
) -> ClusterLease | None:
    """What keeps a second mesh out. The mesh's id is read here, so that no hand-over waits for it."""
    if not settings.cluster_lease_s:
        return None
    return ClusterLease(
        api,
        scheduler_name=settings.scheduler_name,
        holder=await mesh_id(store, keys_of(settings)),
        leader=identity(settings),
        duration_s=settings.cluster_lease_s,
        clock=boottime,
        tell=lambda text: standing.note("cluster lease", text),
    )


async def _open_admin(
    service: Service, settings: CoordinatorSettings, admin: Admin, store: Store, metrics: Metrics, tail: LogTail | None
) -> AdminListener:
    """The admin API, whose modules are read only where it is asked for."""
    from services.coordinator.http.desk import Desk
    from services.coordinator.http.opening import open_admin
    from services.coordinator.http.ui_files import ui_routes

    desk = Desk(
        service_id=admin.service_id,
        admin=admin,
        store=store,
        keys=keys_of(settings),
        settings=settings,
        metrics=metrics,
        clock=boottime,
        lines=tail or LogTail(),
    )
    service.spawn("registry", desk.registry.run())
    return await open_admin(settings, desk, extra=ui_routes())


async def _campaign(
    service: Service,
    settings: CoordinatorSettings,
    leadership: Leadership,
    lost: asyncio.Future[str],
    outside: Outside,
    admin: Admin,
    metrics: Metrics,
) -> None:
    """Stand by, then lead, until asked to stop. ``LeadershipLost``: another process may lead."""
    elected = asyncio.ensure_future(leadership.wait_elected())
    stopping = asyncio.ensure_future(service.stopping.wait())
    leading: asyncio.Task[None] | None = None
    try:
        await asyncio.wait((elected, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            return
        leading = asyncio.create_task(lead(elected.result(), settings, leadership, outside, admin, metrics))
        ends: tuple[asyncio.Future[Any], ...] = (leading, stopping, lost)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if leading.done():
            leading.result()
        if lost.done():
            raise LeadershipLost(lost.result())
    finally:
        for waiting in (elected, stopping, leading):
            if waiting is not None:
                waiting.cancel()
        if leading is not None:
            await asyncio.gather(leading, return_exceptions=True)
        if outside.cluster is not None and service.stopping.is_set() and not lost.done():
            await outside.cluster.shorten()


async def lead(
    term: int,
    settings: CoordinatorSettings,
    leadership: Leadership,
    outside: Outside,
    admin: Admin,
    metrics: Metrics,
) -> None:
    """One term: everything is listed anew, then units are offered until the term ends (by an error)."""
    keys, cluster = keys_of(settings), outside.cluster
    if cluster is not None:
        await cluster.acquire()
    core = Core(
        term=term,
        scheduler_name=settings.scheduler_name,
        policy=settings.policy,
        rng=Random(settings.seed),
        settings=settings.core(),
        kinds=[kind.name for kind in SCHEDULING_KINDS],
    )
    store, api = outside.store, outside.api
    shell = Shell(
        core,
        store=store,
        keys=keys,
        leadership=leadership,
        clock=boottime,
        failpoints=outside.failpoints,
        metrics=metrics,
        scheduler_metrics=outside.scheduler_metrics,
    )
    peers = Peers(
        outside.client,
        boottime,
        shell.post_one,
        timeout_s=lambda: core.state.settings.request_timeout_s,
        hops=outside.hops,
    )
    writes = KubeWrites(
        api, shell.post_one, controller=settings.scheduler_name, instance=identity(settings), clock=boottime,
        start=shell.start,
    )  # fmt: skip
    shell.connect(peers, writes)
    admin.core, admin.peers, admin.api, admin.writes = core, peers, api, writes
    admin.term_began = rfc3339(dt.datetime.now(dt.UTC))
    admin.active_policy = pointer.ActivePolicy(store, keys)
    following = control.Following(store, keys, settings, shell.post_one)
    admin.throughput, admin.following, admin.windows = shell.throughput, following, shell.windows

    def pointer_seen(event: Event) -> None:
        shell.post_one(event)
        following.wake()

    vitals = admin.vitals = Vitals(
        core=core, throughput=shell.throughput, clock=boottime, pulse=shell.pulse,
        backlog=lambda: core.reporter.backlog(boottime()), renewal_s=lambda: leadership.renewal_s,
    )  # fmt: skip
    totals = admin.totals = Totals(store, keys, term=term, bound=lambda: core.state.stats.bound)
    pods, nodes = Reflector(api, PODS), Reflector(api, NODES)
    tasks: list[Coroutine[Any, Any, None]] = [
        shell.run(),
        shell.publish_partitions(),
        shell.windows.run(),
        vitals.run(),
        totals.run(),
        nodes.run(lambda batch: shell.post(node_events(batch))),
        pods.run(lambda batch: shell.post(pod_events(batch))),
        *(_follow_objects(api, kind, shell, admin.cluster) for kind in SCHEDULING_KINDS),
        follow_agents(store, keys, shell.post),
        measuring.follow(
            api,
            every_s=lambda: following.settings.metrics_every_s,
            retuned=following.retuned,
            wanted=lambda: Need.USAGE in core.variants.needs,
            post=shell.post_one,
        ),
        following.run(),
        control.note_term(store, keys, term=term, id=identity(settings), url=outside.url),
        pointer.follow(store, keys, policy=settings.policy, term=term, post=pointer_seen),
        follow_binder(store, keys, settings.shard, shell.post),
        follow_inherited_intents(store, keys, shell.post, lambda: core.inherits_intents),
    ]
    if cluster is not None:
        tasks.append(cluster.keep())
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task)


async def _follow_objects(api: KubeClient, kind: SchedulingKind, shell: Shell, cluster: ClusterIdentity) -> None:
    """One of the other kinds that rules read; one that is not served or not ours to read counts as empty."""
    source = Reflector(api, kind.resource, optional=True)

    def take(batch: Batch[Any]) -> None:
        if kind.resource is NAMESPACES:
            for meta in namespace_metas(batch):
                cluster.saw(meta)
        shell.post(object_events(kind, batch))

    await source.run(take)
