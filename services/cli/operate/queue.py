"""``conclave queue`` and ``conclave units``: what waits, where and why, and what is on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.kinds import Json, Kind, number, shown, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import Found, Wanted
from services.cli.server.options import connector
from services.cli.terminal.tables import age
from services.cli.terminal.watching import watch_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

PLACES = ("active", "backoff", "unschedulable", "in_flight")
PODS_SHOWN = 3

QUEUED_PODS = Kind(
    title="QueuedPod",
    resource="pod",
    namespace=lambda item: item.get("namespace"),
    labelled=True,
    columns=(
        text("NAMESPACE", "namespace"),
        text("POD", "name"),
        text("PLACE", "place"),
        number("PRIORITY", lambda item: item.get("priority", 0)),
        number("TRIED", lambda item: item.get("attempts", 0)),
        number("WAITING", "waiting_s", shown(age, "waiting_s")),
        number("RETRY-IN", "retry_in_s", shown(age, "retry_in_s")),
        text("REFUSED-BY", lambda item: ", ".join(item.get("plugins") or ())),
        text("NOMINATED", "nominated_node", wide=True),
        text("UID", "uid", wide=True),
    ),
)


def _where(unit: Json) -> str:
    pods = unit.get("pods") or ()
    found = [f"{pod.get('name')} -> {pod['node']}" for pod in pods[:PODS_SHOWN] if pod.get("node")]
    if found and len(pods) > PODS_SHOWN:
        found.append(f"and {len(pods) - PODS_SHOWN} more")
    return ", ".join(found)


UNITS = Kind(
    title="Unit",
    resource="unit",
    name=lambda unit: unit.get("key"),
    namespace=lambda unit: next((pod.get("namespace") for pod in unit.get("pods") or ()), None),
    empty="nothing is in flight",
    columns=(
        text("UNIT", "key"),
        text("STATE", "state"),
        number("PODS", lambda unit: len(unit.get("pods") or ())),
        number("MIN", "min_member"),
        text("SINCE", "since"),
        text("WHERE", _where),
    ),
)


@click.command()
@click.option("--place", type=click.Choice(PLACES), default=None, help="Only pods there.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@watch_option
@list_options(QUEUED_PODS)
def queue(place: str | None, watch: bool, wanted: Wanted, **server: Any) -> None:
    """List the pods that wait: where in the queue, how long, how often tried, and which rules refused them."""

    async def look(client: AdminClient) -> Found:
        found = await client.list_document(
            "/v1/queue", most=wanted.limit, place=place, namespace=wanted.namespace, selector=wanted.selector
        )
        return Found(found["items"], {"counts": found.get("counts") or {}})

    show_list(connector(server), look, wanted, watch=watch, head=counts_lines)


@click.command()
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@watch_option
@list_options(UNITS)
def units(watch: bool, wanted: Wanted, **server: Any) -> None:
    """List the gangs and lone pods in flight: offered to agents, planned, placed, or committed as an intent."""

    async def look(client: AdminClient) -> Found:
        return Found(await client.items("/v1/units", most=wanted.most))

    show_list(connector(server), look, wanted, watch=watch)


def counts_lines(found: Found) -> list[str]:
    """How many pods wait in each place, whatever is shown of them."""
    counts = found.beside.get("counts") or {}
    return ["  ".join(f"{place} {counts.get(place, 0)}" for place in PLACES)]
