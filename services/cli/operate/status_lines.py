"""The status of a mesh, as its admin API tells it, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.cli.operate.overview_lines import overview_lines
from services.cli.tables import left, paint, printable, right, table

Json = Mapping[str, Any]


def status_lines(found: Json, *, wide: bool = False, colour: bool = False) -> list[str]:
    """The overview, a row per member, and what is wrong with any of them. ``wide``: also the newest failovers."""
    members: Sequence[Json] = found.get("members") or ()
    columns = [*left("ROLE", "ID"), *right("TERM", "NODES"), *left("URL", "STATE")]
    columns += left("VERSION", "NODE", "INCARNATION") if wide else []
    rows = [
        [
            member.get("service"), member.get("id"), member.get("term") or None, _nodes(member),
            member.get("url"), state_of(member),
            *([member.get("version"), member.get("node"), member.get("incarnation")] if wide else []),
        ]
        for member in members
    ]  # fmt: skip
    lines = [*overview_lines(found.get("overview") or {}, colour=colour), "", *table(columns, rows)]
    lines += [
        paint(printable(f"warning: {member.get('service')} {member.get('id')}: {told}"), "yellow", on=colour)
        for member in members
        for told in member.get("warnings") or ()
    ]  # fmt: skip
    terms: Sequence[Json] = found.get("terms") or ()
    if wide and terms:
        rows = [[term.get("term"), term.get("id"), term.get("began"), term.get("ended_by")] for term in terms]
        lines += ["", *table([*right("TERM"), *left("LEADER", "BEGAN", "ENDED-BY")], rows)]
    return lines


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
