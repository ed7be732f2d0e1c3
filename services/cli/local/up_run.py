"""What ``conclave up`` does once its flags are read: check the cluster, run the mesh, end it.

While it runs, a context ``local`` lies in its state folder, with the addresses of all its coordinators: any of them
answers, a standby by asking the leader, so the file stays true while they come and go. It touches nobody's own
contexts: whoever wants this mesh names the file (``CONCLAVE_CONTEXTS``).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import shlex
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from services.cli.local.etcd_keeper import EtcdKeeper
from services.cli.local.mesh import LocalMesh, MeshSettings, free_ports, write_tokens
from services.cli.local.supervisor import Child, Supervisor
from services.cli.server.contexts import CONTEXTS_ENV, LOCAL, ContextEntry, Contexts, write_contexts
from shared.errors import ConfigError, StoreError
from shared.wire.keys import Keys

if TYPE_CHECKING:
    from shared.adapters.kube.config import KubeConfig
    from shared.ports import Store
    from shared.runtime.process.embedded_etcd import EtcdBinary

CHECK_S = 5.0
UNSERVED_LOOK_S = 5.0
DYING_S = 8.0
"""Leases of a mesh that was just killed end within this time."""


def check_scheduler_name(name: str) -> None:
    """``ConfigError``: no pod can have this ``spec.schedulerName``, so nothing would ever be scheduled."""
    from shared.runtime.process.process import SchedulerName

    try:
        msgspec.convert(name, SchedulerName)
    except msgspec.ValidationError:
        raise ConfigError(
            f"--scheduler-name: {name!r} can be no pod's schedulerName; use lower case letters, digits, '-' and '.'"
        ) from None


async def check_cluster(access: KubeConfig) -> str:
    """The server's version. ``ConfigError``: its user may not read what we schedule, or the server does not answer."""
    from shared.adapters.kube.api import KubeClient
    from shared.kube.resources import NODES, PODS

    client = KubeClient(access)
    try:
        version = await client.check(timeout_s=CHECK_S)
        await client.check_reads(NODES, PODS, timeout_s=CHECK_S)
        return version
    finally:
        await client.close()


async def await_alone(store: Store, keys: Keys, *, timeout_s: float = DYING_S, poll_s: float = 0.2) -> None:
    """Return once no mesh lives under the prefix. ``ConfigError``: one does, and stays.

    Two meshes of one prefix share leaders and agents but not the token between services: whoever leads is refused by
    half of the others, and nothing is scheduled.
    """
    from services.cli.etcd import read_mesh

    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        view = await read_mesh(store, keys)
        leaders = [leading.record for leading in (view.coordinator, *view.binders.values()) if leading is not None]
        deciding = (*view.agents, *view.misplaced.values())
        there = [f"{leader.identity} leads" for leader in leaders] + [f"{agent} decides" for agent in deciding]
        if not there:
            return
        if loop.time() >= deadline:
            raise ConfigError(
                f"--etcd-prefix: another mesh uses {keys.prefix} ({there[0][:64]}); end it, or give this one a prefix "
                "and a --scheduler-name of its own"
            )
        await asyncio.sleep(poll_s)


async def serve(settings: MeshSettings) -> None:
    """Run until SIGTERM or SIGINT, during start-up too."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        running = asyncio.create_task(_run(settings, stack))
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, stopped):
                task.cancel()
            await asyncio.gather(running, stopped, return_exceptions=True)


async def _run(settings: MeshSettings, stack: AsyncExitStack) -> None:
    """What takes long goes on side by side: a private etcd starts, and services load, while the cluster is checked.

    No service starts before we have credentials: a plugin may have to ask a person, which it can at our terminal alone,
    and keeps what it is told for whoever asks later.
    """
    keeper: EtcdKeeper | None = None
    starting: asyncio.Task[None] | None = None
    private: EtcdBinary | None = None
    started: tuple[LocalMesh, MeshSettings] | None = None
    if not settings.etcd:
        keeper = EtcdKeeper(
            settings.state_dir / "etcd",
            binary=settings.etcd_binary,
            on_event=lambda event: click.echo(f"etcd {event}", err=True),
            measured=False,
        )
        private = keeper.binary
        stack.push_async_callback(keeper.stop)
        starting = asyncio.create_task(keeper.start())
        stack.push_async_callback(_cancelled, starting)
        settings = replace(settings, etcd=keeper.endpoint, etcd_own=True, etcd_quota_mb=keeper.quota_mb)
        await asyncio.sleep(0)  # it runs from here on; what reads the kubeconfig is loaded beside it
    from shared.adapters.kube.config import KubeConfig

    access = await KubeConfig.load(settings.kubeconfig, context=settings.context)
    if keeper is not None and settings.shards == 1:
        started = _start(settings, stack)
        await asyncio.sleep(0)  # they run from here on; what checks the cluster is loaded beside them
    await check_cluster(access)
    if private is not None:  # not before: bad input is told in one line, and nothing else
        click.echo(f"etcd {private.release or 'of unknown release'} ({private.path}, {private.why})", err=True)
        if private.problem:
            click.echo(f"warning: {private.problem}; name another with --etcd-binary or --etcd", err=True)
    if keeper is not None and starting is not None:
        await starting
        if keeper.endpoint != settings.etcd:  # its port was taken: the services were told another one
            settings = replace(settings, etcd=keeper.endpoint)
            if started is not None:
                await started[0].supervisor.close()
                started = None
    if started is None:  # whoever is there already, and the record of the shards, are known before anybody leads
        await check_etcd(settings)
        started = _start(settings, stack)
    mesh, settings = started
    if settings.jobs:
        telling = asyncio.create_task(tell_unserved(settings))
        stack.push_async_callback(_cancelled, telling)
    told = ""

    def on_wait(_missing: str) -> None:
        nonlocal told
        if mesh.stands_by and mesh.stands_by != told:
            told = mesh.stands_by
            click.echo(f"standby: {told}; it takes over when that one is gone", err=True)

    await mesh.wait_scheduling(on_wait=on_wait)
    leader = mesh.leader
    assert leader is not None
    admin = f"http://127.0.0.1:{settings.admin_ports[int(leader.spec.name.rpartition('-')[2])]}"
    contexts = write_local(settings.state_dir, settings.admin_ports, settings.admin_token_file)
    click.echo(f"to operate it: {how_to_use(contexts)}; conclave status", err=True)
    click.echo(
        f"ready scheduler={settings.scheduler_name} policy={settings.policy} agents={settings.agents} "
        f"leader={leader.spec.name} url={leader.url} etcd={settings.etcd}{_release(private)} "
        f"token-file={settings.token_file} admin={admin} "
        f"dashboard={admin}/ui admin-token-file={settings.admin_token_file}"
    )
    await asyncio.shield(mesh.supervisor.failure)


def _start(settings: MeshSettings, stack: AsyncExitStack) -> tuple[LocalMesh, MeshSettings]:
    """Every process of the mesh, and what it was started with; all of them end with ``stack``."""

    def on_event(event: str, child: Child) -> None:
        if event == "restart":
            click.echo(f"restarted {child.spec.name} (ended with {child.exit_code})", err=True)

    settings = replace(settings, admin_ports=free_ports(settings.coordinators))
    supervisor = Supervisor(settings.state_dir / "logs", on_event=on_event, measured=False)
    stack.push_async_callback(supervisor.close)
    write_tokens(settings)
    mesh = LocalMesh(settings, supervisor)
    mesh.start()
    return mesh, settings


def _release(private: EtcdBinary | None) -> str:
    """Of the private etcd, for the line that begins with ``ready``."""
    if private is None:
        return ""
    return f" etcd-release={private.release or 'unknown'}{'-unsafe' if private.problem else ''}"


async def tell_unserved(settings: MeshSettings) -> None:
    """Say once that the definition of TrainingJobs is missing, and once that it has come; eternal until then."""
    from shared.adapters.kube.api import KubeClient
    from shared.adapters.kube.config import KubeConfig
    from shared.kube.training.training_jobs import TRAINING_JOBS

    client = KubeClient(await KubeConfig.load(settings.kubeconfig, context=settings.context))
    missing = False
    try:
        while not (served := await client.lists(TRAINING_JOBS, timeout_s=CHECK_S)):
            if served is False and not missing:
                missing = True
                click.echo(
                    "--jobs: this cluster serves no TrainingJobs that we may list, so none is run: kubectl apply -f "
                    "k8s/components/jobs/training-jobs-crd.yaml; it goes on when their definition is there",
                    err=True,
                )
            await asyncio.sleep(UNSERVED_LOOK_S)
        if missing:
            click.echo("--jobs: TrainingJobs are served now, and run", err=True)
    finally:
        await client.close()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def divide(store: Store, settings: MeshSettings) -> None:
    """Divide the nodes as asked for, also back into one shard; nothing is written where etcd says so already."""
    from shared.runtime.records.shards import change_shards

    keys, now = Keys.under(settings.etcd_prefix), dt.datetime.now(dt.UTC)
    await change_shards(store, keys, settings.shard_names, by="conclave up", reason="", now=now, unmanned=True)


async def check_etcd(settings: MeshSettings) -> None:
    """The nodes are divided, before anybody leads. ``ConfigError``: etcd does not answer, or a mesh lives there."""
    from shared.runtime.process.process import ProcessSettings, await_store, store_opener

    process = ProcessSettings(etcd=tuple(settings.etcd.split(",")), etcd_prefix=settings.etcd_prefix)
    store = store_opener(process)()
    try:
        await await_store(store, process, timeout_s=CHECK_S)
        await await_alone(store, Keys.under(settings.etcd_prefix))
        await divide(store, settings)
    except StoreError as error:
        raise ConfigError(f"--etcd: {settings.etcd}: {error}; start it, or correct --etcd") from None
    finally:
        await store.close()


FILE = "contexts.toml"


def write_local(folder: Path, admin_ports: Sequence[int], token_file: Path) -> Path:
    """The file, written, for admin APIs on loopback. ``ConfigError``: the folder cannot be written to."""
    servers = ",".join(f"http://127.0.0.1:{port}" for port in admin_ports)
    file = folder / FILE
    write_contexts(file, Contexts(LOCAL, {LOCAL: ContextEntry(server=servers, token_file=str(token_file))}))
    return file


def how_to_use(file: Path) -> str:
    """The command that makes this mesh the one that a shell operates."""
    return f"export {CONTEXTS_ENV}={shlex.quote(str(file))}"
