"""The status of a mesh, as its admin API tells it, for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from services.cli.listing.kinds import Json, Kind, number, text
from services.cli.operate.lines.overview import overview_lines
from services.cli.terminal.tables import paint, printable


def _nodes(member: Json) -> int | None:
    """How many nodes an agent decides for; nobody else does for any."""
    return member.get("nodes") if member.get("service") == "agent" else None


def state_of(member: Json) -> str:
    """``leading``, ``standby``, ``suspect`` or ``ready``."""
    if member.get("suspect"):
        return "suspect"
    if member.get("leading"):
        return "leading"
    return "standby" if member.get("service") in ("coordinator", "binder") else "ready"


MEMBERS = Kind(
    title="Member",
    resource="member",
    name=lambda member: member.get("id"),
    empty="nobody is there",
    columns=(
        text("ROLE", "service"),
        text("ID", "id"),
        number("TERM", lambda member: member.get("term") or None),
        number("NODES", _nodes),
        text("URL", "url"),
        text("STATE", state_of),
        text("VERSION", "version", wide=True),
        text("NODE", "node", wide=True),
        text("INCARNATION", "incarnation", wide=True),
    ),
)

TERMS = Kind(
    title="Term",
    resource="term",
    name=lambda term: term.get("term"),
    columns=(number("TERM", "term"), text("LEADER", "id"), text("BEGAN", "began"), text("ENDED-BY", "ended_by")),
)


def status_lines(found: Json, *, wide: bool = False, colour: bool = False) -> list[str]:
    """The overview, a row per member, and what is wrong with any of them. ``wide``: also the newest failovers."""
    members: Sequence[Json] = found.get("members") or ()
    overview = overview_lines(found.get("overview") or {}, colour=colour)
    lines = [*overview, "", *MEMBERS.lines(members, wide=wide)]
    lines += [
        paint(printable(f"warning: {member.get('service')} {member.get('id')}: {told}"), "yellow", on=colour)
        for member in members
        for told in member.get("warnings") or ()
    ]  # fmt: skip
    terms: Sequence[Json] = found.get("terms") or ()
    if wide and terms:
        lines += ["", *TERMS.lines(terms)]
    return lines
