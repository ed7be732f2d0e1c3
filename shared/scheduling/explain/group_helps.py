"""What would let in the members that a pod group lacks: each change is tried beside the members that fit, and counted.

    nodes that one rule alone keeps closed --opened in thought--> members placed there --counted--> help
    room in use, nodes like one that is there, smaller requests   --the same-->

A change that lets nobody in is not named; one for which pods that run must leave says so. Pure; nothing is changed, and
nothing is promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from shared.model.constraints import fitted
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI, MEMORY, PODS, at_least_text, at_most_text
from shared.model.terms.relations import NO_RELATIONS
from shared.model.units.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import Diagnosis, FeasibilityCache
from shared.scheduling.explain.failing import Failing, failing_rules
from shared.scheduling.explain.helping import best_new, names_text, openings, size_text
from shared.scheduling.filters import FILTERS
from shared.scheduling.filters.accounted import GpuDevices, ResourceFit
from shared.scheduling.groups.placing import Attempt, allowed_rows, runs
from shared.scheduling.groups.topology import domains
from shared.scheduling.groups.trial import OUTSIDE, Trial
from shared.scheduling.groups.tried_members import Template
from shared.scheduling.matching.spread_domains import HOSTNAME
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray

OF_NEAR_NODES = {ResourceFit.name, GpuDevices.name, OUTSIDE, *(rule.name for rule in FILTERS if rule.static)}
"""Rules that refuse for amounts, or refuse other nodes than the nearest: where there is no other, amounts help."""

APART = {"InterPodAffinity", "PodTopologySpread"}
"""Rules that a new node passes where they tell single nodes apart."""

OPENINGS_TRIED, DOMAINS_TRIED, FREED_MOST = 12, 64, 64
MEBI = 2**20

MIN_COUNT = "min_count"
"""The kind of help that changes the group itself."""


class GroupHelp(Struct, frozen=True):
    """A change that would let in ``lets_in`` of the ``of`` members that are lacking; ``disturbs``: pods that run would
    have to leave for it."""

    kind: str
    text: str
    lets_in: int
    of: int
    disturbs: bool = False


@dataclass(frozen=True, slots=True)
class Lacking:
    """Members that are judged alike and fit nowhere beside the others."""

    template: Template
    pods: Sequence[Pod]
    diagnosis: Diagnosis

    @property
    def of_amounts(self) -> bool:
        """Whether amounts are all that the nodes lack which are open to it."""
        return not self.diagnosis.prefiltered and self.diagnosis.plugins <= OF_NEAR_NODES


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """A group as it was tried: ``attempt`` and the cluster as it would be then, ``trial``."""

    state: ClusterState
    feasibility: FeasibilityCache
    group: PodGroup
    attempt: Attempt
    trial: Trial
    pending: Sequence[Pod]
    bound: Sequence[Pod]

    @property
    def allowed(self) -> BoolArray | None:
        """``[rows]``: where members may go: the domain that the attempt chose; None: anywhere."""
        if self.group.topology is None or not self.group.topology.required:
            return None
        return allowed_rows(self.state, self.group, self.attempt.domain)

    @property
    def within(self) -> str:
        """The same in words."""
        topology = self.group.topology
        asked = topology is not None and topology.required and self.attempt.domain
        return f" within {topology.key}={self.attempt.domain}" if topology is not None and asked else ""


def group_helps(asked: GroupQuestion, kinds: Sequence[Lacking], wanted: int) -> tuple[GroupHelp, ...]:
    """What would let in ``wanted`` of these members, that which lets in most first, of equals what disturbs nobody."""
    topology = asked.group.topology
    if topology is not None and topology.required and not asked.attempt.domain:
        return ()  # there is no domain in which anything could be tried
    hopeful = [(one, failing_rules(asked.state, asked.feasibility, one.pods[0])) for one in kinds]
    found = [*_opened(asked, hopeful, wanted), *_added(asked, hopeful, wanted)]
    found += [*_fewer(asked, kinds, wanted), *_freed(asked, kinds, wanted)]
    helping = [one for one in found if one.lets_in > 0]
    return tuple(sorted(helping, key=lambda one: (-one.lets_in, one.disturbs)))


# --- nodes that are closed -------------------------------------------------------------------------------------------


def _opened(asked: GroupQuestion, kinds: Sequence[tuple[Lacking, Failing]], wanted: int) -> Iterator[GroupHelp]:
    table = asked.state.table
    changes: dict[tuple[str, str], list[tuple[Lacking, IntArray]]] = {}
    for one, failing in kinds:
        for opening in openings(table, failing, one.pods[0]):
            changes.setdefault((opening.kind, opening.words), []).append((one, opening.rows))
    for (kind, words), opened in list(changes.items())[:OPENINGS_TRIED]:
        lets_in, nodes = _admitted(asked, opened, wanted)
        yield GroupHelp(kind, words.format(names_text(nodes, len(nodes))), lets_in, wanted)


def _admitted(asked: GroupQuestion, opened: Sequence[tuple[Lacking, IntArray]], wanted: int) -> tuple[int, list[str]]:
    """(how many members more would have a node were these rows open to them, which of the nodes take any); in the
    domain where most have one."""
    topology = asked.group.topology
    if topology is None or not topology.required:
        taken = _put(asked.trial.fork(), asked.pending, opened, wanted, None)
        return min(len(taken), wanted), sorted(set(taken))
    accounts = asked.state.cache.accounts
    stand = [accounts[pod.uid].node_name for pod in asked.bound if pod.uid in accounts]
    offered = domains(asked.state, topology.key, stand)
    there = np.unique(np.concatenate([offered.of_row[rows] for _, rows in opened]))
    best: tuple[int, list[str]] = 0, []
    base, needed = Trial.of(asked.trial.tried, asked.feasibility), wanted + len(asked.attempt.nodes)
    for at in [int(at) for at in there if at >= 0][:DOMAINS_TRIED]:
        mask, trial = offered.mask(at), base.fork()
        for template, pods in runs(asked.pending, trial.tried):
            trial.place(template, pods, mask)
        taken = _put(trial, asked.pending, opened, max(0, needed - len(trial.nodes)), mask)
        gained = len(trial.nodes) - len(asked.attempt.nodes)
        if min(gained, wanted) > best[0]:
            best = min(gained, wanted), sorted(set(taken))
    return best


def _put(
    trial: Trial,
    pending: Sequence[Pod],
    opened: Sequence[tuple[Lacking, IntArray]],
    wanted: int,
    allowed: BoolArray | None,
) -> list[str]:
    """Where ``wanted`` members more would go on the rows that are opened to each kind."""
    names, before, template_of = trial.tried.cluster.table.names, set(trial.nodes), trial.tried.template_of
    for one, rows in opened:
        inside = rows if allowed is None else rows[allowed[rows]]
        left = wanted - (len(trial.nodes) - len(before))
        pods = [pod for pod in pending if template_of[pod.uid] is one.template and pod.uid not in trial.nodes][:left]
        trial.admit(one.template, pods, sorted(inside.tolist(), key=lambda row: names[row]))
    return [node for uid, node in trial.nodes.items() if uid not in before]


# --- nodes that are not there yet, and smaller requests ---------------------------------------------------------------


def _added(asked: GroupQuestion, kinds: Sequence[tuple[Lacking, Failing]], wanted: int) -> Iterator[GroupHelp]:
    """As many nodes as all that lack need."""
    table, left, words = asked.state.table, wanted, list[str]()
    for one, failing in kinds:
        pod, count = one.pods[0], min(left, len(one.pods))
        new = one.of_amounts or (one.diagnosis.plugins <= OF_NEAR_NODES | APART and _apart_by_node(pod))
        if not count or not new or one.diagnosis.prefiltered:
            continue
        row, takes = best_new(table, failing, pod, asked.allowed)
        if takes:
            nodes = -(-count // takes)
            many = "a node" if nodes == 1 else f"{nodes} nodes"
            words.append(f"add {many} like {table.names[row]} ({size_text(table, row)})")
        elif ResourceFit.name in one.diagnosis.plugins:
            many = "a node" if count == 1 else f"{count} nodes"
            asks = ", ".join(f"{at_least_text(name, amount)} {name}" for name, amount in fitted(pod.pod_class))
            words.append(f"add {many} with {asks}: none that is open to it is so large")
        else:
            continue
        left -= count
    if words:
        yield GroupHelp("add_node", " and ".join(words) + asked.within, wanted - left, wanted)


def _apart_by_node(pod: Pod) -> bool:
    """Whether nothing but single nodes keep it from its fellows: then a new node takes it."""
    relations = pod.relations or NO_RELATIONS
    keys = {term.topology_key for term in relations.anti_affinity} | {one.topology_key for one in relations.spread}
    return not relations.affinity and keys <= {HOSTNAME}


def _fewer(asked: GroupQuestion, kinds: Sequence[Lacking], wanted: int) -> Iterator[GroupHelp]:
    """The most that each member may ask for of one resource, for the minimum to fit; members that are all alike."""
    template, tried = kinds[0].template if kinds else None, asked.trial.tried
    if template is None or len(tried.templates) != 1 or template.rules or not kinds[0].of_amounts:
        return
    pod_class, needed = template.pod.pod_class, wanted + len(asked.attempt.nodes)
    if any(name == GPU_MILLI for name, _ in pod_class.requests):
        return  # shares are cut to devices: no amount is a little less than another
    base, table = Trial.of(tried, asked.feasibility), asked.state.table
    mask = asked.feasibility.static_verdict(pod_class).mask & table.present[: table.rows]
    rows = np.flatnonzero(mask if asked.allowed is None else mask & asked.allowed)

    def fits(name: str, amount: int) -> bool:
        requests = tuple((other, amount if other == name else of) for other, of in pod_class.requests)
        smaller = with_fields(template, pod=replace(template.pod, pod_class=replace(pod_class, requests=requests)))
        return int(base.places(smaller, rows).sum()) >= needed

    for name, of in fitted(pod_class):
        step = MEBI if name == MEMORY and of > MEBI else 1
        least, most = 1, of // step
        if not fits(name, least * step):
            continue
        while most - least > 1:  # the greatest that fits lies in [least, most)
            middle = (least + most) // 2
            least, most = (middle, most) if fits(name, middle * step) else (least, middle)
        text = f"ask for at most {at_most_text(name, least * step)} {name} each{asked.within}"
        yield GroupHelp("fewer_requests", text, wanted, wanted)


# --- room in use ------------------------------------------------------------------------------------------------------


def _freed(asked: GroupQuestion, kinds: Sequence[Lacking], wanted: int) -> Iterator[GroupHelp]:
    """For all that lack, one after the other, the node where least must be freed of what others use there."""
    hopeful = [one for one in kinds if one.of_amounts and not one.template.rules]
    resources = sorted({name for one in hopeful for name, _ in fitted(one.pods[0].pod_class)})
    table = asked.state.table
    if not hopeful or any(name not in table.column_of for name in resources):
        return
    columns = {PODS: PODS_COLUMN, **{name: table.column_of[name] for name in resources}}
    has = {name: table.allocatable[column, : table.rows].copy() for name, column in columns.items()}
    used = {name: table.requested[column, : table.rows].copy() for name, column in columns.items()}
    for pod in asked.bound:  # who runs of the group itself is not to leave for it
        account = asked.state.cache.accounts.get(pod.uid)
        row = table.row_of.get(account.node_name) if account is not None else None
        for name, amount in (*pod.pod_class.requests, (PODS, 1)) if row is not None else ():
            if name in used:
                used[name][row] -= amount
    free = {name: left.copy() for name in columns if (left := asked.trial.free(name)) is not None}
    freed: dict[str, Counter[str]] = {}
    count = 0
    for one in hopeful:
        pod_class = one.pods[0].pod_class
        asks = dict(fitted(pod_class)) | {PODS: 1}
        mask = asked.feasibility.static_verdict(pod_class).mask & table.present[: table.rows]
        if asked.allowed is not None:
            mask = mask & asked.allowed
        for _ in one.pods[: min(FREED_MOST, wanted - count)]:
            lacks = {name: np.maximum(0, amount - free[name]) for name, amount in asks.items()}
            can = mask.copy()
            for name, amount in asks.items():
                can &= (lacks[name] <= used[name]) & (has[name] >= amount)
            rows = np.flatnonzero(can)
            if not len(rows):
                break
            share = np.sum([lacks[name][rows] / amount for name, amount in asks.items()], axis=0)
            row = int(rows[int(np.argmin(share))])
            for name, amount in asks.items():
                lack = int(lacks[name][row])
                free[name][row] += lack - amount
                used[name][row] -= lack
                if lack:
                    freed.setdefault(table.names[row], Counter())[name] += lack
            count += 1
    if freed:
        steps = [f"{_amounts(lack)} on {node}" for node, lack in list(freed.items())[:3]]
        more = f" and on {len(freed) - 3} more nodes" if len(freed) > 3 else ""
        text = f"free {' and '.join(steps)}{more}{asked.within}: pods that run there would have to go"
        yield GroupHelp("free", text, count, wanted, disturbs=True)


def _amounts(lack: Counter[str]) -> str:
    return ", ".join(
        f"{at_least_text(name, amount)} {name}" if name != PODS else f"room for {amount} pod{'s' if amount > 1 else ''}"
        for name, amount in lack.items()
    )
