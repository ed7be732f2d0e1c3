"""What becomes of a pod group that a cycle took: all of it goes back together, with one reason, or its leftovers do.

its minimum cannot be reached by the coordinator's own accounting --> parked until room for what it lacks was gained
it could, but agents' answers went to others, or nobody answered --> active again, after some times backoff
at least what it lacks was placed --> the rest waits where it was, until those are bound
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from services.coordinator.binding.shards import TOGETHER, go, goes, ways
from services.coordinator.core.state import CoordinatorState
from services.coordinator.cycle.classes import MAX_ROUND_BYTES
from services.coordinator.cycle.failures import ConflictTracker
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.cycle.unblocking import leave, unblock
from services.coordinator.preemption.groups import GroupPreemptor
from services.coordinator.status.groups import GroupReporter
from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import failure_message
from shared.scheduling.cycle.room import room_for
from shared.scheduling.groups.placing import Attempt
from shared.scheduling.groups.trial import PART
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.pod_groups import GroupStanding
from shared.scheduling.reasons import NOT_READY, SCHEDULER_ERROR, UNSCHEDULABLE

NODES_PER_WORK, MEMBERS_PER_WORK, ATTEMPT = 1_000, 8, 4
"""Nodes that an attempt looks at, and members that are judged or parked, in the time of one unit of a turn's work
(``taking.py``); and what an attempt takes at least."""


TRIED_PER_WORK = 2
"""Members with rules about each other that are tried one by one in one unit of it."""


def _work_of(attempt: Attempt, pods: Sequence[Pod]) -> int:
    return ATTEMPT + len(pods) // MEMBERS_PER_WORK + attempt.work // NODES_PER_WORK


class Shortfall(Struct, frozen=True):
    """Why a group cannot reach its minimum: ``placed`` of its members would fit; ``plugins`` keep the others away.
    ``way``: where else than it may go now it would fit (``binding/shards.py``), "" for nowhere. ``told``: the reason of
    its condition; ``reasons``: what members with claims would say by themselves, by uid, as the attempt began."""

    lacking: int
    placed: int
    reason: str
    plugins: frozenset[str]
    way: str = ""
    told: str = UNSCHEDULABLE
    reasons: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOutlook:
    """What the coordinator's own accounting says of a group. ``pods``: the order in which its minimum is reached;
    ``alike``: they are copies about which only their nodes decide; ``domain``: value of the topology label that holds
    it, None for any; ``nodes``: where exactly, by uid, where the choice is not left to agents; ``short``: why it is not
    reached; ``work``: what it took to find out."""

    pods: Sequence[Pod]
    work: int = 1
    alike: bool = False
    domain: str | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
    short: Shortfall | None = None


class Examination:
    """Of one group, in parts. The cluster is judged as it was when it began: what changes until it is over is kept for
    the group (``Requeuer.hold``), and nobody is placed meanwhile."""

    def __init__(
        self,
        state: CoordinatorState,
        requeuer: Requeuer,
        key: str,
        pods: Sequence[Pod],
        steps: Generator[int, None, GroupOutlook],
    ) -> None:
        self.key = key
        self.pods = pods
        self.work = 0
        self._state = state
        self._requeuer = requeuer
        self._steps = steps
        self._nodes_version = state.nodes_version

    @property
    def stands(self) -> bool:
        """Whether the nodes are those it began with, and so are the members."""
        state, groups = self._state, self._state.groups
        gated = groups.standing(self.key)[0] is GroupStanding.GATED
        return not gated and state.nodes_version == self._nodes_version and all(map(self._same, self.pods))

    def go_on(self, work: int) -> GroupOutlook | None:
        """So much of the turn's work of it, and at least one part; None: it is not over."""
        self.work = 0
        try:
            while self.work < work:
                self.work += 1 + next(self._steps) // TRIED_PER_WORK
        except StopIteration as end:
            outlook: GroupOutlook = end.value
            self.work += outlook.work
            self.end()
            return outlook
        self._requeuer.hold(self.key)
        return None

    def end(self) -> None:
        """It is over, or given up."""
        self._steps.close()
        self._requeuer.release(self.key)

    def _same(self, pod: Pod) -> bool:
        entry = self._state.queue.entries.get(pod.uid)
        if entry is None or entry.place is not Place.IN_FLIGHT:
            return False
        now = entry.pod
        if now is pod:
            return True
        judged = now.pod_class, now.labels, now.relations, now.nominated_node
        return judged == (pod.pod_class, pod.labels, pod.relations, pod.nominated_node)


class GroupFailures:
    """One term's."""

    def __init__(
        self, state: CoordinatorState, conflicts: ConflictTracker, reporter: GroupReporter, requeuer: Requeuer,
        preemptor: GroupPreemptor,
    ) -> None:  # fmt: skip
        self._state = state
        self._preemptor = preemptor
        self._conflicts = conflicts
        self._reporter = reporter
        self._requeuer = requeuer
        self._rooms: dict[PodClass, int] = {}
        self._rooms_at = -1

    def examine(self, key: str, pods: Sequence[Pod]) -> Examination:
        """Begin to find out whether so many of the pods, which are in flight, as the group lacks can be placed."""
        return Examination(self._state, self._requeuer, key, pods, self._examining(key, pods))

    def _examining(self, key: str, pods: Sequence[Pod]) -> Generator[int, None, GroupOutlook]:
        """Whether so many of the pods as the group lacks can be placed together as things stand.

        A gang of copies that only their nodes decide about is counted. Others are tried on a fork of the accounting;
        one that lost its nodes before, or that nodes are kept for, goes exactly where that puts it, since agents do
        not know of each other.
        """
        state = self._state
        exact = key in self._conflicts.races or any(pod.nominated_node for pod in pods)
        group, lacking = state.groups.as_it_stands(key), state.groups.lacking(key)
        if group is None:
            return GroupOutlook(pods)
        plain = not exact and group.topology is None and self._alike(pods)
        reasons = () if plain else tuple(state.constraints.reasons(pods).items())  # later changes are looked into later
        work = 0
        for way, moved in ways(state, key, pods):
            if work:
                yield TRIED_PER_WORK * work  # of the attempt before: each shard may take a turn of its own
            work = 1 + len(pods) // (2 * MEMBERS_PER_WORK)
            if plain and self._has_room(moved[0].pod_class, lacking):
                if goes(state, key, way):
                    return GroupOutlook(pods, work, alike=True)
                return GroupOutlook(pods, work, short=Shortfall(lacking, 0, "", frozenset(), way))
            attempt = yield from state.domains.attempting(group, moved)
            work = _work_of(attempt, moved)
            if attempt.reached:
                break
        if not attempt.reached or not goes(state, key, way):
            reason = next((failure_message(diagnosis) for diagnosis in attempt.rejected.values()), "")
            elsewhere, told = way if attempt.reached else "", attempt.reason(lacking)
            short = Shortfall(lacking, len(attempt.nodes), reason, attempt.plugins, elsewhere, told, reasons)
            return GroupOutlook(pods, work, short=short)
        if attempt.reordered:
            by_uid = {pod.uid: pod for pod in pods}
            others = [pod for pod in pods if pod.uid not in attempt.nodes]
            pods = [*(by_uid[uid] for uid in attempt.nodes), *others]
        return GroupOutlook(pods, work, domain=attempt.domain or None, nodes=attempt.nodes if exact else {})

    def _has_room(self, pod_class: PodClass, wanted: int) -> bool:
        """Whether all nodes together have so many places for the class: often there are as many nodes with one."""
        takes = int(np.count_nonzero(self._state.feasibility.of(pod_class).mask))
        return takes >= wanted or (takes > 0 and self._room(pod_class) >= wanted)

    def _room(self, pod_class: PodClass) -> int:
        """Places for the class on all nodes; counted once while nothing changes there."""
        table = self._state.cache.table
        if self._rooms_at != table.clock:
            self._rooms_at = int(table.clock)
            self._rooms.clear()
        room = self._rooms.get(pod_class)
        if room is None:
            mask = self._state.feasibility.of(pod_class).mask
            room = self._rooms[pod_class] = room_for(table, pod_class, mask)
        return room

    def _alike(self, pods: Sequence[Pod]) -> bool:
        first, template = pods[0].pod_class, self._state.constraints.template
        return all(pod.pod_class == first for pod in pods) and all(template(pod) is None for pod in pods)

    def park(self, key: str, pods: Sequence[Pod], short: Shortfall) -> None:
        """There is no room for so many: the group goes where there is, or sleeps until what it lacks may be there,
        wherever that is."""
        if short.way:
            go(self._state, key, short.way)
            self.retry(key)
            return
        if len(pods) and not goes(self._state, key, ways(self._state, key, pods)[-1][0]):
            go(self._state, key, TOGETHER)
        state, minimum = self._state, self._state.groups.minimum(key)
        bound = minimum - short.lacking
        text = (
            f"minCount ({minimum}) cannot be satisfied: {bound + short.placed} scheduled, 0 remaining. {short.reason}"
        )
        state.stats.gangs_refused += 1
        queued = state.queue.groups.get(key)
        if queued is not None:
            state.stats.gang_attempts_s.append(("unschedulable", max(0.0, state.now - queued.since)))
        state.stats.parked += len(pods)
        state.log("group_unschedulable", level="debug", group=key, members=len(pods), lacking=short.lacking,
                  plugins=",".join(sorted(short.plugins)))  # fmt: skip
        self._conflicts.forget(key)
        left = leave(state, key, pods)
        for pod in pods:
            state.attempted(pod.uid, "unschedulable")
            if pod.asks is not None and not left:
                unblock(state, pod, fits_nowhere=False)
        state.queue.park_group(key, short.plugins, short.lacking, state.now)
        state.queue.waiting.judge(short.reasons)
        self._preemptor.consider(key, self._as_queued(pods), text, short.told)
        self._ended(key, pods)

    def give_back(self, key: str, pods: Sequence[Pod], silent: str) -> Iterator[int]:
        """Fewer were placed than the group lacks, and all of them are forgotten. ``silent``: who did not answer for
        nodes, where nobody else did. Yields members that were tried."""
        state = self._state
        standing = [state.queue.entries[pod.uid].pod for pod in pods if pod.uid in state.queue.entries]
        outlook = GroupOutlook(standing)
        if standing:
            examination = self.examine(key, standing)
            while (found := examination.go_on(1)) is None:
                yield PART
                if not examination.stands:
                    examination.end()
                    self.retry(key)
                    return
            outlook = found
        if outlook.short is not None:
            self.park(key, standing, outlook.short)
        elif silent:
            self._back_off(key, standing, f"nodes that would take its members are not answered for: {silent}.")
        else:
            state.stats.losses += 1
            if self._conflicts.lost(key):
                self._back_off(key, standing, "offered nodes were taken by other pods; trying again")
            else:
                self.retry(key)

    def retry(self, key: str) -> None:
        """Nothing is wrong with the group: it is tried again at once."""
        self._state.domains.chosen.pop(key, None)
        self._state.queue.retry_group(key, self._state.now, failed=False)
        self._state.groups.touch(key)

    def too_large(self, key: str, pods: Sequence[Pod], size_bytes: int) -> None:
        """The group's classes do not fit into one offer."""
        text = f"selectors, affinity and tolerations of its members take {size_bytes} bytes; at most {MAX_ROUND_BYTES} "
        self._back_off(key, pods, text + "are offered", reason=SCHEDULER_ERROR)

    def placed(self, key: str, pods: Sequence[Pod], taken: set[str]) -> None:
        """At least what the group lacks is assumed and goes into a plan; the others wait for those to be bound."""
        state = self._state
        state.stats.gangs_placed += 1
        state.domains.chosen.pop(key, None)
        self._conflicts.forget(key)
        state.queue.disband(key, state.now, ClusterEvent.POD_ADDED)
        for pod in pods:
            if pod.uid in taken:
                state.groups.send_away(pod.uid)  # at once: its plan may follow turns later
            else:
                state.queue.retry(pod.uid, state.now, failed=False)
                self._requeuer.attempt_ended(pod.uid)

    def _back_off(self, key: str, pods: Sequence[Pod], text: str, *, reason: str = NOT_READY) -> None:
        state = self._state
        for pod in pods:
            state.attempted(pod.uid, "error")
            self._conflicts.parked(pod.uid)  # a binder that refused a node may only have been behind
        state.queue.retry_group(key, state.now)
        self._gone_back(key, pods, text, reason=reason)

    def _gone_back(self, key: str, pods: Sequence[Pod], text: str, *, reason: str) -> None:
        self._reporter.unplaced(key, self._as_queued(pods), text, reason=reason)
        self._ended(key, pods)

    def _as_queued(self, pods: Sequence[Pod]) -> list[Pod]:
        entries = self._state.queue.entries
        return [entries[pod.uid].pod for pod in pods]

    def _ended(self, key: str, pods: Sequence[Pod]) -> None:
        self._state.domains.chosen.pop(key, None)
        for pod in pods:
            self._requeuer.attempt_ended(pod.uid)
        self._state.groups.touch(key)
