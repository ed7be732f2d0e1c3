"""Would these members of a group fit, all on the cluster as it stands, and where? A thought: nothing is changed.

Members are tried in the caller's order, each beside those before it; one that does not fit is passed over. The group
succeeds with its minimum, members that run included, and then takes along whatever else fits. A gang that fails only
because of that order is tried in others that place more: the large and the choosy first, or only as many small ones as
are needed. No order is proof that a gang of unequal members cannot fit; equal members without demands on each other
need none.

Cost: one pass over all nodes per run of members of one template; ``Attempt.work`` counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.model.units.pod_group import PodGroup
from shared.scheduling.cycle.feasibility import Diagnosis, FeasibilityCache
from shared.scheduling.groups.topology import Domains, domain_rows, domains, worth
from shared.scheduling.groups.trial import Trial
from shared.scheduling.groups.tried_members import Template, TriedMembers
from shared.scheduling.parts import in_one_go
from shared.scheduling.reasons import NOT_READY, UNSCHEDULABLE
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.node_table import BoolArray, IntArray

MAX_RUNS = 64
"""Runs of one template that are tried one after the other in the caller's order; of more, templates are put together,
each where its first member stands."""

MAX_PAIRS = 2**16
"""Templates with rules times members: how often a rule follows a member, at most. A group of more is told so."""

MAX_DOMAINS, REORDERED_DOMAINS = 64, 8
"""Domains tried, the most promising first, and those tried in every order."""

MAX_SEATS, MAX_SEATED = 16, 64
"""Nodes on which the first of members is tried that share a claim, those with the most room first: the others have to
go where it does. And trials of that kind in one attempt, in all domains and for all claims."""

TOO_MANY_RULES = "GangScheduling"
TOO_MANY_TEXT = (
    "too many members with affinity, spread or volumes of their own to be placed together; give them one template, "
    "or make the group smaller"
)

T = TypeVar("T")

Run = tuple[Template, list[Pod]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """``nodes``: by uid where the members that fit would go, in the order of placing. ``rejected``: by uid why no node
    takes each of the others, beside those placed. ``reached``: members that run and those placed are the minimum.
    ``domain``: value of the topology label that holds all of them; "": none is asked for, or the preference was given
    up. ``reordered``: only another order than the caller's reached the minimum. ``work``: nodes looked at, one per node
    and pass: some 10 ns each."""

    nodes: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, Diagnosis] = field(default_factory=dict)
    reached: bool = False
    domain: str = ""
    reordered: bool = False
    work: int = 0

    @property
    def plugins(self) -> frozenset[str]:
        """Every rule that keeps some member from some node."""
        return frozenset().union(*(diagnosis.plugins for diagnosis in self.rejected.values()))

    def reason(self, lacking: int) -> str:
        """That of the members' condition, of whom ``lacking`` are to be placed: further nodes help where so many would
        go somewhere then."""
        helped = sum(diagnosis.reason == UNSCHEDULABLE for diagnosis in self.rejected.values())
        return UNSCHEDULABLE if len(self.nodes) + helped >= lacking else NOT_READY


def try_group(
    cluster: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    members: Sequence[Pod],
    bound: Sequence[Pod] = (),
) -> Attempt:
    """What placing ``members``, which are pending and in order, would give beside those ``bound`` or assumed already.

    ``feasibility`` is over the cluster's table. Within the topology domain that the group demands, or prefers.
    """
    return explore(cluster, feasibility, group, members, bound)[0]


Exploring = Generator[int, None, T]
"""Yields how many members were tried one by one, of the cluster as it was when it began."""


def explore(
    cluster: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    members: Sequence[Pod],
    bound: Sequence[Pod] = (),
) -> tuple[Attempt, Trial]:
    """The same, with the cluster as it would be then; where nothing was tried, as it is."""
    return in_one_go(exploring(cluster, feasibility, group, members, bound))


def exploring(
    cluster: ClusterState,
    feasibility: FeasibilityCache,
    group: PodGroup,
    members: Sequence[Pod],
    bound: Sequence[Pod] = (),
) -> Exploring[tuple[Attempt, Trial]]:
    """The same in parts; nodes must stay what they are until it is over."""
    tried = TriedMembers(cluster, members, in_turn=True)
    found = yield from _exploring(tried, feasibility, group, bound)
    if found[0].reached or not tried.in_turn:
        return found
    attempt, trial = yield from _exploring(TriedMembers(cluster, members), feasibility, group, bound)
    return replace_fields(attempt, work=attempt.work + found[0].work), trial


def _exploring(
    tried: TriedMembers, feasibility: FeasibilityCache, group: PodGroup, bound: Sequence[Pod]
) -> Exploring[tuple[Attempt, Trial]]:
    cluster, members, needed = tried.cluster, tried.members, max(0, group.min_count - len(bound))
    if len(tried.ruled) * len(members) > MAX_PAIRS:
        refused = frozenset((TOO_MANY_RULES,))
        why = Diagnosis(len(cluster.table.row_of), 0, {}, refused, TOO_MANY_TEXT, NOT_READY)
        return Attempt({}, dict.fromkeys(tried.template_of, why), needed <= 0), Trial.of(tried, feasibility)
    base = Trial.of(tried, feasibility)
    search = _Search(tried, base, needed)
    if group.topology is None and len(tried.templates) == 1 and not search.sharing:
        yield from base.placing(tried.templates[0], members)  # all are alike: no order is better than another
        return search.attempt(base, False, None, "")
    if group.topology is None:
        return search.attempt(*(yield from search.anyhow(None)), None, "")
    offered = domains(cluster, group.topology.key, _nodes_of(cluster, bound))
    return (yield from search.within(offered, required=group.topology.required))


def allowed_rows(cluster: ClusterState, group: PodGroup, domain: str) -> BoolArray | None:
    """``[rows]``: the nodes of the domain that an attempt chose for the group; None: any."""
    if group.topology is None or not domain:
        return None
    return domain_rows(cluster.table, group.topology.key, domain)


def capacity(
    cluster: ClusterState, feasibility: FeasibilityCache, pod: Pod, most: int, allowed: BoolArray | None = None
) -> int:
    """How many pods like ``pod`` fit now, counted up to ``most``. ``allowed [rows]``: only on these nodes."""
    copies = [replace(pod, uid=f"{pod.uid}/{number}", nominated_node="") for number in range(most)]
    tried = TriedMembers(cluster, copies)
    trial = Trial.of(tried, feasibility)
    return most - len(trial.place(tried.templates[0], copies, allowed)) if copies else 0


class _Search:
    """Orders and domains of one attempt. ``base``: nothing is placed there, each trial forks it."""

    def __init__(self, tried: TriedMembers, base: Trial, needed: int) -> None:
        self._tried = tried
        self._base = base
        self._needed = needed
        self._forked = 0
        self.sharing = first_to_share(tried.cluster, tried.members)
        self._seats_left = MAX_SEATED

    def anyhow(self, allowed: BoolArray | None) -> Exploring[tuple[Trial, bool]]:
        """As ``best``, and where members share a claim, with the first of those on one node after the other."""
        trial, reordered = yield from self.best(allowed)
        if self.sharing and len(trial.nodes) < self._needed <= len(self._tried.members):
            trial, reordered = yield from self.seated(trial, allowed)
        return trial, reordered

    def best(self, allowed: BoolArray | None) -> Exploring[tuple[Trial, bool]]:
        """(the first trial that reaches the minimum, whether it took another order); else that of the given order."""
        members = self._tried.members
        given = yield from self._trial(members, allowed)
        hopeless = len(self._tried.templates) < 2 or self._needed > len(members)
        if not hopeless and len(given.nodes) < self._needed:
            for order in orders(self._tried, self._base, self._needed, allowed):
                trial = yield from self._trial(order, allowed)
                if len(trial.nodes) >= self._needed:
                    return trial, True
        return given, False

    def seated(self, given: Trial, allowed: BoolArray | None) -> Exploring[tuple[Trial, bool]]:
        """With the first member that names a claim which several share on one node after the other: where it is the
        claim gets its devices, and the others go where those can be used. ``given``: what it is without that."""
        members = self._tried.members
        for first in self.sharing:
            template, others = self._tried.template_of[first.uid], [pod for pod in members if pod is not first]
            rows: IntArray = np.zeros(0, np.int64)
            if template.rejection is None:
                rows = np.flatnonzero(self._base.mask(template, allowed))
            room = self._base.places(template, rows)
            for row in rows[np.argsort(-room, kind="stable")][: min(MAX_SEATS, self._seats_left)].tolist():
                self._seats_left -= 1
                trial, seat = self._base.fork(), np.zeros(self._tried.cluster.table.rows, np.bool_)
                seat[row] = True
                yield from trial.placing(template, [first], seat)
                for other, pods in runs(others, self._tried):
                    yield from trial.placing(other, pods, allowed)
                self._forked += trial.work
                if len(trial.nodes) >= self._needed:
                    return trial, True
        return given, False

    def within(self, offered: Domains, *, required: bool) -> Exploring[tuple[Attempt, Trial]]:
        """The attempt in the domain that is worth most of those that reach the minimum."""
        ranked = self._ranked(offered)
        most: tuple[Trial, int] | None = None
        for at in ranked:
            trial = yield from self._trial(self._tried.members, offered.mask(at))
            if len(trial.nodes) >= self._needed:
                return (yield from self._settled(trial, offered, at, required=required))
            if most is None or len(trial.nodes) > len(most[0].nodes):
                most = trial, at
        for at in ranked[:REORDERED_DOMAINS]:
            trial, reordered = yield from self.anyhow(offered.mask(at))
            if reordered:
                return (yield from self._settled(trial, offered, at, required=required, reordered=True))
        if not required:
            return self.attempt(*(yield from self.anyhow(None)), None, "")
        if most is None:  # there is no domain at all
            nowhere: BoolArray = np.zeros(self._tried.cluster.table.rows, np.bool_)
            return self.attempt(self._base, False, nowhere, "")
        return self.attempt(most[0], False, offered.mask(most[1]), offered.values[most[1]])

    def attempt(self, trial: Trial, reordered: bool, allowed: BoolArray | None, domain: str) -> tuple[Attempt, Trial]:
        """What a trial amounts to."""
        known: dict[Template, Diagnosis] = {}
        rejected = {}
        for pod in self._tried.members:
            if pod.uid not in trial.nodes:
                template = self._tried.template_of[pod.uid]
                if template not in known:
                    known[template] = trial.diagnosis(template, allowed)
                rejected[pod.uid] = known[template]
        work = self._base.work + self._forked
        return Attempt(trial.nodes, rejected, len(trial.nodes) >= self._needed, domain, reordered, work), trial

    # --- inside -------------------------------------------------------------------------------------------------

    def _settled(
        self, trial: Trial, offered: Domains, at: int, *, required: bool, reordered: bool = False
    ) -> Exploring[tuple[Attempt, Trial]]:
        """The minimum is reached in a domain: where that is only preferred, the others go anywhere."""
        if required:
            return self.attempt(trial, reordered, offered.mask(at), offered.values[at])
        for template, pods in runs([p for p in self._tried.members if p.uid not in trial.nodes], self._tried):
            yield from trial.placing(template, pods)
        return self.attempt(trial, reordered, None, offered.values[at])

    def _trial(self, order: Sequence[Pod], allowed: BoolArray | None) -> Exploring[Trial]:
        trial = self._base.fork()
        for template, pods in runs(order, self._tried):
            yield from trial.placing(template, pods, allowed)
        self._forked += trial.work
        return trial

    def _ranked(self, offered: Domains) -> list[int]:
        """Domains that may take as many as are needed, the most promising first; the best of the others where there is
        none, so that it can be told why not."""
        if not offered.values:
            return []
        table, base, wanted = self._tried.cluster.table, self._base, Counter(self._tried.template_of.values())
        asked: list[tuple[PodClass, IntArray]] = []
        for template, members in wanted.items():
            most: IntArray = np.zeros(table.rows, np.int64)
            if template.rejection is None:
                fitting = np.flatnonzero(base.mask(template))
                most[fitting] = np.minimum(base.places(template, fitting), members)
            asked.append((template.pod.pod_class, np.minimum(members, offered.sums(most))))
        value = worth(table, offered, asked, len(self._tried.members))
        enough = np.sum([counts for _, counts in asked], axis=0) >= self._needed
        order: list[int] = np.lexsort((-value, ~enough)).tolist()
        return [at for at in order if enough[at]][:MAX_DOMAINS] or order[:1]


def orders(tried: TriedMembers, base: Trial, needed: int, allowed: BoolArray | None) -> Iterable[Sequence[Pod]]:
    """Orders that may place more: the large first; the choosy first; only as many as are needed, the smallest."""
    members, template_of = tried.members, tried.template_of
    choice = {
        template: 0 if template.rejection is not None else int(base.mask(template, allowed).sum())
        for template in tried.templates
    }

    def large(pod: Pod) -> tuple[float, int]:
        return -template_of[pod.uid].size, choice[template_of[pod.uid]]

    def choosy(pod: Pod) -> tuple[int, float]:
        return choice[template_of[pod.uid]], -template_of[pod.uid].size

    yield sorted(members, key=large)
    yield sorted(members, key=choosy)
    if needed < len(members):
        hopeful = [pod for pod in members if choice[template_of[pod.uid]]]
        chosen = sorted(hopeful, key=lambda pod: template_of[pod.uid].size)[:needed]
        there = {pod.uid for pod in chosen}
        others = [pod for pod in members if pod.uid not in there]
        yield [*sorted(chosen, key=large), *others]
        yield [*sorted(chosen, key=choosy), *others]


def runs(order: Sequence[Pod], tried: TriedMembers) -> list[Run]:
    """Members one after the other by template; put together where there would be too many runs."""
    runs: list[Run] = []
    for pod in order:
        template = tried.template_of[pod.uid]
        if runs and runs[-1][0] is template:
            runs[-1][1].append(pod)
        else:
            runs.append((template, [pod]))
    if len(runs) <= MAX_RUNS:
        return runs
    together: dict[Template, list[Pod]] = {}
    for template, pods in runs:
        together.setdefault(template, []).extend(pods)
    return list(together.items())


def first_to_share(cluster: ClusterState, members: Sequence[Pod]) -> list[Pod]:
    """The first member to name each claim that several do and that has no devices yet: those are where it goes."""
    if cluster.devices is None:
        return []
    named = Counter(key for pod in members for key in pod.claimed if isinstance(key, str))
    shared = {key for key, count in named.items() if count > 1 and not cluster.devices.has_devices(key)}
    firsts: dict[str, Pod] = {}
    for pod in members if shared else ():
        for key in shared.difference(firsts).intersection(pod.claimed):
            firsts[key] = pod
    return list({pod.uid: pod for pod in firsts.values()}.values())


def _nodes_of(cluster: ClusterState, bound: Iterable[Pod]) -> list[str]:
    """Where members stand, also those that are only assumed there."""
    accounts = cluster.cache.accounts
    found = (accounts[pod.uid].node_name if pod.uid in accounts else pod.node_name for pod in bound)
    return [name for name in found if name]
