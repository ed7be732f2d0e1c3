"""The agent's replica of its partition: nodes and their accounting, as the coordinator streams them.

A level, not a log: a full view starts from nothing, deltas follow revision by revision, and anything that does not
continue what is here is a gap, which the agent answers by asking for everything again. Slots name nodes on the wire
and are the coordinator's rows; here they are mapped to rows of our own table.

Not its job: accounting. Amounts and generations are taken over as they come; an agent never counts a pod itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shared.errors import WireError
from shared.model.node import Node
from shared.scheduling.state.node_table import ABSENT, IntArray, NodeTable
from shared.wire.messages import NodeRow, NodeUsage, View

SOMEBODY = "an operator"
"""Who drained a node: the agent judges by it and is not told who or why; the coordinator, which explains, knows."""


class Replica:
    """One partition's nodes at (``epoch``, ``revision``); revision 0: nothing usable, a full view is wanted."""

    def __init__(self) -> None:
        self.epoch = 0
        self.revision = 0
        self.table = NodeTable()
        self.row_of_slot: dict[int, int] = {}
        self.slot_of_row: dict[int, int] = {}
        """The coordinator's names for rows of our table."""
        self._resources: Sequence[str] = ()
        self._places: IntArray | None = None
        self._left: set[str] = set()

    def apply(self, view: View) -> bool:
        """Take over a piece. False: it does not continue what is here (a gap); revision is 0 then.

        Refused with ``WireError``: amounts that do not match the resources, or one slot twice.
        """
        if view.base == 0:
            self._restart()
            self.epoch = view.epoch
        elif (view.epoch, view.base) != (self.epoch, self.revision):
            self.revision = 0
            return False
        if view.resources:
            self._resources = view.resources
        # Until the piece is wholly applied nothing may rely on it: an error in the middle leaves a gap.
        self.revision = 0
        for slot in view.removed:
            self._remove(slot)
        for row in view.nodes:
            self._upsert(row)
        for usage in view.usages:
            place = self.row_of_slot.get(usage.slot)
            if place is None:
                return False
            self._use(place, usage)
        self.revision = view.revision
        return True

    def drop(self) -> None:
        """Forget everything: what follows must be a full view."""
        self.epoch = self.revision = 0
        self._restart()

    def take_left(self) -> set[str]:
        """Nodes that were removed since the last call, also those that came back at once under another slot."""
        left, self._left = self._left, set()
        return left

    def rows_of(self, slots: IntArray) -> IntArray:
        """Our rows for the coordinator's slots; those not known here are left out."""
        if self._places is None:
            known = np.fromiter(self.row_of_slot, np.int64, len(self.row_of_slot))
            self._places = np.full(int(known.max()) + 1 if len(known) else 0, ABSENT, np.int64)
            self._places[known] = np.fromiter(self.row_of_slot.values(), np.int64, len(known))
        places: IntArray = self._places[slots[slots < len(self._places)]]
        found: IntArray = places[places != ABSENT]
        return found

    def validate(self) -> Iterator[str]:
        """What is broken between slots, rows and nodes; nothing while all is well. A gap (revision 0) may be anything:
        a full view begins from nothing."""
        if not self.revision:
            return
        yield from self.table.validate()
        if self.slot_of_row != {row: slot for slot, row in self.row_of_slot.items()}:
            yield "agent-slots: a slot and its row do not name each other"
        if set(self.slot_of_row) != set(self.table.row_of.values()):
            yield "agent-slots: the rows that have a slot are not those that have a node"
        if not self.epoch:
            yield f"agent-view: revision {self.revision} of no epoch"

    def _restart(self) -> None:
        self.table = NodeTable()
        self.row_of_slot = {}
        self.slot_of_row = {}
        self._resources = ()
        self._places = None

    def _remove(self, slot: int) -> None:
        row = self.row_of_slot.pop(slot, None)
        self._places = None
        if row is not None:
            del self.slot_of_row[row]
            self._left.add(self.table.names[row])
            self.table.remove(self.table.names[row])

    def _upsert(self, entry: NodeRow) -> None:
        slot = entry.usage.slot
        before = self.row_of_slot.get(slot)
        if before is not None and self.table.names[before] != entry.name:
            self._remove(slot)
        row = self.table.upsert(
            Node(
                name=entry.name,
                labels=entry.labels,
                taints=tuple(entry.taints),
                unschedulable=entry.unschedulable and not entry.drained,
                allocatable=entry.allocatable,
                latency_us=entry.latency_us,
                drained=SOMEBODY if entry.drained else "",
                features=tuple(entry.features),
            )
        )
        if self.slot_of_row.setdefault(row, slot) != slot:
            raise WireError(
                f"node {entry.name} came under slots {self.slot_of_row[row]} and {slot}", code="wire_invalid"
            )
        self.row_of_slot[slot] = row
        self._places = None
        self._use(row, entry.usage)

    def _use(self, row: int, usage: NodeUsage) -> None:
        if len(usage.requested) > len(self._resources):
            raise WireError(
                f"usage of slot {usage.slot} has {len(usage.requested)} amounts for {len(self._resources)} resources",
                code="wire_invalid",
            )
        self.table.set_usage(
            row,
            # shorter lists are fine: a resource that came to be known later is 0 where it was never used
            dict(zip(self._resources, usage.requested, strict=False)),
            (usage.score_cpu_millis, usage.score_memory_bytes),
            usage.ports,
            usage.device_free,
            usage.generation,
        )
        self.table.claimed_free[row] = usage.claimed_free
        if usage.zones or self.table.zones_free:
            self.table.set_zones(row, usage.zones)
