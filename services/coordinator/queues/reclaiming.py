"""Takes back what was borrowed: who may ask, whom it costs (``shared/scheduling/queues/reclaim.py``), when it is over.

    a unit that a limit holds back --reserved: it counts already--> evictions --all gone--> it goes before all others
    a pod that no node takes --the node where the fewest must go--> nominated, as in any preemption
    a limit below what is used --> evictions in proportion

One attempt at a time per queue, a few dry runs per turn. What the binder did with an eviction is noted with all other
nominations; victims that stay (a budget, an error) end the attempt, and it is made again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import islice

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.state import State
from services.coordinator.preemption.evictions import PastEviction
from services.coordinator.preemption.nominations import Nominations
from shared.model.pod import Pod
from shared.model.queue import Queue
from shared.scheduling.cycle.dry_run import DryRun
from shared.scheduling.cycle.feasibility import failure_message
from shared.scheduling.groups.crew import Crew
from shared.scheduling.groups.placing import runs
from shared.scheduling.groups.trial import Standing, Trial
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import QueuedGroup
from shared.scheduling.queues.nodes import Charge, Waiting
from shared.scheduling.queues.reclaim import Reclaim, over_limit, reclaim
from shared.scheduling.queues.turns import Turns
from shared.wire.messages import Eviction

EVERY_S, AGAIN_S = 1.0, 0.1
"""How often queues are looked at, and how soon again where room was made for some units: the next may be many."""

GIVE_UP_S = 60.0
"""Victims that have not begun to leave after so long are not waited for any more."""

NODES_TRIED = 16
"""Nodes on which one attempt is tried, those with the most borrowed pods first."""

QUEUES_PER_LOOK = 16

UNITS_TRIED = 4
"""Units of one queue that no node takes, for which room is looked for at a time."""

UNITS_LOOKED_AT = 64
"""Those among which they are."""

TRIALS = 128
"""Dry runs of groups over all nodes in one look at queues: some milliseconds each at thousands of nodes."""


@dataclass(slots=True)
class _Attempt:
    """``unit``: for whom, "" for nobody (a lowered limit); ``victims``: uids that are still there."""

    unit: str
    victims: set[str]
    at: float


class Reclaimer:
    """One term's."""

    def __init__(self, state: State, ledger: Ledger, nominations: Nominations) -> None:
        self._state = state
        self._ledger = ledger
        self._nominations = nominations
        self._looked_at = 0.0
        self._since: dict[str, float] = {}
        """By unit: since when it could have gone, but for what others borrowed."""
        self.attempts: dict[str, _Attempt] = {}
        """By queue."""
        self._asked: dict[str, None] = {}
        """Victims of nominations that count as leaving."""
        self._next = 0
        self._trials = 0
        """Dry runs of groups that are left to the look under way."""

    def wake_at(self) -> float | None:
        """When queues are to be looked at again."""
        busy = self.attempts or any(q.reclaim or q.preempts_within for q in self._state.queues.queues.values())
        return self._looked_at + EVERY_S if busy else None

    def step(self, turns: Turns) -> None:
        """Look at the queues that may take something back, and at those that wait for victims to leave."""
        state, tree = self._state, self._state.queues
        if state.now < self._looked_at + EVERY_S or state.paused is not None:
            return
        self._looked_at = state.now
        for name, attempt in list(self.attempts.items()):
            self._follow(name, attempt)
        self._follow_nominations()
        names = sorted(name for name, queue in tree.queues.items() if queue.reclaim or queue.preempts_within)
        self._trials = TRIALS
        for count in range(min(len(names), QUEUES_PER_LOOK)):
            self._next = (self._next + 1) % len(names)
            name = names[self._next]
            if name not in self.attempts:
                self._look(name, tree.queues[name], turns)
            if not self._trials:
                self._next -= count > 0  # the next look begins with this queue, and all trials
                break

    # --- who may ask --------------------------------------------------------------------------------------------

    def _look(self, name: str, queue: Queue, turns: Turns) -> None:
        tree, state = self._state.queues, self._state
        if queue.reclaim and (lowered := over_limit(tree, name, state.now)).victims:
            self._evict(name, "", lowered.victims)
            return
        line = tree.structure.nodes[name].own
        heads = [head[1] for shape in line.held if (head := shape.head()) is not None]
        for unit in sorted(heads, key=line.order_key)[:QUEUES_PER_LOOK]:
            blocked = tree.blocked(line, unit.amounts)
            if blocked is None or blocked.problem:
                continue
            found = reclaim(
                tree, unit, state.now, enough=lambda _: True, waited_s=self._waited(unit.key), blocked=blocked,
                coming=self._coming(turns),
            )  # fmt: skip
            if found.victims:
                tree.reserve(unit)
                self._evict(name, unit.key, found.victims)
                return
        if queue.reclaim:
            self._look_at_parked(name, turns)

    def _waited(self, key: str) -> float:
        if len(self._since) > 10_000:
            self._since.clear()
        return self._state.now - self._since.setdefault(key, self._state.now)

    def _look_at_parked(self, name: str, turns: Turns) -> None:
        """Some units of the queue that no node takes: what was borrowed may be in their way. The next look goes on with
        those behind them."""
        state, parked = self._state, turns.parked.get(name, {})
        tried = 0
        for key in list(islice(parked, UNITS_LOOKED_AT)):
            if tried >= UNITS_TRIED or not self._trials:
                return
            if (since := parked.pop(key, None)) is None:
                continue  # it was roused meanwhile
            parked[key] = since
            group, entry = state.queue.groups.get(key), state.queue.entries.get(key)
            members = group.in_order() if group is not None else [entry] if entry is not None else []
            pods = [member.pod for member in members if member.place is Place.UNSCHEDULABLE]
            if not pods or any(pod.nominated_node or pod.uid in self._nominations.made for pod in pods):
                continue
            if pods[0].never_preempts:
                continue
            tried += 1
            unit = state.queues.stand_in(turns.waiting(group or members[0]))
            if state.queues.blocked(unit.line, unit.amounts) is not None:
                continue
            waited_s = max(state.now - since, self._waited(key))
            coming = self._coming(turns)
            if group is not None and self._make_room_for_group(group, pods, unit, waited_s, coming):
                return
            if group is None and self._make_room_on_a_node(pods[0], unit, waited_s, coming):
                self._looked_at = state.now - EVERY_S + AGAIN_S  # there may be more of them

    def _coming(self, turns: Turns) -> list[Charge]:
        """Pods that room is made for already."""
        entries = self._state.queue.entries
        uids = self._state.cluster.nominated_to.keys() | self._nominations.made.keys()
        return [turns.charge(entries[uid].pod) for uid in uids if uid in entries]

    def _make_room_on_a_node(self, pod: Pod, unit: Waiting, waited_s: float, coming: list[Charge]) -> bool:
        """For a lone pod: where the fewest must go."""
        state = self._state
        best: tuple[str, Reclaim] | None = None
        for node in self._nodes(unit):
            enough = self._fits(pod, node)
            if enough is None:
                continue
            among = _one_of(state.cluster.index.uids_on(node))
            found = reclaim(
                state.queues, unit, state.now, enough=enough, waited_s=waited_s, among=among, coming=coming
            )  # fmt: skip
            if found.victims and (best is None or len(found.victims) < len(best[1].victims)):
                best = node, found
                if len(found.victims) == 1:
                    break
        if best is None:
            return False
        self._nominate({pod.uid: best[0]}, best[1], pod, unit)
        return True

    def _make_room_for_group(
        self, group: QueuedGroup, pods: list[Pod], unit: Waiting, waited_s: float, coming: list[Charge]
    ) -> bool:
        """For members that go together: over all nodes, so not for those that must be in one domain."""
        state, tree = self._state, self._state.queues
        described = state.groups.group(group.key)
        if described is None or (described.topology is not None and described.topology.required):
            return False
        lacking, crew = max(1, state.groups.lacking(group.key)), Crew(state.cluster, pods)
        leaving = frozenset(uid for uid, charge in tree.charges.items() if charge.leaving)
        helpful = self._where(pods)
        nodes: dict[str, str] = {}

        def enough(gone: frozenset[str]) -> bool:
            gone |= leaving
            free = {name: tree.capacity.get(name, 0) - used for name, used in tree.structure.root.used.items()}
            for uid in gone:
                for name, amount in tree.charges[uid].amounts if uid in tree.charges else ():
                    free[name] = free.get(name, 0) + amount
            if any(amount > free.get(name, 0) for name, amount in unit.amounts) or not self._trials:
                return False
            self._trials -= 1
            trial = Trial.of(crew, state.feasibility)
            trial.leave(self._standing(gone))
            for template, alike in runs(pods, crew):
                trial.place(template, alike)
            nodes.clear()
            nodes.update(trial.nodes)
            return len(nodes) >= lacking

        found = reclaim(tree, unit, state.now, enough=enough, waited_s=waited_s, among=helpful, coming=coming)
        if not self._trials:
            return False  # it may be too many that were chosen, and were not put back
        if not found.victims or not enough(frozenset(found.uids)):
            return False
        self._nominate(nodes, found, pods[0], unit, group=group.key)
        return True

    def _where(self, pods: Iterable[Pod]) -> Callable[[Charge], bool]:
        """Whether a pod stands on a node that takes some of these, were it empty."""
        cluster, feasibility = self._state.cluster, self._state.feasibility
        masks = [feasibility.static_verdict(one).mask for one in {pod.pod_class for pod in pods}]

        def helpful(charge: Charge) -> bool:
            account = cluster.cache.accounts.get(charge.uid)
            row = cluster.table.row_of.get(account.node_name) if account is not None else None
            return row is not None and any(mask[row] for mask in masks)

        return helpful

    def _standing(self, uids: Iterable[str]) -> list[Standing]:
        cluster, found = self._state.cluster, list[Standing]()
        for uid in uids:
            pod, account = cluster.index.get(uid), cluster.cache.accounts.get(uid)
            row = cluster.table.row_of.get(account.node_name) if account is not None else None
            if pod is not None and account is not None and row is not None:
                found.append((pod, row, account.devices))
        return found

    def _nominate(self, nodes: dict[str, str], found: Reclaim, pod: Pod, unit: Waiting, *, group: str = "") -> None:
        """The nominations are the reservation; the victims are asked once they are stored."""
        state, index = self._state, self._state.cluster.index
        victims = [victim for uid in found.uids if (victim := index.get(uid)) is not None]
        for charge in found.victims:
            charge.leaving = True
            self._asked[charge.uid] = None
        message = failure_message(state.constraints.diagnosis(pod))
        self._nominations.make(nodes, victims, frozenset(), message, group=group)
        state.stats.reclaimed += len(victims)
        state.log("quota_reclaimed", queue=unit.line.name, unit=unit.key, victims=len(victims))

    def _nodes(self, unit: Waiting) -> list[str]:
        """Where pods stand that may have been borrowed, the most first."""
        state, tree, counted = self._state, self._state.queues, dict[str, int]()
        for name, node in tree.structure.nodes.items():
            over = any(node.own.used.get(n, 0) > node.guaranteed.get(n, 0) for n, _ in unit.amounts)
            if not over or name == unit.line.name:
                continue
            for uid in node.own.charges:
                if (account := state.cache.accounts.get(uid)) is not None and account.assumed_at is None:
                    counted[account.node_name] = counted.get(account.node_name, 0) + 1
        return sorted(counted, key=lambda name: (-counted[name], name))[:NODES_TRIED]

    def _fits(self, pod: Pod, node: str) -> Callable[[frozenset[str]], bool] | None:
        """Whether the node takes the pod once some of its pods are gone; None where it never does."""
        state = self._state
        row = state.cache.table.row_of.get(node)
        if row is None:
            return None
        prefiltered = state.constraints.prefiltered(pod)

        def enough(gone: frozenset[str]) -> bool:
            run = DryRun(state.cluster, state.feasibility, prefiltered, row)
            for victim in list(state.cluster.index.pods_on(node)):
                if victim.uid in gone or victim.terminating or victim.uid in self._asked:
                    run.remove(victim)
            return run.takes_beside_nominated()

        return enough

    # --- who leaves ---------------------------------------------------------------------------------------------

    def _evict(self, name: str, unit: str, victims: Iterable[Charge]) -> None:
        state, evictions = self._state, []
        preemptor = self._uid_of(unit)
        for charge in victims:
            pod, account = state.cluster.index.get(charge.uid), state.cache.accounts.get(charge.uid)
            if pod is None or account is None or pod.terminating:
                continue
            charge.leaving = True
            evictions.append(Eviction(pod.uid, pod.namespace, pod.name, preemptor, account.node_name, False))
            by = state.queue.entries.get(preemptor)
            state.evicted.asked(
                PastEviction(
                    state.now, pod.uid, pod.namespace, pod.name, charge.priority, account.node_name, preemptor,
                    by.pod.key if by is not None else f"queue {name}", by.pod.priority if by is not None else 0,
                )
            )  # fmt: skip
        self.attempts[name] = _Attempt(unit, {one.uid for one in evictions}, state.now)
        state.stats.reclaimed += len(evictions)
        state.log("quota_reclaimed", queue=name, unit=unit, victims=len(evictions))
        if evictions:
            self._ledger.evict(evictions)

    def _uid_of(self, unit: str) -> str:
        group = self._state.queue.groups.get(unit)
        return next(iter(group.members)) if group is not None and group.members else unit

    def _follow(self, name: str, attempt: _Attempt) -> None:
        """Whether the victims have gone, or will not."""
        state, tree = self._state, self._state.queues
        attempt.victims = {uid for uid in attempt.victims if uid in tree.charges}
        if attempt.unit and attempt.unit not in tree.reserved:
            del self.attempts[name]  # the unit itself is gone, or went
            return
        if not attempt.victims:
            del self.attempts[name]
            if attempt.unit:
                tree.due[attempt.unit] = None
            return
        if state.now < attempt.at + GIVE_UP_S or any(self._leaves(uid) for uid in attempt.victims):
            return
        for uid in attempt.victims:
            tree.charges[uid].leaving = False
        del self.attempts[name]
        self._since.pop(attempt.unit, None)
        unit = tree.remove(attempt.unit) if attempt.unit else None
        if unit is not None:
            tree.add(unit)

    def _follow_nominations(self) -> None:
        """Victims of nominations that were given up, and who did not leave, may be asked again."""
        makings = {id(making): making for making in self._nominations.made.values()}.values() if self._asked else ()
        wanted = {uid for making in makings for uid in making.victims}
        for uid in [uid for uid in self._asked if uid not in wanted and not self._leaves(uid)]:
            del self._asked[uid]
            if (charge := self._state.queues.charges.get(uid)) is not None:
                charge.leaving = False

    def _leaves(self, uid: str) -> bool:
        pod = self._state.cluster.index.get(uid)
        return pod is not None and pod.terminating


def _one_of(uids: Container[str]) -> Callable[[Charge], bool]:
    return lambda charge: charge.uid in uids
