"""The coordinator's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd, a mirror) --elected--> lead: catch up, take over, schedule --lost--> exit code 3

A warm standby watches along and decides nothing (ADR 0058): a term begins with the core that learned meanwhile (ADR
0066), else with an empty one, which is told what the mirror shows, and lists only where there is none.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import structlog
from msgspec import Struct

from services.coordinator.core.core import Core
from services.coordinator.core.events import Event
from services.coordinator.health.monitor import Vitals
from services.coordinator.health.verdict import RUNBOOKS, HealthVerdicts
from services.coordinator.http.peer_routes import Admin, TermParts
from services.coordinator.inspect.metrics import SchedulerMetrics
from services.coordinator.inspect.nodes import labels_of, region_of
from services.coordinator.io import control, egress_writes, loan_writes, queue_history, target_writes
from services.coordinator.io.cluster_identity import ClusterIdentity
from services.coordinator.io.cluster_lease import ClusterLease, ClusterLeases, alone, mesh_id
from services.coordinator.io.embedded_agent import EmbeddedAgent
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.io.peers import Binder, Peers
from services.coordinator.io.reservation_writes import ReservationWrites
from services.coordinator.io.sources import follow_agents, follow_binder, follow_inherited_intents, follow_layout
from services.coordinator.io.totals import Totals
from services.coordinator.lending.ledger import LoanLedger
from services.coordinator.lending.pod_uses import PodUses
from services.coordinator.rehearsal.keeper import Rehearser
from services.coordinator.rollout import pointer
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.shell import CoordinatorShell
from services.coordinator.standby import StandbyCore, core_of, reads_jobs
from services.coordinator.usage import prometheus
from services.coordinator.usage import sampling as measuring
from services.coordinator.usage.desk import ReadingsDesk
from services.coordinator.usage.target_status import TargetStatuses
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.peers.client import PeerClient
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.kube.resources import NAMESPACES, Upserted
from shared.kube.scheduling_kinds import (
    GROUP_KINDS,
    JOBS,
    LATENCY_TARGET_KIND,
    QUEUE_KIND,
    RESERVATION_KIND,
    SCHEDULING_KINDS,
)
from shared.policy.observation import Need
from shared.ports import Store
from shared.runtime.agent.following import follow_learner, follow_policies
from shared.runtime.agent.policies import PolicyLoader
from shared.runtime.agent.sender import Sender
from shared.runtime.kube.jobs import JobWatch
from shared.runtime.kube.reflector import Batch
from shared.runtime.kube.watches import Post, Watches
from shared.runtime.leading import Begun, on_cluster, stand
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.logging import TAIL
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.process.plugins import plugins_of, profile_titles, titles_of
from shared.runtime.process.process import identity, keys_of
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service, boottime
from shared.runtime.records.control import rfc3339
from shared.runtime.records.policies import get_weights
from shared.runtime.records.shards import read_shards
from shared.wire.keys import Keys

if TYPE_CHECKING:
    from services.coordinator.http.opening import AdminListener

log = structlog.get_logger()

FOLLOWED = (*SCHEDULING_KINDS, *GROUP_KINDS, QUEUE_KIND, LATENCY_TARGET_KIND, RESERVATION_KIND)
"""The kinds beside pods and nodes that a leader watches."""


class Outside(Struct, frozen=True):
    """What a leader reaches the world through."""

    store: Store
    api: KubeClient
    watches: Watches
    client: PeerClient
    failpoints: Failpoints
    url: str
    """Ours, as the others are told."""
    heir: StandbyCore
    """What was learned while another led."""
    cluster: ClusterLeases | None = None
    """None: nobody keeps a second mesh out."""
    hops: Hops | None = None
    binder: Binder | None = None
    """Takes plans that are for our own URL; None: all are sent."""


async def main(service: Service, settings: CoordinatorSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    async with on_cluster(service, settings, "coordinator", admin_of) as (runtime, api, admin):
        watches = Watches(api, FOLLOWED, images=True)
        watches.register(runtime.metrics)
        await serve(runtime, admin, api, watches, ready=runtime.ready)


def admin_of(runtime: Runtime[CoordinatorSettings], access: KubeConfig) -> Admin:
    """The coordinator's face of the process."""
    settings, admin = runtime.settings, Admin(runtime.id)
    plugins_of(settings.plugins).follow(runtime.health.note)
    admin.warnings, admin.etcd = runtime.health.look, lambda: runtime.upkeep.verdict
    admin.scheduler_metrics = SchedulerMetrics(
        runtime.metrics, profile=settings.scheduler_name, core=lambda: admin.core
    )
    admin.cluster = ClusterIdentity(setting=settings.cluster_name, context=access.cluster_name)
    return admin


async def serve(
    runtime: Runtime[CoordinatorSettings],
    admin: Admin,
    api: KubeClient,
    watches: Watches,
    *,
    ready: Callable[[], None],
    thread: LeaseThread | None = None,
    binder: Binder | None = None,
    on_leader: Callable[[bool], None] = lambda _: None,
) -> None:
    """Stand by, then lead, until asked to stop (``leading.stand``). ``binder``: takes plans that are for our own URL;
    for ``on_leader`` another mesh with the Lease is a leader that is not we."""
    service, settings, store, keys = runtime.service, runtime.settings, runtime.store, runtime.keys
    heir = StandbyCore(api, watches, settings, store, keys)
    on_leader = watches.while_others_lead(settings.standby, runtime.service.spawn, on_leader, heir.stand_by)
    async with AsyncExitStack() as closing:
        service.spawn("log_level", control.follow_log_level(store, keys, settings))
        cluster = await _cluster_lease(runtime, api, admin, on_leader)
        outside = Outside(
            store,
            api,
            watches,
            runtime.client,
            Failpoints.from_environment(),
            runtime.url,
            heir,
            cluster,
            runtime.hops,
            binder,
        )
        serving: AdminListener | None = None
        if settings.admin_listen:
            serving = await _open_admin(runtime, admin)
            closing.push_async_callback(serving.close)

        def stands() -> None:
            leadership = admin.leadership
            # while nobody leads, who waits makes the room that a leader needs to be elected
            runtime.makes_room = lambda: leadership is not None and (leadership.is_valid() or leadership.leader is None)
            if serving is not None:
                sys.stdout.write(f"admin {runtime.id} {serving.url}\n")
            ready()

        async def leave(in_order: bool) -> None:
            if cluster is not None and in_order:
                await cluster.leave(last=await alone(store, keys, runtime.id))
            if serving is not None:
                serving.stop()

        await stand(
            runtime,
            admin,
            partial(begin, settings, outside, admin, runtime.metrics),
            key=keys.coordinator_leader,
            role="coordinator",
            ready=stands,
            leave=leave,
            admin_url=serving.url if serving is not None else "",
            plugins=titles_of(settings.plugins, settings.power_curves, settings.load_parts)
            + profile_titles(settings.served()),
            thread=thread,
            on_leader=on_leader,
        )


async def _cluster_lease(
    runtime: Runtime[CoordinatorSettings], api: KubeClient, admin: Admin, on_leader: Callable[[bool], None]
) -> ClusterLeases | None:
    """What keeps a second mesh out. The mesh's id is read here, so that no hand-over waits for it."""
    settings = runtime.settings
    if not settings.cluster_lease_s:
        return None

    def stands_by(text: str) -> None:
        admin.stands_by = text
        if text:
            on_leader(False)

    holder = await mesh_id(runtime.store, runtime.keys)
    return ClusterLeases(
        [
            ClusterLease(
                api, scheduler_name=name, holder=holder, leader=runtime.id, duration_s=settings.cluster_lease_s,
                clock=boottime, tell=partial(runtime.health.note, f"cluster lease of {name}"),
            )
            for name in sorted(settings.names())
        ],
        stands_by,
    )  # fmt: skip


async def _open_admin(runtime: Runtime[CoordinatorSettings], admin: Admin) -> AdminListener:
    """The admin API, whose modules are read only where it is asked for."""
    from services.coordinator.http.desk import Desk
    from services.coordinator.http.opening import open_admin
    from services.coordinator.http.ui_files import ui_routes

    desk = Desk(
        service_id=runtime.id,
        admin=admin,
        store=runtime.store,
        keys=runtime.keys,
        settings=runtime.settings,
        metrics=runtime.metrics,
        clock=boottime,
        lines=TAIL,
        call=runtime.client.call,
    )
    runtime.service.spawn("registry", desk.registry.run())
    return await open_admin(runtime.settings, desk, extra=ui_routes())


async def _follow_pods(
    outside: Outside, post: Post, intents_known: asyncio.Event, *, job_groups: bool, attended: bool
) -> None:
    """Every pod; eternal. Not before the intents are known: a pod whose intent is gone by then is seen on its node."""
    await intents_known.wait()
    await outside.watches.follow_pods(post, job_groups=job_groups, attended=attended)


async def begin(
    settings: CoordinatorSettings,
    outside: Outside,
    admin: Admin,
    metrics: Metrics,
    term: int,
    leadership: Leadership,
) -> Begun[TermParts]:
    """One term: all is learned, unless an heir has, then units are offered until the term ends (by an error)."""
    keys, cluster = keys_of(settings), outside.cluster
    elsewhere: frozenset[str] = frozenset()
    if cluster is not None:
        elsewhere = settings.names() - await cluster.acquire()
    shards = await read_shards(outside.store, keys)
    readable = await reads_jobs(outside.api)
    learned = outside.heir.inherited(shards, reads_jobs=readable, serves_all=not elsewhere)
    core = learned or core_of(term, settings, shards, elsewhere)
    core.lead(term, epoch=time.time() - boottime())
    store, api, watches = outside.store, outside.api, outside.watches
    embedded = EmbeddedAgent(settings, term=term, clock=boottime) if settings.embedded_agent else None
    shell = CoordinatorShell(
        core,
        store=store,
        keys=keys,
        leadership=leadership,
        clock=boottime,
        failpoints=outside.failpoints,
        metrics=metrics,
        scheduler_metrics=admin.scheduler_metrics,
    )
    peers = Peers(
        outside.client,
        boottime,
        shell.post_one,
        timeout_s=lambda: core.state.settings.request_timeout_s,
        hops=outside.hops,
        embedded=embedded,
        near=(outside.url, outside.binder) if outside.binder is not None else None,
    )
    writes = KubeWrites(
        api, shell.post_one, controller=settings.scheduler_name, instance=identity(settings), clock=boottime,
        start=shell.start, may_act=leadership.is_valid, reached=outside.failpoints.reach,
        crowded=core.ledger.crowded,
    )  # fmt: skip
    reserved = ReservationWrites(api, may_act=leadership.is_valid, reached=outside.failpoints.reach)
    shell.connect(peers, writes, reserved)
    began = rfc3339(dt.datetime.now(dt.UTC))
    following = control.Following(store, keys, settings, shell.post_one)
    desk = ReadingsDesk(
        os.urandom(32), Random(settings.seed), term=term, region_of=lambda node: region_of(core, node),
        present=lambda node: node in core.state.cache.table.row_of,
    )  # fmt: skip
    loans = LoanLedger(settings.lending, on=settings.lend == "on", domain=settings.lend_domain)

    def wants_use() -> bool:
        return loans.on or Need.USAGE in core.variants.needs

    statuses = TargetStatuses()

    def pointer_seen(event: Event) -> None:
        shell.post_one(event)
        following.wake()

    jobs = JobWatch(shell.post)

    def saw_namespaces(batch: Batch[Any]) -> None:
        for seen in batch:
            if isinstance(seen, Upserted):
                admin.cluster.saw(seen.object.metadata)
        jobs.saw_namespaces(batch)

    intents_known = asyncio.Event()

    def intents_seen(events: Iterable[Event]) -> None:
        shell.post(events)
        intents_known.set()

    vitals = Vitals(
        core=core, throughput=shell.throughput, clock=boottime, pulse=shell.pulse,
        backlog=lambda: core.reporter.backlog(boottime()), renewal_s=lambda: leadership.renewal_s,
        lost=lambda: api.signs.lost(asyncio.get_running_loop().time()), etcd=admin.etcd,
        verdicts=HealthVerdicts(settings.runbooks_url or RUNBOOKS),
    )  # fmt: skip
    totals = Totals(store, keys, term=term, bound=lambda: core.state.stats.bound)
    tasks: list[Coroutine[Any, Any, None]] = [
        shell.run(),
        shell.publish_partitions(),
        shell.windows.run(),
        shell.nominations.run(),
        vitals.run(),
        totals.run(),
        watches.follow_nodes(shell.post, images=True, attended=learned is not None),
        _follow_pods(outside, shell.post, intents_known, job_groups=readable, attended=learned is not None),
        *(
            watches.follow_objects(kind, shell.post, saw=saw_namespaces if kind.resource is NAMESPACES else None)
            for kind in FOLLOWED
            if kind not in (JOBS, LATENCY_TARGET_KIND, RESERVATION_KIND)
        ),
        watches.follow_reservations(shell.post),
        reserved.keep(core, clock=boottime),
        jobs.follow(watches),
        follow_agents(store, keys, shell.post, otherwise=[embedded.record] if embedded is not None else []),
        measuring.follow(
            api,
            every_s=lambda: following.settings.metrics_every_s,
            retuned=following.retuned,
            wanted=wants_use,
            post=shell.post_one,
        ),
        *_lending_tasks(loans, following, outside, core, leadership),
        measuring.flush(desk, clock=boottime, post=shell.post_one),
        watches.follow_objects(LATENCY_TARGET_KIND, desk.changed, saw=statuses.saw),
        target_writes.keep(
            api,
            lambda now_s, now: statuses.due(
                core.variants.used, core.variants.limits.broken_now(), desk.tried, now_s, now
            ),
            clock=boottime,
        ),
        following.run(),
        control.note_term(store, keys, term=term, id=identity(settings), url=outside.url),
        Rehearser(core, store, keys, clock=boottime).run(lambda: following.settings.rehearse_every_s),
        pointer.follow(store, keys, policy=settings.policy, term=term, post=pointer_seen),
        follow_layout(store, keys, shell.post),
        *(follow_binder(store, keys, shard, shell.post) for shard in shards.names),
        queue_history.keep(store, keys, term=term, post=shell.post_one, record=core.queues.past.record),
        follow_inherited_intents(store, keys, intents_seen, lambda: core.inherits_intents),
    ]
    if cluster is not None:
        tasks.extend(cluster.keeping())
    if settings.target_egress:
        namespace, _, name = settings.target_egress.partition("/")
        tasks.append(
            egress_writes.keep(
                api,
                (namespace, name),
                lambda: _opened(desk, core),
                lambda *service: labels_of(core, *service),
                clock=boottime,
            )
        )
    if settings.prometheus:
        tasks.append(
            _follow_prometheus(settings, lambda: following.settings.metrics_every_s, wants_use, shell.post_one)
        )
    if embedded is not None:
        tasks += _agents_tasks(embedded, outside, keys)
    parts = TermParts(
        core=core, api=api, peers=peers, writes=writes, desk=desk, loans=loans, following=following,
        active_policy=pointer.ActivePolicy(store, keys), throughput=shell.throughput, windows=shell.windows,
        vitals=vitals, totals=totals, began=began,
    )  # fmt: skip
    return parts, tasks


def _opened(desk: ReadingsDesk, core: Core) -> list[LatencyTarget] | None:
    """The targets that sensors are let out to; None before they, and the Services that they may name, are listed."""
    if not desk.listed or not core.state.started or "services" in core.takeover.missing:
        return None
    return [desk.targets[one] for one in desk.tried]


async def _follow_prometheus(
    settings: CoordinatorSettings,
    every_s: Callable[[], float],
    wanted: Callable[[], bool],
    post: Callable[[Event], None],
) -> None:
    """What nodes use, by Prometheus, while ``wanted()``; eternal. Its client is loaded only here."""
    from shared.adapters.prometheus import PrometheusClient

    async with PrometheusClient(
        settings.prometheus, token_file=settings.prometheus_token_file, ca_file=settings.prometheus_ca
    ) as client:
        await prometheus.follow(
            client, settings.prometheus_asked, every_s=every_s,
            wanted=wanted, post=post,
        )  # fmt: skip


def _lending_tasks(
    loans: LoanLedger, following: control.Following, outside: Outside, core: Core, leadership: Leadership
) -> list[Coroutine[Any, Any, None]]:
    """What nodes lend: what pods use is read, nodes are judged and written."""
    uses = PodUses()
    writes = loan_writes.LoanWrites(
        outside.api, loans, manager=loan_writes.manager_of(core.state.scheduler_name), clock=boottime,
        may_act=leadership.is_valid, reached=outside.failpoints.reach,
    )  # fmt: skip

    def tune() -> None:
        loans.tune(following.settings.lending, on=following.settings.lend == "on")

    return [
        loan_writes.follow_pods(
            outside.api,
            uses,
            every_s=lambda: following.settings.metrics_every_s,
            wanted=lambda: loans.on,
            clock=boottime,
        ),
        loan_writes.keep(core, loans, uses, writes, tune=tune, clock=boottime),
    ]


def _agents_tasks(embedded: EmbeddedAgent, outside: Outside, keys: Keys) -> list[Coroutine[Any, Any, None]]:
    """What an agent does beside deciding, for the leader's own: it follows policies, and tells the learner."""
    store, core = outside.store, embedded.core
    loader = PolicyLoader(core.lanes, lambda sha256: get_weights(store, keys, sha256))
    sender = Sender(core, outside.client, agent_id=embedded.record.id, clock=boottime)
    return [
        loader.run(),
        follow_policies(store, keys, loader.post),
        sender.run(),
        follow_learner(store, keys, sender.follow),
    ]
