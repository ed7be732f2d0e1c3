"""Preemption by lone pods: for one that no node takes, on which node whom to evict so that it fits.

    parked --rows that evicting may open--> SEARCHING (some dry runs per turn) --none--> told so
        --best candidate--> nominated (``nominations.py``: stored, victims evicted, woken)

One search serves a whole group of pods that are judged alike (``parked_groups.py``), the first of them first: nodes are
tried once, the best candidate goes to each in turn, and its node alone is tried again before the next is chosen. Only
pods of lower priority are victims, and none that opted out by annotation; a member of a group that is preempted whole
costs the group. A search waits for nothing: it goes on turn by turn.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.preemption.protected import Protected
from services.coordinator.status.reporter import FIRST_AFTER_S, StatusReporter
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import failure_message, unavailable_message
from shared.scheduling.parked_groups import ParkedGroup, group_key
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.preemption.preemption import (
    NEVER,
    TERMINATING,
    EvictionCandidate,
    Ranked,
    select_victims,
)
from shared.scheduling.preemption.resolvable import NO_VICTIMS, NOT_HELPFUL
from shared.scheduling.preemption.units import victim_units
from shared.scheduling.reasons import UNSCHEDULABLE

TRIES_KEPT = 16
"""Kinds of preemptors (class, priority, whether offline) of which is remembered what a dry run gave on each node."""

KNOWN_PER_WORK, KNOWN_PER_DRY_RUN = 2, 16
"""Remembered answers that are looked up in one unit of the turn's work, and in the time of one dry run."""

PASSED_OVER = 64
"""Members of a group that are passed over in the time of one answer that is looked up."""

FEWEST_CANDIDATES, CANDIDATE_SHARE = 100, 10
"""The search ends with a tenth of the nodes, at least 100 (DefaultPreemptionArgs)."""

BY_UID = attrgetter("uid")

Tried = tuple[EvictionCandidate | None, tuple[str, ...]]
"""What a dry run gave: whom to evict, or why nobody helps."""


@dataclass(slots=True)
class _Search:
    """A search under way for a group that waited all the time. ``rows`` not yet tried, in the order to try them,
    ``due`` the same as a set; ``turn``: members whose turn is still to come, where the first may evict nobody, as of
    when so many had joined (``listed``); ``reasons``: why the others do not help; ``untold``: members that are to be
    told the end, with what keeps them; ``whole``: all nodes that may be opened are still to be added."""

    group: ParkedGroup
    nodes: int
    limit: int
    whole: bool
    rows: deque[int] = field(default_factory=deque)
    due: set[int] = field(default_factory=set)
    turn: Iterator[str] = field(default_factory=lambda: iter(()))
    listed: int = 0
    found: Ranked = field(default_factory=Ranked)
    reasons: Counter[str] = field(default_factory=Counter)
    untold: dict[str, str] = field(default_factory=dict)

    def add(self, rows: Iterable[int]) -> None:
        """Try these too."""
        for row in rows:
            if row not in self.due:
                self.due.add(row)
                self.rows.append(row)

    def first(self, row: int) -> None:
        """Try this one before the others."""
        if row not in self.due:
            self.due.add(row)
            self.rows.appendleft(row)

    def next_row(self) -> int:
        """Take one off."""
        row = self.rows.popleft()
        self.due.discard(row)
        return row


class Preemptor:
    """Searches of one term by group."""

    def __init__(
        self, state: CoordinatorState, nominations: Nominations, reporter: StatusReporter, protected: Protected
    ) -> None:
        self._state = state
        self.nominations = nominations
        self.protected = protected
        self._reporter = reporter
        self.searches: dict[Hashable, _Search] = {}
        """Those under way, by group: while there are any, the loop is to turn at once."""
        self._order: list[tuple[int, int, Hashable]] = []
        self._begun = 0
        self._full: ParkedGroup | None = None
        """The group for whose members there was no room in this turn."""
        self._tries: OrderedDict[tuple[PodClass, int, bool], dict[int, tuple[tuple[int, ...], Tried]]] = OrderedDict()

    # --- a pod is parked ----------------------------------------------------------------------------------------

    def consider(self, pod: Pod, message: str) -> None:
        """No node takes the pod, which is parked: say so, or look for victims and say what came of it."""
        if pod.never_preempts:
            self._tell(pod, message, NEVER)
            return
        if self.nominations.departures.waits(pod):
            self.nominations.insist(pod.uid)
            self._tell(pod, message, TERMINATING, nominated=self.nominations.untold(pod.uid))
            return
        self.nominations.drop(pod.uid)
        if refusal := self.nominations.tries.refusal(pod.uid):
            self._give_up(pod, message, refusal)
            return
        group = self._state.queue.waiting.groups[group_key(pod)]
        search = self._search_for(group)
        if search is None:
            found = self._state.constraints.openable(pod)
            if not found.rows:
                self._give_up(pod, message, unavailable_message(self._nodes, dict(found.reasons)))
                return
        if self._delays(pod) and (refusal := self._delayed(group, pod.uid)):
            self._give_up(pod, message, refusal)
            return
        search = search or self._begin(group)
        search.untold[pod.uid] = message

    def look_again(self, group: ParkedGroup, row: int | None) -> None:
        """Something changed on a node (None: somewhere) by which evicting there may help parked pods now."""
        pod, search = group.pod, self._search_for(group)
        if pod.nominated_node or not self._may_preempt(pod) or len(group.delayed) == len(group.members):
            return  # one that is nominated is tried again once nobody leaves for it any more, one delayed in its time
        if row is None and not self._state.constraints.openable(pod).rows:
            return
        search = search or self._begin(group, whole=False)
        if row is None:
            search.whole = True
        else:
            search.add([row])

    def says_otherwise(self, group: ParkedGroup) -> bool:
        """Whether some of its members say that a further node would help where none would any more, or the reverse.
        Those that wait for the end of a search are told what is so then."""
        if not group.told or group.pod.nominated_node:
            return False
        pod = self._state.queue.entries[group.first(1)[0]].pod
        return group.told != {self._state.constraints.reason(pod)}

    def tell_again(self, group: ParkedGroup) -> int:
        """What keeps the members changed, and let none of them in: they say so; returns the work it was."""
        message, entries = failure_message(self._state.constraints.diagnosis(group.pod)), self._state.queue.entries
        group.told = frozenset()
        group.delayed.clear()
        for uid in list(group.members):
            self.consider(entries[uid].pod, message)
        return len(group.members) // 4

    @property
    def _nodes(self) -> int:
        return len(self._state.cache.table.row_of)

    def _search_for(self, group: ParkedGroup) -> _Search | None:
        """The search under way. One for the same pods before they were woken and parked again does not count: what
        changed in between was offered to nobody."""
        search = self.searches.get(group.key)
        return search if search is not None and search.group is group else None

    def _begin(self, group: ParkedGroup, *, whole: bool = True) -> _Search:
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

    def _finds_room(self, group: ParkedGroup, pod: Pod) -> bool:
        """Whether some node takes the pod by now: nobody has to leave for it. Room does not come while others of its
        group are nominated, so it is looked for once a turn."""
        own = bool(pod.nominated_node or pod.group)
        if group is self._full and not own:
            return False
        found = self._state.constraints.finds_room(pod)
        if not found and not own:
            self._full = group
        return found

    # --- the search ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Try some nodes more, for the highest priority first."""
        left, self._full = self._state.work * KNOWN_PER_WORK, None
        while self.searches and left > 0:
            key = self._order[0][2]
            search, group = self.searches[key], self._state.queue.waiting.groups.get(key)
            if group is not search.group:
                heapq.heappop(self._order)
                del self.searches[key]
                continue
            if search.whole:
                left -= self._look_everywhere(group.pod, search)
            while search.rows and left > 0 and not search.found.enough(search.limit):
                left -= self._try(group.pod, search, search.next_row())
            if not search.rows or search.found.enough(search.limit):
                left -= KNOWN_PER_DRY_RUN + (len(group.members) // PASSED_OVER if group.delayed else 0)
                self._conclude(group, search)
                if key not in self.searches:
                    heapq.heappop(self._order)
        self._state.work = left // KNOWN_PER_WORK

    def _may_preempt(self, pod: Pod) -> bool:
        """Whether there is anybody of lower priority whom the pod might evict."""
        return not pod.never_preempts and min(self._state.cluster.index.priorities, default=pod.priority) < pod.priority

    def may_go(self, pod: Pod) -> bool:
        """Whether a pod that is nominated, and parked, is to be tried once more, and nominated elsewhere or nowhere if
        that is in vain: nobody leaves for it any more, and until then others would yield to it. A gang goes as soon as
        all have left whom it was to cost, whoever leaves the same nodes for others."""
        return not self.nominations.departures.waits(pod) or (
            bool(pod.group) and self.nominations.departures.all_left(pod.uid)
        )

    def _try(self, pod: Pod, search: _Search, row: int) -> int:
        """Ask one node; returns the work it was."""
        if self._state.cache.table.nodes[row] is None:
            return 1
        (candidate, reasons), work = self._known_or_tried(pod, row)
        if candidate is not None and not (candidate.violations and self._state.settings.preemption_strict):
            search.found.add(candidate)
        elif candidate is not None:
            search.reasons[NOT_HELPFUL] += 1
        else:
            search.reasons.update(reasons)
        return work

    def _known_or_tried(self, pod: Pod, row: int) -> tuple[Tried, int]:
        """A dry run's result, remembered where nothing changed on the node, nor who is nominated there, and nothing but
        the node decides."""
        state = self._state
        table, cluster = state.cache.table, state.cluster
        node = table.names[row]
        own = (pod.nominated_node or pod.group) and node in cluster.nominated  # it does not yield to all of them
        if own or state.constraints.prefiltered(pod).rules or self._holds_groups(node):
            return self._candidate(pod, row), KNOWN_PER_DRY_RUN
        kind = pod.pod_class, pod.priority, pod.offline is not None
        tries = self._tries.get(kind)
        if tries is None:
            tries = self._tries[kind] = {}
            if len(self._tries) > TRIES_KEPT:
                self._tries.popitem(last=False)
        else:
            self._tries.move_to_end(kind)
        known, stamp = tries.get(row), (
            int(table.stamp[row]), cluster.renominated_at(node), state.budgets_version, self.nominations.given_up
        )  # fmt: skip
        if known is not None and known[0] == stamp:
            return known[1], 1
        tried = self._candidate(pod, row)
        tries[row] = stamp, tried
        return tried, KNOWN_PER_DRY_RUN

    def _holds_groups(self, node: str) -> bool:
        """Whether members of groups stand there, of which others decide too who may leave."""
        cluster = self._state.cluster
        return bool(cluster.members) and any(
            pod.group in cluster.pod_groups for pod in cluster.index.pods_on(node) if pod.group
        )

    def _candidate(self, pod: Pod, row: int) -> Tried:
        state = self._state
        dry_run = DryRun(state.cluster, state.feasibility, self._state.constraints.prefiltered(pod), row)
        # of those that are as important every leader chooses the same, whatever order it heard of them in
        standing = sorted(state.cluster.index.pods_on(dry_run.node_name), key=BY_UID)
        possible = victim_units(
            state.cluster,
            standing,
            pod.priority,
            lambda other: self.protected.may_evict(pod, other) and (not pod.group or other.group != pod.group),
            self.spares,
        )
        if not possible:
            return None, (NO_VICTIMS,)
        candidate = select_victims(dry_run, possible, state.cluster, self.nominations.leaves)
        if candidate is not None:
            return candidate, ()
        rejection = dry_run.rejection()
        return None, rejection.reasons if rejection is not None else (NO_VICTIMS,)

    def spares(self, pod: Pod) -> int | None:
        """How many members the gang of an offline pod can do without, beside those that leave; it goes whole else."""
        groups, index = self._state.groups, self._state.cluster.index
        members = groups.members.get(pod.group) if pod.offline is not None else None
        if members is None or (least := groups.keeps(pod.group) - groups.ran(pod.group)) <= 1:
            return None
        standing = (one for uid in members.bound if (one := index.get(uid)) is not None)
        return sum(1 for one in standing if one is pod or not self.nominations.leaves(one)) - least

    def _conclude(self, group: ParkedGroup, search: _Search) -> None:
        """The search is over: nominate the best that still stands for the first of the group, and go on for the next;
        or say why nothing helps."""
        state = self._state
        uid = self._first(group, search)
        if not uid:
            self._end(group, search)
            return
        pod = state.queue.entries[uid].pod
        if self._finds_room(group, pod):
            message = search.untold.pop(uid, "")
            if message:
                self._reporter.tell(pod, UNSCHEDULABLE, message)
            state.queue.wake(uid, state.now, ClusterEvent.POD_DELETED)  # the others of the group search on
            return
        while search.found:
            chosen = self._chosen(pod, search)
            row = state.cache.table.row_of.get(chosen.node_name)
            again = self._known_or_tried(pod, row)[0][0] if row is not None else None
            if again is not None and again.violations > chosen.violations and not state.settings.preemption_strict:
                search.found.add(again)  # its budget was used up meanwhile: another node may do better
            elif row is not None and again is not None and again.violations <= chosen.violations:
                message = search.untold.pop(uid, "") or failure_message(self._state.constraints.diagnosis(pod))
                told = self._state.constraints.reason(pod)
                self.nominations.make({uid: again.node_name}, again.victims, again.violating, message, told=told)
                search.first(row)  # others may leave there for the next of the group, and be as little loss
                return
        self._end(group, search)

    def _first(self, group: ParkedGroup, search: _Search) -> str:
        """The first for whom somebody may be asked to leave, "" where there is none. Those that may not are passed over
        once in a search, not again for each of the others; who joins meanwhile comes after them."""
        (uid,) = group.first(1)
        tries, delays = self.nominations.tries, self._delays(self._state.queue.entries[uid].pod)

        def refused(uid: str) -> bool:
            return bool(tries.refusal(uid) or (delays and self._delayed(group, uid)))

        if not refused(uid):
            return uid
        while search.listed < group.joined:
            for uid in search.turn:
                if uid in group.members and not refused(uid):
                    return uid
            search.listed, search.turn = group.joined, iter(group.first(len(group.members)))
        left = (uid for uid in search.turn if uid in group.members)
        return next((uid for uid in left if not refused(uid)), "")

    def _delays(self, pod: Pod) -> bool:
        """Whether a node that comes may spare whom such a pod would evict."""
        delays = self.nominations.delayed.wanted and self._may_preempt(pod)
        return delays and self._state.constraints.reason(pod) == UNSCHEDULABLE

    def _delayed(self, group: ParkedGroup, uid: str) -> str:
        """Why nobody is asked to leave for a member of the group yet; "" where somebody may be."""
        if refusal := self.nominations.delayed.until_over(uid):
            group.delayed.add(uid)
        return refusal

    def _chosen(self, pod: Pod, search: _Search) -> EvictionCandidate:
        """The best that was found; where a leader before nominated the pod, its node, if no more budgets break there:
        whom that one asked to leave may leave yet."""
        state = self._state
        best = search.found.take(state.rng.random())
        if not pod.nominated_node or state.evicted.by(pod.uid):
            return best
        row = state.cache.table.row_of.get(pod.nominated_node)
        there = self._candidate(pod, row)[0] if row is not None else None
        return there if there is not None and there.violations <= best.violations else best

    def _end(self, group: ParkedGroup, search: _Search) -> None:
        """Nobody helps the others of the group."""
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
        """Preemption does not help: an older nomination ends, and the pod is tried as one that has none."""
        turns = self._state.queue.turns
        after_s = FIRST_AFTER_S if turns is not None and turns.reclaims(pod) else None
        if pod.nominated_node:
            self.nominations.clear(pod)
            self._state.queue.wake(pod.uid, self._state.now)
        self._tell(pod, message, preemption, first_after_s=after_s)

    def _tell(
        self, pod: Pod, message: str, preemption: str, *, nominated: str | None = None,
        first_after_s: float | None = None,
    ) -> None:  # fmt: skip
        text, reason = f"{message} preemption: {preemption}", self._state.constraints.reason(pod)
        self._reporter.tell(pod, reason, text, nominated=nominated, first_after_s=first_after_s)
        self._state.queue.waiting.tell(pod.uid, reason)

    def forget_tries(self, node: str) -> None:
        """Whom pods may evict there changed, or who leaves there already, though the node did not."""
        row = self._state.cache.table.row_of.get(node, -1)
        for tries in self._tries.values():
            tries.pop(row, None)
