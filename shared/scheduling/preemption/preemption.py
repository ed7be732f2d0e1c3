"""Preemption, thought through but not done: on which nodes evicting lower priorities helps, whom, and which is best.

Source: kube-scheduler 1.36 ``framework/preemption``, ``plugins/defaultpreemption``. Per node: take away every pod of
lower priority; if the pod then fits, put them back one by one, those first whose budget would be violated, each group
most important first; who does not fit beside the pod is a victim. Nodes that evicting cannot open are not tried.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shared.model.pod import Pod
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.prefilter import Prefiltered
from shared.scheduling.framework import Code
from shared.scheduling.preemption.budgets import by_budget
from shared.scheduling.preemption.loss import works_since
from shared.scheduling.preemption.units import NOT_STARTED, VictimUnit, importance, victim_units
from shared.scheduling.state.cluster_state import ClusterState

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_NODE = "no node where preemption could help (all UnschedulableAndUnresolvable)"
NO_CANDIDATE = "no preemption candidate"

PRIORITY_OFFSET = 2**31
"""Makes every priority count positive in a sum, so that fewer victims are better than more of them."""


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """``victims`` of one node, and members of groups that leave whole with them, most important first; ``violations``:
    how many of those break a budget, ``violating``: their uids; ``leaving``: uids of those that leave anyway."""

    node_name: str
    victims: tuple[Pod, ...]
    violations: int
    violating: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Preemption:
    """``best``: equally good candidates to choose from; empty with a ``reason`` when preemption does not help."""

    candidates: tuple[EvictionCandidate, ...] = ()
    best: tuple[EvictionCandidate, ...] = ()
    reason: str = ""


def plan_preemption(
    state: ClusterState,
    feasibility: FeasibilityCache,
    prefiltered: Prefiltered,
    codes: Sequence[tuple[int, Code]],
    *,
    may_evict: Callable[[Pod], bool] = lambda _: True,
    limit: int | None = None,
) -> Preemption:
    """What preemption would do for a pod that no node takes.

    ``codes``: (row, code) of every rejection, in the order in which nodes are tried. ``may_evict``: False for pods
    that opted out; they stay. ``limit``: candidates after which the search ends (kube-scheduler: a tenth of the nodes,
    at least 100, from a random one on, and further until one violates no budget); None for all. Nothing is changed.
    """
    pod = prefiltered.pod
    refusal = _ineligible(state, pod, dict(codes))
    if refusal:
        return Preemption(reason=refusal)
    rows = [row for row, code in codes if code is Code.UNSCHEDULABLE]
    if not rows:
        return Preemption(reason=NO_NODE)
    found = []
    for row in rows:
        dry_run = DryRun(state, feasibility, prefiltered, row)
        units = victim_units(state, state.index.pods_on(dry_run.node_name), pod.priority, may_evict)
        candidate = select_victims(dry_run, units, state)
        if candidate is not None:
            found.append(candidate)
            if limit is not None and enough(found, limit):
                break
    if not found:
        return Preemption(reason=NO_CANDIDATE)
    return Preemption(tuple(found), tuple(best_candidates(found)))


def enough(found: Sequence[EvictionCandidate], limit: int) -> bool:
    """Whether the search may end: so many candidates, one of which violates no budget (``DryRunPreemption``)."""
    return len(found) >= limit and any(not candidate.violations for candidate in found)


def select_victims(
    dry_run: DryRun,
    lower: Iterable[VictimUnit],
    state: ClusterState,
    leaving: Callable[[Pod], bool] = lambda _: False,
) -> EvictionCandidate | None:
    """Who of the units of ``lower`` priority must leave the node; None when all of them do not suffice, or none must.

    Of a unit that leaves whole all members are victims, also on other nodes; it is put back whole or not at all.
    ``leaving``: whether a pod leaves for somebody already: it costs nobody anything, and is put back last.
    """
    possible = sorted(lower, key=lambda unit: unit.importance)
    here = {unit: [pod for pod in unit.pods if dry_run.holds(pod)] for unit in possible}
    for unit in possible:
        for pod in here[unit]:
            dry_run.remove(pod)
    if not possible or not dry_run.takes_beside_nominated():
        return None
    gone = frozenset(pod.uid for unit in possible for pod in unit.pods if leaving(pod))
    staying = (pod for unit in possible for pod in unit.pods if pod.uid not in gone)
    violating = {pod.uid for pod in by_budget(staying, state)[0]}

    def turn(unit: VictimUnit) -> tuple[bool, bool]:
        return all(pod.uid in gone for pod in unit.pods), all(pod.uid not in violating for pod in unit.pods)

    victims: list[Pod] = []
    for unit in sorted(possible, key=turn):
        for pod in here[unit]:
            dry_run.add(pod)
        if not dry_run.takes_beside_nominated():
            for pod in here[unit]:
                dry_run.remove(pod)
            victims += unit.pods
    if not victims:
        return None
    forced = frozenset(pod.uid for pod in victims if pod.uid in violating)
    gone &= {pod.uid for pod in victims}
    return EvictionCandidate(dry_run.node_name, tuple(sorted(victims, key=importance)), len(forced), forced, gone)


Rank = tuple[int, int, int, int, tuple[int, ...]]
"""By every criterion in turn: fewest violations, least important first victim, smallest sum of priorities, fewest
victims, and of the most important victims the one that runs longest started last (``pickOneNodeForPreemption``); of
offline ones, the one that has worked longest without saving."""


def rank(candidate: EvictionCandidate) -> Rank:
    """The smaller, the better; none is better than where everybody leaves anyway."""
    victims = candidate.victims
    if candidate.leaving:
        victims = tuple(victim for victim in victims if victim.uid not in candidate.leaving)
    if not victims:
        return 0, -PRIORITY_OFFSET - 1, 0, 0, ()
    highest = victims[0].priority
    started = min(works_since(victim) or NOT_STARTED for victim in victims if victim.priority == highest)
    # later is better: characters count down, and the end of the text comes after all of them
    later = (*(-ord(character) for character in started), 1)
    total = sum(victim.priority + PRIORITY_OFFSET for victim in victims)
    return candidate.violations, highest, total, len(victims), later


def best_candidates(candidates: Sequence[EvictionCandidate]) -> list[EvictionCandidate]:
    """Those of the best rank."""
    ranks = [rank(candidate) for candidate in candidates]
    best = min(ranks)
    return [candidate for candidate, its in zip(candidates, ranks, strict=True) if its == best]


class Ranked:
    """Candidates, the best of which is taken off first: one search answers for many preemptors that are alike, and what
    each further one costs grows with the logarithm of how many candidates there are."""

    def __init__(self) -> None:
        self._order: list[Rank] = []
        self._of: dict[Rank, list[EvictionCandidate]] = {}
        self._count = self._lawful = 0

    def __len__(self) -> int:
        return self._count

    def enough(self, limit: int) -> bool:
        """``enough`` of these."""
        return self._count >= limit and self._lawful > 0

    def add(self, candidate: EvictionCandidate) -> None:
        """One more."""
        its = rank(candidate)
        alike = self._of.get(its)
        if alike is None:
            alike = self._of[its] = []
            heapq.heappush(self._order, its)
        alike.append(candidate)
        self._count += 1
        self._lawful += not candidate.violations

    def take(self, chance: float) -> EvictionCandidate:
        """Take off one of the best. ``chance`` in [0, 1): which of them."""
        alike = self._of[self._order[0]]
        at = int(chance * len(alike))
        alike[at], alike[-1] = alike[-1], alike[at]
        candidate = alike.pop()
        if not alike:
            del self._of[heapq.heappop(self._order)]
        self._count -= 1
        self._lawful -= not candidate.violations
        return candidate


def _ineligible(state: ClusterState, pod: Pod, codes: dict[int, Code]) -> str:
    if pod.never_preempts:
        return NEVER
    if not pod.nominated_node:
        return ""
    row = state.table.row_of.get(pod.nominated_node)
    if row is None or codes.get(row) is Code.UNRESOLVABLE:
        return ""
    waiting = any(
        other.terminating and other.preempted and other.priority < pod.priority
        for other in state.index.pods_on(pod.nominated_node)
    )
    return TERMINATING if waiting else ""
