"""Nodes as a leader accounts them, for people: one, a page of them, or all as columns for a map of thousands.

Pure, and reads only what is asked for. ``requested`` is the leader's accounting, what it assumes included; ``used`` is
there only while a policy has the metrics API read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice

import numpy as np
from msgspec import Struct

from services.coordinator.core import Core
from shared.model.constraints import Taint
from shared.model.node import Node
from shared.model.resources import CPU, MEMORY
from shared.scheduling.node_table import CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, IntArray
from shared.wire.records import Drained

PODS_SHOWN = 500

DRAINED, UNSCHEDULABLE, UNOWNED = 1, 2, 4
"""Bits of ``NodeMap.flags``."""

NAMES = {CPU: "cpu_millis", MEMORY: "memory_bytes"}
"""Resources whose unit is said; the others are whole numbers under their own name."""


class NodeDrained(Struct, frozen=True, kw_only=True):
    """By whom, why and since when the node gets no new pods from us."""

    by: str
    reason: str
    since: str


class NodeUsed(Struct, frozen=True, kw_only=True):
    """What the node used when it was last measured, ``age_s`` ago."""

    cpu_millis: int
    memory_bytes: int
    age_s: float


class NodeShown(Struct, frozen=True, kw_only=True):
    """One node. ``agent`` "": nobody decides for it. ``schedulable``: neither cordoned, drained nor being deleted."""

    name: str
    agent: str
    schedulable: bool
    drained: NodeDrained | None
    taints: list[str]
    pods: int
    allocatable: dict[str, int]
    requested: dict[str, int]
    used: NodeUsed | None


class PodOnNode(Struct, frozen=True, kw_only=True):
    """A pod that is counted on the node. ``ours``: this scheduler placed it, or is about to."""

    namespace: str
    name: str
    uid: str
    priority: int
    ours: bool


class NodeMap(Struct, frozen=True, kw_only=True):
    """Columns over all nodes in order of their names. ``cpu`` and ``memory``: requested share, 0 to 1."""

    names: list[str]
    cpu: list[float]
    memory: list[float]
    flags: list[int]


def node_names(core: Core, *, agent: str = "") -> Iterable[str]:
    """Names of all nodes, or of those that ``agent`` decides for, in no particular order."""
    names = core.state.cache.table.row_of
    if not agent:
        return names.keys()
    owner = core.roster.ownership.owner
    return (name for name in names if owner.get(name) == agent)


def node_page(
    core: Core, now: float, *, agent: str = "", after: str = "", limit: int = 100
) -> tuple[list[NodeShown], str | None]:
    """(the next nodes by name, ``after`` of the next page or None)."""
    names, _ = core.state.cache.table.by_name()
    owner = core.roster.ownership.owner
    rest = (names[place] for place in range(bisect_right(names, after), len(names)))
    found = list(islice((name for name in rest if not agent or owner.get(name) == agent), limit + 1))
    page = found[:limit]
    shown = [node for name in page if (node := node_shown(core, name, now)) is not None]
    return shown, page[-1] if len(found) > limit else None


def node_shown(core: Core, name: str, now: float) -> NodeShown | None:
    """One node; None where there is none of that name."""
    table = core.state.cache.table
    row = table.row_of.get(name)
    node = table.nodes[row] if row is not None else None
    if row is None or node is None:
        return None
    requested = {
        NAMES.get(resource, resource): int(table.requested[column, row])
        for resource, column in table.column_of.items()
        if column != PODS_COLUMN and (table.requested[column, row] or resource in node.allocatable)
    }
    return NodeShown(
        name=name,
        agent=core.roster.ownership.owner.get(name, ""),
        schedulable=not (node.closed or node.deleting),
        drained=_drained(core.state.drained.get(name)),
        taints=[_taint(taint) for taint in node.taints],
        pods=int(table.requested[PODS_COLUMN, row]),
        allocatable={NAMES.get(resource, resource): amount for resource, amount in node.allocatable.items()},
        requested=requested,
        used=_used(core, node, now),
    )


def pods_on(core: Core, name: str, *, limit: int = PODS_SHOWN) -> list[PodOnNode]:
    """The pods that are counted on a node, greatest priority first, ``limit`` at most."""
    state = core.state
    pods = sorted(state.cluster.index.pods_on(name), key=lambda pod: (-pod.priority, pod.namespace, pod.name))
    return [
        PodOnNode(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            priority=pod.priority,
            ours=pod.scheduler_name == state.scheduler_name,
        )
        for pod in pods[:limit]
    ]


def node_map(core: Core) -> NodeMap:
    """All nodes as columns; arrays do the work, and only nodes with a flag are looked at one by one."""
    table = core.state.cache.table
    names, rows = table.by_name()
    flags: IntArray = np.zeros(table.rows, np.int64)
    for row in np.flatnonzero(table.unschedulable[: table.rows] & table.present[: table.rows]).tolist():
        node = table.nodes[row]
        if node is not None and (node.unschedulable or node.deleting):
            flags[row] = UNSCHEDULABLE
    for bit, named in ((DRAINED, core.state.drained), (UNOWNED, core.roster.ownership.unowned)):
        flags[[table.row_of[name] for name in named if name in table.row_of]] |= bit
    return NodeMap(
        names=names,
        cpu=_shares(table.requested[CPU_COLUMN, rows], table.allocatable[CPU_COLUMN, rows]),
        memory=_shares(table.requested[MEMORY_COLUMN, rows], table.allocatable[MEMORY_COLUMN, rows]),
        flags=flags[rows].tolist(),
    )


def _shares(requested: IntArray, allocatable: IntArray) -> list[float]:
    shares = requested / np.maximum(allocatable, 1)
    found: list[float] = np.round(np.clip(shares, 0.0, 1.0), 3).tolist()
    return found


def _drained(record: Drained | None) -> NodeDrained | None:
    return None if record is None else NodeDrained(by=record.by, reason=record.reason, since=record.since)


def _taint(taint: Taint) -> str:
    """As kubectl writes it: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _used(core: Core, node: Node, now: float) -> NodeUsed | None:
    used = core.lanes.used.get(node.name)
    if used is None:
        return None
    at, sample = used
    return NodeUsed(cpu_millis=sample.cpu_millis, memory_bytes=sample.memory_bytes, age_s=round(max(0.0, now - at), 3))
