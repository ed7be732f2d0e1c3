"""Why no node takes a pod, or which do and how well, for people: like nodes in one group, with the numbers behind it.

The same filters in the same order as ``filtering.rejection_of``, but a rule at a time over all nodes that are left, so
that asking about one pod does not hold up a leader of thousands of nodes. It refuses to choose and to change anything.

Amounts are in the units of ``model.resources``: CPU in milli-cores, everything else whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.cluster_state import ClusterState
from shared.scheduling.feasibility import FeasibilityCache, Rejection
from shared.scheduling.filtering import run_filters
from shared.scheduling.filters.node_unschedulable import DRAINED
from shared.scheduling.framework import Code
from shared.scheduling.node_table import PODS_COLUMN, IntArray, NodeTable
from shared.scheduling.prefilter import NOT_NAMED, Prefiltered, prefilter
from shared.scheduling.rule_numbers import RuleNumbers, numbers_of, term_text
from shared.scheduling.scoring import score_nodes
from shared.scheduling.tolerance import PREFER_NO_SCHEDULE, tolerated
from shared.scheduling.whatif import FILTER, PRE_FILTER

NAMES_SHOWN = 20
"""Nodes named per group, the nearest to taking the pod first; ``count`` tells of the others."""

CANDIDATES_SHOWN = 10


class Shortage(Struct, frozen=True):
    """One resource that is short on a node: ``short_by`` = ``requested`` - ``free``."""

    resource: str
    requested: int
    allocatable: int
    free: int
    short_by: int


class NodeNumbers(Struct, frozen=True):
    """One node of a group; ``shortages`` where resources are the reason, ``numbers`` of any other rule."""

    name: str
    shortages: tuple[Shortage, ...] = ()
    numbers: tuple[RuleNumbers, ...] = ()


class NodeGroup(Struct, frozen=True):
    """Nodes that reject the pod by the same rule for the same reasons. ``change``: what would help, in words."""

    plugin: str
    code: str
    stage: str
    reasons: tuple[str, ...]
    count: int
    nodes: tuple[NodeNumbers, ...]
    change: str


class Scored(Struct, frozen=True):
    """A node that takes the pod; ``scores``: weighted, per plugin of the default profile."""

    name: str
    total: int
    scores: dict[str, int]


class Explanation(Struct, frozen=True):
    """``candidates``: the best of the ``feasible`` nodes, greatest total first."""

    nodes: int
    feasible: int
    groups: tuple[NodeGroup, ...]
    candidates: tuple[Scored, ...]


class Verdict(NamedTuple):
    """Why one row does not take the pod."""

    rejection: Rejection
    stage: str


def explain_nodes(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> Explanation:
    """Every node's verdict as things stand now. ``feasibility`` is over the state's table."""
    table, prefiltered = state.table, prefilter(state, pod)
    by_verdict: dict[Verdict, list[int]] = {}
    for verdict, row in _verdicts(state, feasibility, prefiltered):
        by_verdict.setdefault(_in_person(table, verdict, row), []).append(row)
    groups = [_group(state, prefiltered, verdict, rows) for verdict, rows in by_verdict.items()]
    groups.sort(key=lambda group: (-group.count, group.plugin, group.reasons))
    rejected = {row for rows in by_verdict.values() for row in rows}
    feasible = np.array([row for row in table.live_rows().tolist() if row not in rejected], np.int64)
    return Explanation(len(table.row_of), len(feasible), tuple(groups), _candidates(state, pod, feasible))


def verdicts(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> Iterator[tuple[Verdict, int]]:
    """The verdict of every row that does not take the pod: as ``rejection_of`` gives it, in no particular order."""
    return _verdicts(state, feasibility, prefilter(state, pod))


def _verdicts(
    state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered
) -> Iterator[tuple[Verdict, int]]:
    table, pod = state.table, prefiltered.pod
    rows: IntArray = table.live_rows()
    if prefiltered.rejection is not None:
        for row in rows.tolist():
            yield Verdict(prefiltered.rejection, PRE_FILTER), row
        return
    filtered = run_filters(state, feasibility, prefiltered)
    if prefiltered.named is not None:
        named = {table.row_of.get(name, -1) for name in prefiltered.named}
        for row in rows.tolist():
            if row not in named:
                yield Verdict(NOT_NAMED, PRE_FILTER), row
        rows = np.array([row for row in rows.tolist() if row in named], np.int64)
    for row in rows.tolist() if filtered.contested else ():
        if row in filtered.contested:
            yield Verdict(filtered.contested[row], FILTER), row
    rows = np.array([row for row in rows.tolist() if row not in filtered.contested], np.int64)
    for rule in feasibility.filters:
        if not len(rows) or not rule.applies(table, pod.pod_class):
            continue
        passing = rule.mask(table, pod.pod_class, rows)
        for row in rows[~passing].tolist():
            yield Verdict(Rejection(rule.name, *rule.reasons(table, pod.pod_class, row)), FILTER), row
        rows = rows[passing]
    for row in rows[~filtered.mask[rows]].tolist() if len(rows) else ():
        for prepared in prefiltered.rules:
            found = prepared.verdict(row)
            if found is not None:
                yield Verdict(Rejection(prepared.name, *found), FILTER), row
                break


def _candidates(state: ClusterState, pod: Pod, rows: IntArray) -> tuple[Scored, ...]:
    if not len(rows):
        return ()
    scores = score_nodes(state, pod, rows)
    totals = np.sum(list(scores.values()), axis=0)
    order = np.argsort(-totals, kind="stable")[:CANDIDATES_SHOWN].tolist()
    return tuple(
        Scored(
            state.table.names[int(rows[i])],
            int(totals[i]),
            {plugin: int(values[i]) for plugin, values in sorted(scores.items())},
        )
        for i in order
    )


def _in_person(table: NodeTable, verdict: Verdict, row: int) -> Verdict:
    """The verdict, with who drained the node and why in place of the reason that conditions count by."""
    node, rejection = table.nodes[row], verdict.rejection
    if node is None or rejection.reasons != (DRAINED,):
        return verdict
    return verdict._replace(rejection=replace(rejection, reasons=(f"drained from scheduling by {node.drained}",)))


# --- groups ---------------------------------------------------------------------------------------------------------


def _group(state: ClusterState, prefiltered: Prefiltered, verdict: Verdict, rows: list[int]) -> NodeGroup:
    table, pod_class, rejection = state.table, prefiltered.pod.pod_class, verdict.rejection
    numbers = [
        NodeNumbers(
            table.names[row],
            tuple(_shortages(table, pod_class, rejection, row)),
            numbers_of(state, prefiltered, rejection, row),
        )
        for row in _nearest(table, pod_class, rejection, rows)
    ]
    return NodeGroup(
        rejection.plugin,
        rejection.code.value,
        verdict.stage,
        tuple(sorted(rejection.reasons)),
        len(rows),
        tuple(numbers),
        _change(table, pod_class, rejection, rows, numbers[0]),
    )


def _shortages(table: NodeTable, pod_class: PodClass, rejection: Rejection, row: int) -> Iterator[Shortage]:
    if rejection.plugin != "NodeResourcesFit":
        return
    used, offered = int(table.requested[PODS_COLUMN, row]), int(table.allocatable[PODS_COLUMN, row])
    if used + 1 > offered:
        yield Shortage("pods", 1, offered, offered - used, used + 1 - offered)
    for name, amount in pod_class.requests:
        column = table.column_of.get(name)
        offered = 0 if column is None else int(table.allocatable[column, row])
        free = offered if column is None else offered - int(table.requested[column, row])
        if amount > free:
            yield Shortage(name, amount, offered, free, amount - free)


def _nearest(table: NodeTable, pod_class: PodClass, rejection: Rejection, rows: list[int]) -> list[int]:
    """The rows to show, the nearest to taking the pod first: by the greatest shortage as a share of the request."""
    if rejection.plugin != "NodeResourcesFit":
        return sorted(rows, key=lambda row: table.names[row])[:NAMES_SHOWN]
    there = np.array(rows, np.int64)
    wanted = [(PODS_COLUMN, 1), *((table.column_of.get(name), amount) for name, amount in pod_class.requests)]
    distance = np.zeros(len(there))
    for column, amount in wanted:
        free = 0 if column is None else table.allocatable[column, there] - table.requested[column, there]
        distance = np.maximum(distance, (amount - free) / amount)
    nearest = sorted(zip(distance.tolist(), (table.names[row] for row in rows), rows, strict=True))
    return [row for _, _, row in nearest[:NAMES_SHOWN]]


def _change(
    table: NodeTable, pod_class: PodClass, rejection: Rejection, rows: Sequence[int], nearest: NodeNumbers
) -> str:
    match rejection.plugin:
        case "NodeResourcesFit":
            return _more_room(rejection.code, nearest)
        case "TaintToleration" | "NodeUnschedulable":
            return _open_nodes(table, pod_class, rejection, rows)
        case "NodeAffinity":
            return f"label a node so that it matches {_selection(pod_class)}, or change what the pod selects"
        case "NodePorts":
            ports = ", ".join(f"{port.protocol} {port.port}" for port in pod_class.host_ports)
            return f"free host port {ports} on one of them, or ask for another one"
        case "VolumeBinding" | "VolumeZone" | "VolumeRestrictions":
            return _volume_change(rejection.reasons)
        case plugin:
            return CHANGES.get(plugin, "")


CHANGES = {
    "NodeName": "add the node that spec.nodeName names",
    "ConclaveGpuDevices": "free GPU devices on one of them, or ask for less of conclave.io/gpu-milli",
    "PodTopologySpread": "take pods that its constraints select from a fuller domain, add a node to an emptier one, "
    "raise maxSkew, or set whenUnsatisfiable to ScheduleAnyway",
    "InterPodAffinity": "start the pod that it must be near, delete the one that it must not be near, "
    "or prefer instead of require",
    "NodeVolumeLimits": "detach volumes of the driver from one of them, or add a node",
    "SchedulingGates": "remove its scheduling gates",
}
"""What would help, by plugin, where it takes no numbers to say."""


VOLUME_CHANGES = (
    ("non-existent", "bring back the volume, or delete the claim and what it stood for"),
    ("waiting for ephemeral volume controller", "wait: the claim is made for it; see whether that controller runs"),
    ("persistentvolumeclaim", "create the claim that it names, or name one that can be used"),
    ("unbound immediate", "wait for its claims to be bound: create their storage class, or volumes that fit them"),
    ("was not created for pod", "delete the claim that has the name of its ephemeral volume"),
    ("persistentvolume ", "bring back the volume, or delete the claim and what it stood for"),
    ("find available persistent volumes", "create a volume that fits its claim, or name a class that can make one"),
    ("no available disk", "delete the pod that uses the disk, or wait for it to end"),
    ("ReadWriteOncePod", "delete the pod that uses the claim, or wait for it to end"),
)
"""What would help by a part of the reason; else a node that reaches the volume."""


def _volume_change(reasons: Sequence[str]) -> str:
    text = "; ".join(reasons)
    return next((change for part, change in VOLUME_CHANGES if part in text), "add a node that reaches its volume")


def _more_room(code: Code, nearest: NodeNumbers) -> str:
    steps = []
    for shortage in nearest.shortages:
        missing = amount_text(shortage.resource, shortage.short_by)
        if shortage.requested > shortage.allocatable and shortage.resource != "pods":
            most = amount_text(shortage.resource, shortage.allocatable)
            steps.append(f"ask for at most {most} {shortage.resource} or add a node with {missing} more")
        else:
            steps.append(f"free {missing} more {shortage.resource}")
    nearly = f"{nearest.name} is the nearest: " + ", and ".join(steps)
    return nearly if code is not Code.UNRESOLVABLE else f"{nearly}; deleting pods there does not help"


def _open_nodes(table: NodeTable, pod_class: PodClass, rejection: Rejection, rows: Sequence[int]) -> str:
    if rejection.plugin == "NodeUnschedulable":
        first = table.nodes[rows[0]]
        cordoned = first is None or first.unschedulable or not first.drained
        return "uncordon one of them" if cordoned else "resume scheduling on one of them"
    taints = {
        f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
        for row in rows[:NAMES_SHOWN]
        if (node := table.nodes[row]) is not None
        for taint in node.taints
        if taint.effect != PREFER_NO_SCHEDULE and not tolerated(pod_class.tolerations, taint)
    }
    named = ", ".join(sorted(taints)) or "the taint"
    return f"tolerate {named}, or take it from one of them"


def _selection(pod_class: PodClass) -> str:
    parts = [f"{key}={value}" for key, value in pod_class.node_selector]
    if pod_class.affinity_terms:
        parts.append(" or ".join(filter(None, map(term_text, pod_class.affinity_terms))))
    return ", ".join(filter(None, parts)) or "its required node affinity"


def amount_text(resource: str, amount: int) -> str:
    """As people write quantities: ``1500m``, ``2``, ``64Mi``; exact."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)
