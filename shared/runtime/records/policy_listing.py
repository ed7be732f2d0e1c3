"""Which policies there are and what they are now: published ones, then what is shipped and built in. Pure.

Read by ``conclave policy`` and by the admin API, so that both show the same. It refuses to read etcd.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct, field

from shared.policy import numbering
from shared.policy.registry import HEURISTICS, LEARNED
from shared.policy.weights import shipped, shipped_names
from shared.runtime.records.policies import HistoryRecord
from shared.wire.records import PolicyPointer, PolicyRef


class PolicyRow(Struct, frozen=True, kw_only=True):
    """One policy. ``role``: active, previous, or the stage of the candidate; ``percent`` of the pods it decides for;
    ``from``: published, shipped or built in."""

    name: str
    version: int
    sha256: str
    role: str
    percent: int
    where: str = field(name="from")


def refs_of(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> list[PolicyRef]:
    """Every policy that the pointer or the history names, newest first, each once."""
    return numbering.refs_of(
        [*([pointer] if pointer is not None else []), *(record.pointer for record in reversed(history))]
    )


def rows(pointer: PolicyPointer | None, history: Sequence[HistoryRecord]) -> list[PolicyRow]:
    """One row per policy."""
    found = [_row(ref, pointer, "published" if ref.sha256 else "built in") for ref in refs_of(pointer, history)]
    seen = {(row.name, row.version, row.sha256) for row in found}
    return found + [
        _row(ref, pointer, where) for ref, where in _at_hand() if (ref.name, ref.version, ref.sha256) not in seen
    ]


@cache
def _at_hand() -> tuple[tuple[PolicyRef, str], ...]:
    """What comes with the package, which does not change while we run: reading the weights costs too much each time."""
    at_hand = [(PolicyRef(name, make().version), "built in") for name, make in sorted(HEURISTICS.items())]
    for name in shipped_names():
        if name in LEARNED:
            file = shipped(name)
            at_hand.append((PolicyRef(name, file.card.version, file.sha256), "shipped"))
    return tuple(at_hand)


def _row(ref: PolicyRef, pointer: PolicyPointer | None, where: str) -> PolicyRow:
    role, percent = "", 0
    if pointer is not None:
        if ref == pointer.active:
            role, percent = "active", 100 - pointer.percent
        elif ref == pointer.candidate:
            role, percent = pointer.stage, pointer.percent
        elif ref == pointer.previous:
            role = "previous"
    return PolicyRow(name=ref.name, version=ref.version, sha256=ref.sha256, role=role, percent=percent, where=where)
