"""Which parked pods a change may have helped: those are woken, the others sleep on.

    a node's row, room given up --amounts, static filters, the rules--> the first of those that fit there now
                                --room that evicting would make ------> a search for victims on that row
    a latency that fell --first of those whose strict limit it has come within--> the same
    a pod, volume or domain that rules of others read ---------------> groups that such rules keep away, judged anew
    an attempt of a pod that was woken ends somewhere else -----------> the room that it left is offered to the next

Changes are only noted as they come. ``step`` then looks into them, so much per turn, by groups of pods that are judged
alike and in queue order. A pod is woken only for room that takes it, and no more pods than the room has place for:
the cost of an event does not grow with the number of pods that wait. Everything that may change a verdict must be noted
here, since a pod is parked on the verdict of the moment.

Nobody is placed here; who is evicted is decided by ``preemption/search.py``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from services.coordinator.core.state import NEVER, CoordinatorState
from services.coordinator.cycle.concerned import concerns
from services.coordinator.cycle.gang_waking import (
    JUDGED_IN_FULL,
    LOOKED_UP,
    WOKEN_AT_ONCE,
    GangWaker,
    places_left,
    taking_nodes,
)
from services.coordinator.preemption.groups import GroupPreemptor
from services.coordinator.preemption.search import Preemptor
from shared.model.pod import Pod
from shared.model.resources import PODS
from shared.model.terms.relations import NO_RELATIONS
from shared.scheduling.groups.trial import OUTSIDE
from shared.scheduling.limited_groups import farther
from shared.scheduling.parked_groups import RELATIONAL, ParkedGroup, Room
from shared.scheduling.places import ClusterEvent, OwnEvent
from shared.scheduling.state.node_table import PODS_COLUMN

LOOKS_PER_WORK = 2
"""Looks in one unit of the turn's work; one look: at one group on one node."""

CONCERNED_KEPT = 1024
"""Kinds of pods for which it is remembered which groups they concern."""

UNJUDGED_AT_ONCE = 256
"""Pods woken in one turn because there are agents, or nodes, again."""

ABOVE_ALL = 2**31

OF_VOLUMES = frozenset({ClusterEvent.VOLUME_CHANGED, ClusterEvent.STORAGE_CLASS_CHANGED, ClusterEvent.CSI_NODE_CHANGED})
"""Changes that every pod with claims may wait for."""

OF_DEVICES = frozenset({ClusterEvent.RESOURCE_SLICE_CHANGED, ClusterEvent.DEVICE_CLASS_CHANGED})
"""Changes that every pod that claims devices may wait for."""

FREED = ""
"""In place of a claim: whatever it was given is free for all."""

OF_DOMAINS = frozenset(
    {ClusterEvent.NODE_ADDED, ClusterEvent.NODE_DELETED, ClusterEvent.NODE_LABELS, ClusterEvent.NODE_TAINTS}
)
"""Changes of a node that may decide about other nodes: domains come, go and grow."""


@dataclass(slots=True)
class _Change:
    """A node that changed. ``left``: numbers of the groups that are still to be looked at; None: all."""

    event: ClusterEvent
    left: deque[int] | None = None


class _Woken(Struct, frozen=True):
    """For whose room a pod was woken: a node's; "": it was judged on all nodes, as a member of group ``key``."""

    node_name: str
    key: Hashable
    counted: bool


NOBODY = ""
"""Held while nobody decides; no group has this key."""


class Requeuer:
    """Wakes parked pods that a change may have helped, in one term. The marks are cheap; ``step`` does the work."""

    def __init__(self, state: CoordinatorState, preemptor: Preemptor, groups: GroupPreemptor) -> None:
        self._state = state
        self._preemptor = preemptor
        self._gangs = GangWaker(state, preemptor.nominations, groups)
        self._nodes: dict[str, _Change] = {}
        self._latencies: dict[str, dict[str, int]] = {}
        self._pods: dict[Hashable, tuple[Pod, ClusterEvent]] = {}
        self._groups: dict[int, ClusterEvent | OwnEvent] = {}
        self._objects: dict[ClusterEvent, set[str]] = {}
        self._budgets = self._joined = False
        self._held: set[str] = set()
        self._unjudged: deque[str] = deque()
        self._woken: dict[str, _Woken] = {}
        self._concerned: dict[Hashable, tuple[tuple[int, int], list[int]]] = {}

    # --- marks --------------------------------------------------------------------------------------------------

    def node_changed(self, node_name: str, event: ClusterEvent) -> None:
        """A node came, went or changed, or room on it was given up."""
        # While a group is judged over turns it is not parked, yet may be, by what was so before this.
        if not self._state.queue.waiting.groups and not self._held:
            return
        # A node that is being served begins anew: groups that were passed over there may fit now.
        self._nodes[node_name] = _Change(event)
        self._state.agenda.waking = self._state.now
        if event in OF_DOMAINS:
            self.object_changed(event, node_name)
            for pod in self._state.cluster.index.pods_on(node_name):
                if pod.relations is not None and pod.relations.anti_affinity:
                    self.pod_changed(pod, event)
        if event is ClusterEvent.NODE_ADDED:
            self._joined = True
            self._held.discard(NOBODY)

    def latency_changed(self, node_name: str, before: Mapping[str, int]) -> None:
        """A node's latencies changed; ``before``: what they were, by target (``""``: to the users)."""
        if self._state.queue.waiting.limited or self._held:
            known = self._latencies.setdefault(node_name, {})
            for target, before_us in before.items():  # the farthest: whoever was parked since was parked by any of them
                known[target] = farther(known.get(target, before_us), before_us)
            self._state.agenda.waking = self._state.now

    def pod_changed(self, pod: Pod, event: ClusterEvent) -> None:
        """A pod that stands, or stood, came, went or changed: other pods' rules may mean it, and its own others."""
        waiting, relations = self._state.queue.waiting, pod.relations or NO_RELATIONS
        if waiting.related or self._held or (relations.anti_affinity and waiting.groups):
            labels = tuple(sorted(pod.labels.items()))
            # One mark for all that rules read alike: a Deployment that goes is one look, not one a replica.
            self._pods[pod.namespace, labels, relations.anti_affinity, relations.claims] = pod, event
            self._state.agenda.waking = self._state.now

    def object_changed(self, event: ClusterEvent, key: str) -> None:
        """A claim, volume, storage class, CSINode, namespace, domain, or devices changed; ``key``: the claim's
        (``FREED``), or the name."""
        if event is ClusterEvent.NAMESPACE_LABELS:
            self._concerned.clear()
        waiting = self._state.queue.waiting
        if waiting.related or self._held or (event is ClusterEvent.NAMESPACE_LABELS and waiting.groups):
            self._objects.setdefault(event, set()).add(key)
            self._state.agenda.waking = self._state.now

    def budgets_changed(self) -> None:
        """Evictions may be allowed that were not; only where budgets are never broken does that matter."""
        self._budgets = self._state.settings.preemption_strict
        self._state.agenda.waking = self._state.now

    def agents_joined(self) -> None:
        """There is somebody to ask again."""
        self._joined = True
        self._held.discard(NOBODY)
        self._state.agenda.waking = self._state.now

    def attempt_ended(self, uid: str, node_name: str = "") -> None:
        """The attempt to place a pod ended on this node, or nowhere: what it was woken for goes to the next."""
        woken = self._woken.pop(uid, None)
        if woken is None:
            return
        if woken.node_name and (woken.node_name != node_name or not woken.counted):
            self._nodes[woken.node_name] = _Change(ClusterEvent.POD_DELETED)  # from its first group on, once more
            self._state.agenda.waking = self._state.now
        elif not woken.node_name:
            group = self._state.queue.waiting.groups.get(woken.key)
            if group is not None:
                event = OwnEvent.WOKEN if group.needs else ClusterEvent.POD_ADDED
                self._groups.setdefault(group.number, event)
                self._state.agenda.waking = self._state.now

    def hold(self, key: str) -> None:
        """A group is judged over turns: what changes until that has ended may help it too, and is kept."""
        self._held.add(key)

    def nobody_decides(self) -> None:
        """There is nobody to ask, so to wake pods is in vain: what changes is kept until there may be again."""
        self._held.add(NOBODY)

    def swept(self) -> None:
        """Time has passed: perhaps somebody decides again."""
        self.release(NOBODY)

    def release(self, key: str) -> None:
        """It has ended."""
        if key in self._held:
            self._held.discard(key)
            self._state.agenda.waking = self._state.now

    # --- work ---------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether something is still to be looked into: the loop is to turn at once."""
        return not self._held and bool(self._nodes or self._latencies or self._pods or self._groups or self._unjudged)

    def step(self) -> None:
        """Look into what changed, as far as the turn's work goes."""
        state = self._state
        if self._held:
            state.agenda.waking = NEVER
            return
        if self._joined:
            self._unjudged, self._joined = deque(state.queue.unjudged), False
        for _ in range(min(len(self._unjudged), UNJUDGED_AT_ONCE)):
            state.stats.woken += state.queue.wake(self._unjudged.popleft(), state.now, ClusterEvent.AGENT_JOINED)
        if state.queue.waiting.groups:
            self._look()
        else:
            self._nodes.clear()
            self._latencies.clear()
            self._pods.clear()
            self._groups.clear()
            self._objects.clear()
            self._budgets = False
        state.agenda.waking = state.now if self.busy else NEVER

    def _look(self) -> None:
        # Groups last: all before them note groups, and each is judged on all nodes once for whatever happened.
        left = self._state.work * LOOKS_PER_WORK - self._find_helped() - self._find_within()
        while left > 0 and self._pods:
            key = next(iter(self._pods))
            pod, event = self._pods.pop(key)
            left -= self._find_concerned(key, pod, event)
        while left > 0 and self._nodes:
            node_name = next(iter(self._nodes))
            left -= self._serve(node_name, self._nodes[node_name], left)
        while left > 0 and self._groups:
            number = next(iter(self._groups))
            left -= self._judge(number, self._groups.pop(number))
        self._state.work = left // LOOKS_PER_WORK

    def _find_within(self) -> int:
        """Note the groups whose strict limits latencies have come within: one pass, however many changed."""
        changed, self._latencies = self._latencies, {}
        table, limited = self._state.cache.table, self._state.queue.waiting.limited
        for node_name, before in changed.items() if limited else ():
            row, known = table.row_of.get(node_name), self._nodes.get(node_name)
            if row is None or (known is not None and known.left is None):
                continue  # all groups are to be looked at there
            found = list(known.left) if known is not None and known.left is not None else []
            already = len(found)
            for target, before_us in before.items():
                if target not in limited:
                    continue
                now_us = int(table.newest_latency(target, np.array([row]))[0])
                found += limited.within(target, before_us, now_us)
                if farther(before_us, now_us) == now_us:
                    self._wake_nominated(node_name, target, now_us)
            if len(found) > already:
                event = ClusterEvent.NODE_LATENCY if known is None else known.event
                self._nodes[node_name] = _Change(event, deque(self._state.queue.waiting.ordered(found)))
        return len(changed) // LOOKED_UP

    def _wake_nominated(self, node_name: str, target: str, now_us: int) -> None:
        """Pods for whom others leave a node that now lies beyond their strict limit look for another."""
        state = self._state
        for pod in state.cluster.nominated_below(node_name, ABOVE_ALL):
            limit = pod.pod_class
            keeps = not limit.latency_strict or 0 <= now_us <= limit.latency_hard_us
            if keeps or limit.latency_target != target or pod.uid not in state.queue.entries:
                continue
            if self._preemptor.may_go(pod):
                state.stats.woken += state.queue.wake(pod.uid, state.now, ClusterEvent.NODE_LATENCY)

    def _find_helped(self) -> int:
        """Note the groups that changed objects, domains or budgets may have helped: one pass, however many changed."""
        waiting, work = self._state.queue.waiting, 0
        if self._budgets:
            self._budgets, work = False, len(waiting.groups) // LOOKED_UP
            lowest = min(self._state.cluster.index.priorities, default=0)
            for group in waiting:
                if group.pod.priority > lowest:
                    self._groups[group.number] = ClusterEvent.POD_LABELS
        if not self._objects:
            return work
        changed, self._objects = self._objects, {}
        if named := changed.get(ClusterEvent.NAMESPACE_LABELS):
            work += len(waiting.groups) // LOOKED_UP
            for group in waiting:  # the terms of pods that stand may not mean those in it any more
                if group.pod.namespace in named:
                    self._groups[group.number] = ClusterEvent.NAMESPACE_LABELS
        claims = changed.pop(ClusterEvent.CLAIM_CHANGED, set())
        device_claims = changed.pop(ClusterEvent.DEVICE_CLAIM_CHANGED, set())
        of_devices = next((event for event in changed if event in OF_DEVICES), None)
        if FREED in device_claims:
            of_devices = ClusterEvent.DEVICE_CLAIM_CHANGED
        of_volumes = next((event for event in changed if event in OF_VOLUMES), None)
        of_all = next((event for event in changed if event not in OF_VOLUMES and event not in OF_DEVICES), None)
        for number, group in waiting.related.items():
            own = (group.pod.relations or NO_RELATIONS).claims
            event = of_all or (of_volumes if own else None)
            if event is None and any(f"{group.pod.namespace}/{claim.name}" in claims for claim in own):
                event = ClusterEvent.CLAIM_CHANGED
            if event is None and group.pod.asks is not None:
                event = of_devices
                if not device_claims.isdisjoint(group.pod.claimed):
                    event = ClusterEvent.DEVICE_CLAIM_CHANGED
            if event is not None:
                self._groups[number] = event
        return work + len(waiting.related) // LOOKED_UP

    def _find_concerned(self, key: Hashable, pod: Pod, event: ClusterEvent) -> int:
        """Note the groups whose rules mean the pod, or which its own rules mean."""
        waiting, repels = self._state.queue.waiting, bool((pod.relations or NO_RELATIONS).anti_affinity)
        versions = waiting.related_version, waiting.version if repels else 0
        known, work = self._concerned.get(key), 1
        if known is None or known[0] != versions:
            groups = list(waiting if repels else waiting.related.values())
            work += len(groups) // 4
            known = (
                versions,
                [group.number for group in groups if concerns(pod, group.pod, self._state.cluster.namespaces)],
            )
            if len(self._concerned) >= CONCERNED_KEPT:
                self._concerned.clear()
            self._concerned[key] = known
        lowest = min(self._state.cluster.index.priorities, default=0)
        for number in known[1]:
            group = waiting.numbered(number)
            if group is not None and (number in waiting.related or group.pod.priority > lowest):
                self._groups[number] = event
        return work + len(known[1]) // LOOKED_UP

    def _serve(self, node_name: str, change: _Change, left: int) -> int:
        """Offer a node's room to those that wait, in queue order; returns the work it was."""
        state = self._state
        table, waiting = state.cache.table, state.queue.waiting
        row = table.row_of.get(node_name)
        if change.left is None:
            # Those first for whom others left: whoever else is woken for that room runs into their nomination.
            for nominated in state.cluster.nominated_below(node_name, ABOVE_ALL):
                if nominated.uid in state.queue.entries and self._preemptor.may_go(nominated):
                    state.stats.woken += state.queue.wake(nominated.uid, state.now, change.event)
        if row is None:
            del self._nodes[node_name]
            return 1
        taken: dict[str, dict[str, int]] = {}
        free = self._free(row)
        work = 1 + len(waiting.groups) // 1000
        if change.left is None:
            change.left = deque(self._fitting(node_name, free))
            change.left.extend(self._opened(row, free, frozenset(change.left)))
        while change.left and work < left:
            number = change.left.popleft()
            if (group := waiting.numbered(number)) is not None:
                work += self._offer(
                    group, node_name, row, taken.setdefault(self._gangs.line(group.pod), {}), change.event
                )
        if not change.left:
            del self._nodes[node_name]
        return work

    def _free(self, row: int) -> Room:
        table = self._state.cache.table

        def free(name: str) -> int:
            column = PODS_COLUMN if name == PODS else table.column_of.get(name)
            return 0 if column is None else int(table.allocatable[column, row] - table.requested[column, row])

        return free

    def _fitting(self, node_name: str, free: Room) -> list[int]:
        """Groups that would fit, those first for whom the room is kept; of the others the ones that leave them that."""
        waiting, cluster = self._state.queue.waiting, self._state.cluster
        kept = list(cluster.nominated.get(node_name, {}).values())
        if not kept:
            return waiting.fitting(free)

        def unkept_at(priority: int) -> Room:
            taken = Counter[str]()
            for other in kept:
                # >=: of equals the nominated one has the room (kube-scheduler's addGENominatedPods).
                if other.priority >= priority:
                    taken.update({PODS: 1}, **dict(other.pod_class.requests))
            return lambda name: free(name) - taken[name]

        own = [group for other in kept if (group := waiting.group_of(other.uid)) is not None]
        own.sort(key=lambda group: (-group.pod.priority, group.head() or ()))
        first = {group.number: None for group in own}
        first.update(dict.fromkeys(waiting.fitting(free, unkept_at)))
        return list(first)

    def _opened(self, row: int, free: Room, fitting: frozenset[int]) -> list[int]:
        """Groups that do not fit, but could once others are evicted."""
        index = self._state.cluster.index
        index.sync()
        if not index.priorities:
            return []

        def room_at(priority: int) -> Room:
            return lambda name: free(name) + index.removable.below_at(priority, name, row)

        found = self._state.queue.waiting.opened(min(index.priorities), room_at)
        return [number for number in found if number not in fitting]

    def _offer(self, group: ParkedGroup, node_name: str, row: int, taken: dict[str, int], event: ClusterEvent) -> int:
        """Offer what is left of the row's room to one group. ``taken``: what those woken before it will take."""
        state, pod, free = self._state, group.pod, self._free(row)
        if group.needs:
            if self._gangs.gather(group, row, free):
                self._groups[group.number] = event
            return 1
        count = places_left(state, pod, row, free, taken)
        if count < 1:
            self._look_for_victims(group, row)
            return 1
        plugin = state.constraints.rejecting_at(pod, row)
        if plugin:
            if plugin == OUTSIDE:
                return 3
            if plugin in RELATIONAL and plugin not in group.plugins:
                state.queue.waiting.blame(group, frozenset((plugin,)))
            self._look_for_victims(group, row)
            return 3
        counted = not (group.relational or pod.pod_class.host_ports)
        # Where more than amounts decides, the first may shut out the next: they follow one by one (`attempt_ended`).
        count = min(count if counted else 1, len(group.members))
        taken[PODS] = taken.get(PODS, 0) + count
        for name, amount in pod.pod_class.requests:
            taken[name] = taken.get(name, 0) + count * amount
        self._wake(group, count, node_name, event, counted=counted)
        return 2 + count // 4

    def _look_for_victims(self, group: ParkedGroup, row: int) -> None:
        if self._state.feasibility.static_verdict(group.pod.pod_class).mask[row]:
            self._preemptor.look_again(group, row)

    def _judge(self, number: int, event: ClusterEvent | OwnEvent) -> int:
        """Judge a group on all nodes: a change elsewhere may have helped it anywhere."""
        state = self._state
        group = state.queue.waiting.numbered(number)
        if group is None:
            return 0
        if group.needs:
            woken, work = self._gangs.wake(group, event)
            if not woken and group.judged:
                woken, more = self._gangs.wake_otherwise(group)
                work += more
            self._woken.update(dict.fromkeys(woken, _Woken("", group.key, counted=False)))
            return work
        pod = group.pod
        if state.constraints.fits_nowhere(pod):
            work = self._preemptor.tell_again(group) if self._preemptor.says_otherwise(group) else 0
            self._preemptor.look_again(group, None)
            return JUDGED_IN_FULL + work
        nodes = int(taking_nodes(state, pod, state.constraints.judge(pod)).sum())
        count = min(len(group.members), nodes, WOKEN_AT_ONCE)
        self._wake(group, count, "", event, counted=False)
        return JUDGED_IN_FULL

    def _wake(
        self, group: ParkedGroup, count: int, node_name: str, event: ClusterEvent | OwnEvent, *, counted: bool
    ) -> None:
        state = self._state
        for uid in group.first(count):
            if state.queue.wake(uid, state.now, event):
                state.stats.woken += 1
                self._woken[uid] = _Woken(node_name, group.key, counted)
