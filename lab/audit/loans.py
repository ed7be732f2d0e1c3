"""What nodes lend to offline pods, judged by what the API server took: who wrote it, and whether it can be.

By this audit's own words, which no service shares. A lender is told by its field manager; the mesh's own ends in
``-lending``. What the mesh lends may be wrong so: it stands in place of another manager's value, or that is gone by the
mesh's write; capacity and allocatable say different things; it is more than the whole node has; or the node's own cpu
or memory went with it. A kubelet is no lender: what it resets is not its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.audit.rules import Amounts, amounts, lends

if TYPE_CHECKING:
    from lab.audit.log import LogEntry

KUBELET = "kubelet"
OURS = "-lending"


@dataclass(slots=True)
class _NodeLoans:
    uid: str
    capacity: Amounts
    allocatable: Amounts
    lender: dict[str, str] = field(default_factory=dict)
    """By resource, who set it last; "" where the file does not say."""


class LoansAudit:
    """Feed every entry of a node; each wrong is told in a sentence."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeLoans] = {}

    def change(self, entry: LogEntry) -> Iterator[str]:
        """What is wrong about it."""
        if entry.gone:
            self._nodes.pop(entry.name, None)
            return
        status = entry.object.get("status") or {}
        try:
            capacity, allocatable = amounts(status.get("capacity")), amounts(status.get("allocatable"))
        except ValueError:
            return
        before = self._nodes.get(entry.name)
        after = _NodeLoans(entry.uid, capacity, allocatable)
        self._nodes[entry.name] = after
        if before is None or before.uid != entry.uid:
            before = _NodeLoans(entry.uid, {}, {})
        ours = entry.manager.endswith(OURS)
        for name in {*before.allocatable, *allocatable, *before.capacity, *capacity}:
            if not lends(name):
                continue
            same = (before.allocatable.get(name), before.capacity.get(name)) == (
                allocatable.get(name), capacity.get(name)
            )  # fmt: skip
            was = before.lender.get(name, "")
            there = name in allocatable or name in capacity
            if there:
                if name in before.lender and (same or entry.manager == KUBELET):
                    after.lender[name] = was
                elif entry.manager != KUBELET:
                    after.lender[name] = entry.manager
            if same or not ours:
                continue
            if name in before.lender and not was.endswith(OURS):
                yield f"{name} of {entry.name} is {was or 'nobody known'}'s, and {entry.manager} wrote it"
            if allocatable.get(name) != capacity.get(name):
                yield f"{name} of {entry.name} is {capacity.get(name)} of capacity, {allocatable.get(name)} allocatable"
            most = capacity.get("cpu" if "cpu" in name.rpartition("/")[2] else "memory", 0)
            if there and allocatable.get(name, 0) > most:
                yield f"{name} of {entry.name} is {allocatable.get(name)}, and the whole node has {most}"
        if ours and (lost := [name for name in before.capacity if not lends(name) and name not in capacity]):
            yield f"{', '.join(sorted(lost))} of {entry.name} went with what {entry.manager} wrote"
