"""``conclave changes``: who changed what through the admin API, newest first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.server.options import server_options, with_server
from services.cli.tables import left, right, table
from services.cli.watching import wide_output_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@wide_output_option
@server_options
def changes(limit: int, output: str, **server: Any) -> None:
    """Show the audit log of the admin API: who changed what, when and why."""

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        return await client.items("/v1/audit", most=limit)

    found = with_server(server, work)
    click.echo(json.dumps(found, indent=2) if output == "json" else "\n".join(lines_of(found, wide=output == "wide")))


def lines_of(found: Sequence[Mapping[str, Any]], *, wide: bool = False) -> list[str]:
    """A row per change."""
    if not found:
        return ["nothing has been changed"]
    columns = [*right("NUMBER"), *left("TIME", "BY", "ROLE", "ROUTE", "TARGET", "REASON")]
    columns += left("REQUEST") if wide else []
    rows = [
        [
            item.get("number"), item.get("time"), item.get("by"), item.get("role"), item.get("route"),
            item.get("target"), item.get("reason"), *([item.get("request_id")] if wide else []),
        ]
        for item in found
    ]  # fmt: skip
    return table(columns, rows)
