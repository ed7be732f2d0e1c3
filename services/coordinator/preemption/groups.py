"""Preemption by pod groups: for a parked gang, whom to evict on all nodes together, so that it reaches its minimum.

    parked --> SEARCHING (a part each turn) --none--> told so --a node changes--> looked at again, not too often
                 --victims--> still so? --> its members nominated (``nominations.py``) --the last victim left--> woken
                 --it fits by now--> woken

One decision per group: while somebody leaves for it, it asks nobody else. What the search found is checked against the
cluster of that moment before anybody is nominated. It ends when the members are placed, or when the group's timeout is
over; a victim that has not left by then is not counted on again.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field

from services.coordinator.core.state import State
from services.coordinator.preemption.nominations import Making, Nominations
from services.coordinator.status.groups import GroupReporter
from shared.model.pod import Pod
from shared.model.pod_group import PodGroup, group_title
from shared.scheduling.groups.preemption import GroupPreemption, search_group, still_helps
from shared.scheduling.parked_groups import Group as ParkedGroup
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.preemption.preemption import NEVER, NO_CANDIDATE, TERMINATING

WORK_PER_TURN = 25_000
"""Of searches, in nodes looked at: some 10 ms."""

CONCLUDED, NOMINATED = 10_000, 300
"""What the end of a search counts for, and for each member: the choice is checked, and the members are nominated."""

PART_AT_LEAST = 500
"""What a part of a search counts for, however few nodes there are."""

LOOK_AGAIN_S = 2.0
"""A group that found nobody is not looked at again sooner, however much changes."""

TRIES = 4
"""Searches in a row whose choice did not stand any more: then the group waits for the next change."""

LOOKED_AT_ONCE = 4
"""Parked groups of one kind that one changed node has looked at again."""

GROUPS_KEPT = 4096
"""Groups remembered before those that are gone are forgotten."""

REFUSED_KEPT = 256
"""Kinds of groups for which it is remembered that nobody helps while nothing changes."""


@dataclass(slots=True)
class _Search:
    """``message``: what keeps the group, told with the outcome; "": it was told before."""

    message: str
    tries: int = 0
    steps: Generator[int, None, GroupPreemption] | None = None


@dataclass(slots=True)
class _Held:
    """What is known of a group between searches: when it was looked at last, whether it is to be looked at again, and
    victims that did not leave."""

    looked_at: float = 0.0
    listed: bool = False
    stuck: set[str] = field(default_factory=set)


class GroupPreemptor:
    """Searches of one term by the pod group's key."""

    def __init__(self, state: State, nominations: Nominations, reporter: GroupReporter) -> None:
        self._state = state
        self._nominations = nominations
        self._reporter = reporter
        self.searches: dict[str, _Search] = {}
        """Those under way: while there are any, the loop is to turn at once."""
        self._order: list[tuple[int, int, str]] = []
        self.begun = 0
        """Searches of this term; before the first there is nothing to step, and nobody to wake."""
        self._known: dict[str, _Held] = {}
        self._due: list[tuple[float, str]] = []
        self._until: list[tuple[float, str, Making]] = []
        self._refused: dict[Hashable, Hashable] = {}

    # --- a group is parked --------------------------------------------------------------------------------------

    def consider(self, key: str, pods: Sequence[Pod], message: str) -> None:
        """The group is parked for want of room: say so, or look for victims and say what came of it."""
        group = self._state.cluster.pod_groups.get(key)
        if group is None:
            self._reporter.unplaced(key, pods, message)
            return
        if group.never_preempts or all(pod.never_preempts for pod in pods):
            self._tell(key, pods, message, NEVER)
            return
        nominated = [pod for pod in pods if pod.nominated_node]
        if nominated and self._nominations.waits_together(nominated):
            self._nominations.insist(nominated[0].uid)
            self._tell(key, pods, message, TERMINATING)
            return
        for pod in nominated:
            self._nominations.made.pop(pod.uid, None)
        self._begin(key, message)

    def look_again(self, parked: ParkedGroup) -> None:
        """Something changed by which evicting may help groups that wait for the same."""
        for uid in parked.first(LOOKED_AT_ONCE):
            entry = self._state.queue.entries.get(uid)
            if entry is None or entry.group is None or uid in self._nominations.made:
                continue
            key = entry.group.key
            known = self._known.get(key)
            if known is None or key in self.searches:
                continue
            at = known.looked_at + LOOK_AGAIN_S
            if at <= self._state.now:
                self._begin(key, "")
            elif not known.listed:
                known.listed = True
                heapq.heappush(self._due, (at, key))

    def _begin(self, key: str, message: str) -> None:
        queued = self._state.queue.groups.get(key)
        if queued is None:
            return
        if key not in self.searches:
            self.begun += 1
            heapq.heappush(self._order, (-queued.priority, self.begun, key))
        self.searches[key] = _Search(message)
        self._state.stats.preemption_searches += 1
        self._state.stats.group_preemption_searches += 1

    # --- the search ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Search on, for the highest priority first; give up what was held for long enough."""
        now = self._state.now
        while self._until and self._until[0][0] <= now:
            self._expire(*heapq.heappop(self._until)[1:])
        while self._due and self._due[0][0] <= now:
            key = heapq.heappop(self._due)[1]
            known = self._known.get(key)
            if known is not None:
                known.listed = False
                if key not in self.searches and not self._nominated(key):
                    self._begin(key, "")
        left = WORK_PER_TURN
        while self.searches and left > 0:
            key = self._order[0][2]
            search, pods = self.searches[key], self._waiting(key)
            group = self._state.cluster.pod_groups.get(key)
            if not pods or group is None:
                self._drop(key)
                continue
            try:
                while left > 0:
                    left -= max(PART_AT_LEAST, self._advance(key, group, pods, search))
            except StopIteration as end:
                left -= CONCLUDED + NOMINATED * len(pods)
                self._conclude(key, group, pods, search, end.value)

    def wake_at(self) -> float | None:
        """When something happens by itself."""
        times = [heap[0][0] for heap in (self._until, self._due) if heap]
        return min(times, default=None)

    def _waiting(self, key: str) -> list[Pod]:
        """The group's members while it is parked, or backs off, as one."""
        queued = self._state.queue.groups.get(key)
        if queued is None or queued.place not in (Place.UNSCHEDULABLE, Place.BACKOFF):
            return []
        return [entry.pod for entry in queued.in_order()]

    def _drop(self, key: str) -> None:
        del self.searches[key]
        heapq.heappop(self._order)

    def _advance(self, key: str, group: PodGroup, pods: Sequence[Pod], search: _Search) -> int:
        """One part of the work; ``StopIteration`` carries what came of all."""
        state = self._state
        if search.steps is None:
            kind = self._kind(key, group, pods)
            if kind is not None and self._refused.get(kind) == self._stamp():
                raise StopIteration(GroupPreemption(reason=NO_CANDIDATE))
            stuck = self._known[key].stuck if key in self._known else set()
            search.steps = search_group(
                state.cluster, state.feasibility, group, pods, self._bound(key),
                may_evict=lambda pod: pod.preemptible and pod.uid not in stuck,
                strict=state.settings.preemption_strict,
            )  # fmt: skip
        return next(search.steps)

    def _conclude(
        self, key: str, group: PodGroup, pods: Sequence[Pod], search: _Search, found: GroupPreemption
    ) -> None:
        state = self._state
        if len(self._known) >= GROUPS_KEPT:
            self._known = {one: held for one, held in self._known.items() if one in state.groups.members}
        self._known.setdefault(key, _Held()).looked_at = state.now
        if found.reason:
            kind = self._kind(key, group, pods)
            if kind is not None and found.reason == NO_CANDIDATE:
                if len(self._refused) >= REFUSED_KEPT:
                    self._refused.clear()
                self._refused[kind] = self._stamp()
            self._drop(key)
            for pod in pods:
                self._nominations.clear(pod)
            self._tell(key, pods, search.message, found.reason)
            return
        if not found.victims:
            self._drop(key)
            state.queue.rouse(pods[0].uid, state.now, ClusterEvent.POD_DELETED)
            return
        if not still_helps(state.cluster, state.feasibility, group, pods, found):
            search.steps, search.tries = None, search.tries + 1
            if search.tries >= TRIES:
                self._drop(key)
                self._tell(key, pods, search.message, NO_CANDIDATE)
            return
        self._drop(key)
        if search.message:
            self._reporter.unplaced(key, pods, search.message)
        for pod in pods:
            if pod.uid not in found.nodes:
                self._nominations.clear(pod)
        until = state.now + (state.settings.gang_timeout_s if group.timeout_s is None else group.timeout_s)
        text = f'pod group "{group_title(key)}": {search.message}' if search.message else pods[0].condition[2]
        making = self._nominations.make(found.nodes, found.victims, found.violating, text, group=key, until=until)
        heapq.heappush(self._until, (until, key, making))
        state.log("group_nominated", group=key, members=len(found.nodes), victims=len(found.victims),
                  broken=",".join(found.broken))  # fmt: skip

    def _expire(self, key: str, making: Making) -> None:
        """The group's time is over: what was made for it is given up, and who has not left is not counted on again."""
        if not any(self._nominations.made.get(uid) is making for uid in making.pods):
            return
        index = self._state.cluster.index
        left = {uid for uid, (_, node) in making.victims.items() if uid in index.uids_on(node)}
        self._known.setdefault(key, _Held()).stuck |= left
        self._state.log("group_preemption_over", level="warning", group=key, not_left=len(left))
        self._nominations.end(making)

    # --- facts --------------------------------------------------------------------------------------------------

    def _nominated(self, key: str) -> bool:
        """Whether room is being made for the group."""
        queued = self._state.queue.groups.get(key)
        return queued is not None and any(uid in self._nominations.made for uid in queued.members)

    def _bound(self, key: str) -> list[Pod]:
        """Members that stand, bound or on their way."""
        cluster = self._state.cluster
        return [pod for uid in cluster.members.get(key, ()) if (pod := cluster.index.get(uid)) and not pod.terminating]

    def _kind(self, key: str, group: PodGroup, pods: Sequence[Pod]) -> Hashable | None:
        """Groups of one kind find the same victims; None: there is no other like it."""
        first = pods[0]
        for pod in pods:
            if pod.relations is not None or pod.nominated_node or pod.pod_class != first.pod_class:
                return None
        least = min(pod.priority for pod in pods)
        priority = least if group.priority is None else group.priority
        lacking = self._state.groups.lacking(key)
        stands = bool(self._state.cluster.members.get(key)) or (key in self._known and bool(self._known[key].stuck))
        return None if stands else (first.pod_class, first.namespace, priority, least, lacking, group.topology)

    def _stamp(self) -> Hashable:
        cluster = self._state.cluster
        return cluster.table.clock, cluster.index.version, cluster.objects_version, self._state.budgets_version

    def _tell(self, key: str, pods: Sequence[Pod], message: str, preemption: str) -> None:
        if message:
            self._reporter.unplaced(key, pods, f"{message} preemption: {preemption}")
