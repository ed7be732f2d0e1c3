"""The autoscaler's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd only) --elected--> lead: list, decide, record, write --lost--> exit code 3

A standby holds no Kubernetes watch and no state (ADR 0006); what outlives a leader is the last record of each object.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from services.autoscaler.admin import ScalerAdmin
from services.autoscaler.core.core import AutoscalerCore
from services.autoscaler.io.follow import NEEDED, silences, sources
from services.autoscaler.io.reads import Reads, ServedKinds
from services.autoscaler.io.weights import PolicyFiles
from services.autoscaler.io.writes import ApiWrites, StoreWrites
from services.autoscaler.settings import AutoscalerSettings
from services.autoscaler.shell import ScalerShell
from shared.adapters.kube.api import KubeClient
from shared.adapters.prometheus import PrometheusClient
from shared.kube.scaling.autoscaling import AUTOSCALERS
from shared.runtime.kube.unserved import tell_unserved
from shared.runtime.leading import Begun, on_cluster, stand
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.runtime import Runtime
from shared.runtime.process.service import Service, boottime


async def main(service: Service, settings: AutoscalerSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    async with on_cluster(service, settings, "autoscaler", lambda run, _: ScalerAdmin(run.id)) as (runtime, api, admin):
        await serve(runtime, admin, api, ready=runtime.ready)


async def serve(
    runtime: Runtime[AutoscalerSettings],
    admin: ScalerAdmin,
    api: KubeClient,
    *,
    ready: Callable[[], None],
    thread: LeaseThread | None = None,
) -> None:
    """Stand by, then lead, until asked to stop (``leading.stand``)."""
    async with AsyncExitStack() as stack:
        prometheus = await _prometheus(runtime.settings, stack)
        await stand(
            runtime, admin, partial(_begin, runtime, api, prometheus), key=runtime.keys.autoscaler_leader,
            role="autoscaler", ready=ready, drain=ScalerShell.drain, thread=thread,
        )  # fmt: skip


async def _prometheus(settings: AutoscalerSettings, stack: AsyncExitStack) -> PrometheusClient | None:
    """The client of the one Prometheus that queries go to. ``ConfigError``: its token or CA cannot be read."""
    if not settings.prometheus:
        return None
    client = PrometheusClient(
        settings.prometheus, token_file=settings.prometheus_token_file, ca_file=settings.prometheus_ca
    )
    client.check()
    return await stack.enter_async_context(client)


async def _begin(
    runtime: Runtime[AutoscalerSettings],
    api: KubeClient,
    prometheus: PrometheusClient | None,
    term: int,
    leadership: Leadership,
) -> Begun[ScalerShell]:
    """One term: everything is listed anew, then objects are decided until the term ends."""
    settings, keys, store = runtime.settings, runtime.keys, runtime.store
    needed = await asyncio.gather(*(api.may_list(kind) for kind in NEEDED))
    refused = ", ".join(kind.plural for kind, may in zip(NEEDED, needed, strict=True) if not may)
    blind = f"nothing is decided: we may not list {refused}; apply k8s/components/autoscaler/rbac.yaml"
    runtime.health.note("lists", blind if refused else "")
    read_s, write_s = settings.read_timeout_ms / 1000, settings.write_timeout_ms / 1000
    policies = PolicyFiles(settings.weights_dir).make
    core = AutoscalerCore(term, settings.scaler_core(), policies, now=boottime(), stopwatch=time.thread_time)
    shell = ScalerShell(
        core, clock=boottime, leadership=leadership, validate=settings.validate,
        turn_ms=runtime.metrics.quantiles("turn_ms"),
    )  # fmt: skip
    kinds, watches = ServedKinds(api, read_s), sources(api, shell.post)
    shell.connect(
        Reads(
            api,
            store,
            keys,
            kinds=kinds,
            prometheus=prometheus,
            timeout_s=read_s,
            wall=time.time,
            silences=lambda: silences(watches, boottime()),
        ),
        StoreWrites(store, keys, shell.post_one, term=term, timeout_s=write_s, history=settings.history),
        ApiWrites(api, shell.post_one, kinds=kinds, leadership=leadership, timeout_s=write_s, instance=runtime.id),
    )
    telling = tell_unserved(
        AUTOSCALERS, "k8s/components/autoscaler", lists=api.lists, note=runtime.health.note,
        subject="resilient_autoscalers",
    )  # fmt: skip
    return shell, [shell.run(), telling, *(watch.follow() for watch in watches)]
