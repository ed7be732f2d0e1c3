"""Why no node takes a pod, or which do and how well, for people: like nodes in one group, with the numbers behind it.

The same filters in the same order as ``filtering.rejection_of``, but a rule at a time over all nodes that are left, so
that asking about one pod does not hold up a leader of thousands of nodes. It refuses to choose and to change anything.

Amounts are in the units of ``model.resources``: CPU in milli-cores, everything else whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct, structs

from shared.model.constraints import PodClass, fitted
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI, at_least_text, at_most_text
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.filtering import run_filters
from shared.scheduling.cycle.prefilter import NOT_NAMED, Prefiltered
from shared.scheduling.cycle.scoring import score_nodes
from shared.scheduling.explain.failing import Failing, FailingRule, failing_rules, in_person, refused_by
from shared.scheduling.explain.helping import fewer
from shared.scheduling.explain.reserved import Remedy, labellable_mask, names_nodes, remedy_of, unasked
from shared.scheduling.explain.rule_numbers import RuleNumbers, numbers_of
from shared.scheduling.explain.whatif import FILTER, PRE_FILTER, NodeRejection
from shared.scheduling.explain.words import (
    CHANGES,
    affinity_change,
    ports_text,
    refusing_taints,
    selection_text,
    taint_text,
    volume_change,
)
from shared.scheduling.framework import Code, Rejection, Score
from shared.scheduling.scores import MAX_SCORE
from shared.scheduling.scores.profiled import weights_of
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import PODS_COLUMN, IntArray, NodeTable

NAMES_SHOWN = 20
"""Nodes named per group, the nearest to taking the pod first; ``count`` tells of the others."""

CANDIDATES_SHOWN = 10

ONE_SHORTAGE = {"NodeResourcesFit", "ConclaveGpuDevices"}
"""Both refuse a node that has too few thousandths of GPUs: one change cures both."""


class Shortage(Struct, frozen=True):
    """One resource that is short on a node: ``short_by`` = ``requested`` - ``free``."""

    resource: str
    requested: int
    allocatable: int
    free: int
    short_by: int


class NodeNumbers(Struct, frozen=True):
    """One node of a group; ``shortages`` where resources are the reason, ``numbers`` of any other rule; ``failing``:
    every rule that refuses the node, the first one first."""

    name: str
    shortages: tuple[Shortage, ...] = ()
    numbers: tuple[RuleNumbers, ...] = ()
    failing: tuple[FailingRule, ...] = ()


class NodeGroup(Struct, frozen=True):
    """Nodes that reject the pod by the same rule for the same reasons, ``count_only`` of them by this rule alone.

    ``change``: what would help, in words; empty where it would open none of them, since other rules, ``also``, refuse
    each too."""

    plugin: str
    code: str
    stage: str
    reasons: tuple[str, ...]
    count: int
    nodes: tuple[NodeNumbers, ...]
    change: str
    count_only: int = 0
    also: tuple[str, ...] = ()


class Scored(Struct, frozen=True):
    """A node that takes the pod; ``scores``: weighted, per plugin of the default profile."""

    name: str
    total: int
    scores: dict[str, int]


class ScoreRule(Struct, frozen=True):
    """``weight`` is in the scores already; ``most``: the greatest that one can be, weight included."""

    weight: int
    most: int


class Explanation(Struct, frozen=True):
    """``candidates``: the best of the ``feasible`` nodes, greatest total first; ``score_rules``: what each score is at
    most, and by what it is multiplied."""

    nodes: int
    feasible: int
    groups: tuple[NodeGroup, ...]
    candidates: tuple[Scored, ...]
    score_rules: dict[str, ScoreRule] = {}


def explain_nodes(state: ClusterState, feasibility: FeasibilityCache, pod: Pod) -> Explanation:
    """Every node's verdict as things stand now. ``feasibility`` is over the state's table."""
    table, found = state.table, failing_rules(state, feasibility, pod)
    by_verdict: dict[NodeRejection, list[int]] = {}
    for verdict, row in verdicts(state, feasibility, found.prefiltered):
        by_verdict.setdefault(_in_person(table, verdict, row), []).append(row)
    groups = [_group(state, feasibility, found, verdict, rows) for verdict, rows in by_verdict.items()]
    groups.sort(key=lambda group: (-group.count, group.plugin, group.reasons))
    rejected = {row for rows in by_verdict.values() for row in rows}
    feasible = np.array([row for row in table.live_rows().tolist() if row not in rejected], np.int64)
    brought = feasibility.profile.scores
    weights = {score.name: score.weight for score in brought} | weights_of(pod.pod_class)
    rules = {name: ScoreRule(weight, weight * MAX_SCORE) for name, weight in sorted(weights.items())}
    best = _candidates(state, pod, feasible, brought)
    return Explanation(len(table.row_of), len(feasible), tuple(groups), best, rules)


def verdicts(
    state: ClusterState, feasibility: FeasibilityCache, prefiltered: Prefiltered
) -> Iterator[tuple[NodeRejection, int]]:
    """The verdict of every row that does not take the pod: as ``rejection_of`` gives it, in no particular order."""
    table, pod = state.table, prefiltered.pod
    rows: IntArray = table.live_rows()
    if prefiltered.rejection is not None:
        for row in rows.tolist():
            yield NodeRejection(prefiltered.rejection, PRE_FILTER), row
        return
    filtered = run_filters(state, feasibility, prefiltered)
    if prefiltered.named is not None:
        named = {table.row_of.get(name, -1) for name in prefiltered.named}
        for row in rows.tolist():
            if row not in named:
                yield NodeRejection(NOT_NAMED, PRE_FILTER), row
        rows = np.array([row for row in rows.tolist() if row in named], np.int64)
    for row in rows.tolist() if filtered.contested else ():
        if row in filtered.contested:
            yield NodeRejection(filtered.contested[row], FILTER), row
    rows = np.array([row for row in rows.tolist() if row not in filtered.contested], np.int64)
    for rule in feasibility.filters:
        if not len(rows) or not rule.applies(table, pod.pod_class):
            continue
        passing = rule.mask(table, pod.pod_class, rows)
        for row in rows[~passing].tolist():
            yield NodeRejection(Rejection(rule.name, *rule.reasons(table, pod.pod_class, row)), FILTER), row
        rows = rows[passing]
    for row in rows[~filtered.mask[rows]].tolist() if len(rows) else ():
        for prepared in prefiltered.rules:
            found = prepared.verdict(row)
            if found is not None:
                yield NodeRejection(Rejection(prepared.name, *found), FILTER), row
                break


def _candidates(state: ClusterState, pod: Pod, rows: IntArray, brought: tuple[Score, ...]) -> tuple[Scored, ...]:
    if not len(rows):
        return ()
    scores = score_nodes(state, pod, rows, brought)
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


def _in_person(table: NodeTable, verdict: NodeRejection, row: int) -> NodeRejection:
    reasons = in_person(table, row, verdict.rejection.reasons)
    if reasons is verdict.rejection.reasons:
        return verdict
    return structs.replace(verdict, rejection=replace(verdict.rejection, reasons=reasons))


# --- groups ---------------------------------------------------------------------------------------------------------


def _group(
    state: ClusterState, feasibility: FeasibilityCache, found: Failing, verdict: NodeRejection, rows: list[int]
) -> NodeGroup:
    table, pod_class, rejection = state.table, found.prefiltered.pod.pod_class, verdict.rejection
    numbers = [
        NodeNumbers(
            table.names[row],
            tuple(_shortages(table, pod_class, rejection, row)),
            numbers_of(state, found.prefiltered, rejection, row),
            refused_by(state, feasibility, found, row, rejection),
        )
        for row in _nearest(table, pod_class, rejection, rows)
    ]
    there = set(rows)
    alone = [row for row in found.only(rejection.plugin).tolist() if row in there]
    opened = alone or rows
    nearest = _nearest(table, pod_class, rejection, opened)[0]
    short = tuple(_shortages(table, pod_class, rejection, nearest))
    beside = () if alone else found.beside(rejection.plugin, np.array(rows, np.int64))
    also = tuple(rule for rule in beside if {rule, rejection.plugin} != ONE_SHORTAGE)
    change = "" if also else _change(table, found, rejection, opened, NodeNumbers(table.names[nearest], short))
    return NodeGroup(
        rejection.plugin,
        rejection.code.value,
        verdict.stage,
        tuple(sorted(rejection.reasons)),
        len(rows),
        tuple(numbers),
        change,
        len(alone),
        also,
    )


def _shortages(table: NodeTable, pod_class: PodClass, rejection: Rejection, row: int) -> Iterator[Shortage]:
    if rejection.plugin != "NodeResourcesFit":
        return
    used, offered = int(table.requested[PODS_COLUMN, row]), int(table.allocatable[PODS_COLUMN, row])
    if used + 1 > offered:
        yield Shortage("pods", 1, offered, offered - used, used + 1 - offered)
    for name, amount in fitted(pod_class):
        column = table.column_of.get(name)
        offered = 0 if column is None else int(table.allocatable[column, row])
        free = offered if column is None else offered - int(table.requested[column, row])
        if amount > free and (offered or name not in pod_class.by_class):
            yield Shortage(name, amount, offered, free, amount - free)


def _nearest(table: NodeTable, pod_class: PodClass, rejection: Rejection, rows: list[int]) -> list[int]:
    """The rows to show, the nearest to taking the pod first: by the greatest shortage as a share of the request."""
    if rejection.plugin != "NodeResourcesFit":
        return sorted(rows, key=lambda row: table.names[row])[:NAMES_SHOWN]
    there = np.array(rows, np.int64)
    wanted = [(PODS_COLUMN, 1), *((table.column_of.get(name), amount) for name, amount in fitted(pod_class))]
    distance = np.zeros(len(there))
    for column, amount in wanted:
        free = 0 if column is None else table.allocatable[column, there] - table.requested[column, there]
        distance = np.maximum(distance, (amount - free) / amount)
    nearest = sorted(zip(distance.tolist(), (table.names[row] for row in rows), rows, strict=True))
    return [row for _, _, row in nearest[:NAMES_SHOWN]]


def _change(table: NodeTable, found: Failing, rejection: Rejection, rows: Sequence[int], nearest: NodeNumbers) -> str:
    pod_class = found.prefiltered.pod.pod_class
    match rejection.plugin:
        case "NodeResourcesFit":
            return _more_room(table, found, rejection.code, rows, nearest)
        case "TaintToleration" | "NodeUnschedulable":
            return _open_nodes(table, pod_class, rejection, rows)
        case "NodeAffinity":
            wanted = selection_text(pod_class)
            if not found.fails["NodeAffinity"].all():
                return ""  # some have it: those are the nodes to look at
            if names_nodes(pod_class):
                return f"add the node that it names, {wanted}, or change what the pod selects"
            if labellable_mask(table, pod_class)[np.array(rows, np.int64)].any():
                return f"label a node so that it matches {wanted}, or change what the pod selects"
            return f"add a node that has {wanted}, or change what the pod selects"
        case "NodePorts":
            return f"free host port {ports_text(pod_class)} on one of them, or ask for another one"
        case "VolumeBinding" | "VolumeZone" | "VolumeRestrictions":
            return volume_change(rejection.reasons)
        case "InterPodAffinity":
            return affinity_change(rejection.reasons)
        case plugin:
            return CHANGES.get(plugin, "")


def _more_room(table: NodeTable, found: Failing, code: Code, rows: Sequence[int], nearest: NodeNumbers) -> str:
    """What is short on the nearest of these nodes; what the pod may ask for at most is told where that is the most of
    all nodes, so that it is told once, and true of the node that is named."""
    pod, short = found.prefiltered.pod, nearest.shortages
    if not short:
        return f"wait: what is free on {nearest.name} is held for pods that are nominated to it"
    large = [one for one in short if one.requested > one.allocatable and one.resource != "pods"]
    if not large:
        steps = (f"free {at_least_text(one.resource, one.short_by)} more {one.resource}" for one in short)
        return f"{nearest.name} is the nearest: {', and '.join(steps)}"
    less = {one.resource: one.free for one in short}
    if len(short) == 1:
        here, alone = np.array(rows, np.int64), found.only("NodeResourcesFit")
        most = fewer(table, pod, here, short[0].resource)[0]
        less = {short[0].resource: most if most == fewer(table, pod, alone, short[0].resource)[0] else 0}
    asks = ", ".join(f"{at_least_text(one.resource, one.requested)} {one.resource}" for one in large)
    change = f"add a node with {asks}"
    if not any(one.allocatable for one in large):
        has = [table.column_of.get(one.resource) for one in large]
        none = not any(at is not None and table.allocatable[at, table.live_rows()].any() for at in has)
        return change + (": none here has any" if none else "")
    fits = len(short) == 1 or GPU_MILLI not in less  # what is free of shares, summed over devices, fits on none
    if fits and all(amount > 0 for amount in less.values()):
        most_text = " and ".join(f"{at_most_text(name, amount)} {name}" for name, amount in less.items())
        change = f"ask for at most {most_text}, or {change}"
    nearly = f"{nearest.name} is the nearest: {change}"
    return nearly if code is not Code.UNRESOLVABLE else f"{nearly}; deleting pods there does not help"


def _open_nodes(table: NodeTable, pod_class: PodClass, rejection: Rejection, rows: Sequence[int]) -> str:
    if rejection.plugin == "NodeUnschedulable":
        first = table.nodes[rows[0]]
        cordoned = first is None or first.unschedulable or not first.drained
        return "uncordon one of them" if cordoned else "resume scheduling on one of them"
    nodes = [node for row in rows[:NAMES_SHOWN] if (node := table.nodes[row]) is not None]
    taints = {taint for node in nodes for taint in refusing_taints(pod_class, node.taints)}
    named = ", ".join(sorted(map(taint_text, taints))) or "the taint"
    match remedy_of(taints, unasked(table, pod_class)):
        case Remedy.TOLERATE_OR_TAKE:
            return f"tolerate {named}, or take it from one of them"
        case Remedy.TOLERATE:
            return f"tolerate {named}"
        case Remedy.REPAIR:
            return f"repair one of them, or wait for it: {named}"
        case Remedy.NONE:
            return f"add a node without {named}"
