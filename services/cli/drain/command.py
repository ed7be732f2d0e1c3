"""``conclave drain``: a node gets no new pods from this mesh; with ``--evict`` those that are there leave it too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from services.cli.operate.scheduling import each_node, reason_option
from services.cli.server.completion_names import complete_nodes
from services.cli.server.options import cluster_context, given, server_options
from services.cli.server.watching import output_option
from services.cli.terminal.durations import SECONDS
from shared.errors import ConfigError

EVICTING = {
    "ignore_daemonsets": "--ignore-daemonsets", "delete_emptydir_data": "--delete-emptydir-data", "force": "--force",
    "timeout": "--timeout", "partial": "--partial", "dry_run": "--dry-run", "kubeconfig": "--kubeconfig",
    "schedulers": "--scheduler-name",
}  # fmt: skip
"""Options that only go with --evict."""
MESH = {
    "server": "--server", "token_file": "--token-file", "ca": "--ca", "cert": "--cert", "key": "--key",
    "kube_context": "--kube-context", "mesh_namespace": "--mesh-namespace", "reason": "--reason",
}  # fmt: skip
"""Options that only go without it."""
DEFAULT_TIMEOUT = "15m"


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=complete_nodes)
@click.option("--evict", is_flag=True, help="Cordon them, and move their pods: find room, reserve it, evict, wait.")
@click.option("--ignore-daemonsets", is_flag=True, help="With --evict: leave pods of DaemonSets there.")
@click.option("--delete-emptydir-data", is_flag=True, help="With --evict: also pods that would lose an emptyDir.")
@click.option("--force", is_flag=True, help="With --evict: also pods without a controller, which nobody replaces.")
@click.option("--timeout", type=SECONDS, default=DEFAULT_TIMEOUT, show_default=True,
              help="With --evict: give up after so long, for each node; 0: never.")  # fmt: skip
@click.option("--partial", is_flag=True, help="With --evict: move those who have room, also where others have none.")
@click.option("--dry-run", is_flag=True, help="With --evict: say who would leave, and change nothing.")
@click.option("--scheduler-name", "schedulers", multiple=True, default=("conclave",), show_default=True,
              help="With --evict: whose pods take reserved room; for others it is looked for too.")  # fmt: skip
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="With --evict: the cluster.  [default: as kubectl]")
@reason_option
@output_option
@server_options
def drain(
    nodes: tuple[str, ...], evict: bool, reason: str, output: str, ignore_daemonsets: bool,
    delete_emptydir_data: bool, force: bool, timeout: float, partial: bool, dry_run: bool, schedulers: tuple[str, ...],
    kubeconfig: Path | None, **server: Any,
) -> int:  # fmt: skip
    """Give these NODEs no new pods, until 'conclave resume NODE'. Pods on them stay; other schedulers are not told.

    Every NODE is tried; the exit code is that of the worst.

    With --evict, as kubectl drain: cordon them for everybody (until 'kubectl uncordon NODE'), find room elsewhere for
    every pod, reserve it, and only then evict, as budgets allow, and wait until the replacements are Ready. Where there
    is no room for somebody nobody is evicted. It asks the API server alone, with the rights of your kubeconfig. Exit
    code 0: they are empty; 1: some pods stay, each with its reason; a second run goes on.
    """
    here = click.get_current_context()
    wrong = [flag for name, flag in (MESH if evict else EVICTING).items() if given(here, name)]
    if wrong and evict:
        raise ConfigError(f"{wrong[0]}: --evict asks the API server and no mesh; leave it out, or --evict")
    if wrong:
        raise ConfigError(f"{wrong[0]}: goes with --evict; without it nobody is evicted")
    if not evict:
        return each_node("drain", nodes, reason, output, server)
    if "" in nodes:
        raise ConfigError("drain: a NODE is empty; give names as 'kubectl get nodes' shows them")
    from services.cli.drain.evicting import EvictionWish, evict_all
    from shared.rebalance.draining.leavers import DrainFlags

    flags = DrainFlags(ignore_daemonsets, delete_emptydir_data, force)
    wish = EvictionWish(flags, timeout, partial, schedulers, dry_run)
    return asyncio.run(
        evict_all(kubeconfig, cluster_context(server.get("context")), list(dict.fromkeys(nodes)), wish, output)
    )
