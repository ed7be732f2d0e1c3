"""``conclave pending`` and ``pending-pods``: what waits, in groups and pod by pod, where, why, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.kinds import Json, ListKind, number, shown, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import FoundItems, ListQuery
from services.cli.server.options import connector
from services.cli.server.watching import watch_option
from services.cli.terminal.tables import age, count, place_word, printable

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

PLACES = ("active", "backoff", "unschedulable", "gated", "in_flight")

QUEUED_PODS = ListKind(
    title="QueuedPod",
    resource="pod",
    namespace=lambda item: item.get("namespace"),
    labelled=True,
    columns=(
        text("NAMESPACE", "namespace"),
        text("POD", "name"),
        text("PLACE", "place", shown(place_word, "place")),
        number("PRIORITY", lambda item: item.get("priority", 0)),
        number("TRIED", lambda item: item.get("attempts", 0)),
        number("WAITING", "waiting_s", shown(age, "waiting_s")),
        number("RETRY-IN", "retry_in_s", shown(age, "retry_in_s")),
        text("REASON", lambda item: item.get("reason") or "+".join(item.get("plugins") or ()), cut=True),
        text("REFUSED-BY", lambda item: ", ".join(item.get("plugins") or ()), wide=True),
        text("NOMINATED", "nominated_node", wide=True),
        text("UID", "uid", wide=True),
    ),
)


@click.command("pending-pods")
@click.option("--place", type=click.Choice(PLACES), default=None, help="Only pods there.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@watch_option
@list_options(QUEUED_PODS)
def pending_pods(place: str | None, watch: bool, wanted: ListQuery, **server: Any) -> None:
    """List the pods that wait: their place in the scheduling queue, how long, how often tried, and why."""

    async def look(client: AdminClient) -> FoundItems:
        found = await client.list_document(
            "/v1/queue", most=wanted.limit, place=place, namespace=wanted.namespace, selector=wanted.selector
        )
        return FoundItems(found["items"], {"counts": found.get("counts") or {}})

    show_list(connector(server), look, wanted, watch=watch, head=counts_lines)


def counts_lines(found: FoundItems) -> list[str]:
    """How many pods wait in each place, whatever is shown of them."""
    counts = found.beside.get("counts") or {}
    return ["  ".join(f"{place_word(place)} {counts.get(place, 0)}" for place in PLACES)]


HELPS_SHOWN = 5


def group_key(group: Json) -> str:
    """What tells a group from all others."""
    return "/".join(str(group.get(name, "")) for name in ("reason", "namespace", "priority", "class"))


def _best(group: Json) -> Json:
    """What would help the group most."""
    return next(iter(group.get("helps") or ()), {})


PENDING_GROUPS = ListKind(
    title="PendingGroup",
    resource="pendinggroup",
    name=group_key,
    namespace=lambda group: group.get("namespace"),
    columns=(
        text("REASON", "reason", cut=True),
        text("NAMESPACE", "namespace"),
        number("PRIORITY", lambda group: group.get("priority", 0)),
        text("CLASS", "class"),
        number("PODS", lambda group: group.get("pods", 0)),
        number("OLDEST", "oldest_s", shown(age, "oldest_s")),
        text("WOULD-HELP", lambda group: _best(group).get("text") or group.get("remedy"), cut=True),
        number("LETS-IN", lambda group: _best(group).get("lets_in")),
        text("OLDEST-POD", "oldest_pod", wide=True),
        text("MEANS", "means", wide=True),
        text("PAGE", "page", wide=True),
        text("MESSAGE", "message", wide=True),
    ),
)


@click.command()
@click.option("--reason", default="", help="Only pods that wait for this reason, as the table names it.")
@click.option("--priority", type=int, default=None, help="Only pods of this priority.")
@click.option("--class", "of_class", default="", help="Only pods of this class, as the table names it.")
@click.option(
    "--sort", type=click.Choice(["pods", "oldest", "priority"]), default="pods", show_default=True,
    help="What --limit goes by: most pods first, or longest waiting, or highest priority.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many groups; default: all.")
@watch_option
@list_options(PENDING_GROUPS)
def pending(
    reason: str, priority: int | None, of_class: str, sort: str, watch: bool, wanted: ListQuery, **server: Any
) -> None:
    """Show why pods wait: groups of one reason, namespace, priority and class, and what would let them in."""
    asked = {"namespace": wanted.namespace, "reason": reason, "priority": priority, "class": of_class, "sort": sort}

    async def look(client: AdminClient) -> FoundItems:
        answer = await client.list_document("/v1/pending", most=wanted.limit, **asked)
        return FoundItems(
            answer["items"], {name: part for name, part in answer.items() if name not in ("items", "continue")}
        )

    narrowed = bool(wanted.namespace or reason or of_class or priority is not None)
    head = chosen_lines if narrowed else lambda found: pending_lines(found.beside)
    show_list(connector(server), look, wanted, watch=watch, head=head)


def chosen_lines(found: FoundItems) -> list[str]:
    """How many of those that wait are in the groups asked for; what helps all of them would not be about these."""
    pods = sum(int(group.get("pods") or 0) for group in found.items)
    every = int(found.beside.get("pods") or 0) + int(found.beside.get("gated") or 0)
    return [f"{pods} of {every} waiting pods, in {count(len(found.items), 'group')}"]


def pending_lines(found: Json) -> list[str]:
    """How many wait, and what would help most."""
    gated = f", {found['gated']} more wait for their scheduling gates" if found.get("gated") else ""
    pods, classes = count(found.get("pods", 0), "pod"), found.get("classes", 0)
    of = f"{classes} class" if classes == 1 else f"{classes} classes"
    lines = [f"{pods} of {of} {'waits' if found.get('pods') == 1 else 'wait'}{gated}"]
    if found.get("unjudged"):
        lines.append(f"{found['unjudged']} classes were not looked into: there are too many")
    helps: Sequence[Json] = found.get("helps") or ()
    return lines + [f"  {_let_in(one)}: {printable(str(one.get('text', '')))}" for one in helps[:HELPS_SHOWN]]


def _let_in(one: Json) -> str:
    if one.get("lets_in") is None:
        return f"may help {one.get('of', 0)}"
    return f"lets in {one['lets_in']} of {one.get('of', 0)}"
