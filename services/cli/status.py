"""``conclave status``: who leads, under which term, and who is there, as etcd has it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

from services.cli.etcd_options import etcd_options, settings_of, with_store
from services.cli.mesh_view import MeshView, read_mesh

if TYPE_CHECKING:
    from shared.ports import Store
    from shared.runtime.process import ProcessSettings
    from shared.wire.keys import Keys

TIMEOUT_S = 3.0


@click.command()
@etcd_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def status(output: str, **etcd: Any) -> None:
    """Show leaders, terms, agents and members of the mesh in ETCD."""
    view = asyncio.run(look(settings_of(**etcd)))
    if output == "json":
        click.echo(json.dumps(view.to_json(), indent=2))
        return
    for line in lines_of(view):
        click.echo(line)


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
    lines += [f"{'member':<14}{name}" for name in sorted(view.members)]
    lines.append(f"{view.intents} intents, etcd revision {view.revision}")
    return lines
