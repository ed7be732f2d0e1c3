"""The binder's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd only) --elected--> lead: list, take over, bind --lost--> exit code 3

A standby holds no Kubernetes watch and no state (ADR 0006). Asked to stop, a leader accepts no more plans, finishes
what is on its way, and resigns, so that its successor finds no intents and leads at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from services.binder.admin import Admin
from services.binder.core.core import BinderCore
from services.binder.io.sources import node_events, object_events, pod_events
from services.binder.settings import BinderSettings
from services.binder.shell import Shell
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from shared.errors import LeadershipLost
from shared.kube.resources import NODES, PODS
from shared.kube.scheduling_kinds import STORAGE_KINDS, SchedulingKind
from shared.ports import Store
from shared.runtime.http.peers import build_app
from shared.runtime.kube.reflector import Reflector
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.registration import listed
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.failpoints import Failpoints
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
    store_opener,
    url_of,
)
from shared.runtime.process.service import Service, boottime
from shared.wire.records import MemberRecord

log = structlog.get_logger()

DRAIN_S = 3.0
"""How long a leader that is asked to stop goes on with what is on its way."""


async def main(service: Service, settings: BinderSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    failpoints = Failpoints.from_environment()
    service_id = identity(settings)
    hops = hops_of(settings, "binder", service_id)
    metrics, admin, peers = Metrics("binder"), Admin(service_id, settings.shard), peering(settings)
    admin.register(metrics)
    peers.standing.register(metrics)
    plugins = plugins_of(settings.plugins)
    plugins.follow(peers.standing.note)
    app = build_app(
        metrics,
        routes=admin.routes(),
        authenticator=peers.authenticator,
        ready=lambda: service.ready,
        settings=settings,
    )
    listener = await open_listener(settings, app)
    store = store_opener(settings)()
    access = await KubeConfig.load(settings.kubeconfig, context=settings.context or None)
    api = KubeClient(access)
    try:
        url = url_of(settings, listener)
        await await_store(store, settings)
        await check_etcd(store, settings)
        await api.check()
        service.spawn("credentials", access.keep_fresh())
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_lost(term: int, reason: str) -> None:
            if not lost.done():
                lost.set_result(f"term {term} is over: {reason}")

        incarnation = new_incarnation()
        record = LeaderRecord(identity=service_id, incarnation=incarnation, url=url, version=our_version())
        member = MemberRecord(
            id=service_id, url=url, incarnation=incarnation, version=our_version(), plugins=plugins.titles
        )
        async with (
            LeaseThread(store_opener(settings), hung_after_s=settings.hung_after_s) as thread,
            listed(
                service,
                thread,
                key=keys_of(settings).member("binder", service_id),
                record=member,
                lease_ttl_s=settings.lease_ttl_s,
                standing=peers.standing,
            ),
            Leadership(
                thread,
                key=keys_of(settings).binder_leader(settings.shard),
                record=record,
                settings=LeaseSettings.for_ttl(settings.lease_ttl_s),
                on_lost=on_lost,
            ) as leadership,
        ):
            admin.leadership = leadership
            service.mark_ready()
            say_ready("binder", service_id, url)
            await _campaign(service, settings, leadership, lost, (store, api, failpoints, hops), admin, metrics)
    finally:
        await listener.close()
        await peers.client.close()
        await api.close()
        await store.close()
        hops.close()


async def _campaign(
    service: Service,
    settings: BinderSettings,
    leadership: Leadership,
    lost: asyncio.Future[str],
    outside: tuple[Store, KubeClient, Failpoints, Hops],
    admin: Admin,
    metrics: Metrics,
) -> None:
    """Stand by, then lead, until asked to stop. ``LeadershipLost``: another process may lead."""
    elected = asyncio.ensure_future(leadership.wait_elected())
    stopping = asyncio.ensure_future(service.stopping.wait())
    leading: asyncio.Task[None] | None = None
    try:
        await asyncio.wait((elected, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not elected.done():
            return
        leading = asyncio.create_task(_lead(elected.result(), settings, leadership, outside, admin, metrics))
        ends: tuple[asyncio.Future[Any], ...] = (leading, stopping, lost)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not leading.done() and not lost.done() and admin.shell is not None:
            draining = asyncio.ensure_future(admin.shell.drain())
            await asyncio.wait((draining, leading, lost), timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
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
        admin.shell = None


async def _lead(
    term: int,
    settings: BinderSettings,
    leadership: Leadership,
    outside: tuple[Store, KubeClient, Failpoints, Hops],
    admin: Admin,
    metrics: Metrics,
) -> None:
    """One term: everything is listed anew, intents are resolved, then plans are bound until the term ends."""
    store, api, failpoints, hops = outside
    keys = keys_of(settings)
    shell = Shell(
        BinderCore(term, settings.core(), keys, shard=settings.shard, kinds=[kind.name for kind in STORAGE_KINDS]),
        store=store,
        api=api,
        keys=keys,
        shard=settings.shard,
        leadership=leadership,
        clock=boottime,
        failpoints=failpoints,
        bind_timeout_s=settings.bind_timeout_ms / 1000,
        bind_ms=metrics.quantiles("bind_ms"),
        commit_ms=metrics.quantiles("commit_ms"),
        bind_seconds=admin.bind_seconds,
        hops=hops,
    )
    pods, nodes = Reflector(api, PODS), Reflector(api, NODES)
    admin.shell = shell
    async with asyncio.TaskGroup() as group:
        group.create_task(shell.run())
        group.create_task(nodes.run(lambda batch: shell.post(node_events(batch))))
        group.create_task(pods.run(lambda batch: shell.post(pod_events(batch))))
        for kind in STORAGE_KINDS:
            group.create_task(_follow_objects(api, kind, shell))


async def _follow_objects(api: KubeClient, kind: SchedulingKind, shell: Shell) -> None:
    """One of the kinds that volume rules read; one that is not served or not ours to read counts as empty."""
    source = Reflector(api, kind.resource, optional=True)
    await source.run(lambda batch: shell.post(object_events(kind, batch)))
