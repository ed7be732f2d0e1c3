"""``conclave policy`` through the admin API: what it asks, and the same tables as of etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from services.cli.etcd.policy_view import CHANGES, card_lines, history_lines, pointer_lines, window_lines
from services.cli.server.options import at_target
from services.cli.server.target import Target
from services.cli.terminal.tables import printable
from shared.policy.rollout.outcome import NEUTRAL
from shared.runtime.records.policies import HistoryRecord
from shared.wire.records import PolicyPointer, PolicyWindow

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Told = tuple[Any, list[str]]
"""What is printed with ``-o json``, and the lines for people."""


def listed(target: Target) -> list[dict[str, Any]]:
    """Every policy there is."""

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        found = await client.get("/v1/policies")
        return list(found.get("items") or ())

    return at_target(target, work)


def shown(target: Target) -> Told:
    """The pointer, its latest changes, how a candidate does by which rules, and what the last windows said."""

    async def work(client: AdminClient) -> dict[str, Any]:
        found = await client.get("/v1/policies")
        history = await client.items("/v1/policies/history", most=CHANGES)
        windows = await client.items("/v1/policies/windows", most=CHANGES)
        return {
            "pointer": found.get("pointer"),
            "comparison": found.get("comparison"),
            "windows": windows,
            "history": history,
        }

    found = at_target(target, work)
    history = msgspec.convert(found["history"][::-1], list[HistoryRecord])
    pointer = _pointer(found["pointer"])
    windows = msgspec.convert(found["windows"][::-1], list[PolicyWindow])
    return found, [
        *pointer_lines(pointer),
        *_comparison_lines(found),
        *window_lines(windows),
        *history_lines(history),
    ]


def card(target: Target, name: str) -> Told:
    """The card of one policy's weights."""

    async def work(client: AdminClient) -> dict[str, Any]:
        found: dict[str, Any] = (await client.get(f"/v1/policies/{quote(name, safe='')}/card")).get("card") or {}
        return found

    found = at_target(target, work)
    return found, card_lines(found)


def activated(
    target: Target, name: str, stage: str, percent: int | None, reason: str, promotion: str, goal: str | None
) -> Told:
    """Let the policy decide; the pointer after it."""
    given = {"percent": percent, "promotion": promotion or None, "goal": goal}
    body = {"name": name, "stage": stage, "reason": reason}
    return _changed(target, "activate", body | {key: value for key, value in given.items() if value is not None})


def promoted(target: Target, name: str, to: str | None, percent: int | None, reason: str) -> Told:
    """Take the candidate further; the pointer after it."""
    given = {"to": to, "percent": percent}
    body = {"name": name, "reason": reason}
    return _changed(target, "promote", body | {key: value for key, value in given.items() if value is not None})


def rolled_back(target: Target, reason: str) -> Told:
    """Go back; the pointer after it."""
    return _changed(target, "rollback", {"reason": reason})


def _changed(target: Target, verb: str, body: dict[str, Any]) -> Told:
    async def work(client: AdminClient) -> dict[str, Any]:
        return await client.change("POST", f"/v1/policies/{verb}", body)

    found = at_target(target, work)
    return found, pointer_lines(_pointer(found.get("pointer")))


def _pointer(found: Any) -> PolicyPointer | None:
    return None if found is None else msgspec.convert(found, PolicyPointer)


def _comparison_lines(found: dict[str, Any]) -> list[str]:
    """How the candidate does against the active policy, where there is one."""
    told, pointer = found.get("comparison"), found.get("pointer") or {}
    if not told or not pointer.get("candidate"):
        return []
    lines = [_rule_line(rule) for rule in told.get("rules") or ()]
    counts = ", ".join(f"{told.get(name, 0)} {name}" for name in ("windows", "good", "bad"))
    lines.append(
        f"compared   by the goal {told.get('goal')}: {counts}; {told.get('samples', 0)} of"
        f" {told.get('min_samples', 0)} samples in the open window"
    )
    last = told.get("last_window")
    if last:
        lines.append(
            f"           last window {last.get('verdict')}: {last.get('value', 0):.3f} against"
            f" {last.get('active_value', 0):.3f}{_neutral(last)}, same node in {last.get('agreed', 0)} of"
            f" {last.get('samples', 0)}, p99 {last.get('p99_ms', 0):.3g} ms against"
            f" {last.get('active_p99_ms', 0):.3g} ms"
        )
    lines += [f"           {printable(str(name))}: {count}" for name, count in (told.get("failures") or {}).items()]
    return lines


def _neutral(last: dict[str, Any]) -> str:
    mine, theirs = last.get("neutral_value"), last.get("active_neutral_value")
    if last.get("goal") == NEUTRAL or mine is None or theirs is None:
        return ""
    return f" (neutral {mine:.3f} against {theirs:.3f}, which does not decide)"


def _rule_line(rule: dict[str, Any]) -> str:
    """What changes the pointer next, by which rule, and how far that is."""
    needed, so_far = rule.get("needed", 0), rule.get("so_far", 0)
    far = f"{so_far} of {needed} so far"
    if so_far < needed:
        far += f", at the earliest {rule.get('at')}"
    then, why = printable(str(rule.get("then"))), printable(str(rule.get("rule")))
    if rule.get("automatic"):
        return f"next       {then} by itself: {why} ({far})"
    return f"next       {then} when you promote it ('conclave policy promote'); it would earn it by {why} ({far})"
