"""What preemption would do for a pod that no node takes, as things stand: whom it would evict where, or why nobody.

The same dry run as a preemptor's (``preemption.select_victims``), over some nodes only, so that asking does not hold up
a leader of thousands. It refuses to nominate, to evict, and to promise: the real search starts elsewhere and ends
earlier, and what it finds is checked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from shared.model.pod import Pod
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import FeasibilityCache, unavailable_message
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.preemption.preemption import (
    NEVER,
    TERMINATING,
    EvictionCandidate,
    best_candidates,
    select_victims,
)
from shared.scheduling.preemption.resolvable import NO_VICTIMS, NOT_HELPFUL, resolvable_rows
from shared.scheduling.preemption.units import victim_units
from shared.scheduling.state.cluster_state import ClusterState

NODES_TRIED = 64
"""Dry runs per question: some tens of milliseconds."""

CANDIDATES_SHOWN = 5
VICTIMS_SHOWN = 20


class Victim(Struct, frozen=True):
    """A pod that would be evicted. ``breaks_budget``: a PodDisruptionBudget forbids it."""

    pod: str
    priority: int
    breaks_budget: bool


class PreemptionCandidate(Struct, frozen=True):
    """A node that evicting opens; ``victims``: the most important first, ``count`` of them in all."""

    node: str
    count: int
    violations: int
    victims: tuple[Victim, ...]
    allowed: bool


class PreemptionAnswer(Struct, frozen=True):
    """``helps``: whether some node would be opened. ``summary``: one sentence; where nothing helps kube-scheduler's.

    ``curable``: resolvable nodes, which evicting may open, of which ``tried`` were tried; ``protected``: pods of lower
    priority on those that may not leave for it. ``candidates``: the best first.
    """

    helps: bool
    summary: str
    nodes: int
    curable: int
    tried: int
    protected: int
    candidates: tuple[PreemptionCandidate, ...] = ()


@dataclass(frozen=True, slots=True)
class VictimRules:
    """What a leader judges victims by. ``strict_budgets``: no budget may be broken; ``may_evict``: whether a pod of
    lower priority may leave; ``spares``: how many members its gang can do without, where it goes whole else."""

    strict_budgets: bool = False
    may_evict: Callable[[Pod], bool] = lambda pod: pod.preemptible
    spares: Callable[[Pod], int | None] = lambda _: None


PLAIN = VictimRules()


def explain_preemption(
    state: ClusterState,
    feasibility: FeasibilityCache,
    pod: Pod,
    *,
    rules: VictimRules = PLAIN,
    nodes_tried: int = NODES_TRIED,
) -> PreemptionAnswer:
    """What preemption would do. Nothing is changed.

    For pods that some node takes the answer is meaningless: nobody preempts for them.
    """
    nodes = len(state.table.row_of)
    refusal = _ineligible(state, pod)
    if refusal:
        return PreemptionAnswer(False, refusal, nodes, 0, 0, 0)
    prefiltered = prefilter(state, pod)
    rows = resolvable_rows(state, feasibility, prefiltered).tolist()
    found: list[EvictionCandidate] = []
    reasons: Counter[str] = Counter()
    tried = protected = 0
    for row in rows[:nodes_tried]:
        tried += 1
        dry_run = DryRun(state, feasibility, prefiltered, row)
        lower = [other for other in state.index.pods_on(dry_run.node_name) if other.priority < pod.priority]
        possible = victim_units(state, lower, pod.priority, rules.may_evict, rules.spares)
        protected += sum(1 for other in lower if not rules.may_evict(other))
        candidate = select_victims(dry_run, possible, state) if possible else None
        if candidate is not None:
            found.append(candidate)
        else:
            rejection = dry_run.rejection() if possible else None
            reasons.update(rejection.reasons if rejection is not None else (NO_VICTIMS,))
    allowed = [one for one in found if not (one.violations and rules.strict_budgets)]
    shown = tuple(_shown(one, allowed=one in allowed) for one in _ordered(allowed, found))
    if allowed:
        best = best_candidates(allowed)
        chosen, others = best[0], len(best) - 1
        more = f", or of {others} other(s) that are as good" if others else ""
        victims = ", ".join(victim.key for victim in chosen.victims[:3])
        rest = f" and {len(chosen.victims) - 3} more" if len(chosen.victims) > 3 else ""
        summary = f"would evict {victims}{rest} from {chosen.node_name}{more}"
        return PreemptionAnswer(True, summary, nodes, len(rows), tried, protected, shown)
    reasons[NOT_HELPFUL] += len(found) + nodes - len(rows)
    summary = unavailable_message(nodes, dict(+reasons))
    return PreemptionAnswer(False, summary, nodes, len(rows), tried, protected, shown)


def _ineligible(state: ClusterState, pod: Pod) -> str:
    if pod.never_preempts:
        return NEVER
    there = state.index.pods_on(pod.nominated_node) if pod.nominated_node else ()
    leaving = any(other.terminating and other.priority < pod.priority for other in there)
    return TERMINATING if leaving else ""


def _ordered(allowed: list[EvictionCandidate], found: list[EvictionCandidate]) -> list[EvictionCandidate]:
    """Candidates to show, best first; those that a strict budget forbids last."""
    left, ordered = list(allowed), list[EvictionCandidate]()
    while left and len(ordered) < CANDIDATES_SHOWN:
        best = best_candidates(left)[0]
        left.remove(best)
        ordered.append(best)
    forbidden = [one for one in found if one not in allowed]
    return [*ordered, *forbidden[: CANDIDATES_SHOWN - len(ordered)]]


def _shown(candidate: EvictionCandidate, *, allowed: bool) -> PreemptionCandidate:
    victims = tuple(
        Victim(victim.key, victim.priority, victim.uid in candidate.violating)
        for victim in candidate.victims[:VICTIMS_SHOWN]
    )
    return PreemptionCandidate(candidate.node_name, len(candidate.victims), candidate.violations, victims, allowed)
