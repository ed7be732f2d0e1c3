"""What would let a class of pods in that no node takes, and how many of its pods: the nearest changes, counted.

    nodes that one rule alone refuses --> change that rule there --> how many copies fit on what they have free

Counts are upper bounds for one class alone: pods of others want the same room, and pods that keep apart count one a
node. It refuses to promise and to change anything. Pure; arrays over all nodes, a class at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from shared.model.constraints import PodClass, fitted
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE, amount_text, at_least_text, at_most_text
from shared.model.terms.labels import selects
from shared.scheduling.explain.failing import Failing
from shared.scheduling.explain.reserved import Remedy, labellable_mask, names_nodes, remedy_of, unasked
from shared.scheduling.explain.words import (
    CHANGES,
    affinity_change,
    ports_text,
    refusing_taints,
    selection_text,
    taint_text,
    volume_change,
)
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray, NodeTable

AMOUNTS = frozenset({"NodeResourcesFit", "NodePorts", "ConclaveGpuDevices", "NodeVolumeLimits", "VolumeRestrictions"})
"""Rules that an empty node passes, unless the pod asks for more than it has."""

CORDONS = "NodeUnschedulable"
NAMED = 3
MOST_TAINTS = 8


@dataclass(frozen=True, slots=True)
class Help:
    """``opens [rows]``, packed: nodes that the change opens; None: not known, or a node that is yet to be added.

    ``lets_in`` None: nobody can say."""

    kind: str
    target: str
    text: str
    lets_in: int | None
    opens: bytes | None = None


class Opening(Struct, frozen=True):
    """A change to nodes that one rule alone keeps from a class: ``words`` with ``{}`` where the nodes are named;
    ``rows``: the nodes that it would open."""

    kind: str
    target: str
    words: str
    rows: IntArray


DISTURBING = frozenset({"free"})
"""Kinds of help for which pods that run must leave."""


def helps_for(state: ClusterState, found: Failing, pod: Pod, reasons: tuple[str, ...], wanted: int) -> list[Help]:
    """What would help, best first. ``wanted``: how many pods of the class wait; ``reasons``: why none gets in."""
    offered = list(_helps(state, found, pod, reasons))
    known = [one for one in offered if one.lets_in]
    others = [one for one in offered if one.lets_in is None]
    capped = [Help(h.kind, h.target, h.text, min(h.lets_in or 0, wanted), h.opens) for h in known]
    return sorted(capped, key=lambda one: -(one.lets_in or 0)) + others


def _helps(state: ClusterState, found: Failing, pod: Pod, reasons: tuple[str, ...]) -> Iterator[Help]:
    table = state.table
    open_now = found.rows[(found.count == 0) & ~np.isin(found.rows, list(found.filtered.contested))]
    if len(open_now):
        count = int(copies(table, pod, open_now).sum())
        yield Help("wait", "", "a node takes it by now: it is tried again by itself", max(1, count), None)
        return
    for opening in openings(table, found, pod):
        text = opening.words.format(_named(table, opening.rows))
        yield _opening(opening.kind, opening.target, text, table, pod, opening.rows)
    yield from _missing_label(found, table, pod)
    yield from _room(table, found, pod)
    yield from _new_node(table, found, pod)
    for plugin in found.fails:
        if not len(found.only(plugin)):
            continue  # elsewhere others refuse it too: this change alone would let nobody in
        if plugin == "InterPodAffinity":
            text = affinity_change(reasons)
            yield Help("other", f"{plugin}: {text}", text, None)
        elif plugin == "NodePorts":
            ports = ports_text(pod.pod_class)
            text = f"free host port {ports} on {_named(table, found.only(plugin))}, or ask for another one"
            yield Help("other", f"{plugin}: {ports}", text, None)
        elif plugin in CHANGES:
            yield Help("other", plugin, CHANGES[plugin], None)
        elif plugin.startswith("Volume"):
            yield Help("other", plugin, volume_change(reasons), None)


def openings(table: NodeTable, found: Failing, pod: Pod) -> Iterator[Opening]:
    """Changes to nodes that are people's to make, each where nothing else keeps the class away."""
    yield from _taints(table, found, pod)
    yield from _cordons(table, found)
    yield from _labels(table, found, pod)


def _labels(table: NodeTable, found: Failing, pod: Pod) -> Iterator[Opening]:
    """Labels that people give, where no node has what is asked for: else they tell nodes of one kind from others."""
    pod_class, rows, fails = pod.pod_class, found.only("NodeAffinity"), found.fails.get("NodeAffinity")
    if not len(rows) or fails is None or not fails.all() or pod_class.node_name:
        return
    rows = rows[labellable_mask(table, pod_class)[rows]]
    if len(rows):
        wanted = selection_text(pod_class)
        words = wanted.replace("{", "{{").replace("}", "}}")
        yield Opening("label_nodes", wanted, f"label nodes so that they match {words}: {{}}", rows)


def _missing_label(found: Failing, table: NodeTable, pod: Pod) -> Iterator[Help]:
    """Which nodes to add, where no label that people give opens one and no node has what is asked for."""
    pod_class, fails, rows = pod.pod_class, found.fails.get("NodeAffinity"), found.only("NodeAffinity")
    if fails is None or pod_class.node_name or labellable_mask(table, pod_class)[rows].any() or not fails.all():
        return
    wanted = selection_text(pod_class)
    text = f"add the node that it names, {wanted}, or change what the pod selects"
    if not names_nodes(pod_class):
        text = f"add nodes that have {wanted}: none here has it"
    yield Help("other", f"NodeAffinity: {wanted}", text, None)


def _taints(table: NodeTable, found: Failing, pod: Pod) -> Iterator[Opening]:
    rows, others = found.only("TaintToleration"), unasked(table, pod.pod_class)
    for number in np.unique(table.taint_set[rows])[:MOST_TAINTS].tolist() if len(rows) else ():
        there = rows[table.taint_set[rows] == number]
        refusing = refusing_taints(pod.pod_class, table.taint_sets[number])
        target = ", ".join(map(taint_text, refusing))
        match remedy_of(refusing, others):
            case Remedy.TOLERATE_OR_TAKE:
                yield Opening("remove_taint", target, f"tolerate {target}, or take it from {{}}", there)
            case Remedy.TOLERATE:
                yield Opening("tolerate", target, f"tolerate {target}: {{}}", there)
            case Remedy.REPAIR:
                yield Opening("repair_node", target, f"repair {{}}, or wait for it: {target}", there)
            case Remedy.NONE:
                pass


def _cordons(table: NodeTable, found: Failing) -> Iterator[Opening]:
    rows = found.only(CORDONS)
    drained = np.array([(node := table.nodes[row]) is not None and not node.unschedulable for row in rows.tolist()])
    if len(rows) and not drained.all():
        yield Opening("uncordon", "", "uncordon {}", rows[~drained])
    if len(rows) and drained.any():
        yield Opening("resume_node", "", "resume scheduling on {}", rows[drained])


def _room(table: NodeTable, found: Failing, pod: Pod) -> Iterator[Help]:
    """What is missing on the node that comes nearest, and what the class may ask for at most."""
    rows = found.only("NodeResourcesFit")
    if not len(rows):
        return
    short = {name: amount - free for name, amount, free in _free(table, pod.pod_class, rows)}
    wanted = dict(pod.pod_class.requests) | {"pods": 1}
    share = np.max([np.maximum(missing, 0) / wanted[name] for name, missing in short.items()], axis=0)
    nearest = int(np.argmin(share))
    missing = {name: int(by[nearest]) for name, by in short.items() if by[nearest] > 0}
    has = {
        name: int(table.allocatable[table.column_of[name], rows[nearest]])
        for name in missing
        if name in table.column_of
    }
    if all(has.get(name, 0) >= wanted[name] for name in missing):
        steps = ", ".join(f"{at_least_text(name, amount)} more {name}" for name, amount in missing.items())
        name = table.names[rows[nearest]]
        yield Help("free", name, f"free {steps} on {name}: pods that run there would have to go", 1)
    if len(missing) == 1 and "pods" not in missing:
        ((name, _),) = missing.items()
        most, takes = fewer(table, pod, rows, name)
        if most > 0:
            text = f"ask for at most {at_most_text(name, most)} {name}"
            yield Help("fewer_requests", name, text, takes)


def fewer(table: NodeTable, pod: Pod, rows: IntArray, name: str) -> tuple[int, int]:
    """(how much of the resource a node among ``rows`` has free for one pod of the class that asks for nothing else that
    it lacks, how many of them have it); 0, 0: asking for less of it alone does not help."""
    short = {other: amount - free for other, amount, free in _free(table, pod.pod_class, rows)}
    alone = np.all([by <= 0 for other, by in short.items() if other != name], axis=0)
    left = (dict(pod.pod_class.requests)[name] - short[name])[alone]
    if name == GPU_MILLI:  # whole devices, or a share of one
        whole, share = table.device_whole[rows][alone], table.device_max_free[rows][alone]
        left = np.where(whole > 0, whole * MILLI_PER_DEVICE, share)
    most = int(left.max()) if len(left) else 0
    return (most, int((left >= most).sum())) if most > 0 else (0, 0)


def _new_node(table: NodeTable, found: Failing, pod: Pod) -> Iterator[Help]:
    row, fitting = best_new(table, found, pod)
    if fitting:
        name = table.names[row]
        yield Help("add_node", name, f"add a node like {name} ({size_text(table, row)})", fitting)
    elif not names_nodes(pod.pod_class):
        text = too_large(table, pod.pod_class, of_amounts(found))
        if text:
            yield Help("other", f"NodeResourcesFit: {text}", text, None)


def of_amounts(found: Failing) -> IntArray:
    """Rows that are refused for amounts, and for nothing else."""
    if found.prefiltered.rejection is not None or "NodeResourcesFit" not in found.fails:
        return found.rows[:0]
    others: BoolArray = np.zeros(len(found.rows), np.bool_)
    for plugin, fails in found.fails.items():
        if plugin not in AMOUNTS:
            others |= fails
    return found.rows[found.fails["NodeResourcesFit"] & ~others]


def too_large(table: NodeTable, pod_class: PodClass, rows: IntArray) -> str:
    """Which node to add where none of ``rows`` is large enough; "" where one is."""
    if not len(rows):
        return ""
    has = {name: table.column_of.get(name) for name, _ in fitted(pod_class)}
    most = {name: 0 if at is None else int(table.allocatable[at, rows].max()) for name, at in has.items()}
    by_class = pod_class.by_class
    large = {name: n for name, n in fitted(pod_class) if n > most[name] and name not in by_class}
    if not large:
        return ""
    asks = ", ".join(f"{at_least_text(name, amount)} {name}" for name, amount in large.items())
    why = "none here has any" if not any(most[name] for name in large) else "none that is open to it is so large"
    return f"add a node with {asks}: {why}"


def best_new(table: NodeTable, found: Failing, pod: Pod, allowed: BoolArray | None = None) -> tuple[int, int]:
    """(row of the node that would take most of the class if it were empty and open, how many); -1, 0: none would."""
    if found.prefiltered.rejection is not None or names_nodes(pod.pod_class):
        return -1, 0  # what is missing is no node: a claim that is not there, say; or the one node that it names
    others: BoolArray = np.zeros(len(found.rows), np.bool_) if allowed is None else ~allowed[found.rows]
    for plugin, fails in found.fails.items():
        if plugin not in AMOUNTS and plugin != CORDONS:
            others |= fails
    rows = found.rows[~others]
    fitting = copies(table, pod, rows, empty=True) if len(rows) else rows
    # a node with devices that it does not ask for only where no other would do
    columns = [table.column_of[name] for name in unasked(table, pod.pod_class) if "/" in name]
    plain = (table.allocatable[columns][:, rows] == 0).all(axis=0) if len(rows) else rows
    fitting = np.where(plain, fitting, 0) if (plain & (fitting > 0)).any() else fitting
    best = int(np.argmax(fitting)) if len(rows) else -1
    return (int(rows[best]), int(fitting[best])) if len(rows) and fitting[best] > 0 else (-1, 0)


def _opening(kind: str, target: str, text: str, table: NodeTable, pod: Pod, rows: IntArray) -> Help:
    opened: BoolArray = np.zeros(table.rows, np.bool_)
    opened[rows] = True
    return Help(kind, target, text, int(copies(table, pod, rows).sum()), np.packbits(opened).tobytes())


def copies(
    table: NodeTable, pod: Pod, rows: IntArray, *, empty: bool = False, free: IntArray | None = None
) -> IntArray:
    """``[len(rows)]``: how many pods like this one each row has room for. ``empty``: were nothing on it; ``free``:
    were this free, ``[resources, rows of the table]``."""
    most: IntArray | None = None
    for _, amount, left in _free(table, pod.pod_class, rows, empty=empty, free=free):
        fitting = left // amount
        most = fitting if most is None else np.minimum(most, fitting)
    assert most is not None
    milli = dict(pod.pod_class.requests).get(GPU_MILLI, 0)
    if milli and not empty and free is None:
        whole, fullest = table.device_whole[rows], table.device_max_free[rows]
        shared = (
            whole * (MILLI_PER_DEVICE // milli) if milli < MILLI_PER_DEVICE else whole // (milli // MILLI_PER_DEVICE)
        )
        most = np.minimum(most, np.maximum(shared, (milli < MILLI_PER_DEVICE) & (fullest >= milli)))
    if pod.pod_class.host_ports or keeps_apart(pod):
        most = np.minimum(most, 1)
    return np.maximum(most, 0)


def keeps_apart(pod: Pod) -> bool:
    """Whether two pods like this one keep each other off a node."""
    terms = pod.relations.anti_affinity if pod.relations is not None else ()
    return any(selects(term.selector, pod.labels) for term in terms)


def _free(
    table: NodeTable, pod_class: PodClass, rows: IntArray, *, empty: bool = False, free: IntArray | None = None
) -> Iterator[tuple[str, int, IntArray]]:
    """(resource, what one pod asks for, what is free per row), ``pods`` included; enough where a device class gives
    it."""
    for name, amount in (*fitted(pod_class), ("pods", 1)):
        column = PODS_COLUMN if name == "pods" else table.column_of.get(name)
        if column is None:
            yield name, amount, np.full(len(rows), amount if name in pod_class.by_class else 0, np.int64)
            continue
        has = table.allocatable[column, rows]
        left = free[column, rows] if free is not None else has if empty else has - table.requested[column, rows]
        yield name, amount, np.where(has > 0, left, amount) if name in pod_class.by_class else left


def size_text(table: NodeTable, row: int) -> str:
    """What a node has, as people say it: ``8 cpu, 32Gi memory, 4 nvidia.com/gpu``."""
    node = table.nodes[row]
    has = node.allocatable if node is not None else {}
    names = ["cpu", "memory", *sorted(name for name in has if "/" in name)]
    return ", ".join(f"{amount_text(name, has[name])} {name}" for name in names if has.get(name))


def _named(table: NodeTable, rows: IntArray) -> str:
    return names_text([table.names[row] for row in rows[:1000].tolist()], len(rows))


def names_text(names: Sequence[str], count: int) -> str:
    """The first few of ``count`` names."""
    shown = sorted(names)[:NAMED]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
