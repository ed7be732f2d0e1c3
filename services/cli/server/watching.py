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

from services.cli.listing.wanted import DOCUMENTS, document_text
from services.cli.server.errors import ServerFailed
from services.cli.server.options import Connect, run_connected
from services.cli.terminal.screen import Screen
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

WATCH_EVERY_S = 2.0

watch_option = click.option("-w", "--watch", is_flag=True, help="Show it again every 2 s, until Ctrl-C.")
output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True,
    help="How to print it.",
)  # fmt: skip
wide_output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table", show_default=True,
    help="How to print it; wide has more columns.",
)  # fmt: skip


def tell(output: str, found: Any, lines: Sequence[str]) -> None:
    """Print one answer: the document as it is, or lines for people."""
    click.echo(document_text(found, output) if output in DOCUMENTS else "\n".join(lines))


def show(
    connect: Connect,
    look: Callable[[AdminClient], Awaitable[Any]],
    lines_of: Callable[[Any], Sequence[str]],
    *,
    output: str,
    watch: bool,
) -> None:
    """Print what ``look`` finds, once or again and again: a document, or lines.

    Raises as ``with_server``; while watching only where the first look fails.
    """
    people = output not in DOCUMENTS

    def text(found: Any) -> Sequence[str]:
        if people:
            return lines_of(found)
        return [json.dumps(found) if watch and output == "json" else document_text(found, output)]

    show_lines(connect, look, text, watch=watch, live=people)


def show_lines(
    connect: Connect,
    look: Callable[[AdminClient], Awaitable[Any]],
    lines_of: Callable[[Any], Sequence[str]],
    *,
    watch: bool,
    live: bool,
) -> None:
    """As ``show``, of lines only. ``live``: they are for people, who want them redrawn and failures among them."""
    if not watch:
        _print(lines_of(run_connected(connect, look)))
    elif live:

        def drawn(found: Any, failure: str) -> Sequence[str]:
            return [failure, "", *lines_of(found)] if failure else lines_of(found)

        with Screen() as screen:
            asyncio.run(until_signal(watch_screen(connect, look, drawn, screen, every_s=WATCH_EVERY_S)))
    else:
        asyncio.run(until_signal(watch_text(connect, look, lines_of, every_s=WATCH_EVERY_S)))


def _print(lines: Sequence[str]) -> None:
    if lines:
        click.echo("\n".join(lines))


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


async def watch_text(
    connect: Connect,
    look: Callable[[AdminClient], Awaitable[Any]],
    lines_of: Callable[[Any], Sequence[str]],
    *,
    every_s: float,
    count: int = 0,
) -> None:
    """Print what is found, ``count`` times (0: until cancelled). Ends with the first failure, as scripts want.
    Documents of more lines than one are parted by ``---``, as YAML wants it."""
    async with connect() as client:
        looks = 0
        while True:
            lines = lines_of(await look(client))
            if looks and any("\n" in line for line in lines):
                click.echo("---")
            _print(lines)
            looks += 1
            if looks == count:
                return
            await asyncio.sleep(every_s)
