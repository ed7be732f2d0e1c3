"""Views of all nodes of one table, kept: looked at again only where the table or the store changed.

Where each decision compares nodes with the whole cluster, it would else look at a thousand of them for the few that
changed since the last. What is kept are nodes as they are; a pending pod is put on top for who asks. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.policy.usage.class_usage import PARTS, FloatArray
from shared.policy.usage.node_use import VIEWS, NodeUseEstimate
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, NodeView, PodView, node_view
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable


class KeptViews:
    """Answers as ``node_view`` does, within the last bits of a float."""

    def __init__(self) -> None:
        self._begin(NodeTable(1), UtilisationStore())

    def of(self, table: NodeTable, rows: IntArray, pod: PodView, store: UtilisationStore) -> NodeView:
        """The rows as of now, see ``node_view``; for reading, and until the next call. Of a table of copies, which is
        asked once, nothing is kept."""
        if table.copied:
            return node_view(table, rows, _slots([table.names[row] for row in rows.tolist()], store), pod, store)
        if table is not self._table or store is not self._store:
            self._begin(table, store)
        self._follow()
        whole = len(rows) == table.rows and bool((rows[1:] > rows[:-1]).all())
        packed = self._packed if whole else self._packed.take(rows, axis=1)
        view = _view(packed)
        if pod is NO_POD:
            return view
        odd = (view.use.known & (table.requested[PODS_COLUMN, rows] != view.use.pods)).nonzero()[0]
        if len(odd):  # pods that the store does not know are taken to be like the pending one
            view = _view(packed.copy() if whole else packed)
            fresh = node_view(table, rows[odd], self._slots[rows[odd]], pod, store)
            view.use.parts[odd], view.highest[odd] = fresh.use.parts, fresh.highest
        return view

    def _begin(self, table: NodeTable, store: UtilisationStore) -> None:
        """Nothing is known of this table's rows."""
        self._table, self._store = table, store
        self._seen = self._store_seen = self._static = self._changes = self._nodes = -1
        self._slots: IntArray = np.zeros(0, np.int64)
        self._packed: FloatArray = np.zeros((WIDTH, 0))

    def _follow(self) -> None:
        """Look again at the rows that changed."""
        table, store = self._table, self._store
        changed = table.stamp[: table.rows] > self._seen
        slots, before = self._slots, (self._static, self._changes)
        if before != (table.static_stamp, store.changes) or len(slots) < table.rows:
            slots = _slots(table.names, store)
            changed[: len(self._slots)] |= slots[: len(self._slots)] != self._slots
            self._slots, self._static, self._changes = slots, table.static_stamp, store.changes
        elif self._nodes != len(store.nodes):  # more of them, since none left
            unknown = (slots < 0).nonzero()[0]
            slots[unknown] = _slots([table.names[row] for row in unknown.tolist()], store)
            changed[unknown] |= slots[unknown] >= 0
        self._nodes = len(store.nodes)
        changed |= store.touched(self._slots, self._store_seen)
        known = self._packed[KNOWN]
        changed[: len(known)] |= store.sampled(self._slots)[: len(known)] != known  # samples grow old
        self._seen, self._store_seen = table.clock, store.clock
        rows = changed.nonzero()[0]
        if len(rows):
            if len(known) < table.rows:
                self._packed = np.concatenate((self._packed, np.zeros((WIDTH, table.rows - len(known)))), axis=1)
            self._packed[:, rows] = _packed(node_view(table, rows, self._slots[rows], NO_POD, store))


KNOWN = len(VIEWS) * PARTS
"""The line that says whether there is a sample; before it are the parts."""
WIDTH = KNOWN + 3 + PARTS + 4 + len(VIEWS)


def _packed(view: NodeView) -> FloatArray:
    """float64 ``[WIDTH, nodes]``: all that a view consists of, so that one call moves it."""
    use, nodes = view.use, len(view.pods)
    return np.concatenate(
        (
            use.parts.reshape(nodes, KNOWN).T, (use.known, use.pods, use.delay_ms), use.scale.T, view.requested.T,
            (view.pods, view.healthy), view.highest.T,
        )
    )  # fmt: skip


def _view(packed: FloatArray) -> NodeView:
    """The view that was packed."""
    parts = packed[:KNOWN].reshape(len(VIEWS), PARTS, -1).transpose(2, 0, 1)
    (known, pods, delay_ms), rest = packed[KNOWN : KNOWN + 3], packed[KNOWN + 3 :]
    use = NodeUseEstimate(parts, known > 0, pods.astype(np.int64), delay_ms, rest[:PARTS].T)
    rest = rest[PARTS:]
    return NodeView(use, rest[:2].T, rest[2], rest[3], rest[4:].T)


def _slots(names: Sequence[str], store: UtilisationStore) -> IntArray:
    """The store's slots of these nodes, -1 where it knows none."""
    nodes = store.nodes
    return np.array([nodes.get(name, -1) for name in names], np.int64)
