"""What ``conclave policy`` prints: tables for people, dictionaries for ``-o json``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.listing.kinds import Kind, number, text
from shared.runtime import policy_listing
from shared.wire.records import PolicyPointer, PolicyRef

if TYPE_CHECKING:
    from shared.runtime.policy_store import HistoryRecord

SHORT = 12
"""Characters of a digest that a table shows."""
CHANGES = 10
"""Changes that ``show`` prints."""


def listing(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> list[dict[str, Any]]:
    """One row per policy: published ones, then what is shipped and built in."""
    found: list[dict[str, Any]] = msgspec.to_builtins(policy_listing.rows(pointer, history))
    return found


POLICIES = Kind(
    title="Policy",
    resource="policy",
    name=lambda row: f"{row.get('name')}@{row.get('version')}",
    columns=(
        text("NAME", "name"),
        number("VERSION", "version"),
        text("SHA256", lambda row: str(row.get("sha256") or "")[:SHORT]),
        text("ROLE", "role"),
        number("PODS", "percent", lambda row: f"{row['percent']} %" if row.get("percent") else ""),
        text("FROM", "from"),
    ),
)


def pointer_json(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> dict[str, Any]:
    """The pointer and its history as they are in etcd."""
    return {
        "pointer": msgspec.to_builtins(pointer),
        "history": [msgspec.to_builtins(record) for record in history],
    }


def pointer_lines(pointer: PolicyPointer | None) -> list[str]:
    """The pointer for people."""
    if pointer is None:
        return ["no policy has been activated: every agent decides by its own --policy"]
    lines = [f"active     {_told(pointer.active)}"]
    if pointer.candidate is not None:
        share = f" for {pointer.percent} % of the pods" if pointer.percent else ""
        lines.append(f"candidate  {_told(pointer.candidate)}, {pointer.stage}{share}")
    if pointer.previous is not None:
        lines.append(f"previous   {_told(pointer.previous)}")
    if pointer.reason:
        lines.append(f"because    {pointer.reason} (by {pointer.by})")
    return lines


def history_lines(history: Sequence[HistoryRecord]) -> list[str]:
    """The latest changes, newest first."""
    if not history:
        return []
    lines = ["", f"{'WHEN':<27}{'ACTIVE':<22}{'CANDIDATE':<22}{'STAGE':<15}WHY"]
    for record in list(reversed(history))[:CHANGES]:
        pointer = record.pointer
        stage = f"{pointer.stage} {pointer.percent} %" if pointer.percent else pointer.stage
        candidate = pointer.candidate.title if pointer.candidate is not None else "-"
        why = f"{pointer.reason} (by {pointer.by})" if pointer.reason else "first"
        lines.append(f"{record.at:<27}{pointer.active.title:<22}{candidate:<22}{stage:<15}{why}")
    return lines


def _told(ref: PolicyRef) -> str:
    return f"{ref.title} ({ref.sha256[:SHORT]})" if ref.sha256 else ref.title
