"""``conclave status`` through the admin API. Without a server, ``services.cli.etcd.status`` looks into etcd instead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from services.cli.operate.lines.status import status_lines
from services.cli.server.options import Connect
from services.cli.terminal.tables import coloured
from services.cli.terminal.watching import show

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

TERMS = 10


def show_status(connect: Connect, *, output: str, watch: bool) -> None:
    """Print the status. Raises as ``with_server``."""

    async def look(client: AdminClient) -> dict[str, Any]:
        overview, members, terms = await asyncio.gather(
            client.get("/v1/overview"), client.items("/v1/members"), client.items("/v1/terms", most=TERMS)
        )
        return {"overview": overview, "members": members, "terms": terms}

    def lines(found: dict[str, Any]) -> list[str]:
        return status_lines(found, wide=output == "wide", colour=coloured())

    show(connect, look, lines, output=output, watch=watch)
