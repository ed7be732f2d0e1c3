"""A node's *load*: the mean of the shares in use of the parts that are watched (``shared.model.load``).

    share of a part = measured + requested since then          where it is measured, and more is requested by now
                      measured * requested now / then          where less is: who left took his part of it along,
                                                               and no more than he requested
                      requested                                where it is not measured

Requested is plain cpu and memory; since a measurement also what is lent, so that offline pods that come between two do
not all go to the node that looks idle. Nothing is requested of disk and network: a pod counts there by the mean of its
shares of cpu and memory, until it is measured. Pods are counted. A part that is measured is never more than all of it,
whatever was told. Row by row: no other row, no clock and no agent has any part in it. With cpu and memory watched and
nothing measured it is what kube-scheduler's LeastAllocated counts (``plugins/noderesources/least_allocated.go``), but
without its truncation. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.load import DEFAULT, PARTS, LoadParts
from shared.model.qos import is_lent
from shared.model.resources import CPU, MEMORY
from shared.scheduling.state.measured_use import MEASURABLE, REQUESTABLE
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, IntArray, NodeTable

Shares = NDArray[np.float64]

TINY = 1e-12

_PLACES = {part: place for place, part in enumerate(PARTS)}


def node_load(table: NodeTable, rows: IntArray, parts: LoadParts = DEFAULT) -> Shares:
    """float64 ``[rows]``: the load of ``rows``."""
    return mean_of(used_shares(table, rows), parts)


def added_load(table: NodeTable, pod_class: PodClass, rows: IntArray, parts: LoadParts = DEFAULT) -> Shares:
    """float64 ``[rows]``: what a pod of the class adds to it, as far as its requests tell."""
    return mean_of(_added(table, pod_class, rows), parts)


def room_by_use(table: NodeTable, pod_class: PodClass, rows: IntArray, parts: LoadParts = DEFAULT) -> NDArray[np.bool_]:
    """bool ``[rows]``: whether no watched part is measured so high that the pod's request would go beyond all of it.
    Whether what is requested fits is for the filters. A pod on what is lent counts others on it that came since the
    measurement; an online one does not wait for those, who would give way to it."""
    of_lent = any(is_lent(name) for name, _ in pod_class.requests)
    with_pod = used_shares(table, rows, count_lent=of_lent)[:MEASURABLE] + _added(table, pod_class, rows)[:MEASURABLE]
    beyond = table.use.known.take(rows, axis=1) & (with_pod > 1.0)
    room = np.ones(len(rows), np.bool_)
    for part in parts:
        if part in PARTS[:MEASURABLE]:
            room &= ~beyond[_PLACES[part]]
    return room


def used_shares(table: NodeTable, rows: IntArray, *, count_lent: bool = True) -> Shares:
    """float64 ``[len(PARTS), rows]``: the share in use of each part. Without ``count_lent`` no more has come since a
    measurement than plain requests exceed all that was requested then, plainly or not: so much did for certain."""
    allocatable = np.maximum(table.allocatable[:4].take(rows, axis=1), 1)
    share = table.requested[:4].take(rows, axis=1) / allocatable
    found = _each(share[CPU_COLUMN], share[MEMORY_COLUMN], share[PODS_COLUMN])
    if table.use:
        plain, measured = found[:MEASURABLE], table.use.shares.take(rows, axis=1)
        now = plain
        if any(table.lent_columns):
            lent = _lent(table, rows) / allocatable[:REQUESTABLE]
            now = _each(share[CPU_COLUMN] + lent[0], share[MEMORY_COLUMN] + lent[1], share[PODS_COLUMN])[:MEASURABLE]
        there = table.use.requested.take(rows, axis=1) / allocatable[:REQUESTABLE]
        then = _each(there[CPU_COLUMN], there[MEMORY_COLUMN], share[PODS_COLUMN])[:MEASURABLE]
        left = now / np.maximum(then, now + TINY)
        came = now - then
        if not count_lent:
            came = np.maximum(np.minimum(came, 0.0), plain - then)
        moved = np.maximum(measured + came, np.where(now < then, measured * left, 0.0))
        found[:MEASURABLE] = np.where(table.use.known.take(rows, axis=1), np.minimum(moved, 1.0), plain)
    return found


def _added(table: NodeTable, pod_class: PodClass, rows: IntArray) -> Shares:
    allocatable = np.maximum(table.allocatable[:4].take(rows, axis=1), 1)
    requests = dict(pod_class.requests)
    cpu, memory = requests.get(CPU, 0) / allocatable[CPU_COLUMN], requests.get(MEMORY, 0) / allocatable[MEMORY_COLUMN]
    added = _each(cpu, memory, 1 / allocatable[PODS_COLUMN])
    if table.use and any(table.lent_columns) and any(map(is_lent, requests)):
        lent = [sum(requests.get(table.resource_names[column], 0) for column in of) for of in table.lent_columns]
        more = _each(cpu + lent[0] / allocatable[CPU_COLUMN], memory + lent[1] / allocatable[MEMORY_COLUMN], cpu)
        known = table.use.known.take(rows, axis=1)
        added[:MEASURABLE] = np.where(known, more[:MEASURABLE], added[:MEASURABLE])
    return added


def _lent(table: NodeTable, rows: IntArray) -> IntArray:
    """int64 ``[REQUESTABLE, rows]``: what is requested of lent resources, whoever lends them."""
    found: IntArray = np.stack(
        [table.requested[np.array(of, np.intp)[:, None], rows].sum(axis=0) for of in table.lent_columns]
    )
    return found


def mean_of(shares: Shares, parts: LoadParts) -> Shares:
    """float64 ``[rows]`` of ``shares [len(PARTS), rows]``: the mean of the watched ones."""
    first, *others = (shares[_PLACES[part]] for part in parts)
    total = first
    for share in others:
        total = total + share
    mean: Shares = total * (1 / len(parts))
    return mean


def _each(cpu: Shares, memory: Shares, pods: Shares) -> Shares:
    """In the order of ``PARTS``: what nothing is requested of counts as the mean of cpu and memory."""
    found = np.empty((len(PARTS), len(cpu)))
    found[0], found[1], found[4] = cpu, memory, pods
    np.add(cpu, memory, out=found[2])
    found[2] *= 0.5
    found[3] = found[2]
    return found
