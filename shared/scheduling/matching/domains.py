"""Sums per topology domain: the nodes that share one value of a label.

Arrays per domain are indexed by the table's label codes and have one slot more: the last answers for nodes that lack
the label (``ABSENT`` is -1), so that ``per_domain[codes]`` needs no branch.
"""

from __future__ import annotations

import numpy as np

from shared.scheduling.state.node_table import ABSENT, BoolArray, IntArray, NodeTable


def domain_slots(table: NodeTable, key: str) -> int:
    """Length of an array per domain of ``key``."""
    return len(table.label_values.get(key, ())) + 1


def codes_or_absent(table: NodeTable, key: str) -> IntArray:
    """``[rows]``: label codes; all ``ABSENT`` where no node ever had the label."""
    codes = table.codes_of(key)
    return np.full(table.rows, ABSENT, np.int64) if codes is None else codes


def per_domain(table: NodeTable, key: str, amounts: IntArray) -> IntArray:
    """``[domains + 1]``: the sum of ``amounts [rows]`` per domain; the last slot sums nodes without the label."""
    slots = domain_slots(table, key)
    rows = np.flatnonzero(amounts)
    codes = codes_or_absent(table, key)[rows]
    codes[codes == ABSENT] = slots - 1
    return np.bincount(codes, weights=amounts[rows], minlength=slots).astype(np.int64)


def domains_present(table: NodeTable, key: str, rows: BoolArray) -> BoolArray:
    """``[domains + 1]``: whether any of the nodes ``rows [rows]`` is in the domain; the last slot: lacks the label."""
    present = np.zeros(domain_slots(table, key), np.bool_)
    present[codes_or_absent(table, key)[rows]] = True
    return present
