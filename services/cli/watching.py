"""Shows something again and again: redrawn in place on a terminal, one block after the other elsewhere, until Ctrl-C.

A failure of one look is shown, and the server is looked for again, by its context or through a new port-forward: a mesh
is watched most of all while a leader is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.screen import Screen
from services.cli.server.errors import ServerFailed
from services.cli.server.options import Connect, run_connected
from services.cli.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

WATCH_EVERY_S = 2.0

watch_option = click.option("-w", "--watch", is_flag=True, help="Show it again every 2 s, until Ctrl-C.")
output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print it."
)
wide_output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", show_default=True,
    help="How to print it; wide has more columns.",
)  # fmt: skip


def show(
    connect: Connect,
    look: Callable[[AdminClient], Awaitable[Any]],
    lines_of: Callable[[Any], Sequence[str]],
    *,
    output: str,
    watch: bool,
) -> None:
    """Print what ``look`` finds, once or again and again: JSON (one document per line while watching) or lines.

    Raises as ``with_server``; while watching only where the first look fails.
    """
    if not watch:
        found = run_connected(connect, look)
        click.echo(json.dumps(found, indent=2) if output == "json" else "\n".join(lines_of(found)))
        return
    if output == "json":
        asyncio.run(until_signal(watch_json(connect, look, every_s=WATCH_EVERY_S)))
        return

    def drawn(found: Any, failure: str) -> Sequence[str]:
        return [failure, "", *lines_of(found)] if failure else lines_of(found)

    with Screen() as screen:
        asyncio.run(until_signal(watch_screen(connect, look, drawn, screen, every_s=WATCH_EVERY_S)))


async def watch_screen(
    connect: Connect,
    look: Callable[[AdminClient], Awaitable[Any]],
    lines_of: Callable[[Any, str], Sequence[str]],
    screen: Screen,
    *,
    every_s: float,
    count: int = 0,
) -> None:
    """Draw what is found, ``count`` times (0: until cancelled). ``lines_of`` gets it, and the failure since, or ""."""
    found: Any = None
    looks = 0
    while True:
        try:
            async with connect() as client:
                while True:
                    found = await look(client)
                    screen.draw(lines_of(found, ""))
                    looks += 1
                    if looks == count:
                        return
                    await asyncio.sleep(every_s)
        except (ServerFailed, ConfigError) as error:
            if found is None:
                raise
            screen.draw(lines_of(found, str(error)))
        await asyncio.sleep(every_s)


async def watch_json(
    connect: Connect, look: Callable[[AdminClient], Awaitable[Any]], *, every_s: float, count: int = 0
) -> None:
    """Print a document per line, ``count`` times (0: until cancelled). Ends with the first failure, as scripts want."""
    async with connect() as client:
        looks = 0
        while True:
            click.echo(json.dumps(await look(client)))
            looks += 1
            if looks == count:
                return
            await asyncio.sleep(every_s)
