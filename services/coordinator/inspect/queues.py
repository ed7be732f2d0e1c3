"""Queues for people: the tree with what each one uses, is guaranteed and may have at most, and who waits in it.

    QueueFacts (one queue as the leader accounts it) --shown--> a row of the list, --whole--> everything about one

Pure. ``queue_facts.py`` gathers the facts from the core; nothing here knows where they come from. Amounts are whole
numbers in the units of ``NAMES``; a queue's use, pods and units include those of the queues below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from services.coordinator.inspect.nodes import NAMES
from shared.model.units.queue import Queue

UNITS_SHOWN = 500
DIGITS = 4


class UnitFacts(Struct, frozen=True):
    """A unit that waits in a queue. ``blocked``: why its queue holds it back, in words; empty: nothing does;
    ``in_turn``: it waits for its turn, and not for its backoff or for something that helps it."""

    key: str
    namespace: str
    name: str
    source: str
    priority: int
    members: int
    waiting_s: float
    requests: Mapping[str, int] = field(default_factory=dict)
    blocked: str = ""
    reason: str = ""
    place: str = ""
    in_turn: bool = True


class QueueFacts(Struct, frozen=True):
    """One queue as the leader accounts it. ``path``: its parents from the top, and itself; ``past``: what counts of
    its use before; ``problem``: why its units wait, whatever room there is; ``warnings``: what should be corrected of a
    queue that is used all the same; ``pending``: its own units in the order in which they go, last those that are not
    in turn."""

    queue: Queue
    path: Sequence[str]
    used: Mapping[str, int] = field(default_factory=dict)
    past: Mapping[str, int] = field(default_factory=dict)
    children: Sequence[str] = ()
    pods: int = 0
    pending_units: int = 0
    blocked_units: int = 0
    parked_units: int = 0
    parked_pods: int = 0
    problem: str = ""
    warnings: Sequence[str] = ()
    missing: bool = False
    pending: Sequence[UnitFacts] = ()


class ResourceUse(Struct, frozen=True, kw_only=True):
    """One resource of a queue. ``guaranteed``, ``maximum`` None: it names no such limit; ``borrowed``: used above what
    is guaranteed; ``share``: of all nodes, None where there is none of it."""

    name: str
    used: int
    guaranteed: int | None
    maximum: int | None
    borrowed: int
    share: float | None


class QueueShown(Struct, frozen=True, kw_only=True):
    """One queue. ``path``: its parents from the top, and itself; ``share``: the largest of its resources' shares of the
    cluster, ``dominant``: of which; ``pending_units`` wait, ``blocked_units`` of them held back; ``parked_units``, with
    ``parked_pods``: those of them that had their turn and no node took; ``missing``: it is named, and there is no such
    object; ``problem``: why it cannot be used as it is written, and what to do; ``warnings``: what should be corrected,
    though it is used."""

    name: str
    parent: str
    path: list[str]
    depth: int
    order: str
    strategy: str
    weight: str
    share: float
    dominant: str
    resources: list[ResourceUse]
    pods: int
    pending_units: int
    blocked_units: int
    parked_units: int
    parked_pods: int
    problem: str
    warnings: list[str]
    missing: bool
    deleting: bool


class UnitPlace(Struct, frozen=True, kw_only=True):
    """A unit that waits. ``position``: 1 goes next, None: it is not in turn, ``place`` says where it is; ``blocked``:
    why its queue holds it back; ``reason``: why no node took it when it was tried."""

    position: int | None
    key: str
    namespace: str
    name: str
    source: str
    priority: int
    members: int
    waiting_s: float
    requests: dict[str, int]
    blocked: str
    reason: str
    place: str


class QueueWhole(QueueShown, frozen=True, kw_only=True):
    """One queue, its settings, and its own units in the order in which they go: the first 500."""

    namespaces: list[str]
    children: list[str]
    borrowing: dict[str, int] | None
    lending: dict[str, int] | None
    reclaim: bool
    reclaim_after_s: float
    min_run_s: float
    half_life_s: float | None
    past: dict[str, int]
    units: list[UnitPlace]


class QueueCounts(Struct, frozen=True, kw_only=True):
    """``total``: Queue objects; ``waiting_units``: in queues and in none; ``blocked_units``: those that a quota, or a
    queue that cannot be used, holds back; ``problems``: queues that should be corrected, or created."""

    total: int
    waiting_units: int
    blocked_units: int
    problems: int


def shown(facts: QueueFacts, capacity: Mapping[str, int]) -> QueueShown:
    """A queue as a row of the list. ``capacity``: of all nodes, by resource."""
    return QueueShown(**_row(facts, capacity))


def whole(facts: QueueFacts, capacity: Mapping[str, int]) -> QueueWhole:
    """Everything about one queue."""
    queue = facts.queue
    return QueueWhole(
        **_row(facts, capacity),
        namespaces=list(queue.namespaces),
        children=sorted(facts.children),
        borrowing=None if queue.borrowing is None else named(queue.borrowing),
        lending=None if queue.lending is None else named(queue.lending),
        reclaim=queue.reclaim,
        reclaim_after_s=queue.reclaim_after_s,
        min_run_s=queue.min_run_s,
        half_life_s=queue.half_life_s,
        past=named(facts.past),
        units=placed(facts.pending[:UNITS_SHOWN]),
    )


def placed(pending: Iterable[UnitFacts]) -> list[UnitPlace]:
    """Units with their places, in the order given."""
    return [
        UnitPlace(
            position=number if one.in_turn else None, key=one.key,
            namespace=one.namespace, name=one.name, source=one.source,
            priority=one.priority, members=one.members, waiting_s=round(max(0.0, one.waiting_s), 3),
            requests=named(one.requests), blocked=one.blocked, reason=one.reason,
            place=one.place,
        )
        for number, one in enumerate(pending, start=1)
    ]  # fmt: skip


def named(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts under the names that tell their unit, CPU and memory first."""
    return {NAMES.get(name, name): amount for name, amount in sorted(amounts.items(), key=lambda one: rank(one[0]))}


def rank(name: str) -> tuple[int, str]:
    """CPU and memory first, then by name."""
    return (list(NAMES).index(name) if name in NAMES else len(NAMES)), name


def _row(facts: QueueFacts, capacity: Mapping[str, int]) -> dict[str, Any]:
    queue, resources = facts.queue, _resources(facts, capacity)
    most = max(resources, key=lambda one: one.share or 0, default=None)
    return {
        "name": queue.name,
        "parent": queue.parent,
        "path": list(facts.path),
        "depth": len(facts.path) - 1,
        "order": queue.order.value,
        "strategy": queue.strategy.value,
        "weight": str(queue.weight),
        "share": most.share or 0.0 if most is not None else 0.0,
        "dominant": most.name if most is not None and most.share else "",
        "resources": resources,
        "pods": facts.pods,
        "pending_units": facts.pending_units,
        "blocked_units": facts.blocked_units,
        "parked_units": facts.parked_units,
        "parked_pods": facts.parked_pods,
        "problem": facts.problem or queue.problem,
        "warnings": list(facts.warnings),
        "missing": facts.missing,
        "deleting": queue.deleting,
    }


def _resources(facts: QueueFacts, capacity: Mapping[str, int]) -> list[ResourceUse]:
    """Every resource that the queue uses or limits."""
    queue = facts.queue
    names = {*queue.guaranteed, *queue.maximum, *(name for name, amount in facts.used.items() if amount)}
    found = []
    for name in sorted(names, key=rank):
        used, guaranteed, has = facts.used.get(name, 0), queue.guaranteed.get(name), capacity.get(name, 0)
        found.append(
            ResourceUse(
                name=NAMES.get(name, name), used=used, guaranteed=guaranteed, maximum=queue.maximum.get(name),
                borrowed=max(0, used - (guaranteed or 0)), share=round(used / has, DIGITS) if has else None,
            )
        )  # fmt: skip
    return found
