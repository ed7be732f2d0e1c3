"""``conclave queue`` and ``conclave units``: what waits, where and why, and what is on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.server.options import connector, server_options
from services.cli.tables import age, left, right, table
from services.cli.watching import output_option, show, watch_option, wide_output_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]
PLACES = ("active", "backoff", "unschedulable", "in_flight")
PODS_SHOWN = 3


@click.command()
@click.option("--place", type=click.Choice(PLACES), default=None, help="Only pods there.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@wide_output_option
@watch_option
@server_options
def queue(place: str | None, limit: int, output: str, watch: bool, **server: Any) -> None:
    """List the pods that wait: where in the queue, how long, how often tried, and which rules refused them."""

    async def look(client: AdminClient) -> dict[str, Any]:
        return await client.list_document("/v1/queue", most=limit, place=place)

    wide = output == "wide"
    show(connector(server), look, lambda found: queue_lines(found, wide=wide), output=output, watch=watch)


@click.command()
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@output_option
@watch_option
@server_options
def units(limit: int, output: str, watch: bool, **server: Any) -> None:
    """List the gangs and lone pods in flight: offered to agents, planned, placed, or committed as an intent."""

    async def look(client: AdminClient) -> list[dict[str, Any]]:
        return await client.items("/v1/units", most=limit)

    show(connector(server), look, units_lines, output=output, watch=watch)


def queue_lines(found: Json, *, wide: bool = False) -> list[str]:
    """Counts, then a row per pod."""
    counts = found.get("counts") or {}
    items: Sequence[Json] = found.get("items") or ()
    lines = ["  ".join(f"{place} {counts.get(place, 0)}" for place in PLACES)]
    if not items:
        return lines
    columns = [
        *left("NAMESPACE", "POD", "PLACE"),
        *right("PRIORITY", "TRIED", "WAITING", "RETRY-IN"),
        *left("REFUSED-BY"),
    ]
    if wide:
        columns += left("NOMINATED", "UID")
    rows = [
        [
            item.get("namespace"), item.get("name"), item.get("place"), item.get("priority", 0),
            item.get("attempts", 0), age(item.get("waiting_s")), age(item.get("retry_in_s")),
            ", ".join(item.get("plugins") or ()),
            *([item.get("nominated_node"), item.get("uid")] if wide else []),
        ]
        for item in items
    ]  # fmt: skip
    return [*lines, "", *table(columns, rows)]


def units_lines(found: Sequence[Json]) -> list[str]:
    """A row per unit."""
    if not found:
        return ["nothing is in flight"]
    columns = [*left("UNIT", "STATE"), *right("PODS", "MIN"), *left("SINCE", "WHERE")]
    rows = []
    for unit in found:
        pods = unit.get("pods") or ()
        where = [f"{pod.get('name')} -> {pod['node']}" for pod in pods[:PODS_SHOWN] if pod.get("node")]
        if where and len(pods) > PODS_SHOWN:
            where.append(f"and {len(pods) - PODS_SHOWN} more")
        rows.append(
            [unit.get("key"), unit.get("state"), len(pods), unit.get("min_member"), unit.get("since"), ", ".join(where)]
        )
    return table(columns, rows)
