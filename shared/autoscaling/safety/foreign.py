"""Somebody else writes what we write: found out, told, never fought. Pure.

What is expected of a target is a set: what we wrote, and what it was before while the outcome of the write is unknown.
Anything else is somebody else's word, and stands until an operator gives a new go, which takes things as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from shared.model.autoscaler import Go


class Foreign(Struct, frozen=True):
    """A write that was not ours. ``value``: what it set; ``go``: the operator's word that was in force."""

    value: int
    by: str
    go: Go


class Expected(Struct, frozen=True):
    """What a target may show without anybody else having written it."""

    values: tuple[int, ...]


def seen(expected: Expected | None, shown: int, *, by: str, go: Go, before: Foreign | None) -> Foreign | None:
    """What is known of foreign writers after a reading. ``expected`` None: nothing was written by us yet."""
    if before is not None and before.go == go:
        return Foreign(shown, by or before.by, go) if shown != before.value else before
    if before is not None or expected is None or shown in expected.values:
        return None  # nothing, or a new go
    return Foreign(shown, by, go)


def text(found: Foreign) -> str:
    """What the operator is told."""
    who = f" by {found.by!r}"[:80] if found.by else ""
    return f"somebody else set {found.value}{who}; nothing is written until a new go (conclave autoscale go)"


def shared_targets(claims: Iterable[tuple[str, Iterable[str]]]) -> Mapping[str, tuple[str, ...]]:
    """Targets that more than one object names: by target, the objects. ``claims``: (object, its targets)."""
    found: dict[str, list[str]] = {}
    for claimant, targets in claims:
        for target in targets:
            found.setdefault(target, []).append(claimant)
    return {target: tuple(sorted(names)) for target, names in found.items() if len(names) > 1}
