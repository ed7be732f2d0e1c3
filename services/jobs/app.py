"""The jobs service's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd only) --elected--> lead: list, decide, make pods --lost--> exit code 3

A standby holds no Kubernetes watch and no state (ADR 0006); all that outlives a leader is in the objects' status.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from services.jobs.admin import JobsAdmin
from services.jobs.core.core import JobsCore
from services.jobs.core.deciding import Deciding
from services.jobs.core.state import JobsState
from services.jobs.io.report_server import ReportServer
from services.jobs.io.rollouts import ROLLOUT, Rollouts
from services.jobs.io.watches import KINDS, followers, group_version
from services.jobs.policies import guarded
from services.jobs.settings import JobsSettings
from services.jobs.shell import JobsShell
from shared.adapters.kube.api import KubeClient
from shared.decide.judging import MOST_GAP_S, Judge
from shared.election.record import LeaderRecord
from shared.errors import ConfigError
from shared.hostport import split_host_port, url_of
from shared.jobs.domain import JOBS
from shared.jobs.guard import JobsGuard
from shared.jobs.tokens import KEY_BYTES
from shared.kube.training.training_jobs import TRAINING_JOBS
from shared.ports import CreateRevisionIs, Put, Store
from shared.runtime.kube.unserved import tell_unserved
from shared.runtime.leading import Begun, on_cluster, stand
from shared.runtime.lease.leadership import Leadership, leader_of
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service, boottime
from shared.wire.keys import Keys


async def main(service: Service, settings: JobsSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    policy = policy_of(settings)
    async with on_cluster(service, settings, "jobs", lambda run, _: JobsAdmin(run.id)) as (runtime, api, admin):
        await serve(runtime, admin, api, policy, ready=runtime.ready)


def policy_of(settings: JobsSettings) -> JobsGuard:
    """Who divides the GPUs, behind its guard. ``ConfigError``: there is none of this name, or it cannot be loaded."""
    return guarded(settings.policy, settings.seed, settings.decide_deadline_s)


async def serve(
    runtime: Runtime[JobsSettings],
    admin: JobsAdmin,
    api: KubeClient,
    policy: JobsGuard,
    *,
    ready: Callable[[], None],
    thread: LeaseThread | None = None,
) -> None:
    """Stand by, then lead, until asked to stop (``leading.stand``)."""
    async with AsyncExitStack() as stack:
        here, told = await _take_reports(runtime, admin, stack)
        await stand(
            runtime, admin, partial(_begin, runtime, api, policy, told), key=runtime.keys.leader(JOBS.name),
            role="jobs", ready=ready, admin_url=here, thread=thread,
        )  # fmt: skip


async def _take_reports(runtime: Runtime[JobsSettings], admin: JobsAdmin, stack: AsyncExitStack) -> tuple[str, str]:
    """(the listener's own URL, what workers are told); both empty where nothing listens."""
    settings = runtime.settings
    if not settings.report_listen:
        return "", ""

    def leader() -> LeaderRecord | None:
        found = leader_of(admin.leadership)
        return found[0] if found is not None else None

    server = ReportServer(runtime.metrics, leading=lambda: admin.parts, leader=leader)
    stack.push_async_callback(server.close)
    host, port = split_host_port(settings.report_listen, "report_listen")
    listener = await server.listen(host, port)
    stack.push_async_callback(listener.close)
    reached = listener.url
    if settings.advertise:
        # the others reach this very process where they reach its other listener
        reached = url_of("http", settings.advertised_host, listener.port)
    return reached, settings.report_url or reached


async def report_key(store: Store, keys: Keys) -> bytes:
    """The key that jobs' tokens are made by, the same for every leader; made once."""
    found = await store.get(keys.jobs_report_key)
    if found is None:
        made = secrets.token_bytes(KEY_BYTES)
        await store.txn([CreateRevisionIs(keys.jobs_report_key, 0)], [Put(keys.jobs_report_key, made)])
        found = await store.get(keys.jobs_report_key)
    if found is None:
        raise ConfigError(
            f"etcd: {keys.jobs_report_key} is gone as soon as it is written; who deletes under our prefix?"
        )
    return found.value


async def _begin(
    runtime: Runtime[JobsSettings],
    api: KubeClient,
    policy: JobsGuard,
    report_url: str,
    term: int,
    leadership: Leadership,
) -> Begun[JobsShell]:
    """One term: everything is listed anew, then jobs are kept as their status says until the term ends."""
    settings = runtime.settings
    group = await group_version(api.may_list)
    policy.policy.reset(settings.seed)
    state = JobsState(
        term=term,
        settings=settings.core(),
        rules=settings.rules(report_url),
        offset=time.time() - boottime(),
        group=group,
        report_key=await report_key(runtime.store, runtime.keys) if report_url else b"",
    )
    make = partial(guarded, seed=settings.seed, deadline_s=settings.decide_deadline_s)
    judge = partial(Judge, JOBS, most_gap_s=max(MOST_GAP_S, 2 * settings.decide_every_s))
    core = JobsCore(state, Deciding(policy, make=make, judge=judge), kinds=(*KINDS, ROLLOUT))
    rollouts = Rollouts(runtime.store, runtime.keys, term)
    shell = JobsShell(core, api=api, leadership=leadership, clock=boottime, instance=runtime.id, rollouts=rollouts)
    telling = tell_unserved(
        TRAINING_JOBS, "k8s/components/jobs", lists=api.lists, note=runtime.health.note, subject="training_jobs"
    )
    return shell, [shell.run(), rollouts.follow(shell.post_one), telling, *followers(api, group, shell.post)]
