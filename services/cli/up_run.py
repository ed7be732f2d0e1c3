"""What ``conclave up`` does once its flags are read: check the cluster, run the mesh, end it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import click

from services.cli.etcd_keeper import EtcdKeeper
from services.cli.mesh import Mesh, MeshSettings, write_token
from services.cli.supervisor import Child, Supervisor
from shared.errors import ConfigError, StoreError

CHECK_S = 5.0


async def check_cluster(kubeconfig: Path, context: str | None) -> str:
    """The server's version. ``ConfigError``: the kubeconfig cannot be used, or the server does not answer."""
    from shared.adapters.kube_api import KubeClient
    from shared.adapters.kube_config import KubeConfig

    access = await KubeConfig.load(kubeconfig, context=context)
    client = KubeClient(access)
    try:
        return await client.check(timeout_s=CHECK_S)
    finally:
        await client.close()


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
    from shared.runtime.process import ProcessSettings, await_store, store_opener

    def on_event(event: str, child: Child) -> None:
        if event == "restart":
            click.echo(f"restarted {child.spec.name} (ended with {child.exit_code})", err=True)

    if not settings.etcd:
        keeper = EtcdKeeper(settings.state_dir / "etcd", on_event=lambda event: click.echo(f"etcd {event}", err=True))
        stack.push_async_callback(keeper.stop)
        await keeper.start()
        settings = replace(settings, etcd=keeper.endpoint)
    process = ProcessSettings(etcd=tuple(settings.etcd.split(",")), etcd_prefix=settings.etcd_prefix)
    store = store_opener(process)()
    stack.push_async_callback(store.close)
    try:
        await await_store(store, process, timeout_s=CHECK_S)
    except StoreError as error:
        raise ConfigError(f"--etcd: {settings.etcd}: {error}; start it or mend --etcd") from None
    supervisor = Supervisor(settings.state_dir / "logs", on_event=on_event)
    stack.push_async_callback(supervisor.close)
    write_token(settings)
    mesh = Mesh(settings, supervisor, store)
    stack.push_async_callback(mesh.close)
    mesh.start()
    await mesh.wait_scheduling()
    view = mesh.view
    leader = view.coordinator.record if view.coordinator else None
    click.echo(
        f"ready scheduler={settings.scheduler_name} policy={settings.policy} agents={len(view.agents)} "
        f"leader={leader.identity if leader else ''} url={leader.url if leader else ''} etcd={settings.etcd}"
    )
    await asyncio.shield(supervisor.failure)
