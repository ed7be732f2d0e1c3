"""``conclave nodes``: who decides for each node, how full it is, and whether it is drained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import DOCUMENTS, Found, Wanted
from services.cli.operate.lines.nodes import NODES, node_lines
from services.cli.server.completion_names import complete_nodes
from services.cli.server.options import connector
from services.cli.terminal.watching import show, watch_option

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
@watch_option
@list_options(NODES)
def nodes(name: str | None, agent: str, drained: bool, gone: bool, watch: bool, wanted: Wanted, **server: Any) -> None:
    """List the nodes; with NAME show one, and the pods on it."""

    async def one(client: AdminClient) -> dict[str, Any]:
        return NODES.object(await client.get(f"/v1/nodes/{quote(str(name), safe='')}"))

    async def one_listed(client: AdminClient) -> Found:
        return Found([await client.get(f"/v1/nodes/{quote(str(name), safe='')}")])

    async def every(client: AdminClient) -> Found:
        found = await client.items(
            "/v1/nodes", most=0 if drained else wanted.limit, agent=agent, gone="true" if gone else "",
            selector=wanted.selector, labels=wanted.label,
        )  # fmt: skip
        return Found([item for item in found if item.get("drained")] if drained else found)

    connect = connector(server)
    if name is None:
        show_list(connect, every, wanted, watch=watch)
    elif wanted.output == "name":
        show_list(connect, one_listed, wanted, watch=watch)
    else:
        output = wanted.output if wanted.output in DOCUMENTS else "table"
        show(connect, one, node_lines, output=output, watch=watch)
