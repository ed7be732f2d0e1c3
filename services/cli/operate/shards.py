"""``conclave shards``: what the nodes are divided into, a binder for each shard, and changing that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from services.cli.operate.scheduling import reason_option
from services.cli.server.options import server_options, with_server
from services.cli.server.watching import output_option, tell
from services.cli.terminal.tables import printable, table

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]
COLUMNS = (("SHARD", False), ("NODES", True), ("BINDER", False), ("TERM", True))


@click.group(invoke_without_command=True)
@output_option
@server_options
@click.pass_context
def shards(here: click.Context, /, output: str, **server: Any) -> None:
    """Show what the nodes are divided into: a shard for each binder that leads; or change that (set)."""
    if here.invoked_subcommand is not None:
        return

    async def look(client: AdminClient) -> Json:
        return await client.get("/v1/shards")

    found = with_server(server, look)
    tell(output, found, lines_of(found))


@shards.command("set")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--unmanned", is_flag=True, help="Also shards that no binder leads, whose nodes get no pods.")
@reason_option
@output_option
@server_options
def set_shards(names: tuple[str, ...], unmanned: bool, reason: str, output: str, **server: Any) -> None:
    """Divide the nodes into the shards NAME...; each needs a binder that was started with --shard NAME.

    Every leader starts again under the new shards, within seconds; what is under way is finished or given back.
    """

    async def work(client: AdminClient) -> Json:
        return await client.change("PUT", "/v1/shards", {"names": list(names), "unmanned": unmanned, "reason": reason})

    found = with_server(server, work)
    tell(output, found, lines_of(found))


def lines_of(found: Json) -> list[str]:
    """A table, and who divided the nodes last."""
    rows = [
        [str(item["name"]), str(item["nodes"]), str(item["binder"] or "nobody leads"), str(item["term"] or "")]
        for item in found.get("items", ())
    ]
    lines = table(COLUMNS, rows)
    if not found.get("generation"):
        return [*lines, "the nodes were never divided: one shard has them all"]
    why = f": {printable(str(found['reason']))}" if found.get("reason") else ""
    return [*lines, f"divided by {printable(str(found.get('by', '')))} at {found.get('since', '')}{why}"]
