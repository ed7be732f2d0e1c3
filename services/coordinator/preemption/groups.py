"""Preemption by pod groups: for a parked gang, whom to evict on all nodes together, so that it reaches its minimum.

    parked --> SEARCHING (a part each turn) --none--> told so --a node changes--> looked at again, not too often
                 --victims--> still so? --> its members nominated (``nominations.py``) --the last victim left--> woken
                 --it fits by now--> woken
    parked for too long --> SEARCHING among its equals too --> its members nominated, and nobody is asked to leave

One decision per group: while somebody leaves for it, it asks nobody else. What the search found is checked against the
cluster of that moment before anybody is nominated. However its members came to be nominated, by this leader or one
before, to make room or to take back what was lent: it ends when they are placed, or when the time of the group is over.
A victim that has not left by then is not counted on again.

Small pods of the same priority can take every place that comes free before a gang ever finds all that it lacks. So one
that has waited for ``gang_patience_s`` has nodes kept for it, where least is in its way of what ends by itself: for as
long again, and longer while pods end there, at most its timeout; one gang at a time, the most important and then the
oldest. Where nobody ended its next turn comes later each time (``patience.py``): nothing is kept in vain for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field

from services.coordinator.core.due import Due
from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.made_room import MadeRoom
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.preemption.patience import Patience
from services.coordinator.preemption.protected import Protected
from services.coordinator.status.groups import GroupReporter
from shared.model.pod import Pod
from shared.model.units.pod_group import PodGroup, group_title
from shared.scheduling.groups.preemption import search_group, still_helps
from shared.scheduling.groups.steps import GroupPreemption
from shared.scheduling.parked_groups import ParkedGroup
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.pod_groups import GroupMembers, GroupStanding
from shared.scheduling.preemption.preemption import NEVER, NO_CANDIDATE, TERMINATING
from shared.scheduling.profiles import spreads_by_default
from shared.scheduling.reasons import UNSCHEDULABLE

NODES_PER_WORK = 125
"""Nodes that a search looks at in one unit of the turn's work."""

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

KEPT = "waiting for pods to end on nodes that are kept for the pod group."
"""What a gang is told that has waited for too long."""


@dataclass(slots=True)
class _Search:
    """``message``: what keeps the group, told with the outcome, for ``reason``; "": it was told before. ``begun``:
    when. ``patient``: for nodes on which nobody is asked to leave."""

    message: str
    begun: float
    patient: bool = False
    reason: str = UNSCHEDULABLE
    tries: int = 0
    steps: Generator[int, None, GroupPreemption] | None = None


@dataclass(slots=True)
class _Kept:
    """Nodes that are kept for a group that has waited for too long, at most until then; ``standing``: how many pods
    were in its way there when somebody looked last."""

    made_room: MadeRoom
    until: float
    standing: int
    helped: bool = False


@dataclass(slots=True)
class _Held:
    """What is known of a group between searches: when it was looked at last, why it waited when it was considered,
    whether it is to be looked at again, and victims that did not leave."""

    looked_at: float = 0.0
    reason: str = ""
    listed: bool = False
    stuck: set[str] = field(default_factory=set)


def preemptor_of(pods: Sequence[Pod]) -> Pod:
    """As whom waiting members preempt: an offline one binds them all."""
    return next((pod for pod in pods if pod.offline is not None), pods[0])


class GroupPreemptor:
    """Searches of one term by the pod group's key."""

    def __init__(
        self, state: CoordinatorState, nominations: Nominations, reporter: GroupReporter, protected: Protected
    ) -> None:
        self._state = state
        self._nominations = nominations
        self._protected = protected
        self._reporter = reporter
        self.searches: dict[str, _Search] = {}
        """Those under way: while there are any, the loop is to turn at once."""
        self._order: list[tuple[int, int, str]] = []
        self.begun = 0
        """Searches and times of this term; before the first there is nothing to step, and nobody to wake."""
        self._known: dict[str, _Held] = {}
        self._due: list[tuple[float, str]] = []
        self._ends: dict[str, float] = {}
        """By group of which members are nominated: when that is given up."""
        self._over = Due()
        self._patience = Patience(state)
        self._favoured = ""
        """The group that nodes are kept for, or are looked for, since it has waited for too long."""
        self._kept: _Kept | None = None
        self._refused: dict[Hashable, Hashable] = {}

    # --- a group is parked --------------------------------------------------------------------------------------

    def consider(self, key: str, pods: Sequence[Pod], message: str, reason: str = UNSCHEDULABLE) -> None:
        """The group is parked for want of room: say so, or look for victims and say what came of it. ``reason``: of the
        condition, by whether further nodes would help."""
        group, nominations = self._state.cluster.pod_groups.get(key), self._nominations
        if group is None:
            self._reporter.unplaced(key, pods, message, reason=reason)
            return
        self.begun += 1
        self._patience.waits(key)
        nominated = [pod for pod in pods if pod.nominated_node]
        kept = next((known for pod in nominated if (known := nominations.made.get(pod.uid)) and known.patient), None)
        if kept is not None:
            if nominations.departures.waits_together(nominated):
                self._tell(key, pods, message, KEPT, reason)
            else:
                nominations.end(kept)  # a node was closed: the group is woken, and considered again
            return
        never = group.never_preempts or all(pod.never_preempts for pod in pods)
        delays = reason == UNSCHEDULABLE and not never and nominations.delayed.wanted and self._may_preempt(key)
        if not delays:
            nominations.delayed.forget(key)
        if refusal := nominations.tries.refusal(key) or (nominations.delayed.until_over(key) if delays else ""):
            for pod in nominated:
                nominations.clear(pod)
            self._tell(key, pods, message, refusal, reason)
            return
        if never:
            self._tell(key, pods, message, NEVER, reason)
            return
        if nominated and nominations.departures.waits_together(nominated):
            nominations.insist(nominated[0].uid)
            self._tell(key, pods, message, TERMINATING, reason)
            return
        for pod in nominated:
            nominations.drop(pod.uid)
        self._begin(key, message, reason=reason)

    def look_again(self, parked: ParkedGroup) -> None:
        """Something changed by which evicting may help groups that wait for the same."""
        for uid in parked.first(LOOKED_AT_ONCE):
            entry = self._state.queue.entries.get(uid)
            if entry is None or entry.group is None or uid in self._nominations.made:
                continue
            key = entry.group.key
            known = self._known.get(key)
            if known is None or key in self.searches or self._nominations.tries.refusal(key):
                continue
            if self._delayed(key, known):
                continue  # it is considered once its time is over
            at = known.looked_at + LOOK_AGAIN_S
            if at <= self._state.now:
                if not self._nominated(key):
                    self._begin(key, "")
            elif not known.listed:
                known.listed = True
                heapq.heappush(self._due, (at, key))

    def _begin(self, key: str, message: str, *, patient: bool = False, reason: str = UNSCHEDULABLE) -> None:
        queued = self._state.queue.groups.get(key)
        if queued is None:
            return
        self.begun += 1
        if key not in self.searches:
            heapq.heappush(self._order, (-queued.priority, self.begun, key))
        self.searches[key] = _Search(message, self._state.now, patient, reason)
        self._state.stats.group_preemption_searches += not patient

    def _delayed(self, key: str, known: _Held) -> bool:
        """Whether nobody is to be evicted for the group yet; it may have had nobody to evict when it was considered."""
        delayed = self._nominations.delayed
        if key in delayed:
            return True
        delays = known.reason == UNSCHEDULABLE and delayed.wanted and self._may_preempt(key)
        return delays and delayed.until_over(key) != ""

    def _may_preempt(self, key: str) -> bool:
        """Whether there is anybody of lower priority whom the group might evict."""
        queued, priorities = self._state.queue.groups.get(key), self._state.cluster.index.priorities
        return queued is not None and min(priorities, default=queued.priority) < queued.priority

    # --- members are nominated ----------------------------------------------------------------------------------

    def follow(self, key: str, members: GroupMembers | None) -> None:
        """Something changed in the group, or (None) it has no members any more: where some that go together are
        nominated, whoever did that, it ends with the group's time."""
        if key not in self._state.queue.groups:
            self._patience.forget(key)
            self._nominations.delayed.forget(key)
        nominated = self._state.cluster.nominated_to.keys()
        alone = members is None or members.standing is GroupStanding.ALONE
        if members is None or alone or nominated.isdisjoint(members.pending.keys()):
            self._ends.pop(key, None)
            if alone:
                self._nominations.tries.forget(key)
        elif key not in self._ends:
            self._ends_after(key, self._state.timeout_s(self._state.cluster.pod_groups.get(key)))

    def _ends_after(self, key: str, seconds: float) -> None:
        self.begun += 1
        self._ends[key] = self._state.now + seconds
        self._over.later(key, self._ends[key])

    def _give_up(self, key: str) -> None:
        """The group's time is over: nothing is kept for it, and who has not left is not counted on again."""
        state, nominations = self._state, self._nominations
        members, left = state.groups.members.get(key), set[str]()
        for uid in list(members.pending) if members is not None else ():
            if uid not in state.cluster.nominated_to:
                continue
            made_room, entry = nominations.made.get(uid), state.queue.entries.get(uid)
            if made_room is not None:
                left.update(() if made_room.patient else nominations.departures.standing(made_room))
                nominations.end(made_room)
            elif entry is not None:  # nominated by a leader before
                nominations.clear(entry.pod)
                state.queue.wake(uid, state.now)
        self._known.setdefault(key, _Held()).stuck |= left
        state.log("group_preemption_over", level="warning", group=key, not_left=len(left))

    def _goes_on(self, key: str) -> bool:
        """Whether nodes are kept for the group for longer, since pods have ended there."""
        kept, now = self._kept, self._state.now
        if kept is None or key != self._favoured:
            return False
        standing = len(self._nominations.departures.standing(kept.made_room))
        ended, kept.standing = standing < kept.standing, standing
        kept.helped |= ended
        if not ended or now >= kept.until:
            self._patience.over(key, helped=kept.helped)
            self._kept = None
            return False
        self._ends_after(key, min(self._state.settings.gang_patience_s, kept.until - now))
        return True

    def _favour(self) -> None:
        """Nodes are looked for that are kept for a group that has waited for too long, for one at a time."""
        if self._has_turn():
            return
        self._favoured, self._kept = "", None
        while key := self._patience.next():
            if key not in self.searches and not self._nominated(key):
                self._favoured = key
                self._begin(key, "", patient=True)
                return
            self._patience.later(key, LOOK_AGAIN_S)  # room is looked for, or made, for it as it is

    def _has_turn(self) -> bool:
        """Whether a group that has waited for too long has nodes looked for, or kept: the others' turn comes after."""
        return bool(self._favoured) and (self._favoured in self.searches or self._nominated(self._favoured))

    # --- the search ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Search on, for the highest priority first; give up what was held for long enough."""
        state, now = self._state, self._state.now
        for key in self._over.take(now):
            ends = self._ends.get(key)
            if ends is not None and ends > now:
                self._over.later(key, ends)
            elif ends is not None and not self._goes_on(key):
                del self._ends[key]
                self._give_up(key)
        self._favour()
        while self._due and self._due[0][0] <= now:
            key = heapq.heappop(self._due)[1]
            known = self._known.get(key)
            if known is not None:
                known.listed = False
                if key not in self.searches and not self._nominated(key) and not self._delayed(key, known):
                    self._begin(key, "")
        left = state.work * NODES_PER_WORK
        while self.searches and left > 0:
            key = self._order[0][2]
            search, pods = self.searches[key], self._waiting(key)
            group = self._state.groups.as_it_stands(key)
            if not pods or group is None:
                self._drop(key)
                continue
            try:
                while left > 0:
                    left -= max(PART_AT_LEAST, self._advance(key, group, pods, search))
            except StopIteration as end:
                left -= CONCLUDED + NOMINATED * len(pods)
                self._conclude(key, group, pods, search, end.value)
        state.work = left // NODES_PER_WORK

    def wake_at(self) -> float | None:
        """When something happens by itself."""
        turn = None if self._has_turn() else self._patience.wake_at()
        times = (self._due[0][0] if self._due else None, self._over.next_at(), turn)
        return min((at for at in times if at is not None), default=None)

    def _waiting(self, key: str) -> list[Pod]:
        """The group's members while it is parked, or backs off, as one."""
        queued = self._state.queue.groups.get(key)
        if queued is None or queued.place not in (Place.UNSCHEDULABLE, Place.BACKOFF):
            return []
        return [entry.pod for entry in queued.in_order()]

    def _drop(self, key: str) -> None:
        """The first in turn has ended."""
        heapq.heappop(self._order)
        search = self.searches.pop(key)
        if not search.patient:
            self._state.stats.group_searches_s.append(self._state.now - search.begun)

    def _advance(self, key: str, group: PodGroup, pods: Sequence[Pod], search: _Search) -> int:
        """One part of the work; ``StopIteration`` carries what came of all."""
        state = self._state
        if search.steps is None:
            kind = None if search.patient else self._kind(key, group, pods)
            if kind is not None and self._refused.get(kind) == self._stamp():
                raise StopIteration(GroupPreemption(reason=NO_CANDIDATE))
            stuck = self._known[key].stuck if key in self._known else set()
            judged = preemptor_of(pods)
            search.steps = search_group(
                state.cluster, state.feasibility, group, pods, self._bound(key),
                may_evict=lambda pod: self._protected.may_evict(judged, pod) and pod.uid not in stuck,
                leaving=self._nominations.leaves, ran=state.groups.ran,
                spoken_for=lambda pod: pod.uid in self._nominations.leaving,
                strict=state.settings.preemption_strict, patient=search.patient,
            )  # fmt: skip
        return next(search.steps)

    def _conclude(
        self, key: str, group: PodGroup, pods: Sequence[Pod], search: _Search, found: GroupPreemption
    ) -> None:
        state = self._state
        if len(self._known) >= GROUPS_KEPT:
            self._known = {one: held for one, held in self._known.items() if one in state.groups.members}
        known = self._known.setdefault(key, _Held())
        known.looked_at = state.now
        if search.message:
            known.reason = search.reason
        if found.reason and search.patient:
            self._drop(key)
            return
        if found.reason:
            kind = self._kind(key, group, pods)
            if kind is not None and found.reason == NO_CANDIDATE:
                if len(self._refused) >= REFUSED_KEPT:
                    self._refused.clear()
                self._refused[kind] = self._stamp()
            self._drop(key)
            for pod in pods:
                self._nominations.clear(pod)
            self._tell(key, pods, search.message, found.reason, search.reason)
            return
        if not found.victims:
            self._drop(key)
            state.queue.wake(pods[0].uid, state.now, ClusterEvent.POD_DELETED)
            return
        if not still_helps(state.cluster, state.feasibility, group, pods, found, patient=search.patient):
            search.steps, search.tries = None, search.tries + 1
            if search.tries >= TRIES:
                self._drop(key)
                self._tell(key, pods, search.message, NO_CANDIDATE, search.reason)
            return
        self._drop(key)
        if search.patient:
            made_room, timeout_s = self._nominations.keep(found.nodes, found.victims, key), state.timeout_s(group)
            self._kept = _Kept(made_room, state.now + timeout_s, len(made_room.victims))
            self._ends_after(key, min(state.settings.gang_patience_s, timeout_s))
            state.log("group_nodes_kept", group=key, members=len(found.nodes), pods=len(made_room.victims))
            return
        if search.message:
            self._reporter.unplaced(key, pods, search.message, reason=search.reason)
        for pod in pods:
            if pod.uid not in found.nodes:
                self._nominations.clear(pod)
        text = f'pod group "{group_title(key)}": {search.message}' if search.message else pods[0].condition[2]
        told = search.reason if search.message else pods[0].condition[1] or UNSCHEDULABLE
        self._nominations.make(found.nodes, found.victims, found.violating, text, group=key, told=told)
        self._ends_after(key, state.timeout_s(group))
        state.log("group_nominated", group=key, members=len(found.nodes), victims=len(found.victims),
                  broken=",".join(found.broken))  # fmt: skip

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
            ruled = pod.relations is not None or spreads_by_default(pod)
            if ruled or pod.nominated_node or pod.pod_class != first.pod_class:
                return None
        least = min(pod.priority for pod in pods)
        priority = least if group.priority is None else group.priority
        lacking = self._state.groups.lacking(key)
        stands = bool(self._state.cluster.members.get(key)) or (key in self._known and bool(self._known[key].stuck))
        offline = any(pod.offline is not None for pod in pods)
        return None if stands else (first.pod_class, first.namespace, priority, least, lacking, group.topology, offline)

    def _stamp(self) -> Hashable:
        cluster = self._state.cluster
        versions = cluster.index.version, cluster.objects_version, self._state.budgets_version
        return cluster.table.clock, *versions, self._protected.over

    def _tell(self, key: str, pods: Sequence[Pod], message: str, preemption: str, reason: str) -> None:
        if message:
            self._reporter.unplaced(key, pods, f"{message} preemption: {preemption}", reason=reason)
