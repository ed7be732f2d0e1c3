"""``conclave top``: the mesh at a glance, live: leader, rates, queue, latencies, how full nodes are, newest placements.

On a terminal it is redrawn in place until Ctrl-C; elsewhere it prints one block per interval (``--count`` ends it). A
leader that is lost is shown, and the next one is waited for.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from services.cli.operate.top_lines import top_lines
from services.cli.screen import Screen
from services.cli.server.options import connector, server_options
from services.cli.tables import coloured, paint
from services.cli.until_signal import until_signal
from services.cli.watching import output_option, watch_json, watch_screen

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

PLACEMENTS = 20
PLAIN_SIZE = (100, 48)
"""Columns and lines of a block where there is no terminal."""


@click.command()
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, help="Seconds between.")
@click.option("--count", type=click.IntRange(min=0), default=0, help="End after so many looks; default: never.")
@output_option
@server_options
def top(interval: float, count: int, output: str, **server: Any) -> int:
    """Show the mesh live, until Ctrl-C."""
    connect = connector(server)
    with suppress(click.Abort):
        if output == "json":
            asyncio.run(until_signal(watch_json(connect, overview, every_s=interval, count=count)))
            return 0
        with Screen() as screen:

            def lines(found: dict[str, Any], failure: str) -> list[str]:
                width, height = screen.size if screen.is_terminal else PLAIN_SIZE
                colour = screen.is_terminal and coloured()
                drawn = top_lines(found, width=width, height=height - bool(failure), colour=colour)
                return [paint(failure, "red", on=colour), *drawn] if failure else drawn

            asyncio.run(until_signal(watch_screen(connect, look, lines, screen, every_s=interval, count=count)))
    return 0


async def overview(client: AdminClient) -> dict[str, Any]:
    """What ``-o json`` prints."""
    return await client.get("/v1/overview")


async def look(client: AdminClient) -> dict[str, Any]:
    """Everything on the screen, asked at once."""
    overview, nodes, placed = await asyncio.gather(
        client.get("/v1/overview"), client.get("/v1/nodes/map"), client.items("/v1/decisions", most=PLACEMENTS)
    )
    return {"overview": overview, "nodes": nodes, "decisions": placed}
