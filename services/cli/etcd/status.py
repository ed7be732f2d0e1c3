"""``conclave status``: who leads, under which term, and who is there: by the admin API, or as etcd has it.

Where a server is named (by flags, the environment or a context) and ``--etcd`` is not given, the leading coordinator is
asked. Else etcd is read, which also answers while nobody leads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from services.cli.etcd.mesh_view import MeshView, read_mesh
from services.cli.etcd.mesh_warnings import warnings_of
from services.cli.etcd.options import etcd_options, settings_of, with_store
from services.cli.listing.wanted import DOCUMENTS, document_text
from services.cli.server.choice import chosen_server, etcd_part
from services.cli.server.options import opened, server_options
from services.cli.terminal.watching import watch_option, wide_output_option
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.ports import Store
    from shared.runtime.process.process import ProcessSettings
    from shared.wire.keys import Keys

TIMEOUT_S = 3.0


@click.command()
@wide_output_option
@watch_option
@server_options
@etcd_options
@click.pass_context
def status(here: click.Context, /, output: str, watch: bool, **options: Any) -> None:
    """Show leaders, terms, agents and members of the mesh: of a server, or of the mesh in ETCD."""
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate.status import show_status

        show_status(lambda: opened(chosen_server(here) or target), output=output, watch=watch)
        return
    if watch:
        raise ConfigError("--watch: needs a server; give --server or a context, or leave it out")
    view = asyncio.run(look(settings_of(**etcd_part(options))))
    if output in DOCUMENTS:
        click.echo(document_text(view.to_json(), output))
        return
    for line in lines_of(view):
        # ids and URLs are what processes wrote into etcd: no escape sequence of theirs reaches the terminal
        click.echo("".join(char if char.isprintable() else "?" for char in line))


async def look(settings: ProcessSettings) -> MeshView:
    """One look. ``ConfigError``: etcd does not answer."""

    async def work(store: Store, keys: Keys) -> MeshView:
        return await read_mesh(store, keys, timeout_s=TIMEOUT_S)

    return await with_store(settings, work)


def lines_of(view: MeshView) -> list[str]:
    """The table's lines."""
    lines = [f"{'ROLE':<14}{'ID':<24}{'TERM':<10}URL"]
    if view.coordinator is not None:
        leader = view.coordinator
        lines.append(f"{'coordinator':<14}{leader.record.identity:<24}{leader.term:<10}{leader.record.url}")
    else:
        lines.append(f"{'coordinator':<14}{'nobody leads':<24}")
    for shard, leader in sorted(view.binders.items()):
        lines.append(f"{'binder ' + shard:<14}{leader.record.identity:<24}{leader.term:<10}{leader.record.url}")
    if not view.binders:
        lines.append(f"{'binder':<14}{'nobody leads':<24}")
    for name, agent in sorted(view.agents.items()):
        lines.append(f"{'agent':<14}{name:<24}{'-':<10}{agent.url}{' node ' + agent.node if agent.node else ''}")
    for name in sorted(view.members):
        process = view.processes.get(name)
        lines.append(f"{'member':<14}{name:<34}{process.url if process is not None else ''}".rstrip())
    lines.append(f"{view.intents} intents, etcd revision {view.revision}")
    lines += [f"warning: {' '.join(text.split())}" for text in warnings_of(view)]
    return lines
