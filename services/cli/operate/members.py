"""``conclave members``: the processes of the mesh: coordinators, binders, agents, learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import Found, Wanted
from services.cli.operate.lines.status import MEMBERS
from services.cli.server.options import connector
from services.cli.terminal.watching import watch_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

SERVICES = ("coordinator", "binder", "agent", "learner")


@click.command()
@click.option("--service", type=click.Choice(SERVICES), default=None, help="Only members of this service.")
@watch_option
@list_options(MEMBERS)
def members(service: str | None, watch: bool, wanted: Wanted, **server: Any) -> None:
    """List who is there: role, term of a leader, nodes of an agent, and whether it answers."""

    async def look(client: AdminClient) -> Found:
        found = await client.items("/v1/members")
        return Found([member for member in found if service in (None, member.get("service"))])

    show_list(connector(server), look, wanted, watch=watch)
