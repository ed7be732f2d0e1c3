"""Preemption: for a parked pod, whom to evict so that it fits; nominated first, evicted then, bound when they are gone.

    parked --rows that evicting may open--> SEARCHING (some dry runs per turn) --none--> told so
        --best candidate--> STORING (nominatedNodeName patched) --> EVICTING (the binder evicts) --> LEAVING --> woken

The nomination is in the pod's status before anybody is evicted, so a crash in between leaves either no victim touched
or a nomination that the next leader reads back: while a pod of lower priority is still leaving the nominated node, no
second victim is chosen. Only pods of lower priority are victims, and none that opted out by annotation.

Refuses to do: evict (the binder's), wait for anything while it searches.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.coordinator.evicted import EVICTED, GONE, REFUSED, UNKNOWN, PastEviction
from services.coordinator.guiding import Guiding
from services.coordinator.instructions import EmitEvent
from services.coordinator.notices import UNSCHEDULABLE, Notices
from services.coordinator.plans import Ledger
from services.coordinator.state import State
from shared.model.pod import Pod
from shared.scheduling.curable import curable_rows
from shared.scheduling.dry_run import DryRun
from shared.scheduling.feasibility import unavailable_message
from shared.scheduling.filtering import rejection_of, run_filters
from shared.scheduling.framework import Code
from shared.scheduling.preemption import (
    NEVER,
    TERMINATING,
    Candidate,
    best_candidates,
    by_budget,
    enough,
    importance,
    select_victims,
)
from shared.scheduling.queue import Place
from shared.wire.messages import Eviction, EvictionOutcome, EvictionResult

NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
"""kube-scheduler 1.36 ``framework/preemption/preemption.go``."""

OUTCOMES: dict[int, str] = {
    EvictionOutcome.EVICTED: EVICTED, EvictionOutcome.GONE: GONE, EvictionOutcome.UNKNOWN: UNKNOWN,
}  # fmt: skip
"""As people are told; all others: refused."""

DRY_RUNS_PER_TURN = 16
"""Nodes tried before the loop turns: some milliseconds."""

FEWEST_CANDIDATES, CANDIDATE_SHARE = 100, 10
"""The search ends with a tenth of the nodes, at least 100 (DefaultPreemptionArgs)."""


@dataclass(slots=True)
class _Search:
    """A search under way. ``rows`` not yet tried, in the order to try them; ``reasons``: why tried ones do not help."""

    message: str
    rows: deque[int]
    nodes: int
    limit: int
    found: list[Candidate] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Nomination:
    """A pod that is to get a node from which ``victims`` leave. ``stored``: the API server has the nomination;
    ``shown``: the watch has shown it."""

    pod: Pod
    victims: tuple[Pod, ...]
    forced: frozenset[str]
    stored: bool = False
    shown: bool = False
    unsure: set[str] = field(default_factory=set)
    """Victims of which the binder could not say whether they were asked to leave."""


class Preemptor:
    """Searches and nominations of one term, by the preemptor's uid."""

    def __init__(self, state: State, ledger: Ledger, notices: Notices, guiding: Guiding) -> None:
        self._state = state
        self._ledger = ledger
        self._notices = notices
        self._guiding = guiding
        self._searches: dict[str, _Search] = {}
        self._nominations: dict[str, _Nomination] = {}

    # --- a pod is parked ----------------------------------------------------------------------------------------

    def consider(self, pod: Pod, message: str) -> None:
        """No node takes the pod, which is parked: say so, or look for victims and say what came of it."""
        self._searches.pop(pod.uid, None)
        if pod.never_preempts:
            self._tell(pod, message, NEVER)
            return
        if self._waits(pod):
            self._insist(pod.uid)
            self._tell(pod, message, TERMINATING)
            return
        self._nominations.pop(pod.uid, None)
        if self._finds_room(pod):
            self._notices.tell(pod, UNSCHEDULABLE, message)
            return
        state = self._state
        nodes = len(state.cache.table.row_of)
        rows = curable_rows(state.cluster, state.feasibility, self._guiding.judge(pod).prefiltered)
        lowest = min(state.cluster.index.priorities, default=pod.priority)
        if not rows or lowest >= pod.priority:
            reasons = Counter({NO_VICTIMS: len(rows), NOT_HELPFUL: nodes - len(rows)})
            self._give_up(pod, message, nodes, +reasons)
            return
        start = int(state.rng.random() * len(rows))
        limit = max(FEWEST_CANDIDATES, nodes // CANDIDATE_SHARE)
        state.stats.preemption_searches += 1
        self._searches[pod.uid] = _Search(message, deque(rows[start:] + rows[:start]), nodes, limit)

    def _waits(self, pod: Pod) -> bool:
        """Whether somebody is already leaving for the pod: on its nominated node, or asked to in this term.

        Any pod of lower priority counts that is terminating there: the API server's eviction replaces the reason
        by which kube-scheduler knows its own victims.
        """
        index, known = self._state.cluster.index, self._nominations.get(pod.uid)
        node = known.pod.nominated_node if known is not None else pod.nominated_node
        if not node or self._hopeless(pod, node):
            return False
        if known is not None and any(index.get(victim.uid) is not None for victim in known.victims):
            return True
        return any(other.terminating and other.priority < pod.priority for other in index.pods_on(node))

    def _hopeless(self, pod: Pod, node: str) -> bool:
        """Whether the node would not take the pod even when it were empty: cordoned since, tainted, gone."""
        cluster, feasibility = self._state.cluster, self._state.feasibility
        row = cluster.table.row_of.get(node)
        if row is None:
            return True
        prefiltered = self._guiding.judge(pod).prefiltered
        found = rejection_of(feasibility, prefiltered, run_filters(cluster, feasibility, prefiltered), row)
        return found is not None and found[0].code is Code.UNRESOLVABLE

    def _finds_room(self, pod: Pod) -> bool:
        """Whether some node takes the pod by now, and it is about to be tried again: nobody has to leave for it."""
        entry = self._state.queue.entries.get(pod.uid)
        if entry is None or entry.place is not Place.BACKOFF:
            return False
        return not self._guiding.takes_nobody(pod, self._guiding.judge(pod))

    # --- the search ---------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a search goes on: the loop is to turn at once."""
        return bool(self._searches)

    def step(self) -> None:
        """Try some nodes more."""
        left = DRY_RUNS_PER_TURN
        while self._searches and left > 0:
            uid, search = next(iter(self._searches.items()))
            entry = self._state.queue.entries.get(uid)
            if entry is None or entry.place not in (Place.UNSCHEDULABLE, Place.BACKOFF):
                del self._searches[uid]
                continue
            while search.rows and left > 0 and not enough(search.found, search.limit):
                left -= 1
                self._try(entry.pod, search, search.rows.popleft())
            if not search.rows or enough(search.found, search.limit):
                del self._searches[uid]
                self._conclude(entry.pod, search)

    def may_preempt(self, pod: Pod) -> bool:
        """Whether there is anybody of lower priority, and nobody is leaving for the pod already."""
        if pod.never_preempts or self._waits(pod):
            return False
        return min(self._state.cluster.index.priorities, default=pod.priority) < pod.priority

    def waited_in_vain(self, pod: Pod, node_names: Sequence[str]) -> bool:
        """Whether the pod's nominated node is one of these, which changed, and nobody leaves it any more: it is to be
        tried once more, and nominated elsewhere or nowhere. Until then others would yield to it."""
        return pod.nominated_node in node_names and not self._waits(pod)

    def opens(self, pod: Pod, node_name: str) -> bool:
        """Whether evicting on this node, which changed, would open it: then a parked pod is to be tried again."""
        row = self._state.cache.table.row_of.get(node_name)
        if row is None or self._guiding.judge(pod).rejection is not None:
            return False
        candidate, _ = self._candidate(pod, row)
        return candidate is not None and not (candidate.violations and self._state.settings.preemption_strict)

    def _try(self, pod: Pod, search: _Search, row: int) -> None:
        if self._state.cache.table.nodes[row] is None:
            return
        candidate, reasons = self._candidate(pod, row)
        if candidate is not None and not (candidate.violations and self._state.settings.preemption_strict):
            search.found.append(candidate)
        elif candidate is not None:
            search.reasons[NOT_HELPFUL] += 1
        else:
            search.reasons.update(reasons)

    def _candidate(self, pod: Pod, row: int) -> tuple[Candidate | None, tuple[str, ...]]:
        state = self._state
        dry_run = DryRun(state.cluster, state.feasibility, self._guiding.judge(pod).prefiltered, row)
        lower = [p for p in state.cluster.index.pods_on(dry_run.node_name) if p.priority < pod.priority]
        possible = [p for p in lower if p.preemptible]
        if not possible:
            return None, (NO_VICTIMS,)
        candidate = select_victims(dry_run, possible, state.cluster.budgets)
        if candidate is not None:
            return candidate, ()
        rejection = dry_run.rejection()
        return None, rejection.reasons if rejection is not None else (NO_VICTIMS,)

    def _conclude(self, pod: Pod, search: _Search) -> None:
        """The search is over: nominate the best that still stands, or say why nothing helps."""
        state = self._state
        if self._finds_room(pod):
            self._notices.tell(pod, UNSCHEDULABLE, search.message)
            return
        while search.found:
            best = best_candidates(search.found)
            chosen = best[int(state.rng.random() * len(best))]
            search.found.remove(chosen)
            row = state.cache.table.row_of.get(chosen.node_name)
            again = self._candidate(pod, row)[0] if row is not None else None
            if again is not None and again.violations <= chosen.violations:
                self._nominate(pod, again, search.message)
                return
        tried = sum(search.reasons.values())
        reasons = search.reasons + Counter({NOT_HELPFUL: max(0, search.nodes - tried)})
        self._give_up(pod, search.message, search.nodes, reasons)

    def _give_up(self, pod: Pod, message: str, nodes: int, reasons: Counter[str]) -> None:
        """Preemption does not help: an older nomination ends."""
        self._tell(
            pod, message, unavailable_message(nodes, dict(reasons)), nominated="" if pod.nominated_node else None
        )

    def _tell(self, pod: Pod, message: str, preemption: str, *, nominated: str | None = None) -> None:
        self._notices.tell(pod, UNSCHEDULABLE, f"{message} preemption: {preemption}", nominated=nominated)

    # --- nomination and eviction --------------------------------------------------------------------------------

    def _nominate(self, pod: Pod, candidate: Candidate, message: str) -> None:
        state, node = self._state, candidate.node_name
        for other in state.cluster.nominated_below(node, pod.priority):
            # it would wait for room that is taken now (kube-scheduler clears these too)
            self._nominations.pop(other.uid, None)
            state.cluster.withdraw_nomination(other.uid)
            self._notices.clear_nomination(other)
        nominated = replace(pod, nominated_node=node)
        entry = state.queue.entries[pod.uid]
        entry.pod = nominated
        state.cluster.nominate(nominated)
        state.objects_version += 1
        state.stats.preemptions += 1
        state.stats.victims_s.append(len(candidate.victims))
        standing = [p for p in state.cluster.index.pods_on(node) if p.priority < pod.priority and p.preemptible]
        violating = {p.uid for p in by_budget(sorted(standing, key=importance), state.cluster.budgets)[0]}
        forced = frozenset(violating) if candidate.violations else frozenset()
        self._nominations[pod.uid] = _Nomination(nominated, candidate.victims, forced)
        state.log("pod_nominated", pod_uid=pod.uid, node=node, victims=len(candidate.victims))
        self._notices.tell(pod, UNSCHEDULABLE, message, nominated=node)

    def stored(self, uid: str, node: str) -> None:
        """The API server has the nomination: now the victims may go."""
        known = self._nominations.get(uid)
        if known is None or known.stored or known.pod.nominated_node != node:
            return
        entry = self._state.queue.entries.get(uid)
        waiting = entry is not None and entry.place in (Place.UNSCHEDULABLE, Place.BACKOFF)
        if entry is None or not waiting or self._finds_room(entry.pod):
            del self._nominations[uid]  # it goes somewhere else, perhaps; parked again, it is considered again
            return
        known.stored = True
        self._evict(known, known.victims)

    def _evict(self, known: _Nomination, victims: Iterable[Pod]) -> None:
        """Ask those of the victims to leave that still stand."""
        standing, uid, node = self._state.cluster.index, known.pod.uid, known.pod.nominated_node
        evictions = [
            Eviction(victim.uid, victim.namespace, victim.name, uid, node, victim.uid in known.forced)
            for victim in victims
            if (seen := standing.get(victim.uid)) is not None and not seen.terminating
        ]
        if evictions:
            self._ledger.evict(evictions)
        priorities = {victim.uid: victim.priority for victim in known.victims}
        for one in evictions:
            self._state.evicted.asked(
                PastEviction(
                    self._state.now, one.uid, one.namespace, one.name, priorities[one.uid], node, uid, known.pod.key,
                    known.pod.priority,
                )
            )  # fmt: skip

    def _insist(self, uid: str) -> None:
        """Ask those victims again of which nobody knows whether they were asked; to be evicted twice is once."""
        known = self._nominations.get(uid)
        if known is not None and known.unsure:
            victims = [victim for victim in known.victims if victim.uid in known.unsure]
            known.unsure.clear()
            self._evict(known, victims)

    def failed(self, uid: str) -> None:
        """The nomination was not written, or the victims do not go: the pod is tried again after its backoff."""
        known = self._nominations.pop(uid, None)
        if known is None:
            return
        state = self._state
        state.cluster.withdraw_nomination(uid)
        state.objects_version += 1
        entry = state.queue.entries.get(uid)
        if entry is not None:
            if known.stored:
                self._notices.clear_nomination(entry.pod)
            entry.pod = replace(entry.pod, nominated_node="")
            state.queue.rouse(uid, state.now)

    def unstored(self, uid: str) -> None:
        """The patch of a pod's condition failed; if it carried the nomination, there is none."""
        known = self._nominations.get(uid)
        if known is not None and not known.stored:
            self.failed(uid)

    def evicted(self, eviction: Eviction, result: EvictionResult) -> None:
        """What became of one victim, by the binder; that it is gone only the watch says."""
        state, known = self._state, self._nominations.get(eviction.preemptor)
        current = known if known is not None and known.pod.nominated_node == eviction.node else None
        state.evicted.became(eviction.uid, OUTCOMES.get(result.outcome, REFUSED))
        match result.outcome:
            case EvictionOutcome.EVICTED:
                state.stats.victims += 1
                note = f"Preempted by pod {eviction.preemptor} on node {eviction.node}"
                state.emit(
                    EmitEvent(
                        eviction.uid,
                        eviction.namespace,
                        eviction.name,
                        "",
                        "Normal",
                        "Preempted",
                        "Preempting",
                        note,
                    )
                )
            case EvictionOutcome.GONE:
                pass  # the watch tells when it left
            case EvictionOutcome.UNKNOWN:
                if current is not None:
                    current.unsure.add(eviction.uid)
                    state.queue.rouse(eviction.preemptor, state.now)
            case _:
                level, facts = "warning", {"pod_uid": eviction.uid, "reason": result.reason}
                state.log("eviction_failed", level=level, preemptor=eviction.preemptor, **facts)
                if current is not None:
                    self.failed(eviction.preemptor)

    # --- what the watch shows -----------------------------------------------------------------------------------

    def as_nominated(self, pod: Pod) -> Pod:
        """The pod with the nomination that is on its way to the API server, until the watch shows that one."""
        known = self._nominations.get(pod.uid)
        if known is None or known.shown:
            return pod
        if pod.nominated_node == known.pod.nominated_node:
            known.shown = True
            return pod
        return replace(pod, nominated_node=known.pod.nominated_node)

    def forget(self, uid: str) -> None:
        """The pod is placed or gone."""
        self._nominations.pop(uid, None)
        self._searches.pop(uid, None)
