"""``conclave decisions``: which pod went where, by which policy, what else was considered; ``--watch`` follows them.

Following survives a change of leader: the stream is opened again, and what happened in between is not in it (said in
one line on stderr).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.server.errors import ServerFailed
from services.cli.server.events import Event, EventParser
from services.cli.server.options import Connect, connector, server_options
from services.cli.tables import left, number, printable, right, table
from services.cli.until_signal import until_signal
from services.cli.watching import output_option, show
from shared.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import StreamReader

    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]
SHOWN = 3
RETRY_S = 1.0


@click.command()
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="At most so many.")
@click.option("-w", "--watch", is_flag=True, help="Follow them as they are made, until Ctrl-C.")
@output_option
@server_options
def decisions(limit: int, watch: bool, output: str, **server: Any) -> None:
    """List the newest placements: pod, node, policy, and the other nodes that were considered."""

    connect = connector(server)
    if watch:
        asyncio.run(until_signal(follow(connect, output)))
        return

    async def look(client: AdminClient) -> list[dict[str, Any]]:
        return await client.items("/v1/decisions", most=limit)

    show(connect, look, decisions_lines, output=output, watch=False)


async def follow(connect: Connect, output: str) -> None:
    """Print decisions until cancelled. Raises as ``with_server`` where the first connection fails."""
    begun = told = False
    while True:
        try:
            async with connect() as client, client.stream("/v1/decisions/stream", events="decision,leader") as body:
                begun, told = True, False
                await _read(body, output)
        except (ServerFailed, ConfigError):
            if not begun:
                raise
        if not told:
            click.echo("conclave decisions: the stream has ended; opening it again", err=True)
            told = True
        await asyncio.sleep(RETRY_S)


async def _read(body: StreamReader, output: str) -> None:
    """Print what comes until it ends. ``ServerFailed``: it is no stream of events."""
    parser = EventParser()
    while part := await body.readany():
        try:
            for event in parser.feed(part):
                _tell(event, output)
        except ValueError as error:
            raise ServerFailed(f"decisions: {error}; is this a coordinator?") from None


def _tell(event: Event, output: str) -> None:
    try:
        found = json.loads(event.data)
    except ValueError:
        return
    if event.kind == "dropped":
        count = found.get("count", found.get("dropped", "some")) if isinstance(found, dict) else found
        click.echo(f"conclave decisions: {count} were left out: we read too slowly", err=True)
    elif event.kind == "leader" and isinstance(found, dict):
        click.echo(f"conclave decisions: {found.get('id')} leads, term {found.get('term')}", err=True)
    elif event.kind == "decision":
        click.echo(json.dumps(found) if output == "json" else decision_line(found))


def decision_line(item: Json) -> str:
    """One decision in one line."""
    others = considered_text(item)
    tried = f", attempt {item['attempt']}" if item.get("attempt", 1) not in (0, 1) else ""
    return printable(
        f"{item.get('time', '')}  {item.get('namespace')}/{item.get('name')} -> {item.get('node')}"
        f"  {item.get('policy', '')}{tried}{'; considered ' + others if others else ''}"
    )


def decisions_lines(found: Sequence[Json]) -> list[str]:
    """A row per decision."""
    if not found:
        return ["this leader has placed nothing yet"]
    columns = [*left("TIME", "NAMESPACE", "POD", "NODE", "POLICY"), *right("ATTEMPT"), *left("CONSIDERED")]
    rows = [
        [
            item.get("time"), item.get("namespace"), item.get("name"), item.get("node"), item.get("policy"),
            item.get("attempt"), considered_text(item),
        ]
        for item in found
    ]  # fmt: skip
    return table(columns, rows)


def considered_text(item: Json) -> str:
    """The best few nodes with their scores; those that the policy advised against are marked."""
    known: Sequence[Json] = item.get("considered") or ()
    parts = [
        f"{one.get('node')} {number(float(one.get('score') or 0))}"
        + ("" if one.get("accepted", True) else " (not advised)")
        for one in known[:SHOWN]
    ]
    return ", ".join([*parts, f"and {len(known) - SHOWN} more"] if len(known) > SHOWN else parts)
