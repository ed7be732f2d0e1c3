"""``conclave changes``: who changed what through the admin API, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.kinds import ListKind, number, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import FoundItems, ListQuery
from services.cli.server.options import connector
from services.cli.server.watching import watch_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

CHANGES = ListKind(
    title="Change",
    resource="change",
    name=lambda change: change.get("number"),
    empty="nothing has been changed",
    columns=(
        number("NUMBER", "number"),
        text("TIME", "time"),
        text("BY", "by"),
        text("ROLE", "role"),
        text("ROUTE", "route"),
        text("TARGET", "target", cut=True),
        text("RESULT", "result", cut=True),
        text("REASON", "reason", cut=True),
        text("REQUEST", "request_id", wide=True),
    ),
)


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@watch_option
@list_options(CHANGES)
def changes(watch: bool, wanted: ListQuery, **server: Any) -> None:
    """Show the audit log of the admin API: who changed what, when and why."""

    async def look(client: AdminClient) -> FoundItems:
        return FoundItems(await client.items("/v1/audit", most=wanted.limit))

    show_list(connector(server), look, wanted, watch=watch)
