"""``conclave top``: the mesh live on a terminal, with keys: lists that sort and filter, rows that open.

Elsewhere it prints one block and ends; ``--count`` makes it more. A leader that is lost is shown above what was known
last, and the next one is looked for.
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.wanted import DOCUMENTS, document_text
from services.cli.operate.top.pages import tabs, top_lines
from services.cli.operate.top.view import TopView
from services.cli.server.errors import ServerFailed
from services.cli.server.options import Connect, connector, list_server_options
from services.cli.server.watching import output_option, watch_screen, watch_text
from services.cli.terminal.screen import Screen
from services.cli.terminal.tables import coloured, paint
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

PLACEMENTS = 20
PLAIN_SIZE = (100, 48)
"""Columns and lines of a block where there is no terminal."""


@click.command()
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=1.0, show_default=True, help="Seconds between.")
@click.option(
    "--count", type=click.IntRange(min=0), default=None,
    help="Print so many blocks and end, without keys; 0: never end.  [default: live on a terminal, elsewhere 1]",
)  # fmt: skip
@click.option("-n", "--namespace", default="", help="Only pods of this namespace; default: all.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of all namespaces, whatever -n says.")
@output_option
@list_server_options
def top(interval: float, count: int | None, namespace: str, all_namespaces: bool, output: str, **server: Any) -> int:
    """Show the mesh live, until q or Ctrl-C: lists that sort and filter, rows that open; ? tells the keys."""
    connect = connector(server)
    with suppress(click.Abort):
        if output in DOCUMENTS:
            asyncio.run(until_signal(_documents(connect, output, every_s=interval, count=count)))
            return 0
        with Screen() as screen:
            if screen.is_terminal and count is None:
                asyncio.run(
                    until_signal(
                        live(connect, screen, TopView(tabs("" if all_namespaces else namespace)), every_s=interval)
                    )
                )
            else:
                blocks = 1 if count is None else count
                asyncio.run(until_signal(_blocks(connect, screen, every_s=interval, count=blocks)))
    return 0


async def _documents(connect: Connect, output: str, *, every_s: float, count: int | None) -> None:
    def lines(found: Any) -> list[str]:
        return [json.dumps(found) if output == "json" else document_text(found, output)]

    await watch_text(connect, overview, lines, every_s=every_s, count=1 if count is None else count)


async def _blocks(connect: Connect, screen: Screen, *, every_s: float, count: int) -> None:
    def lines(found: dict[str, Any], failure: str) -> list[str]:
        width, height = screen.size if screen.is_terminal else PLAIN_SIZE
        colour = screen.is_terminal and coloured()
        drawn = top_lines(found, width=width, height=height - bool(failure), colour=colour)
        return [paint(failure, "red", on=colour), *drawn] if failure else drawn

    await watch_screen(connect, look, lines, screen, every_s=every_s, count=count)


async def live(connect: Connect, screen: Screen, view: TopView, *, every_s: float) -> None:
    """Until q. Raises as ``with_server`` where the first look fails."""
    from services.cli.terminal.keyboard import Keyboard

    turned = asyncio.Event()

    def draw() -> None:
        width, height = screen.size
        screen.draw(view.draw(width, height, colour=coloured()))

    async def refresh() -> None:
        while True:
            try:
                async with connect() as client:
                    while True:
                        turned.clear()
                        await _look_at(client, view)
                        draw()
                        with suppress(TimeoutError):
                            async with asyncio.timeout(every_s):
                                await turned.wait()
            except (ServerFailed, ConfigError) as error:
                if not view.overview:
                    raise
                view.failure = str(error)
                draw()
            await asyncio.sleep(every_s)

    async def obey() -> None:
        with Keyboard() as keys:
            while view.press(await keys.next()):
                if view.page.found is None:
                    turned.set()
                draw()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, draw)
    tasks = [asyncio.ensure_future(work) for work in (refresh(), obey())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _look_at(client: AdminClient, view: TopView) -> None:
    """Ask for the overview, and for the page; what refuses the page alone is told on it."""
    page = view.page
    view.overview = await overview(client)
    try:
        page.found = await page.look(client)
        view.failure = ""
    except ConfigError as error:
        if page is view.tabs[0]:
            raise
        page.found = page.found or ((), ())
        view.failure = str(error)


async def overview(client: AdminClient) -> dict[str, Any]:
    """What ``-o json`` prints."""
    return await client.get("/v1/overview")


async def look(client: AdminClient) -> dict[str, Any]:
    """Everything in a block, asked at once."""
    overview, nodes, placed = await asyncio.gather(
        client.get("/v1/overview"), client.get("/v1/nodes/map"), client.items("/v1/decisions", most=PLACEMENTS)
    )
    return {"overview": overview, "nodes": nodes, "decisions": placed}
