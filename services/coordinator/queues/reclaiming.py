"""Takes back what was borrowed: who may ask, whom it costs (``shared/scheduling/queues/reclaim/``), when it is over.

    a unit that a limit holds back --reserved: it counts already--> evictions --all gone--> it goes before all others
    a unit that no node takes --the node, or nodes, where the fewest must go--> nominated, as in any preemption
    a limit below what is used --> evictions in proportion

A look makes one attempt per queue, beside those whose victims still leave; a search for a group goes on over turns.
What the binder did with an eviction is noted with all other nominations. A victim that may not be evicted (a budget) is
passed over for a while, and another is found; those that do not leave end the attempt, and it is made again.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.state import State
from services.coordinator.preemption.evictions import REFUSED, UNKNOWN, PastEviction
from services.coordinator.preemption.nominations import Making, Nominations
from services.coordinator.queues.rooms import GroupRoom, NodeRoom
from shared.model.pod import Pod
from shared.scheduling.cycle.feasibility import failure_message
from shared.scheduling.groups.preemption import places_to_empty
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry, QueuedGroup
from shared.scheduling.queues.nodes import Charge, Waiting
from shared.scheduling.queues.reclaim.lowered import over_limit
from shared.scheduling.queues.reclaim.owed import still_owed
from shared.scheduling.queues.reclaim.search import Reclaim, reclaim, search
from shared.scheduling.queues.reclaim.victims import Stock
from shared.scheduling.queues.structure import Structure
from shared.scheduling.queues.turns import Turns
from shared.wire.messages import Eviction, EvictionReason

EVERY_S, AGAIN_S = 1.0, 0.1
"""How often queues are looked at, and how soon again where room was made for some units: the next may be many."""

GIVE_UP_S = 60.0
"""Victims that have not begun to leave after so long are not waited for any more; nor asked again that may not go."""

NODES_TRIED = 16
"""Nodes on which one attempt is tried, those with the most borrowed pods first."""

QUEUES_PER_LOOK = 16

HEADS_PER_QUEUE = 16
"""Units of one queue that its limits hold back, for which somebody is looked for at a time."""

SHAPES_LOOKED_AT = 256
"""Kinds of units of one queue among which they are."""

UNITS_TRIED = 4
"""Units of one queue that no node takes, for which room is looked for at a time."""

UNITS_LOOKED_AT = 64
"""Those among which they are."""

PODS_WEIGHED = 20_000
"""Pods weighed as victims after which a look ends; the next goes on with the next queue."""

WORK_PER_TURN = 25_000
"""Of a search for a group, in nodes looked at: some 10 ms."""

FOLLOWED_PER_LOOK = 256
"""Victims of nominations that are looked after in one look."""


@dataclass(slots=True)
class _Attempt:
    """``victims``: uids that are still there."""

    victims: set[str]
    at: float


@dataclass(frozen=True, slots=True)
class _Choice:
    """What a search found for a group. ``seen``: what queues and nodes were like when it began; ``nodes_version``: in
    which topology domains nodes were."""

    victims: tuple[Charge, ...]
    room: GroupRoom
    seen: Hashable
    nodes_version: int


@dataclass(frozen=True, slots=True)
class _Search:
    """Under way for the group ``key``."""

    key: str
    structure: Structure
    steps: Generator[int, None, _Choice | None]


class Reclaimer:
    """One term's."""

    def __init__(self, state: State, ledger: Ledger, nominations: Nominations) -> None:
        self._state = state
        self._ledger = ledger
        self._nominations = nominations
        self._looked_at = 0.0
        self.attempts: dict[tuple[str, str], _Attempt] = {}
        """By queue, and the unit for which it is; "" for nobody: a lowered limit."""
        self._search: _Search | None = None
        self._asked: dict[str, Making] = {}
        """Victims of nominations that count as leaving."""
        self._refused: dict[str, float] = {}
        """Victims that may not be evicted, by uid: until when they are passed over."""
        self._next = 0

    def wake_at(self) -> float | None:
        """When queues are to be looked at again."""
        if self._search is not None:
            return self._state.now
        busy = self.attempts or any(q.reclaim or q.preempts_within for q in self._state.queues.queues.values())
        return self._looked_at + EVERY_S if busy else None

    def step(self, turns: Turns) -> None:
        """Search on; look at the queues that may take something back, and at those that wait for victims to leave."""
        state, tree = self._state, self._state.queues
        if state.paused is not None:
            return
        if self._search is not None:
            self._search_on(self._search, turns)
        if state.now < self._looked_at + EVERY_S:
            return
        self._looked_at = state.now
        self._refused = {uid: until for uid, until in self._refused.items() if until > state.now}
        for (name, unit), attempt in list(self.attempts.items()):
            self._follow(name, unit, attempt)
        self._follow_nominations()
        names = sorted(name for name, queue in tree.queues.items() if queue.reclaim or queue.preempts_within)
        stock = self._stock()
        for _ in range(min(len(names), QUEUES_PER_LOOK)):
            self._next = (self._next + 1) % len(names)
            self._look(names[self._next], turns, stock)
            if stock.weighed >= PODS_WEIGHED:
                break

    def _stock(self, among: Iterable[str] | None = None) -> Stock:
        return Stock(self._state.queues, self._state.now, among=among, but=self._refused)

    # --- a limit holds units back -------------------------------------------------------------------------------

    def _look(self, name: str, turns: Turns, stock: Stock) -> None:
        tree, state = self._state.queues, self._state
        queue = tree.queues[name]
        lowered = over_limit(tree, name, state.now, stock) if (name, "") not in self.attempts else Reclaim()
        if lowered.victims:
            self._evict(name, "", lowered.victims)
            return
        line = tree.structure.nodes[name].own
        heads = [head[1] for shape in islice(line.held, SHAPES_LOOKED_AT) if (head := shape.head()) is not None]
        for unit in sorted(heads, key=line.order_key)[:HEADS_PER_QUEUE]:
            blocked = tree.blocked(line, unit.amounts)
            if blocked is None or blocked.problem:
                continue
            waited_s = turns.waited_s(unit.key, state.now)
            found = reclaim(tree, unit, state.now, waited_s=waited_s, blocked=blocked, stock=stock)
            if found.victims:
                tree.reserve(unit)
                self._evict(name, unit.key, found.victims)
                return
        if queue.reclaim:
            self._look_at_parked(name, turns, stock)

    # --- no node takes units ------------------------------------------------------------------------------------

    def _look_at_parked(self, name: str, turns: Turns, stock: Stock) -> None:
        """Some units of the queue that no node takes: what was borrowed may be in their way. The next look goes on with
        those behind them."""
        state, parked = self._state, turns.parked.get(name, {})
        tried = 0
        for key in list(islice(parked, UNITS_LOOKED_AT)):
            if tried >= UNITS_TRIED or stock.weighed >= PODS_WEIGHED:
                return
            group = state.queue.groups.get(key)
            if group is not None and self._search is not None:
                continue  # one at a time
            if (since := parked.pop(key, None)) is None:
                continue  # it was roused meanwhile
            parked[key] = since
            waits = self._waits(key, turns)
            if waits is None:
                continue
            tried += 1
            pods, unit = waits
            if state.queues.blocked(unit.line, unit.amounts) is not None:
                continue
            waited_s = max(state.now - since, turns.waited_s(key, state.now))
            if group is not None:
                self._search = _Search(key, state.queues.structure, self._seek(key, pods, unit, waited_s))
            elif self._make_room_on_a_node(pods[0], unit, waited_s, turns, stock):
                self._looked_at = state.now - EVERY_S + AGAIN_S  # there may be more of them

    def _waits(self, key: str, turns: Turns) -> tuple[list[Pod], Waiting] | None:
        """The pods of a parked unit, and the unit as if it stood in its queue's line; None: it is not parked, never
        preempts, or room is made for it already."""
        state = self._state
        unit: QueuedGroup | Entry | None = state.queue.groups.get(key) or state.queue.entries.get(key)
        if unit is None:
            return None
        members = unit.in_order() if isinstance(unit, QueuedGroup) else [unit]
        pods = [member.pod for member in members if member.place is Place.UNSCHEDULABLE]
        if not pods or any(pod.nominated_node or pod.uid in self._nominations.made for pod in pods):
            return None
        return None if pods[0].never_preempts else (pods, state.queues.stand_in(turns.waiting(unit)))

    def _make_room_on_a_node(self, pod: Pod, unit: Waiting, waited_s: float, turns: Turns, stock: Stock) -> bool:
        """For a lone pod: where the fewest must go."""
        state, best = self._state, None
        prefiltered = state.constraints.prefiltered(pod)
        for node in self._nodes(unit, stock):
            room, there = NodeRoom(state, prefiltered, node), self._stock(state.cluster.index.uids_on(node))
            found = reclaim(state.queues, unit, state.now, waited_s=waited_s, room=room, stock=there)
            stock.weighed += there.weighed
            if found.victims and (best is None or len(found.victims) < len(best[1].victims)):
                best = node, found
                if len(found.victims) == 1:
                    break
        if best is None:
            return False
        self._nominate(turns, {pod.uid: best[0]}, best[1].victims, pod, unit)
        return True

    def _nodes(self, unit: Waiting, stock: Stock) -> list[str]:
        """Where pods stand that may have been borrowed, the most first."""
        state, tree, counted = self._state, self._state.queues, dict[str, int]()
        for name, node in tree.structure.nodes.items():
            over = any(node.own.used.get(n, 0) > node.guaranteed.get(n, 0) for n, _ in unit.amounts)
            if not over or name == unit.line.name:
                continue
            stock.weighed += len(node.own.charges)
            for uid in node.own.charges:
                account = state.cache.accounts.get(uid)
                if account is not None and account.assumed_at is None and account.node_name in state.cache.table.row_of:
                    counted[account.node_name] = counted.get(account.node_name, 0) + 1
        return sorted(counted, key=lambda name: (-counted[name], name))[:NODES_TRIED]

    # --- no nodes take a group ----------------------------------------------------------------------------------

    def _seek(self, key: str, pods: list[Pod], unit: Waiting, waited_s: float) -> Generator[int, None, _Choice | None]:
        """For members that go together, over all nodes, or over those of one topology domain after the other."""
        state, tree = self._state, self._state.queues
        group = state.groups.group(key)
        if group is None:
            return None
        standing = (state.cluster.index.get(uid) for uid in state.cluster.members.get(key, ()))
        bound = [pod for pod in standing if pod is not None and not pod.terminating]
        for allowed in places_to_empty(state.cluster, state.feasibility, group, pods, bound):
            room = GroupRoom(state, pods, unit, max(1, state.groups.lacking(key)), allowed)
            seen, nodes_version, stock = self._seen(), state.nodes_version, self._stock(room.helpful())
            found: Reclaim = yield from search(tree, unit, state.now, waited_s=waited_s, room=room, stock=stock)
            if found.victims:
                return _Choice(found.victims, room, seen, nodes_version)
            if found.fits:
                return None
        return None

    def _search_on(self, under_way: _Search, turns: Turns) -> None:
        """A part of the search; where it ends in a choice that stands, the members are nominated."""
        state, left = self._state, WORK_PER_TURN
        if under_way.structure is not state.queues.structure:
            self._search = None  # the queues themselves have changed: it begins anew with the next look
            return
        try:
            while left > 0:
                left -= next(under_way.steps)
        except StopIteration as end:
            self._search = None
            choice: _Choice | None = end.value
            if choice is not None:
                self._conclude(under_way.key, choice, turns)

    def _conclude(self, key: str, choice: _Choice, turns: Turns) -> None:
        """What was chosen over some turns is asked once more of the moment, unless nothing has changed."""
        state, tree = self._state, self._state.queues
        waits = self._waits(key, turns)
        if waits is None:
            return
        pods, unit = waits
        room, victims = choice.room, choice.victims
        if choice.seen != self._seen():
            if room.confined and choice.nodes_version != state.nodes_version:
                return  # the domain may be of other nodes by now
            victims = tuple(pod for pod in victims if tree.charges.get(pod.uid) is pod and not pod.leaving)
            room = room.anew(pods, unit, max(1, state.groups.lacking(key)))
            if not victims or tree.blocked(unit.line, unit.amounts) is not None or not still_owed(tree, unit, victims):
                return
            if not room.fits(victims):
                return
        self._nominate(turns, room.nodes, victims, pods[0], unit, key)

    def _seen(self) -> Hashable:
        return self._state.queues.version, self._state.cluster.table.clock, self._state.cluster.objects_version

    # --- who leaves ---------------------------------------------------------------------------------------------

    def _nominate(
        self, turns: Turns, nodes: dict[str, str], leaving: Iterable[Charge], pod: Pod, unit: Waiting, group: str = ""
    ) -> None:
        """The nominations are the reservation; the victims are asked once they are stored."""
        state, index = self._state, self._state.cluster.index
        victims = [victim for charge in leaving if (victim := index.get(charge.uid)) is not None]
        message = failure_message(state.constraints.diagnosis(pod))
        making = self._nominations.make(
            nodes, victims, frozenset(), message, group=group, reason=EvictionReason.RECLAIM
        )
        for victim in victims:
            state.queues.leave(victim.uid)
            self._asked[victim.uid] = making
        turns.expect(state.cluster.nominated_to, state.queue.entries)
        state.stats.reclaimed += len(victims)
        state.log("quota_reclaimed", queue=unit.line.name, unit=unit.key, victims=len(victims))

    def _evict(self, name: str, unit: str, victims: Iterable[Charge]) -> None:
        """For the unit, "" for nobody, that a limit of the queue, or of one above, holds back."""
        evictions, before = self._ask(name, unit, [charge.uid for charge in victims]), self.attempts.get((name, unit))
        waited_for = before.victims if before is not None else set[str]()
        self.attempts[name, unit] = _Attempt({one.uid for one in evictions} | waited_for, self._state.now)
        self._state.stats.reclaimed += len(evictions)
        self._state.log("quota_reclaimed", queue=name, unit=unit, victims=len(evictions))

    def _ask(self, name: str, unit: str, uids: Iterable[str]) -> list[Eviction]:
        """Ask those to leave that stand and do not leave yet."""
        state, evictions = self._state, list[Eviction]()
        preemptor, reason = self._uid_of(unit), EvictionReason.RECLAIM if unit else EvictionReason.OVER_LIMIT
        by = state.queue.entries.get(preemptor)
        for uid in uids:
            pod, account, charge = (
                state.cluster.index.get(uid), state.cache.accounts.get(uid), state.queues.charges.get(uid)
            )  # fmt: skip
            if pod is None or account is None or charge is None or pod.terminating:
                continue
            state.queues.leave(uid)
            evictions.append(Eviction(uid, pod.namespace, pod.name, preemptor, account.node_name, reason=reason))
            state.evicted.asked(
                PastEviction(
                    state.now, uid, pod.namespace, pod.name, charge.priority, account.node_name, preemptor,
                    by.pod.key if by is not None else f"queue {name}", by.pod.priority if by is not None else 0,
                )
            )  # fmt: skip
        if evictions:
            self._ledger.evict(evictions)
        return evictions

    def _uid_of(self, unit: str) -> str:
        group = self._state.queue.groups.get(unit)
        return next(iter(group.members)) if group is not None and group.members else unit

    def _follow(self, name: str, unit: str, attempt: _Attempt) -> None:
        """Whether the victims have gone, or will not; also where the unit itself is gone, or went, or was given up."""
        state, tree = self._state, self._state.queues
        attempt.victims = {uid for uid in attempt.victims if uid in tree.charges}
        if not attempt.victims:
            del self.attempts[name, unit]
            if unit in tree.reserved:
                tree.due[unit] = None
            return
        stay = [uid for uid in sorted(attempt.victims) if not self._leaves(uid)]
        if not unit or unit in tree.reserved:
            self._ask(name, unit, [uid for uid in stay if state.evicted.outcome(uid) == UNKNOWN])
        refused = [uid for uid in stay if state.evicted.outcome(uid) == REFUSED]
        given_up = refused or (stay if state.now >= attempt.at + GIVE_UP_S else [])
        for uid in given_up:
            tree.leave(uid, leaving=False)
            self._refused[uid] = state.now + GIVE_UP_S
            attempt.victims.discard(uid)
        if given_up and (waiting := tree.reserved.get(unit)) is not None:
            tree.add(waiting)  # the others leave as they were asked to; somebody else may go in place of these

    def _follow_nominations(self) -> None:
        """Victims of nominations that were given up, and who did not leave, may be asked again."""
        made = self._nominations.made
        for uid in list(islice(self._asked, FOLLOWED_PER_LOOK)):
            making = self._asked.pop(uid)
            if any(made.get(one) is making for one in making.pods) or self._leaves(uid):
                self._asked[uid] = making  # behind those that were looked at longer ago
                continue
            self._state.queues.leave(uid, leaving=False)
            if self._state.evicted.outcome(uid) == REFUSED:
                self._refused[uid] = self._state.now + GIVE_UP_S

    def _leaves(self, uid: str) -> bool:
        pod = self._state.cluster.index.get(uid)
        return pod is not None and pod.terminating
