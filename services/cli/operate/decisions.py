"""``conclave decisions``: which pod went where, by which policy, what else was considered; ``--watch`` follows them.

They come as server-sent events. Following survives a change of leader: the stream is opened again, and what happened
in between is not in it (said in one line on stderr).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.kinds import Json, ListKind, number, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import FoundItems, ListQuery, document_text
from services.cli.server.errors import ServerFailed
from services.cli.server.options import Connect, connector
from services.cli.terminal.tables import number as amount
from services.cli.terminal.tables import printable
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import StreamReader

    from services.cli.server.client import AdminClient

MAX_EVENT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event. ``data`` lines are joined by a newline."""

    kind: str
    data: str


class EventParser:
    """``feed`` it what arrives; it gives the events that are whole. ``ValueError``: an event beyond all bounds."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[StreamEvent]:
        """The events that ``data`` completes. Comments (heartbeats) and fields that we do not use are left out."""
        *blocks, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        if max(map(len, (*blocks, self._rest))) > MAX_EVENT_BYTES:
            raise ValueError("an event is longer than any there should be")
        for block in blocks:
            fields = [line.partition(":") for line in block.decode(errors="replace").split("\n")]
            kinds = [value.removeprefix(" ") for name, _, value in fields if name == "event"]
            lines = [value.removeprefix(" ") for name, _, value in fields if name == "data"]
            if lines:
                yield StreamEvent(kinds[-1] if kinds else "message", "\n".join(lines))


SHOWN = 3
MOST = 500
"""What the API gives at most."""
RETRY_S = 1.0


def considered_text(item: Json) -> str:
    """The best few nodes with their scores; those that the policy advised against are marked."""
    known: Sequence[Json] = item.get("considered") or ()
    parts = [
        f"{one.get('node')} {amount(float(one.get('score') or 0))}"
        + ("" if one.get("accepted", True) else " (not advised)")
        for one in known[:SHOWN]
    ]
    return ", ".join([*parts, f"and {len(known) - SHOWN} more"] if len(known) > SHOWN else parts)


DECISIONS = ListKind(
    title="Decision",
    resource="pod",
    namespace=lambda item: item.get("namespace"),
    empty="this leader has placed nothing yet",
    columns=(
        text("TIME", "time"),
        text("NAMESPACE", "namespace"),
        text("POD", "name"),
        text("NODE", "node"),
        text("POLICY", "policy"),
        number("ATTEMPT", "attempt"),
        text("CONSIDERED", considered_text, cut=True),
        text("EVICTED", lambda item: ", ".join(item.get("evicted") or ()), wide=True),
        text("UID", "uid", wide=True),
    ),
)


@click.command()
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="At most so many.")
@click.option("-w", "--watch", is_flag=True, help="Follow them as they are made, until Ctrl-C.")
@list_options(DECISIONS)
def decisions(watch: bool, wanted: ListQuery, **server: Any) -> None:
    """List the newest placements: pod, node, policy, and the other nodes that were considered."""

    connect = connector(server)
    if watch:
        if wanted.sort_by:
            raise ConfigError("--sort-by: what is followed comes in the order of time; leave it or --watch out")
        asyncio.run(until_signal(follow(connect, wanted)))
        return

    async def look(client: AdminClient) -> FoundItems:
        return FoundItems(await client.items("/v1/decisions", most=wanted.most or MOST))

    show_list(connect, look, wanted)


async def follow(connect: Connect, wanted: ListQuery) -> None:
    """Print decisions until cancelled. Raises as ``with_server`` where the first connection fails."""
    begun = told = False
    while True:
        try:
            async with connect() as client, client.stream("/v1/decisions/stream", events="decision,leader") as body:
                begun, told = True, False
                await _read(body, wanted)
        except (ServerFailed, ConfigError):
            if not begun:
                raise
        if not told:
            click.echo("conclave decisions: the stream has ended; opening it again", err=True)
            told = True
        await asyncio.sleep(RETRY_S)


async def _read(body: StreamReader, wanted: ListQuery) -> None:
    """Print what comes until it ends. ``ServerFailed``: it is no stream of events."""
    parser = EventParser()
    while part := await body.readany():
        try:
            for event in parser.feed(part):
                _tell(event, wanted)
        except ValueError as error:
            raise ServerFailed(f"decisions: {error}; is this a coordinator?") from None


def _tell(event: StreamEvent, wanted: ListQuery) -> None:
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
        for item in wanted.arranged([found] if isinstance(found, dict) else []):
            click.echo(_followed(item, wanted.output))


def _followed(item: Json, output: str) -> str:
    """One decision as it is made: a document of its own, or a line."""
    if output == "yaml":
        return f"---\n{document_text(DECISIONS.object(item), output)}"
    if output == "json":
        return json.dumps(DECISIONS.object(item))
    return DECISIONS.names([item])[0] if output == "name" else decision_line(item)


def decision_line(item: Json) -> str:
    """One decision in one line."""
    others = considered_text(item)
    tried = f", attempt {item['attempt']}" if item.get("attempt", 1) not in (0, 1) else ""
    return printable(
        f"{item.get('time', '')}  {item.get('namespace')}/{item.get('name')} -> {item.get('node')}"
        f"  {item.get('policy', '')}{tried}{'; considered ' + others if others else ''}"
    )
