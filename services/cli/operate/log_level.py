"""``conclave log-level``: how much the leading coordinator logs, until it ends.

For a look at what it is doing right now. The lasting setting, for every coordinator, is ``conclave settings set
log_level=...``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from services.cli.server.options import server_options, with_server
from services.cli.terminal.watching import output_option, tell

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

LEVELS = ("debug", "info", "warning", "error")


@click.command("log-level")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@output_option
@server_options
def log_level(level: str | None, output: str, **server: Any) -> None:
    """Show the leading coordinator's log level; with LEVEL change it until that process ends."""

    async def work(client: AdminClient) -> dict[str, Any]:
        if level is None:
            return await client.get("/v1/log-level")
        return await client.change("PUT", "/v1/log-level", {"level": level})

    found = with_server(server, work)
    tell(output, found, [str(found.get("level"))])
