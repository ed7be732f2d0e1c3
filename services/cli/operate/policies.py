"""``conclave policy`` through the admin API: what it asks, and the same tables as of etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.policy_view import CHANGES, history_lines, pointer_lines
from services.cli.server.options import at_target
from services.cli.server.target import Target
from services.cli.tables import printable
from shared.runtime.policy_store import HistoryRecord
from shared.wire.records import PolicyPointer

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
    """The pointer, its latest changes, and how a candidate does."""

    async def work(client: AdminClient) -> dict[str, Any]:
        found = await client.get("/v1/policies")
        history = await client.items("/v1/policies/history", most=CHANGES)
        return {"pointer": found.get("pointer"), "comparison": found.get("comparison"), "history": history}

    found = at_target(target, work)
    history = msgspec.convert(found["history"][::-1], list[HistoryRecord])
    pointer = _pointer(found["pointer"])
    return found, [*pointer_lines(pointer), *_comparison_lines(found), *history_lines(history)]


def activated(target: Target, name: str, stage: str, percent: int | None, reason: str) -> Told:
    """Let the policy decide; the pointer after it."""
    body = {"name": name, "stage": stage, "reason": reason} | ({"percent": percent} if percent is not None else {})
    return _changed(target, "activate", body)


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
    counts = ", ".join(f"{told.get(name, 0)} {name}" for name in ("windows", "good", "bad"))
    lines = [f"compared   {counts}; {told.get('samples', 0)} samples in the open window"]
    last = told.get("last_window")
    if last:
        lines.append(
            f"           last window: {last.get('value', 0):.3g} against {last.get('active_value', 0):.3g},"
            f" p99 {last.get('p99_ms', 0):.3g} ms against {last.get('active_p99_ms', 0):.3g} ms"
        )
    lines += [f"           {printable(str(name))}: {count}" for name, count in (told.get("failures") or {}).items()]
    return lines
