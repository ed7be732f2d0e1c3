"""What one agent has been told of its partition, and what it must be told next.

A view is rows of the coordinator's table (``slot`` = row). Everything is a difference against what was sent: nodes
that are new or changed go as ``NodeRow``, accounting that changed since as ``NodeUsage``, nodes that left as
``removed``. A gap or a failed request starts again from nothing (``base`` 0). One request per agent at a time, so what
was sent and what the agent answers by are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shared.model.node import Node
from shared.scheduling.state.node_table import IntArray, NodeTable
from shared.wire.messages import MAX_NODES_PER_PAGE, NodeRow, NodeUsage, View
from shared.wire.records import AgentRecord

ROWS_PER_PIECE = MAX_NODES_PER_PAGE // 2
"""New nodes in one piece, and as many changed ones beside them."""

FEW_NODES = 8
"""An agent with less than such a part of the rows has few nodes."""


@dataclass(slots=True)
class AgentRequest:
    """The one request in flight to an agent."""

    id: int
    sent_at: float
    is_offer: bool


@dataclass(slots=True)
class Heard:
    """What an agent knows of who stands on its nodes (``inventory.py``). ``seen``: how much of the journal; ``moves``:
    of its view; ``waiting``: stays it is not told of yet; ``slots``: by node, those whose stays it is told of, with the
    move by which each came; ``lesson``: the last one it was told what was learned of; ``risen``: of the rises of
    priorities."""

    session: int
    seen: int
    moves: int = -1
    lesson: int = -1
    risen: int = 0
    names: set[int] = field(default_factory=set)
    slots: dict[str, tuple[int, int]] = field(default_factory=dict)
    waiting: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class AgentView:
    """One agent and its view.

    ``pending``: names to be looked at (sent, or removed from the view) with the next piece. ``stamp``: the table's
    counter when the last piece was built. ``suspect``: did not answer in time or failed; left out of cycles until it
    answers; ``retry_at``: when it is asked again. ``moves`` counts nodes that came into the view or left it; ``sent``:
    by node its row, the node as sent, and the move by which it came; ``heard``: what it knows of who stands there;
    ``demand``: the number of the demand that it was told.
    """

    record: AgentRecord
    epoch: int
    request: AgentRequest | None = None
    suspect: bool = False
    retry_at: float = 0.0
    failures: int = 0
    revision: int = 0
    stamp: int = 0
    pending: set[str] = field(default_factory=set)
    sent: dict[str, tuple[int, Node, int]] = field(default_factory=dict)
    slots: dict[int, str] = field(default_factory=dict)
    classes: set[int] = field(default_factory=set)
    moves: int = 0
    heard: Heard | None = None
    demand: int = 0
    _owned: IntArray | None = None

    @property
    def settled(self) -> bool:
        """Whether it is trusted, idle, and to be told of no node."""
        return self.request is None and not self.suspect and not self.pending

    def reset(self, epoch: int, owned: set[str]) -> None:
        """Begin again from nothing."""
        self.epoch, self.revision, self.stamp = epoch, 0, 0
        self.sent.clear()
        self.slots.clear()
        self._owned = None
        self.classes.clear()
        self.heard = None
        self.demand = 0
        self.pending = owned

    def piece(self, table: NodeTable, owner: dict[str, str]) -> View | None:
        """The next piece, None when the agent knows everything. Counts as sent from here on."""
        changed = self._changed(table).tolist() if self.sent else []
        removed: list[int] = []
        rows: list[NodeRow] = []
        usages: list[NodeUsage] = []
        fresh = sorted(self.pending)[:ROWS_PER_PIECE] if self.pending else []
        self.pending.difference_update(fresh)
        for name in fresh:
            known = self.sent.get(name)
            row = table.row_of.get(name) if owner.get(name) == self.record.id else None
            if known is not None and known[0] != row:
                self._drop(name, removed)
        self._split(table, changed, frozenset(fresh), rows, usages)
        for name in fresh:
            row = table.row_of.get(name)
            if row is not None and owner.get(name) == self.record.id:
                rows.append(self._row(table, row))
        self.stamp = table.clock
        if not (removed or rows or usages):
            return None
        base, self.revision = self.revision, self.revision + 1
        resources = list(table.resource_names) if rows or usages else []
        return View(self.epoch, base, self.revision, resources, rows, usages, removed)

    def owned_slots(self) -> IntArray:
        """Slots of the nodes that the agent has, ascending."""
        if self._owned is None:
            self._owned = np.sort(np.fromiter(self.slots, np.int64, len(self.slots)))
        return self._owned

    def _changed(self, table: NodeTable) -> IntArray:
        """Rows that changed since the last piece. Of few nodes its own alone: one that is asked now and then would look
        through all that happened to others meanwhile."""
        if FEW_NODES * len(self.slots) > table.rows:
            return table.changed_since(self.stamp)
        owned = self.owned_slots()
        return owned[table.stamp[owned] > self.stamp]

    def _split(
        self, table: NodeTable, changed: list[int], fresh: frozenset[str], rows: list[NodeRow], usages: list[NodeUsage]
    ) -> None:
        """Changed rows that the agent has: whole where the static half changed, else accounting alone."""
        for row in changed:
            name = table.names[row]
            known = self.sent.get(name)
            if known is None or known[0] != row or name in self.pending or name in fresh:
                continue
            if known[1] is table.nodes[row]:
                usages.append(usage_of(table, row))
            elif len(rows) < ROWS_PER_PIECE:
                rows.append(self._row(table, row))
            else:
                self.pending.add(name)

    def _row(self, table: NodeTable, row: int) -> NodeRow:
        node = table.nodes[row]
        assert node is not None
        known = self.sent.get(node.name)
        self.moves += known is None
        self.sent[node.name] = (row, node, self.moves if known is None else known[2])
        if row not in self.slots:
            self._owned = None
        self.slots[row] = node.name
        return NodeRow(
            node.name,
            dict(node.labels),
            list(node.taints),
            node.closed or node.deleting,
            dict(node.allocatable),
            usage_of(table, row),
            node.latency_us,
            bool(node.drained) and not (node.unschedulable or node.deleting),
            list(node.features),
        )

    def _drop(self, name: str, removed: list[int]) -> None:
        slot, *_ = self.sent.pop(name)
        self.moves += 1
        if self.slots.get(slot) == name:
            del self.slots[slot]
            self._owned = None
            removed.append(slot)


def usage_of(table: NodeTable, row: int) -> NodeUsage:
    """What agents are told of the row."""
    return NodeUsage(
        row,
        int(table.generation[row]),
        table.requested[:, row].tolist(),
        int(table.score_requested[0, row]),
        int(table.score_requested[1, row]),
        list(table.ports[row]),
        list(table.device_free[row]),
        list(table.claimed_free[row]),
        table.zones_free.get(row, []),
    )
