"""``conclave pending``: why pods wait, in groups, what would help, and how many that would let in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.server.options import connector, server_options
from services.cli.tables import age, left, printable, right, table
from services.cli.watching import show, watch_option, wide_output_option

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]
HELPS_SHOWN = 5


@click.command()
@click.option("--pod-namespace", "in_namespace", default="", help="Only pods of this namespace; default: of all.")
@click.option("--reason", default="", help="Only pods that wait for this reason, as the table names it.")
@click.option("--priority", type=int, default=None, help="Only pods of this priority.")
@click.option("--class", "of_class", default="", help="Only pods of this class, as the table names it.")
@click.option(
    "--sort", type=click.Choice(["pods", "oldest", "priority"]), default="pods", show_default=True,
    help="Most pods first, or longest waiting, or highest priority.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many groups; default: all.")
@wide_output_option
@watch_option
@server_options
def pending(
    in_namespace: str, reason: str, priority: int | None, of_class: str, sort: str, limit: int, output: str,
    watch: bool, **server: Any,
) -> None:  # fmt: skip
    """Show why pods wait: groups of one reason, namespace, priority and class, and what would let them in."""

    async def look(client: AdminClient) -> dict[str, Any]:
        asked = {"namespace": in_namespace, "reason": reason, "priority": priority, "class": of_class, "sort": sort}
        query = {name: value for name, value in asked.items() if value not in ("", None)}
        return await client.list_document("/v1/pending", most=limit, **query)

    wide = output == "wide"
    show(connector(server), look, lambda found: pending_lines(found, wide=wide), output=output, watch=watch)


def pending_lines(found: Json, *, wide: bool = False) -> list[str]:
    """How many wait, what would help most, and a row per group. ``wide``: also what they ask for and the message."""
    items: Sequence[Json] = found.get("items") or ()
    gated = f", {found['gated']} more wait for their scheduling gates" if found.get("gated") else ""
    lines = [f"{found.get('pods', 0)} pods of {found.get('classes', 0)} classes wait{gated}"]
    if found.get("unjudged"):
        lines.append(f"{found['unjudged']} classes were not looked into: there are too many")
    helps: Sequence[Json] = found.get("helps") or ()
    lines += [f"  {_let_in(one)}: {printable(str(one.get('text', '')))}" for one in helps[:HELPS_SHOWN]]
    if not items:
        return lines
    columns = [
        *left("REASON", "NAMESPACE"), *right("PRIORITY"), *left("CLASS"), *right("PODS", "OLDEST"),
        *left("WOULD-HELP"), *right("LETS-IN"),
    ]  # fmt: skip
    columns += left("OLDEST-POD", "MESSAGE") if wide else []
    rows = []
    for item in items:
        best: Json = next(iter(item.get("helps") or ()), {})
        row = [
            item.get("reason"), item.get("namespace"), item.get("priority", 0), item.get("class"),
            item.get("pods", 0), age(item.get("oldest_s")), best.get("text"), best.get("lets_in"),
        ]  # fmt: skip
        rows.append([*row, item.get("oldest_pod"), item.get("message")] if wide else row)
    return [*lines, "", *table(columns, rows)]


def _let_in(one: Json) -> str:
    if one.get("lets_in") is None:
        return f"may help {one.get('of', 0)}"
    return f"lets in {one['lets_in']} of {one.get('of', 0)}"
