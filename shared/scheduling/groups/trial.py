"""The cluster as it would be with some members placed: counted beside the live one, which no trial changes.

Accounting is a fork of the node table (amounts, ports, devices), judged by the filters that judge the cluster; rules
that need more than a node are copies that follow each member (``adjust``). Members of one class without such rules are
placed by one pass over all nodes, others one by one.

Best fit: a node that has the least room left comes first, so that small members leave room for large ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence

import numpy as np

from shared.model.constraints import PodClass, fitted, gpu_milli_of, ignores
from shared.model.pod import Pod
from shared.model.resources import MILLI_PER_DEVICE, PODS
from shared.scheduling.cycle.conflicts import fits
from shared.scheduling.cycle.feasibility import Diagnosis, FeasibilityCache
from shared.scheduling.cycle.prefilter import reason_of
from shared.scheduling.cycle.room import places
from shared.scheduling.filters.accounted import conflicts
from shared.scheduling.framework import ClusterRule
from shared.scheduling.groups.tried_members import Template, TriedMembers
from shared.scheduling.parts import in_one_go
from shared.scheduling.state.node_table import PODS_COLUMN, BoolArray, IntArray, NodeTable
from shared.scheduling.state.room.removable import FloatArray

OUTSIDE = "PodGroupTopology"
OUTSIDE_REASON = "node(s) were outside the topology domain of the pod group"

LEAVING, RETURNING, YIELDED_TO = 5, 50, 100
"""Work of one pod that leaves in thought, of one that stays after all, and of one nominated that is counted alone."""

Standing = tuple[Pod, int, Sequence[int]]
"""A pod that stands: on which row, with which devices."""

PART = 32
"""Members that are tried one by one in one part of the work: about a millisecond."""

MISSES = 16
"""Nodes refused in a row by a rule after which all are judged anew."""


class Trial:
    """``nodes``: where each member placed so far would go, by uid, in the order of placing, ``taken``: those nodes;
    ``work``: nodes looked at, one per node and pass."""

    def __init__(self, tried: TriedMembers, table: NodeTable, feasibility: FeasibilityCache) -> None:
        self.tried = tried
        self.nodes: dict[str, str] = {}
        self.taken: set[str] = set()
        self.work = table.rows
        self._table = table
        self._feasibility = feasibility
        self._price: FloatArray | None = None
        self._changes: list[tuple[Pod, int, int]] = []
        self._rules: dict[Template, tuple[list[ClusterRule], int]] = {}

    @classmethod
    def of(cls, tried: TriedMembers, feasibility: FeasibilityCache) -> Trial:
        """The cluster as it stands, with pods that members must yield to on the nodes that are kept for them."""
        table = tried.cluster.table.fork()
        classes = {template.pod.pod_class for template in tried.templates}
        trial = cls(tried, table, feasibility.fork(table, classes))
        for pod, row in tried.one_by_one():
            trial.work += YIELDED_TO
            trial._count(pod, row)
        for pod_class, rows, copies in tried.summed_up():
            trial.work += len(rows)
            table.add_copies(rows, copies, pod_class)
        return trial

    def fork(self) -> Trial:
        """Another one that goes on from here."""
        table = self._table.fork()
        classes = {template.pod.pod_class for template in self.tried.templates}
        other = Trial(self.tried, table, self._feasibility.fork(table, classes))
        other.nodes, other.taken = dict(self.nodes), set(self.taken)
        other._changes, other._price = list(self._changes), self._price
        for template, (rules, seen) in self._rules.items():
            other._rules[template] = [rule.copy() for rule in rules], seen
        return other

    def place(self, template: Template, pods: Sequence[Pod], allowed: BoolArray | None = None) -> list[Pod]:
        """``placing``, in one go."""
        return in_one_go(self.placing(template, pods, allowed))

    def placing(
        self, template: Template, pods: Sequence[Pod], allowed: BoolArray | None = None
    ) -> Generator[int, None, list[Pod]]:
        """Place those of the pods, all of one template, that fit; returns the others. ``allowed [rows]``: nodes that
        may be taken; None: all. A pod goes to the node that is kept for it, where that takes it. Yields how many were
        tried one by one."""
        if template.rejection is not None:
            return list(pods)
        rest = []
        for pod in pods:
            row = self._table.row_of.get(pod.nominated_node) if pod.nominated_node else None
            if row is not None and (allowed is None or allowed[row]) and self.takes(template, row):
                self.put(pod, row)
            else:
                rest.append(pod)
        if not rest or self.tried.in_turn:
            return rest
        if self._rules_of(template):
            return (yield from self._one_by_one(template, rest, allowed))
        while rest:
            before = len(rest)
            rest = self._fill(template.pod.pod_class, rest, self.mask(template, allowed))
            if not self._feasibility.profile.brought or len(rest) == before:
                break  # filters that the user brings are asked again after each pod on a node
        return rest

    def admit(self, template: Template, pods: Sequence[Pod], rows: Iterable[int]) -> list[Pod]:
        """As if no label, taint or cordon kept the template from these rows: place those of the pods that fit there;
        returns the others."""
        if template.rejection is not None:
            return list(pods)
        rest, pod_class = deque(pods), template.pod.pod_class
        for row in rows:
            self.work += 1
            while rest and fits(self._feasibility, pod_class, row) and self._allow(template, row):
                self.put(rest.popleft(), row)
            if not rest:
                break
        return list(rest)

    def mask(self, template: Template, allowed: BoolArray | None = None) -> BoolArray:
        """``[rows]``: nodes that take one more of the template."""
        self.work += self._table.rows
        mask = self._feasibility.of(template.pod.pod_class).mask.copy()
        if allowed is not None:
            mask &= allowed
        for rule in self._rules_of(template):
            mask &= rule.mask()
        return mask

    def takes(self, template: Template, row: int) -> bool:
        """Whether one node takes one more of the template."""
        self.work += 1
        pod_class = template.pod.pod_class
        if not self._feasibility.static_verdict(pod_class).mask[row] or not fits(self._feasibility, pod_class, row):
            return False
        return self._allow(template, row)

    def _allow(self, template: Template, row: int) -> bool:
        return all(rule.verdict(row) is None for rule in self._rules_of(template))

    def put(self, pod: Pod, row: int) -> None:
        """Count a member on a node that takes it."""
        self._count(pod, row)
        self.nodes[pod.uid] = self._table.names[row]
        self.taken.add(self._table.names[row])

    def prefer(self, price: FloatArray) -> None:
        """Take cheap nodes first from now on, the tightest of those that cost the same. ``price [rows]``."""
        self._price = price

    def leave(self, gone: Iterable[Standing]) -> None:
        """As if these pods, which stand, left."""
        alike: dict[PodClass, list[int]] = {}
        for pod, row, devices in gone:
            if devices or pod.pod_class.host_ports:
                self._table.add_usage(row, pod.pod_class, devices, sign=-1)
            else:
                alike.setdefault(pod.pod_class, []).append(row)
            self.work += LEAVING
            if self.tried.ruled:
                self._changes.append((pod, row, -1))
        for pod_class, rows in alike.items():
            distinct, copies = np.unique(rows, return_counts=True)
            self._table.add_copies(distinct, -copies, pod_class)

    def put_back(self, gone: Sequence[Standing]) -> bool:
        """Have these pods, which left in thought, stay after all, where members that are placed keep their nodes. False
        where that cannot be; then nothing changed."""
        if not self.tried.ruled and not any(self._table.names[row] in self.taken for _, row, _ in gone):
            return True  # no member is where they are
        back: list[Standing] = []
        for pod, row, devices in gone:
            self.work += RETURNING
            if not self._has_room(pod.pod_class, row, devices):
                break
            self._table.add_usage(row, pod.pod_class, devices)
            self._changes.append((pod, row, 1))
            back.append((pod, row, devices))
        if len(back) == len(gone) and self._members_stay():
            return True
        self.leave(back)
        return False

    def free(self, name: str) -> IntArray | None:
        """``[rows]``: how much of a resource is left; may be negative. None: no node has it."""
        table = self._table
        column = PODS_COLUMN if name == PODS else table.column_of.get(name)
        if column is None:
            return None
        left: IntArray = table.allocatable[column, : table.rows] - table.requested[column, : table.rows]
        return left

    def places(self, template: Template, rows: IntArray) -> IntArray:
        """``[len(rows)]``: how many of the template's class fit on each of the rows, each of which takes one: at most,
        where rules or shares of devices decide too."""
        return places(self._table, template.pod.pod_class, rows, singly=bool(self._feasibility.profile.brought))

    def diagnosis(self, template: Template, allowed: BoolArray | None = None) -> Diagnosis:
        """Why nodes do not take one more of the template, beside what is placed here."""
        table, rejection = self._table, template.rejection
        nodes = len(table.row_of)
        if rejection is not None:
            said = dict.fromkeys(rejection.reasons, nodes)
            told, reason = ", ".join(rejection.reasons), reason_of(rejection, ())
            return Diagnosis(nodes, 0, said, frozenset((rejection.plugin,)), told, reason)
        reasons, plugins, pod_class = Counter[str](), set[str](), template.pod.pod_class
        rows = table.live_rows()
        if allowed is not None:
            inside = allowed[rows]
            if not inside.all():
                reasons[OUTSIDE_REASON] = int((~inside).sum())
                plugins.add(OUTSIDE)
            rows = rows[inside]
        rows = self._feasibility.sift(pod_class, rows, reasons, plugins, last=False)
        rules = self._rules_of(template)
        for rule in rules:
            passing = rule.mask()[rows]
            if not passing.all():
                reasons.update(rule.tally(rows[~passing]))
                plugins.add(rule.name)
            rows = rows[passing]
        rows = self._feasibility.sift(pod_class, rows, reasons, plugins, last=True)
        self.work += table.rows
        return Diagnosis(nodes, len(rows), dict(reasons), frozenset(plugins), reason=reason_of(None, rules))

    def nearest(
        self, template: Template, count: int, allowed: BoolArray | None = None
    ) -> list[tuple[str, dict[str, int]]]:
        """The nodes that lack least for one more of the template, and how much of what; only those that nothing but
        amounts keeps from it, and that would have enough were they empty."""
        table, pod_class = self._table, template.pod.pod_class
        offered = [(PODS, 1, PODS_COLUMN)]
        for name, amount in fitted(pod_class):
            if name in pod_class.by_class:
                continue
            if (column := table.column_of.get(name)) is None:
                return []  # no node has any of it
            offered.append((name, amount, column))
        mask = self._feasibility.static_verdict(pod_class).mask & table.present[: table.rows]
        mask = mask if allowed is None else mask & allowed
        for _, amount, column in offered:
            mask = mask & (table.allocatable[column, : table.rows] >= amount)
        rows = np.flatnonzero(mask)
        lacks: dict[str, IntArray] = {}
        lacking: FloatArray = np.zeros(len(rows))
        for name, amount, column in offered:
            free = table.allocatable[column, rows] - table.requested[column, rows]
            lacks[name] = np.maximum(0, amount - free)
            lacking += lacks[name] / amount
        near = [at for at in np.argsort(lacking, kind="stable").tolist() if lacking[at] > 0][:count]
        return [
            (table.names[int(rows[at])], {name: int(short[at]) for name, short in lacks.items() if short[at]})
            for at in near
        ]

    # --- inside -------------------------------------------------------------------------------------------------

    def _count(self, pod: Pod, row: int) -> None:
        devices = self._table.pick_devices(row, gpu_milli_of(pod.pod_class))
        self._table.add_usage(row, pod.pod_class, devices)
        self._changes.append((pod, row, 1))

    def _has_room(self, pod_class: PodClass, row: int, devices: Sequence[int]) -> bool:
        """Whether the row has for a pod that was there what it had: a row without members always has."""
        table = self._table
        if table.names[row] not in self.taken:
            return True
        if table.requested[PODS_COLUMN, row] >= table.allocatable[PODS_COLUMN, row]:
            return False
        for name, amount in pod_class.requests:
            column = table.column_of[name]
            if amount > table.allocatable[column, row] - table.requested[column, row]:
                if name in pod_class.by_class and not table.allocatable[column, row]:
                    continue
                if ignores(pod_class, name):
                    continue
                return False
        share = gpu_milli_of(pod_class) // max(1, len(devices))
        free = table.device_free[row]
        if any(device < len(free) and free[device] < share for device in devices):
            return False
        return not (pod_class.host_ports and conflicts(pod_class.host_ports, table.ports[row]))

    def _members_stay(self) -> bool:
        """Whether every member placed, whose rules others decide about, could be placed where it is."""
        if not self.tried.ruled:
            return True
        template_of, row_of = self.tried.template_of, self._table.row_of
        for pod in self.tried.members:
            if pod.uid not in self.nodes:
                continue
            row, rules = row_of[self.nodes[pod.uid]], self._rules_of(template_of[pod.uid])
            self.work += len(rules)
            for rule in rules:
                rule.adjust(pod, row, -1)
                verdict = rule.verdict(row)
                rule.adjust(pod, row, 1)
                if verdict is not None:
                    return False
        return True

    def _rules_of(self, template: Template) -> Sequence[ClusterRule]:
        """The template's rules with everything placed here."""
        if not template.rules:
            return ()
        rules, seen = self._rules.get(template, (None, 0))
        if rules is None:
            rules = [rule.copy() for rule in template.rules]
        if seen < len(self._changes):
            self.work += len(self._changes) - seen
            for pod, row, sign in self._changes[seen:]:
                for rule in rules:
                    rule.adjust(pod, row, sign)
        self._rules[template] = rules, len(self._changes)
        return rules

    def _fill(self, pod_class: PodClass, pods: Sequence[Pod], mask: BoolArray) -> list[Pod]:
        """As many as fit, the tightest node first and full before the next; returns the others."""
        table = self._table
        rows = self._tightest(pod_class, np.flatnonzero(mask))
        count = places(table, pod_class, rows, singly=bool(self._feasibility.profile.brought))
        milli = gpu_milli_of(pod_class)
        if 0 < milli < MILLI_PER_DEVICE:
            count = _shares(table, milli, rows, count, len(pods))
        before = np.cumsum(count) - count
        taken = np.clip(len(pods) - before, 0, count)
        rows, taken = rows[taken > 0], taken[taken > 0]
        placed = list(zip(pods, np.repeat(rows, taken).tolist(), strict=False))
        if milli or pod_class.host_ports:
            for _, row in placed:
                table.add_usage(row, pod_class, table.pick_devices(row, milli))
        else:
            table.add_copies(rows, taken, pod_class)
        names = table.names
        for pod, row in placed:
            self._changes.append((pod, row, 1))
            self.nodes[pod.uid] = names[row]
            self.taken.add(names[row])
        return list(pods[len(placed) :])

    def _one_by_one(
        self, template: Template, pods: Sequence[Pod], allowed: BoolArray | None
    ) -> Generator[int, None, list[Pod]]:
        """Each to the tightest node that takes it beside those before it; the order of nodes is made anew when it is
        used up, and when rules refuse too many of it."""
        pod_class, rest, tried = template.pod.pod_class, deque(pods), 0
        while rest:
            left, misses = len(rest), 0
            for row in self._tightest(pod_class, np.flatnonzero(self.mask(template, allowed))).tolist():
                while rest and self.takes(template, row):
                    self.put(rest.popleft(), row)
                    misses, tried = 0, tried + 1
                misses += 1
                if tried >= PART:
                    yield tried
                    tried = 0
                if not rest or (misses > MISSES and len(rest) < left):
                    break
            if len(rest) == left:
                break
        yield tried
        return list(rest)

    def _tightest(self, pod_class: PodClass, rows: IntArray) -> IntArray:
        """The rows, that with the least room first: free amounts of what the class asks for, each as a share of the
        largest node's."""
        table = self._table
        room: FloatArray = np.zeros(len(rows))
        for name, _ in pod_class.requests:
            column = table.column_of.get(name)
            if column is not None and len(rows):
                free = table.allocatable[column, rows] - table.requested[column, rows]
                room += free / max(1, int(table.allocatable[column, : table.rows].max()))
        if self._price is None:
            return rows[np.argsort(room, kind="stable")]
        return rows[np.lexsort((room, self._price[rows]))]


def _shares(table: NodeTable, milli: int, rows: IntArray, most: IntArray, wanted: int) -> IntArray:
    """``[len(rows)]``: how many shares of ``milli`` thousandths the devices take, for as many rows as are needed."""
    count = np.zeros(len(rows), np.int64)
    for at, row in enumerate(rows.tolist()):
        if wanted <= 0:
            break
        count[at] = min(int(most[at]), sum(free // milli for free in table.device_free[row]))
        wanted -= int(count[at])
    return count
