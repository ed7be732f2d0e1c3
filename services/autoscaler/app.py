"""The autoscaler's composition root: the only place that constructs adapters and wires tasks.

    start --> standby (etcd only) --elected--> lead: list, decide, record, write --lost--> exit code 3

A standby holds no Kubernetes watch and no state (ADR 0006); what outlives a leader is the last record of each object.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from services.autoscaler.admin import Admin
from services.autoscaler.core.core import AutoscalerCore
from services.autoscaler.io.follow import NEEDED, silences, sources
from services.autoscaler.io.reads import Kinds, Reads
from services.autoscaler.io.weights import PolicyFiles
from services.autoscaler.io.writes import ApiWrites, StoreWrites
from services.autoscaler.settings import AutoscalerSettings
from services.autoscaler.shell import Shell
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.prometheus import PrometheusClient
from shared.kube.autoscaling import AUTOSCALERS
from shared.runtime.kube.unserved import tell_unserved
from shared.runtime.leader_shell import candidacy
from shared.runtime.lease.leadership import Leadership
from shared.runtime.process.runtime import Runtime, opened
from shared.runtime.process.service import Service, boottime


async def main(service: Service, settings: AutoscalerSettings) -> None:
    """Run until asked to stop or until leadership is lost. ``ConfigError``: a setting, etcd, the API server."""
    access = await KubeConfig.load(settings.kubeconfig, context=settings.context or None)
    async with opened(service, settings, "autoscaler") as runtime, AsyncExitStack() as stack:
        admin = Admin(runtime.id)
        admin.register(runtime.metrics)
        await runtime.listen(admin.routes())
        api = runtime.api = KubeClient(access)
        await runtime.check_servers()
        service.spawn("credentials", access.keep_fresh())
        prometheus = await _prometheus(settings, stack)

        async def drain() -> None:
            if admin.shell is not None:
                await admin.shell.drain()

        key = runtime.keys.autoscaler_leader
        async with candidacy(runtime, key=key, hung_after_s=settings.hung_after_s) as candidate:
            admin.leadership = candidate.leadership
            runtime.ready()
            try:
                await candidate.run(
                    lambda term: _lead(term, runtime, candidate.leadership, api, prometheus, admin), drain=drain
                )
            finally:
                admin.shell = None


async def _prometheus(settings: AutoscalerSettings, stack: AsyncExitStack) -> PrometheusClient | None:
    """The client of the one Prometheus that queries go to. ``ConfigError``: its token or CA cannot be read."""
    if not settings.prometheus:
        return None
    client = PrometheusClient(
        settings.prometheus, token_file=settings.prometheus_token_file, ca_file=settings.prometheus_ca
    )
    client.check()
    return await stack.enter_async_context(client)


async def _lead(
    term: int,
    runtime: Runtime[AutoscalerSettings],
    leadership: Leadership,
    api: KubeClient,
    prometheus: PrometheusClient | None,
    admin: Admin,
) -> None:
    """One term: everything is listed anew, then objects are decided until the term ends."""
    settings, keys, store = runtime.settings, runtime.keys, runtime.store
    needed = await asyncio.gather(*(api.may_list(kind) for kind in NEEDED))
    refused = ", ".join(kind.plural for kind, may in zip(NEEDED, needed, strict=True) if not may)
    blind = f"nothing is decided: we may not list {refused}; apply k8s/components/autoscaler/rbac.yaml"
    runtime.health.note("lists", blind if refused else "")
    read_s, write_s = settings.read_timeout_ms / 1000, settings.write_timeout_ms / 1000
    policies = PolicyFiles(settings.weights_dir).make
    core = AutoscalerCore(term, settings.core(), policies, now=boottime(), stopwatch=time.thread_time)
    shell = Shell(
        core, clock=boottime, leadership=leadership, validate=settings.validate,
        turn_ms=runtime.metrics.quantiles("turn_ms"),
    )  # fmt: skip
    kinds, watches = Kinds(api, read_s), sources(api, shell.post)

    def silent() -> dict[str, float]:
        return silences(watches, boottime())

    shell.connect(
        Reads(
            api,
            store,
            keys,
            kinds=kinds,
            prometheus=prometheus,
            timeout_s=read_s,
            wall=time.time,
            silences=silent,
        ),
        StoreWrites(store, keys, shell.post_one, term=term, timeout_s=write_s, history=settings.history),
        ApiWrites(api, shell.post_one, kinds=kinds, leadership=leadership, timeout_s=write_s, instance=runtime.id),
    )
    admin.shell, admin.silences = shell, silent
    async with asyncio.TaskGroup() as group:
        group.create_task(shell.run())
        telling = tell_unserved(
            AUTOSCALERS, "k8s/components/autoscaler", lists=api.lists, note=runtime.health.note,
            subject="resilient_autoscalers",
        )  # fmt: skip
        group.create_task(telling)
        for watch in watches:
            group.create_task(watch.follow())
