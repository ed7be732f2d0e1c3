"""The binder's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd, a mirror) --elected--> lead: catch up, take over, bind --lost--> exit code 3

A warm standby watches along, its core learns, and decides nothing (ADR 0058, ADR 0066). Asked to stop, a leader
accepts no more plans, finishes what is on its way, and resigns, so that its successor finds no intents and leads at
once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from random import Random

from services.binder.admin import BinderAdmin
from services.binder.core.core import BinderCore
from services.binder.core.events import ShardsSeen
from services.binder.settings import BinderSettings
from services.binder.shell import BinderShell
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.kube.scheduling_kinds import BINDER_KINDS, RESERVATION_KIND
from shared.runtime.kube.heir import Heir
from shared.runtime.kube.watches import Post, Watches
from shared.runtime.leading import Begun, on_cluster, stand
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.process.plugins import plugins_of, profile_titles
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service, boottime
from shared.runtime.records.shards import follow_shards, read_shards
from shared.scheduling.shards import Shards

FOLLOWED = (*BINDER_KINDS, RESERVATION_KIND)
"""The kinds beside pods and nodes that a leader watches."""


async def main(service: Service, settings: BinderSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    async with on_cluster(service, settings, "binder", admin_of) as (runtime, api, admin):
        watches = Watches(api, FOLLOWED)
        watches.register(runtime.metrics)
        await serve(runtime, admin, api, watches, ready=runtime.ready)


def admin_of(runtime: Runtime[BinderSettings], _: KubeConfig) -> BinderAdmin:
    """The binder's face of the process."""
    plugins_of(runtime.settings.plugins).follow(runtime.health.note)
    return BinderAdmin(runtime.id, runtime.settings.shard, runtime.settings.scheduler_name)


async def serve(
    runtime: Runtime[BinderSettings],
    admin: BinderAdmin,
    api: KubeClient,
    watches: Watches,
    *,
    ready: Callable[[], None],
    thread: LeaseThread | None = None,
    on_leader: Callable[[bool], None] = lambda _: None,
) -> None:
    """Stand by, then lead, until asked to stop (``leading.stand``)."""
    settings = runtime.settings
    heir = _heir(runtime, watches)
    await stand(
        runtime,
        admin,
        partial(_begin, runtime, admin, api, watches, heir, Failpoints.from_environment()),
        key=runtime.keys.binder_leader(settings.shard),
        role="binder",
        ready=ready,
        drain=BinderShell.drain,
        plugins=plugins_of(settings.plugins).titles + profile_titles(settings.served()),
        thread=thread,
        on_leader=watches.while_others_lead(settings.standby, runtime.service.spawn, on_leader, heir.stand_by),
    )


def _core(term: int, runtime: Runtime[BinderSettings], shards: Shards) -> BinderCore:
    settings = runtime.settings
    return BinderCore(
        term,
        settings.binder_core(),
        runtime.keys,
        shard=settings.shard,
        shards=shards,
        kinds=[kind.name for kind in FOLLOWED],
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


async def _begin(
    runtime: Runtime[BinderSettings],
    admin: BinderAdmin,
    api: KubeClient,
    watches: Watches,
    heir: Heir[BinderCore],
    failpoints: Failpoints,
    term: int,
    leadership: Leadership,
) -> Begun[BinderShell]:
    """One term: all is learned, unless an heir has, intents are resolved, then plans are bound until the term ends."""
    settings, keys, metrics, store = runtime.settings, runtime.keys, runtime.metrics, runtime.store
    shards = await read_shards(store, keys)
    unknown = f"shard {settings.shard} is none of {', '.join(shards.names)}: this binder has no nodes"
    runtime.health.note("shard", "" if settings.shard in shards.names else unknown)
    learned = heir.take(shards)
    core = learned or _core(term, runtime, shards)
    core.lead(term, epoch=time.time() - boottime())
    shell = BinderShell(
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
        # Intents, then pods (ADR 0023): a pod whose intent its own shard deletes in between is then listed on its node.
        await shell.intents_listed.wait()
        await watches.follow_pods(shell.post, attended=learned is not None)

    nodes = watches.follow_nodes(shell.post, drop_malformed=True, attended=learned is not None)
    objects = [watches.follow_objects(kind, shell.post) for kind in BINDER_KINDS]
    reserved = watches.follow_reservations(shell.post)
    return shell, [shell.run(), see_shards(), nodes, see_pods(), reserved, *objects]
