"""What ``conclave policy`` prints: tables for people, dictionaries for ``-o json``. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.listing.kinds import Kind, number, text
from services.cli.terminal.tables import left, printable, right, table
from shared.policy.rollout.outcome import NEUTRAL
from shared.runtime.records.policies import policy_rows
from shared.wire.records import PolicyPointer, PolicyRef, PolicyValue, PolicyWindow

if TYPE_CHECKING:
    from shared.runtime.records.policies import HistoryRecord

SHORT = 12
"""Characters of a digest that a table shows."""
CHANGES = 10
"""Changes that ``show`` prints."""


def listing(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> list[dict[str, Any]]:
    """One row per policy: published ones, then what is shipped and built in."""
    found: list[dict[str, Any]] = msgspec.to_builtins(policy_rows(pointer, history))
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
        mode = {"auto": "by itself after good windows", "manual": "by hand"}.get(
            pointer.promotion, "as the setting rollout_promotion says"
        )
        lines.append(f"promoted   {mode}; compared by the goal {pointer.goal or 'of the setting rollout_goal'}")
    if pointer.previous is not None:
        lines.append(f"previous   {_told(pointer.previous)}")
    if pointer.reason:
        lines.append(f"because    {pointer.reason} (by {pointer.by})")
    return lines


def window_lines(windows: Sequence[PolicyWindow]) -> list[str]:
    """What the latest windows said, newest first: the value by the goal that decides, then by the neutral one."""
    if not windows:
        return []
    columns = [
        *left("WINDOW", "CANDIDATE", "STAGE"), *right("SAMPLES", "SAME NODE"), *left("GOAL"),
        *right("CANDIDATE", "ACTIVE", "NEUTRAL: CANDIDATE", "ACTIVE"), *left("VERDICT"),
    ]  # fmt: skip
    return ["", *table(columns, [_window_row(window) for window in list(reversed(windows))[:CHANGES]])]


def card_lines(card: dict[str, Any]) -> list[str]:
    """A card for people."""
    return [f"{printable(key):<10}{json.dumps(value)}" for key, value in card.items()]


def _window_row(window: PolicyWindow) -> list[object]:
    deciding = window.values[0] if window.values else PolicyValue(goal=NEUTRAL, active=None)
    neutral = next((value for value in window.values if value.goal == NEUTRAL), None)
    return [
        window.time,
        window.candidate,
        f"{window.stage} {window.percent} %" if window.percent else window.stage,
        window.samples,
        f"{window.agreed / window.samples:.0%}" if window.candidate and window.samples else None,
        deciding.goal,
        _value(deciding.candidate),
        _value(deciding.active),
        _value(neutral.candidate) if neutral is not None else None,
        _value(neutral.active) if neutral is not None else None,
        f"{window.verdict}: {window.why}" if window.why else window.verdict,
    ]


def _value(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


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
