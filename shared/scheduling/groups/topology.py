"""Domains for a group whose members must be near each other: the values of one node label, the tightest first.

Members that run already decide: only a domain that holds all their nodes will do, so late members and replacements of
a failed node's members join their group. A domain is worth what kube-scheduler counts with equal weights: how full it
would be (MostAllocated), and how many of the members it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shared.model.constraints import PodClass
from shared.scheduling.matching.domains import codes_or_absent
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import ABSENT, BoolArray, IntArray, NodeTable
from shared.scheduling.state.room.removable import FloatArray


@dataclass(frozen=True, slots=True)
class Domains:
    """``values`` of the label ``key``, in order; ``of_row [rows]``: which of them each node has, ``ABSENT`` for nodes
    that are in none of them."""

    key: str
    values: tuple[str, ...]
    of_row: IntArray

    def mask(self, at: int) -> BoolArray:
        """``[rows]``: True on the nodes of the domain ``values[at]``."""
        mask: BoolArray = self.of_row == at
        return mask

    def sums(self, amounts: IntArray) -> IntArray:
        """``[domains]``: the sum of ``amounts [rows]`` over each domain."""
        inside = self.of_row != ABSENT
        totals = np.bincount(self.of_row[inside], weights=amounts[inside], minlength=len(self.values))
        return totals.astype(np.int64)


def domains(cluster: ClusterState, key: str, occupied: Iterable[str] = ()) -> Domains:
    """The domains that the label ``key`` makes. ``occupied``: names of nodes on which members run: then only the domain
    that holds all of them, none if there is no such; nodes that are gone decide nothing."""
    table = cluster.table
    codes = np.where(table.present[: table.rows], codes_or_absent(table, key), ABSENT)
    wanted = {int(codes[row]) for row in (table.row_of.get(name) for name in occupied) if row is not None}
    if len(wanted) > 1 or ABSENT in wanted:
        return Domains(key, (), np.full(table.rows, ABSENT, np.int64))
    there = wanted or set(np.flatnonzero(np.bincount(codes[codes != ABSENT])).tolist())
    named = sorted((value, code) for value, code in table.label_values.get(key, {}).items() if code in there)
    numbers = np.full(len(table.label_values.get(key, ())) + 1, ABSENT, np.int64)  # the last answers for ABSENT
    numbers[[code for _, code in named]] = np.arange(len(named))
    return Domains(key, tuple(value for value, _ in named), numbers[codes])


def domain_rows(table: NodeTable, key: str, value: str) -> BoolArray:
    """``[rows]``: True on the nodes whose label ``key`` has this value."""
    code = table.label_values.get(key, {}).get(value)
    codes = codes_or_absent(table, key)
    rows: BoolArray = table.present[: table.rows] & (codes == code if code is not None else False)
    return rows


def worth(table: NodeTable, offered: Domains, asked: Sequence[tuple[PodClass, IntArray]], members: int) -> FloatArray:
    """``[domains]``: what each is worth, 0..200, once it has taken members. ``asked``: per class how many of it each
    domain takes ``[domains]``; ``members``: of the whole group."""
    full: FloatArray = np.zeros(len(offered.values))
    names = sorted({name for pod_class, _ in asked for name, _ in pod_class.requests} & table.column_of.keys())
    for name in names:
        column = table.column_of[name]
        used = offered.sums(table.requested[column, : table.rows])
        for pod_class, counts in asked:
            used += counts * dict(pod_class.requests).get(name, 0)
        total = offered.sums(table.allocatable[column, : table.rows])
        full += np.minimum(1.0, used / np.maximum(1, total))
    placed = np.sum([counts for _, counts in asked], axis=0)
    value: FloatArray = 100.0 * full / max(1, len(names)) + 100.0 * placed / max(1, members)
    return value
