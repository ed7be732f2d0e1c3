"""``conclave nodes``: who decides for each node, how full it is, and whether it is drained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.operate.completion_names import complete_nodes
from services.cli.operate.node_lines import node_lines, nodes_lines
from services.cli.server.options import connector, server_options
from services.cli.watching import show, watch_option, wide_output_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient


@click.command()
@click.argument("name", required=False, shell_complete=complete_nodes)
@click.option("--agent", default="", help="Only the nodes of this agent.")
@click.option("--drained", is_flag=True, help="Only drained nodes.")
@click.option(
    "--gone", is_flag=True, help="Only nodes that were deleted while drained: 'conclave resume NODE' forgets."
)
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@wide_output_option
@watch_option
@server_options
def nodes(
    name: str | None, agent: str, drained: bool, gone: bool, limit: int, output: str, watch: bool, **server: Any
) -> None:
    """List the nodes; with NAME show one, and the pods on it."""

    async def one(client: AdminClient) -> dict[str, Any]:
        return await client.get(f"/v1/nodes/{quote(str(name), safe='')}")

    async def every(client: AdminClient) -> list[dict[str, Any]]:
        found = await client.items("/v1/nodes", most=0 if drained else limit, agent=agent, gone="true" if gone else "")
        kept = [item for item in found if item.get("drained")] if drained else found
        return kept[:limit] if limit else kept

    if name is not None:
        show(connector(server), one, node_lines, output=output, watch=watch)
        return
    wide = output == "wide"
    show(connector(server), every, lambda found: nodes_lines(found, wide=wide), output=output, watch=watch)
