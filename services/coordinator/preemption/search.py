"""Preemption: for a parked pod, whom to evict so that it fits; nominated first, evicted then, bound when they are gone.

    parked --rows that evicting may open--> SEARCHING (some dry runs per turn) --none--> told so
        --best candidate--> STORING (nominatedNodeName patched) --> EVICTING (the binder evicts) --> LEAVING --> woken

One search serves a whole group of pods that are judged alike (``parked_groups.py``), the first of them first; a node is
tried again only when something changed on it. The nomination is in the pod's status before anybody is evicted, so a
crash in between leaves either no victim touched or a nomination that the next leader reads back: while a pod of lower
priority is still leaving the nominated node, no second victim is chosen. Only pods of lower priority are victims, and
none that opted out by annotation.

The binder evicts. A search waits for nothing: it goes on turn by turn.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import State
from services.coordinator.preemption.evictions import EVICTED, GONE, REFUSED, UNKNOWN, PastEviction
from services.coordinator.status.reporter import UNSCHEDULABLE, StatusReporter
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import failure_message, unavailable_message
from shared.scheduling.cycle.filtering import rejection_of, run_filters
from shared.scheduling.framework import Code
from shared.scheduling.parked_groups import Group, group_key
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.preemption.preemption import (
    NEVER,
    TERMINATING,
    Candidate,
    best_candidates,
    by_budget,
    enough,
    importance,
    select_victims,
)
from shared.scheduling.preemption.resolvable import NO_VICTIMS, NOT_HELPFUL
from shared.wire.messages import Eviction, EvictionOutcome, EvictionResult

OUTCOMES: dict[int, str] = {
    EvictionOutcome.EVICTED: EVICTED, EvictionOutcome.GONE: GONE, EvictionOutcome.UNKNOWN: UNKNOWN,
}  # fmt: skip
"""As people are told; all others: refused."""

DRY_RUNS_PER_TURN = 16
"""Nodes tried before the loop turns: some milliseconds."""

TRIES_KEPT = 16
"""Kinds of preemptors (class and priority) for which it is remembered what a dry run gave on each node."""

KNOWN_PER_DRY_RUN = 16
"""Remembered answers that are looked up in the time of one dry run."""

FEWEST_CANDIDATES, CANDIDATE_SHARE = 100, 10
"""The search ends with a tenth of the nodes, at least 100 (DefaultPreemptionArgs)."""

Tried = tuple[Candidate | None, tuple[str, ...]]
"""What a dry run gave: whom to evict, or why nobody helps."""


@dataclass(slots=True)
class _Search:
    """A search under way for a group that waited all the time. ``rows`` not yet tried, in the order to try them,
    ``due`` the same as a set; ``reasons``: why the others do not help; ``untold``: members that are to be told the end,
    with what keeps them; ``whole``: all nodes that may be opened are still to be added."""

    group: Group
    nodes: int
    limit: int
    whole: bool
    rows: deque[int] = field(default_factory=deque)
    due: set[int] = field(default_factory=set)
    found: list[Candidate] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    untold: dict[str, str] = field(default_factory=dict)

    def add(self, rows: Iterable[int]) -> None:
        """Try these too."""
        for row in rows:
            if row not in self.due:
                self.due.add(row)
                self.rows.append(row)

    def next_row(self) -> int:
        """Take one off."""
        row = self.rows.popleft()
        self.due.discard(row)
        return row


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
    """Searches of one term by group, nominations by the preemptor's uid."""

    def __init__(self, state: State, ledger: Ledger, reporter: StatusReporter) -> None:
        self._state = state
        self._ledger = ledger
        self._reporter = reporter
        self.searches: dict[Hashable, _Search] = {}
        """Those under way, by group: while there are any, the loop is to turn at once."""
        self._order: list[tuple[int, int, Hashable]] = []
        self._begun = 0
        self._tries: OrderedDict[tuple[PodClass, int], dict[int, tuple[int, int, Tried]]] = OrderedDict()
        self.nominations: dict[str, _Nomination] = {}
        """By the preemptor's uid."""
        self.landing: dict[str, str] = {}
        """Victims not seen bound yet, with the preemptor: each is evicted once it is, where it was to be."""

    # --- a pod is parked ----------------------------------------------------------------------------------------

    def consider(self, pod: Pod, message: str) -> None:
        """No node takes the pod, which is parked: say so, or look for victims and say what came of it."""
        if pod.never_preempts:
            self._tell(pod, message, NEVER)
            return
        if self._waits(pod):
            self._insist(pod.uid)
            self._tell(pod, message, TERMINATING)
            return
        self.nominations.pop(pod.uid, None)
        group = self._state.queue.waiting.groups[group_key(pod)]
        search = self._search_for(group)
        if search is None:
            found = self._state.constraints.openable(pod)
            if not found.rows:
                self._give_up(pod, message, unavailable_message(self._nodes, dict(found.reasons)))
                return
            search = self._begin(group)
        search.untold[pod.uid] = message

    def look_again(self, group: Group, row: int | None) -> None:
        """Something changed on a node (None: somewhere) by which evicting there may help parked pods now."""
        pod, search = group.pod, self._search_for(group)
        if pod.nominated_node or not self._may_preempt(pod):
            return  # one that is nominated is tried again once nobody leaves for it any more
        if row is None and not self._state.constraints.openable(pod).rows:
            return
        search = search or self._begin(group, whole=False)
        if row is None:
            search.whole = True
        else:
            search.add([row])

    @property
    def _nodes(self) -> int:
        return len(self._state.cache.table.row_of)

    def _search_for(self, group: Group) -> _Search | None:
        """The search under way. One for the same pods before they were roused and parked again does not count: what
        changed in between was offered to nobody."""
        search = self.searches.get(group.key)
        return search if search is not None and search.group is group else None

    def _begin(self, group: Group, *, whole: bool = True) -> _Search:
        """A new search, that costs little until its turn comes."""
        state, key, pod = self._state, group.key, group.pod
        limit = max(FEWEST_CANDIDATES, self._nodes // CANDIDATE_SHARE)
        search = _Search(group, self._nodes, limit, whole)
        state.stats.preemption_searches += 1
        if key not in self.searches:
            self._begun += 1
            heapq.heappush(self._order, (-pod.priority, self._begun, key))
        self.searches[key] = search
        return search

    def _look_everywhere(self, pod: Pod, search: _Search) -> int:
        """Where the fewest and least important pods would do comes first, else from a random node on; returns the
        work it was."""
        found, search.whole = self._state.constraints.openable(pod), False
        search.reasons = search.reasons or found.reasons.copy()
        start = int(self._state.rng.random() * len(found.rows))
        price = self._state.cluster.index.removable.least_price(pod)
        search.add(sorted(found.rows[start:] + found.rows[:start], key=price.__getitem__))
        return KNOWN_PER_DRY_RUN + len(found.rows) // 64

    def _waits(self, pod: Pod) -> bool:
        """Whether somebody is already leaving for the pod: on its nominated node, or asked to in this term.

        Any pod of lower priority counts that is terminating there: the API server's eviction replaces the reason
        by which kube-scheduler knows its own victims.
        """
        index, known = self._state.cluster.index, self.nominations.get(pod.uid)
        node = known.pod.nominated_node if known is not None else pod.nominated_node
        if not node or self._hopeless(pod, node):
            return False
        if known is not None and any(victim.uid in index.uids_on(node) for victim in known.victims):
            return True
        return any(other.terminating and other.priority < pod.priority for other in index.pods_on(node))

    def _hopeless(self, pod: Pod, node: str) -> bool:
        """Whether the node would not take the pod even when it were empty: cordoned since, tainted, gone."""
        cluster, feasibility = self._state.cluster, self._state.feasibility
        row = cluster.table.row_of.get(node)
        if row is None:
            return True
        prefiltered = self._state.constraints.judge(pod).prefiltered
        found = rejection_of(feasibility, prefiltered, run_filters(cluster, feasibility, prefiltered), row)
        return found is not None and found[0].code is Code.UNRESOLVABLE

    def _finds_room(self, pod: Pod) -> bool:
        """Whether some node takes the pod by now: nobody has to leave for it."""
        return not self._state.constraints.fits_nowhere(pod)

    # --- the search ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Try some nodes more, for the highest priority first."""
        left = DRY_RUNS_PER_TURN * KNOWN_PER_DRY_RUN
        while self.searches and left > 0:
            key = self._order[0][2]
            search, group = self.searches[key], self._state.queue.waiting.groups.get(key)
            if group is not search.group:
                heapq.heappop(self._order)
                del self.searches[key]
                continue
            if search.whole:
                left -= self._look_everywhere(group.pod, search)
            while search.rows and left > 0 and not enough(search.found, search.limit):
                left -= self._try(group.pod, search, search.next_row())
            if not search.rows or enough(search.found, search.limit):
                left -= KNOWN_PER_DRY_RUN
                self._conclude(group, search)
                if key not in self.searches:
                    heapq.heappop(self._order)

    def _may_preempt(self, pod: Pod) -> bool:
        """Whether there is anybody of lower priority whom the pod might evict."""
        return not pod.never_preempts and min(self._state.cluster.index.priorities, default=pod.priority) < pod.priority

    def waited_in_vain(self, pod: Pod) -> bool:
        """Whether nobody leaves any more for a pod that is nominated, and parked all the same: it is to be tried once
        more, and nominated elsewhere or nowhere. Until then others would yield to it."""
        return not self._waits(pod)

    def _try(self, pod: Pod, search: _Search, row: int) -> int:
        """Ask one node; returns the work it was."""
        if self._state.cache.table.nodes[row] is None:
            return 1
        (candidate, reasons), work = self._known_or_tried(pod, row)
        if candidate is not None and not (candidate.violations and self._state.settings.preemption_strict):
            search.found.append(candidate)
        elif candidate is not None:
            search.reasons[NOT_HELPFUL] += 1
        else:
            search.reasons.update(reasons)
        return work

    def _known_or_tried(self, pod: Pod, row: int) -> tuple[Tried, int]:
        """A dry run's result, remembered where nothing changed on the node and nothing but the node decides."""
        state = self._state
        table = state.cache.table
        if self._state.constraints.prefiltered(pod).rules or table.names[row] in state.cluster.nominated:
            return self._candidate(pod, row), KNOWN_PER_DRY_RUN
        kind = pod.pod_class, pod.priority
        tries = self._tries.get(kind)
        if tries is None:
            tries = self._tries[kind] = {}
            if len(self._tries) > TRIES_KEPT:
                self._tries.popitem(last=False)
        else:
            self._tries.move_to_end(kind)
        known, stamp = tries.get(row), int(table.stamp[row])
        if known is not None and known[:2] == (stamp, state.budgets_version):
            return known[2], 1
        tried = self._candidate(pod, row)
        tries[row] = stamp, state.budgets_version, tried
        return tried, KNOWN_PER_DRY_RUN

    def _candidate(self, pod: Pod, row: int) -> Tried:
        state = self._state
        dry_run = DryRun(state.cluster, state.feasibility, self._state.constraints.prefiltered(pod), row)
        lower = [p for p in state.cluster.index.pods_on(dry_run.node_name) if p.priority < pod.priority]
        possible = [p for p in lower if p.preemptible]
        if not possible:
            return None, (NO_VICTIMS,)
        candidate = select_victims(dry_run, possible, state.cluster.budgets)
        if candidate is not None:
            return candidate, ()
        rejection = dry_run.rejection()
        return None, rejection.reasons if rejection is not None else (NO_VICTIMS,)

    def _conclude(self, group: Group, search: _Search) -> None:
        """The search is over: nominate the best that still stands for the first of the group, and go on for the next;
        or say why nothing helps."""
        state = self._state
        uid = group.first(1)[0]
        pod = state.queue.entries[uid].pod
        if self._finds_room(pod):
            message = search.untold.pop(uid, "")
            if message:
                self._reporter.tell(pod, UNSCHEDULABLE, message)
            state.queue.rouse(uid, state.now, ClusterEvent.POD_DELETED)  # the others of the group search on
            return
        while search.found:
            best = best_candidates(search.found)
            chosen = best[int(state.rng.random() * len(best))]
            search.found.remove(chosen)
            row = state.cache.table.row_of.get(chosen.node_name)
            again = self._candidate(pod, row)[0] if row is not None else None
            if again is not None and again.violations > chosen.violations and not state.settings.preemption_strict:
                search.found.append(again)  # its budget was used up meanwhile: another node may do better
            elif again is not None and again.violations <= chosen.violations:
                message = search.untold.pop(uid, "") or failure_message(self._state.constraints.diagnosis(pod))
                self._nominate(pod, again, message)
                return
        del self.searches[group.key]
        tried = sum(search.reasons.values())
        reasons = search.reasons + Counter({NOT_HELPFUL: max(0, search.nodes - tried)})
        self._tell_all(search, unavailable_message(search.nodes, dict(reasons)))

    def _tell_all(self, search: _Search, preemption: str) -> None:
        """The members that wait to hear: what keeps them, and what came of the search."""
        for uid, message in search.untold.items():
            entry = self._state.queue.entries.get(uid)
            if entry is None or entry.place is not Place.UNSCHEDULABLE:
                continue
            self._give_up(entry.pod, message, preemption)

    def _give_up(self, pod: Pod, message: str, preemption: str) -> None:
        """Preemption does not help: an older nomination ends."""
        self._tell(pod, message, preemption, nominated="" if pod.nominated_node else None)

    def _tell(self, pod: Pod, message: str, preemption: str, *, nominated: str | None = None) -> None:
        self._reporter.tell(pod, UNSCHEDULABLE, f"{message} preemption: {preemption}", nominated=nominated)

    # --- nomination and eviction --------------------------------------------------------------------------------

    def _nominate(self, pod: Pod, candidate: Candidate, message: str) -> None:
        state, node = self._state, candidate.node_name
        for other in state.cluster.nominated_below(node, pod.priority):
            # it would wait for room that is taken now (kube-scheduler clears these too)
            self.nominations.pop(other.uid, None)
            state.cluster.withdraw_nomination(other.uid)
            self._reporter.clear_nomination(other)
            state.queue.renominate(other.uid, replace(other, nominated_node=""))
            state.queue.rouse(other.uid, state.now)
        nominated = replace(pod, nominated_node=node)
        state.queue.renominate(pod.uid, nominated)
        state.cluster.nominate(nominated)
        state.stats.preemptions += 1
        state.stats.victims_s.append(len(candidate.victims))
        standing = [p for p in state.cluster.index.pods_on(node) if p.priority < pod.priority and p.preemptible]
        violating = {p.uid for p in by_budget(sorted(standing, key=importance), state.cluster.budgets)[0]}
        forced = frozenset(violating) if candidate.violations else frozenset()
        self.nominations[pod.uid] = _Nomination(nominated, candidate.victims, forced)
        state.log("pod_nominated", pod_uid=pod.uid, node=node, victims=len(candidate.victims))
        self._reporter.tell(pod, UNSCHEDULABLE, message, nominated=node)

    def nominate(self, pod: Pod, candidate: Candidate) -> bool:
        """Queues: these pods give back what they borrowed, for this one. False: it waits for others already."""
        if pod.uid in self.nominations:
            return False
        self._nominate(pod, candidate, failure_message(self._state.constraints.diagnosis(pod)))
        return True

    def stored(self, uid: str, node: str) -> None:
        """The API server has the nomination: now the victims may go."""
        known = self.nominations.get(uid)
        if known is None or known.stored or known.pod.nominated_node != node:
            return
        entry = self._state.queue.entries.get(uid)
        waiting = entry is not None and entry.place in (Place.UNSCHEDULABLE, Place.BACKOFF)
        if entry is None or not waiting or self._finds_room(entry.pod):
            del self.nominations[uid]  # it goes somewhere else, perhaps; parked again, it is considered again
            state = self._state
            state.queue.rouse(uid, state.now, ClusterEvent.POD_DELETED)
            return
        known.stored = True
        self._evict(known, known.victims)

    def _evict(self, known: _Nomination, victims: Iterable[Pod]) -> None:
        """Ask those of the victims to leave that still stand on the node. One that is only assumed there may yet go
        elsewhere, or nowhere: it is asked when the watch shows it there."""
        cluster, uid, node = self._state.cluster, known.pod.uid, known.pod.nominated_node
        evictions = []
        for victim in victims:
            account, seen = cluster.cache.accounts.get(victim.uid), cluster.index.get(victim.uid)
            if account is None or seen is None or account.node_name != node or seen.terminating:
                continue
            if account.assumed_at is not None:
                self.landing[victim.uid] = uid
                continue
            evictions.append(Eviction(victim.uid, victim.namespace, victim.name, uid, node, victim.uid in known.forced))
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

    def landed(self, pod: Pod) -> None:
        """The watch shows a pod bound that was only assumed: if it is a victim where it is now, it is to leave."""
        known = self.nominations.get(self.landing.pop(pod.uid, ""))
        if known is not None:
            self._evict(known, [victim for victim in known.victims if victim.uid == pod.uid])

    def _insist(self, uid: str) -> None:
        """Ask those victims again of which nobody knows whether they were asked; to be evicted twice is once."""
        known = self.nominations.get(uid)
        if known is not None and known.unsure:
            victims = [victim for victim in known.victims if victim.uid in known.unsure]
            known.unsure.clear()
            self._evict(known, victims)

    def failed(self, uid: str) -> None:
        """The nomination was not written, or the victims do not go: the pod is tried again after its backoff."""
        known = self.nominations.pop(uid, None)
        if known is None:
            return
        state = self._state
        state.cluster.withdraw_nomination(uid)
        entry = state.queue.entries.get(uid)
        if entry is not None:
            if known.stored:
                self._reporter.clear_nomination(entry.pod)
            state.queue.renominate(uid, replace(entry.pod, nominated_node=""))
            state.queue.rouse(uid, state.now)

    def unstored(self, uid: str) -> None:
        """The patch of a pod's condition failed; if it carried the nomination, there is none."""
        known = self.nominations.get(uid)
        if known is not None and not known.stored:
            self.failed(uid)

    def evicted(self, eviction: Eviction, result: EvictionResult) -> None:
        """What became of one victim, by the binder; that it is gone only the watch says."""
        state, known = self._state, self.nominations.get(eviction.preemptor)
        current = known if known is not None and known.pod.nominated_node == eviction.node else None
        state.evicted.became(eviction.uid, OUTCOMES.get(result.outcome, REFUSED))
        match result.outcome:
            case EvictionOutcome.EVICTED:
                state.stats.victims += 1
                note = f"Preempted by pod {eviction.preemptor} on node {eviction.node}"
                state.out.append(
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
        known = self.nominations.get(pod.uid)
        if known is None or known.shown:
            return pod
        if pod.nominated_node == known.pod.nominated_node:
            known.shown = True
            return pod
        return replace(pod, nominated_node=known.pod.nominated_node)

    def forget_tries(self) -> None:
        """Whom pods may evict changed, though no node did."""
        self._tries.clear()

    def forget(self, uid: str) -> None:
        """The pod is placed or gone."""
        self.landing.pop(uid, None)
        self.nominations.pop(uid, None)
