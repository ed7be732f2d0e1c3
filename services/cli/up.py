"""``conclave up``: the mesh on this machine against any cluster.

It checks the kubeconfig and the server before it starts anything, prints one line beginning with ``ready`` when the
mesh schedules, keeps every process running, and ends on SIGTERM or SIGINT with nothing left behind. It knows nothing of
the twin: what it needs of the cluster is the Kubernetes API.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import click

from services.cli.demo import COUNT, until_signal
from services.cli.etcd_keeper import EtcdKeeper
from services.cli.mesh import Mesh, MeshSettings, write_token
from services.cli.state_dir import state_dir
from services.cli.supervisor import Child, Supervisor
from shared.errors import ConfigError, StoreError
from shared.wire.keys import DEFAULT_PREFIX, Keys

CHECK_S = 5.0


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), required=True, help="Which cluster.")
@click.option("--context", help="Context of the kubeconfig; default: its current one.")
@click.option("--scheduler-name", default="conclave", show_default=True, help="Whose pods to schedule.")
@click.option("--agents", type=COUNT, default=2, show_default=True, help="Agents; they share the nodes.")
@click.option("--coordinators", type=COUNT, default=2, show_default=True, help="Coordinators, of which one leads.")
@click.option("--binders", type=COUNT, default=2, show_default=True, help="Binders, of which one leads.")
@click.option("--etcd", help="Endpoints of an etcd, comma-separated; default: a private one on this machine.")
@click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys.")
@click.option("--policy", default="kube-default", show_default=True, help="Which policy the agents decide by.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Breaks ties.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep logs and the private etcd's data here.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def up(
    kubeconfig: Path,
    context: str | None,
    scheduler_name: str,
    agents: int,
    coordinators: int,
    binders: int,
    etcd: str | None,
    etcd_prefix: str,
    policy: str,
    seed: int,
    keep: Path | None,
    log_level: str,
) -> int:
    """Run the mesh on this machine against the cluster of KUBECONFIG until SIGTERM; prints ready when it schedules."""
    from shared.policy.registry import make_policy

    make_policy(policy)
    Keys.under(etcd_prefix)
    asyncio.run(until_signal(check_cluster(kubeconfig, context)))
    with state_dir("up", keep) as folder:
        settings = MeshSettings(
            etcd=etcd or "",
            etcd_prefix=etcd_prefix,
            kubeconfig=kubeconfig.absolute(),
            context=context,
            scheduler_name=scheduler_name,
            coordinators=coordinators,
            agents=agents,
            binders=binders,
            policy=policy,
            seed=seed,
            state_dir=folder.path,
            log_level=log_level,
        )
        asyncio.run(_serve(settings))
    return 0


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


async def _serve(settings: MeshSettings) -> None:
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
