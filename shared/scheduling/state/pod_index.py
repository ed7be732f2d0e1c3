"""Which pods stand on which rows, counted per question asked: the base of every rule about other pods.

A question (``Matcher``) is a set of namespaces and selectors; its answer is an array of counts per row, built once and
then kept up to date by each pod that comes or goes. Pods of one template share a label group, so a change touches the
few questions that match the group and never scans pods. Demands of pods that stand (their anti-affinity, what they
prefer) are kept the same way, per distinct term.

Pods on nodes that the table does not know wait here and count when the node appears. Who is bound or assumed is
``cache.py``'s business: this index is told.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass, field
from sys import intern

import numpy as np
from msgspec import Struct

from shared.model.pod import Pod
from shared.model.terms.labels import LabelSelector, selects
from shared.model.terms.relations import AffinityTerm
from shared.scheduling.state.by_label import ByLabel, Label, asked_label
from shared.scheduling.state.node_table import IntArray, NodeTable
from shared.scheduling.state.room.removable import Removable

MATCHER_LIMIT = 512
"""Questions remembered; the least recently asked is forgotten (an array of rows each)."""

TERM_MEMO_LIMIT = 4096
"""Templates for which it is remembered whose terms mean them."""

ANTI_AFFINITY, WEIGHTED, REQUIRED = "anti_affinity", "weighted", "required"
"""Kinds of terms of pods that stand, by the attributes that hold them."""

_NOBODY: dict[str, Pod] = {}

LabelsKey = tuple[tuple[str, str], ...]
_SeatState = tuple[bool, bool]
TermMemo = dict[tuple[str, str, LabelsKey, LabelsKey], "list[tuple[AffinityTerm, TermRows]]"]


class Matcher(Struct, frozen=True):
    """Pods for which every condition holds: (namespaces, None for all; selector, None matches nothing).

    ``skip_terminating``: pods being deleted do not count. ``skip_assumed``: nor do pods that are not seen bound yet.
    """

    conditions: tuple[tuple[frozenset[str] | None, LabelSelector | None], ...]
    skip_terminating: bool = False
    skip_assumed: bool = False

    @property
    def label(self) -> Label | None:
        """One label that every pod has that is found; None: no one label."""
        return next((label for _, selector in self.conditions if (label := asked_label(selector)) is not None), None)

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod of ``namespace`` with ``labels`` meets every condition (terminating or not)."""
        return all(
            (names is None or namespace in names) and selects(selector, labels) for names, selector in self.conditions
        )

    def counts(self, *, terminating: bool, assumed: bool) -> bool:
        """Whether a pod in this state counts."""
        return not ((self.skip_terminating and terminating) or (self.skip_assumed and assumed))


@dataclass(slots=True, eq=False)
class Amounts:
    """``amounts [capacity]``: so much per row. ``moved``: the index's ``version`` when they last changed; ``FORGOTTEN``
    once nobody keeps them."""

    amounts: IntArray
    moved: int

    def add(self, row: int, amount: int, version: int) -> None:
        """So much more on the row. ``version``: that which comes of it; one that was seen already would hide it."""
        self.amounts[row] += amount
        self.moved = version


FORGOTTEN = -1


@dataclass(slots=True, eq=False)
class TermRows(Amounts):
    """Pods that carry a term, or the sum of their weights; ``users``: of it, on whatever node."""

    users: int = 0


@dataclass(slots=True, eq=False)
class _Answer(Amounts):
    """Pods that a matcher finds."""

    matcher: Matcher


@dataclass(slots=True, eq=False)
class _Group:
    """Pods of one namespace with equal labels. ``seats``: node -> pods by state, (terminating, assumed)."""

    namespace: str
    labels: dict[str, str]
    key: tuple[str, LabelsKey]
    seats: dict[str, dict[_SeatState, int]] = field(default_factory=dict)
    answers: list[_Answer] = field(default_factory=list)


class _Placed(Struct, eq=False, gc=False):
    pod: Pod
    node_name: str
    group: _Group
    assumed: bool


def _kept(pod: Pod, group: _Group) -> Pod:
    """What rules about standing pods read, and nothing more: there are many, and each is kept as long as it stands."""
    return Pod(
        uid=pod.uid,
        namespace=group.namespace,
        name=pod.name,
        resource_version="",
        pod_class=pod.pod_class,
        scheduler_name=intern(pod.scheduler_name),
        priority=pod.priority,
        terminating=pod.terminating,
        labels=group.labels,
        relations=pod.relations,
        start_time=pod.start_time,
        preempted=pod.preempted,
        preemptible=pod.preemptible,
        workload=pod.workload,
        group=pod.group,
        qos=pod.qos,
        offline=pod.offline,
    )


class PodIndex:
    """Pods by uid and node over one table.

    ``version`` counts every change of what is counted, ``terms_version`` every distinct term that appears or goes.
    ``anti_affinity``: who carries a required anti-affinity term; ``weighted``: sums of weights of preferred terms and
    of required affinity, which weighs 1; ``required``: of the latter alone, where somebody weighs it otherwise
    (``weigh_required``). ``claim_users``: pods per claim key on nodes that exist; ``volume_pods``: pods
    with claims or disks by node; ``priorities``: pods per priority,
    ``removable``: how much evicting them would free; ``schedulers``: pods per scheduler that they name;
    ``assumed``: pods that nobody has seen bound yet.
    """

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.version = 0
        self.terms_version = 0
        self.anti_affinity: dict[AffinityTerm, TermRows] = {}
        self.weighted: dict[AffinityTerm, TermRows] = {}
        self.required: dict[AffinityTerm, TermRows] = {}
        self.claim_users: dict[str, int] = {}
        self._claim_uses: IntArray = np.zeros(table.capacity, np.int64)
        self.volume_pods: dict[str, dict[str, Pod]] = {}
        self.priorities: dict[int, int] = {}
        self.schedulers: Counter[str] = Counter()
        self.assumed = 0
        self.removable = Removable(table)
        self._placed: dict[str, _Placed] = {}
        self._on: dict[str, dict[str, Pod]] = {}
        self._groups: dict[tuple[str, LabelsKey], _Group] = {}
        self._counted: OrderedDict[Matcher, _Answer] = OrderedDict()
        self._asking: ByLabel[_Answer] = ByLabel()
        self._groups_with: ByLabel[_Group] = ByLabel()
        self._terms_asking: dict[str, ByLabel[tuple[AffinityTerm, TermRows]]] = {
            ANTI_AFFINITY: ByLabel(), WEIGHTED: ByLabel(), REQUIRED: ByLabel(),
        }  # fmt: skip
        self._apart = False
        self._seated: dict[str, int] = {}
        self._static_seen = -1
        self._term_memo: TermMemo = {}
        self._term_memo_version = 0

    def weigh_required(self) -> None:
        """Sum required affinity by itself as well, from before the first pod on."""
        assert not self._placed
        self._apart = True

    # --- pods ---------------------------------------------------------------------------------------------------

    def place(self, pod: Pod, node_name: str, *, assumed: bool = False) -> None:
        """``pod`` stands on ``node_name``, wherever it stood before; ``assumed``: nobody has seen it there yet."""
        self.sync()
        known = self._placed.get(pod.uid)
        if known is not None:
            if known.node_name == node_name and self._replaced(known, pod):
                if known.assumed != assumed:
                    self._see(known, assumed=assumed)
                return
            self.drop(pod.uid)
        key = (pod.namespace, tuple(sorted(pod.labels.items())))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(pod.namespace, pod.labels, key)
            there = self._asking.among(pod.labels)
            group.answers = [answer for answer in there if answer.matcher.matches(pod.namespace, pod.labels)]
            for label in pod.labels.items():
                self._groups_with.put(label, key, group)
        pod = _kept(pod, group)
        self.assumed += assumed
        placed = self._placed[pod.uid] = _Placed(pod, node_name, group, assumed)
        self._on.setdefault(node_name, {})[pod.uid] = pod
        self.priorities[pod.priority] = self.priorities.get(pod.priority, 0) + 1
        self.schedulers[pod.scheduler_name] += 1
        if pod.relations is not None:
            if pod.relations.claims or pod.relations.disks:
                self.volume_pods.setdefault(node_name, {})[pod.uid] = pod
            self._use_terms(pod, 1)
        self._seat_in(placed, 1)
        row = self._seated.get(node_name)
        if row is not None:
            self._count(placed, row, 1)
        self.version += 1

    def drop(self, uid: str) -> None:
        """The pod stands nowhere any more; an unknown uid is fine."""
        self.sync()
        known = self._placed.pop(uid, None)
        if known is None:
            return
        pod, node_name = known.pod, known.node_name
        group = known.group
        self.assumed -= known.assumed
        row = self._seated.get(node_name)
        if row is not None:
            self._count(known, row, -1)
        self._seat_in(known, -1)
        if not group.seats:
            del self._groups[group.key]
            for label in group.labels.items():
                self._groups_with.drop(label, group.key)
        _discard(self._on, node_name, uid)
        self._uncount_priority(pod.priority)
        self.schedulers[pod.scheduler_name] -= 1
        _discard(self.volume_pods, node_name, uid)
        if pod.relations is not None:
            self._use_terms(pod, -1)
        self.version += 1

    def pods_on(self, node_name: str) -> Iterable[Pod]:
        """Pods that stand on a node, in the order in which they were placed."""
        return self._on.get(node_name, {}).values()

    def uids_on(self, node_name: str) -> KeysView[str]:
        """Uids of the pods that stand on a node; a view that follows."""
        return self._on.get(node_name, _NOBODY).keys()

    def get(self, uid: str) -> Pod | None:
        """The pod as last placed."""
        known = self._placed.get(uid)
        return None if known is None else known.pod

    # --- questions ----------------------------------------------------------------------------------------------

    def counts(self, matcher: Matcher) -> IntArray:
        """``[rows]``: pods that the matcher finds on each row. The caller must not write to it."""
        return self.answer(matcher).amounts[: self.table.rows]

    def claim_uses(self) -> IntArray:
        """``[rows]``: claims that pods on each row name, each as often as it is named. The caller must not write."""
        self.sync()
        return self._claim_uses[: self.table.rows]

    def answer(self, matcher: Matcher) -> Amounts:
        """The pods that the matcher finds, which follow what comes and goes. The caller must not write to them."""
        self.sync()
        answer = self._counted.get(matcher)
        if answer is not None:
            self._counted.move_to_end(matcher)
            return answer
        answer = self._counted[matcher] = _Answer(np.zeros(self.table.capacity, np.int64), self.version, matcher)
        self._asking.put(matcher.label, matcher, answer)
        for group in self._groups_asked(matcher):
            if matcher.matches(group.namespace, group.labels):
                group.answers.append(answer)
                for node_name, seats in group.seats.items():
                    row = self._seated.get(node_name)
                    if row is not None:
                        answer.amounts[row] += sum(
                            pods
                            for (terminating, assumed), pods in seats.items()
                            if matcher.counts(terminating=terminating, assumed=assumed)
                        )
        if len(self._counted) > MATCHER_LIMIT:
            self._forget_oldest()
        return answer

    def terms_among(self, kind: str, labels: Mapping[str, str]) -> Iterable[tuple[AffinityTerm, TermRows]]:
        """Terms of pods that stand, ``ANTI_AFFINITY`` or ``WEIGHTED``, which may mean pods with these labels."""
        return self._terms_asking[kind].among(labels)

    def term_memo(self) -> TermMemo:
        """What is remembered about terms; emptied whenever a distinct term appears or goes."""
        if self._term_memo_version != self.terms_version or len(self._term_memo) >= TERM_MEMO_LIMIT:
            self._term_memo.clear()
            self._term_memo_version = self.terms_version
        return self._term_memo

    def sync(self) -> None:
        """Take over which nodes the table knows; cheap unless the static half of some node changed."""
        table = self.table
        if self._static_seen == table.static_stamp:
            return
        self._static_seen = table.static_stamp
        if self._capacity() < table.capacity:
            self._grow()
        row_of = table.row_of
        for name, row in [item for item in self._seated.items() if row_of.get(item[0]) != item[1]]:
            self._unseat(name, row)
        for name, row in row_of.items():
            if name not in self._seated:
                self._seated[name] = row
                for uid in self._on.get(name, {}):
                    self._count(self._placed[uid], row, 1)
        self.version += 1

    # --- inside -------------------------------------------------------------------------------------------------

    def _replaced(self, known: _Placed, pod: Pod) -> bool:
        """Whether the newer object of a pod that stays where it is counts exactly as the older: most changes do."""
        before = known.pod
        if (before.labels, before.terminating, before.priority) != (pod.labels, pod.terminating, pod.priority):
            return False
        if before.relations != pod.relations or before.namespace != pod.namespace:
            return False
        if (before.start_time, before.preempted, before.preemptible, before.qos, before.offline) != (
            pod.start_time,
            pod.preempted,
            pod.preemptible,
            pod.qos,
            pod.offline,
        ) or before.pod_class != pod.pod_class:
            kept = _kept(pod, known.group)
        else:
            return True
        row = self._seated.get(known.node_name)
        if row is not None:
            self.removable.count(before, row, -1)
            self.removable.count(kept, row, 1)
        known.pod = self._on[known.node_name][pod.uid] = kept
        if pod.uid in self.volume_pods.get(known.node_name, ()):
            self.volume_pods[known.node_name][pod.uid] = kept
        return True

    def _see(self, known: _Placed, *, assumed: bool) -> None:
        """The pod that stands there was seen bound, or the other way round: only who asks for that counts anew."""
        row = self._seated.get(known.node_name)
        terminating = known.pod.terminating
        if row is not None:
            for answer in known.group.answers:
                matcher = answer.matcher
                if matcher.skip_assumed and not (matcher.skip_terminating and terminating):
                    answer.add(row, -1 if assumed else 1, self.version + 1)
        self._seat_in(known, -1)
        self.assumed += 1 if assumed else -1
        known.assumed = assumed
        self._seat_in(known, 1)
        self.version += 1

    def _uncount_priority(self, priority: int) -> None:
        left = self.priorities[priority] - 1
        if left:
            self.priorities[priority] = left
        else:
            del self.priorities[priority]

    def _count(self, placed: _Placed, row: int, sign: int) -> None:
        pod = placed.pod
        self.removable.count(pod, row, sign)
        for answer in placed.group.answers:
            if answer.matcher.counts(terminating=pod.terminating, assumed=placed.assumed):
                answer.add(row, sign, self.version + 1)
        relations = pod.relations
        if relations is None:
            return
        for term in relations.anti_affinity:
            self.anti_affinity[term].add(row, sign, self.version + 1)
        for term in relations.affinity:
            self.weighted[term].add(row, sign, self.version + 1)
            if self._apart:
                self.required[term].add(row, sign, self.version + 1)
        for weighted in relations.preferences:
            self.weighted[weighted.term].add(row, sign * weighted.weight, self.version + 1)
        self._claim_uses[row] += sign * len(relations.claims)
        for claim in relations.claims:
            if not claim.ephemeral:
                key = f"{pod.namespace}/{claim.name}"
                self.claim_users[key] = self.claim_users.get(key, 0) + sign
                if not self.claim_users[key]:
                    del self.claim_users[key]

    def _use_terms(self, pod: Pod, sign: int) -> None:
        relations = pod.relations
        assert relations is not None
        for term in relations.anti_affinity:
            self._use_term(ANTI_AFFINITY, term, sign)
        for term in relations.affinity:
            self._use_term(WEIGHTED, term, sign)
            if self._apart:
                self._use_term(REQUIRED, term, sign)
        for weighted in relations.preferences:
            self._use_term(WEIGHTED, weighted.term, sign)

    def _use_term(self, kind: str, term: AffinityTerm, sign: int) -> None:
        registry: dict[AffinityTerm, TermRows] = getattr(self, kind)
        asking = self._terms_asking[kind]
        rows = registry.get(term)
        if rows is None:
            rows = registry[term] = TermRows(np.zeros(self.table.capacity, np.int64), self.version)
            asking.put(asked_label(term.selector), term, (term, rows))
            self.terms_version += 1
        rows.users += sign
        if not rows.users:
            del registry[term]
            asking.drop(asked_label(term.selector), term)
            rows.moved = FORGOTTEN
            self.terms_version += 1

    def _seat_in(self, placed: _Placed, sign: int) -> None:
        group, name, state = placed.group, placed.node_name, (placed.pod.terminating, placed.assumed)
        seats = group.seats.setdefault(name, {})
        seats[state] = seats.get(state, 0) + sign
        if not seats[state]:
            del seats[state]
            if not seats:
                del group.seats[name]

    def _unseat(self, name: str, row: int) -> None:
        """The row is free or another node's: nothing stands there."""
        del self._seated[name]
        for uid in self._on.get(name, {}):
            self._count(self._placed[uid], row, -1)

    def _forget_oldest(self) -> None:
        matcher, forgotten = self._counted.popitem(last=False)
        self._asking.drop(matcher.label, matcher)
        forgotten.moved = FORGOTTEN
        for group in self._groups_asked(matcher):
            if forgotten in group.answers:
                group.answers.remove(forgotten)

    def _groups_asked(self, matcher: Matcher) -> Iterable[_Group]:
        """The groups that the matcher may find."""
        return self._groups.values() if matcher.label is None else self._groups_with.asking(matcher.label)

    def _capacity(self) -> int:
        arrays = [counted.amounts for counted in (*self._counted.values(), *self._terms())]
        return min(map(len, (self._claim_uses, *arrays)))

    def _terms(self) -> Iterable[TermRows]:
        yield from self.anti_affinity.values()
        yield from self.weighted.values()
        yield from self.required.values()

    def _grow(self) -> None:
        capacity = self.table.capacity
        self._claim_uses = np.pad(self._claim_uses, (0, capacity - len(self._claim_uses)))
        for counted in (*self._counted.values(), *self._terms()):
            counted.amounts = np.pad(counted.amounts, (0, capacity - len(counted.amounts)))


def _discard(by_node: dict[str, dict[str, Pod]], node_name: str, uid: str) -> None:
    there = by_node.get(node_name)
    if there is not None and there.pop(uid, None) is not None and not there:
        del by_node[node_name]
