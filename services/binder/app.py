"""The binder's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd, a mirror) --elected--> lead: catch up, take over, bind --lost--> exit code 3

A warm standby watches along, its core learns, and decides nothing (ADR 0058, ADR 0066). Asked to stop, a leader
accepts no more plans, finishes what is on its way, and resigns, so that its successor finds no intents and leads at
once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import aclosing
from random import Random

from services.binder.admin import Admin
from services.binder.core.core import BinderCore
from services.binder.core.events import ShardsSeen
from services.binder.settings import BinderSettings
from services.binder.shell import Shell
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.kube.scheduling_kinds import BINDER_KINDS
from shared.runtime.kube.heir import Heir
from shared.runtime.kube.watches import Post, Watches
from shared.runtime.leader_shell import candidacy
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.runtime import Runtime, opened
from shared.runtime.process.service import Service, boottime
from shared.runtime.records.shards import follow_shards, read_shards
from shared.scheduling.shards import Shards


async def main(service: Service, settings: BinderSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    access = await KubeConfig.load(settings.kubeconfig, context=settings.context or None)
    async with opened(service, settings, "binder") as runtime:
        admin = Admin(runtime.id, settings.shard, settings.scheduler_name)
        admin.register(runtime.metrics)
        plugins_of(settings.plugins).follow(runtime.health.note)
        await runtime.listen(admin.routes())
        api = runtime.api = KubeClient(access)
        await runtime.check_servers()
        service.spawn("credentials", access.keep_fresh())
        watches = Watches(api, BINDER_KINDS)
        watches.register(runtime.metrics)
        await serve(runtime, admin, api, watches, ready=runtime.ready)


async def serve(
    runtime: Runtime[BinderSettings],
    admin: Admin,
    api: KubeClient,
    watches: Watches,
    *,
    ready: Callable[[], None],
    thread: LeaseThread | None = None,
    on_leader: Callable[[bool], None] = lambda _: None,
) -> None:
    """Stand by, then lead, until asked to stop. ``LeadershipLost``: another process may lead.

    ``ready`` is called once we are a candidate; ``thread`` None: one of our own renews; ``on_leader`` hears of each
    leader whether it is we."""
    settings, failpoints = runtime.settings, Failpoints.from_environment()
    heir = _heir(runtime, watches)
    on_leader = watches.while_others_lead(settings.standby, runtime.service.spawn, on_leader, heir.stand_by)

    async def drain() -> None:
        if admin.shell is not None:
            await admin.shell.drain()

    async with candidacy(
        runtime,
        key=runtime.keys.binder_leader(settings.shard),
        hung_after_s=settings.hung_after_s,
        plugins=plugins_of(settings.plugins).titles,
        role="binder",
        thread=thread,
        on_leader=on_leader,
    ) as candidate:
        admin.leadership = leadership = candidate.leadership
        ready()
        try:
            await candidate.run(
                lambda term: _lead(term, runtime, leadership, api, watches, failpoints, admin, heir), drain=drain
            )
        finally:
            admin.shell = None


def _core(term: int, runtime: Runtime[BinderSettings], shards: Shards) -> BinderCore:
    settings = runtime.settings
    return BinderCore(
        term,
        settings.binder_core(),
        runtime.keys,
        shard=settings.shard,
        shards=shards,
        kinds=[kind.name for kind in BINDER_KINDS],
        epoch=time.time() - boottime(),
        rng=Random(os.urandom(16)),
    )


def _heir(runtime: Runtime[BinderSettings], watches: Watches) -> Heir[BinderCore]:
    """What is learned while another leads."""

    async def attend(hear: Post) -> bool:
        return watches.attend(hear, drop_malformed=True)

    return Heir(
        lambda: read_shards(runtime.store, runtime.keys), lambda shards: _core(0, runtime, shards),
        lambda core, events: core.learn(events, boottime()), attend,
    )  # fmt: skip


async def _lead(
    term: int,
    runtime: Runtime[BinderSettings],
    leadership: Leadership,
    api: KubeClient,
    watches: Watches,
    failpoints: Failpoints,
    admin: Admin,
    heir: Heir[BinderCore],
) -> None:
    """One term: all is learned, unless an heir has, intents are resolved, then plans are bound until the term ends."""
    settings, keys, metrics, store = runtime.settings, runtime.keys, runtime.metrics, runtime.store
    shards = await read_shards(store, keys)
    unknown = f"shard {settings.shard} is none of {', '.join(shards.names)}: this binder has no nodes"
    runtime.health.note("shard", "" if settings.shard in shards.names else unknown)
    learned = heir.take(shards)
    core = learned or _core(term, runtime, shards)
    core.lead(term, epoch=time.time() - boottime())
    shell = Shell(
        core,
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
        device_metrics=admin.device_metrics,
        hops=runtime.hops,
    )

    async def see_shards() -> None:
        async with aclosing(follow_shards(store, keys)) as views:
            async for seen in views:
                shell.post_one(ShardsSeen(seen.revision))

    async def see_pods() -> None:
        await shell.intents_listed.wait()
        await watches.follow_pods(shell.post, attended=learned is not None)

    admin.shell = shell
    async with asyncio.TaskGroup() as group:
        group.create_task(shell.run())
        group.create_task(see_shards())
        group.create_task(watches.follow_nodes(shell.post, drop_malformed=True, attended=learned is not None))
        group.create_task(see_pods())
        for kind in BINDER_KINDS:
            group.create_task(watches.follow_objects(kind, shell.post))
