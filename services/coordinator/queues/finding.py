"""Whom to evict for one unit that waits for what was borrowed: on which node, or for which room over many.

    nodes, the likeliest first (``lent.py``) --tried, where others are found too--> where the fewest must go

What is found on other nodes meanwhile serves the next unit of the kind: its node alone is tried again, since others may
leave there by now. Room that those make who leave already costs nobody, and is the first choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.evictions import ASKED, EVICTED
from services.coordinator.preemption.made_room import MadeRoom
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.queues.leaving import GIVE_UP_S, Leaving
from services.coordinator.queues.lent import Lent
from services.coordinator.queues.rooms import GroupRoom, NodeRoom
from shared.model.pod import Pod
from shared.scheduling.queues.nodes import Blocked, Charge, WaitingUnit
from shared.scheduling.queues.reclaim.search import Work, search
from shared.scheduling.queues.reclaim.victims import Stock
from shared.wire.messages import EvictionReason

NODES_TRIED = 16
"""Nodes on which one attempt is tried, and on which somebody is found ahead; the next goes on behind them."""


class ChosenLeavers(NamedTuple):
    """Who is to leave, and the room that was asked; None: nodes were not. ``awaited``: nobody else needs to, since
    those leave already."""

    room: NodeRoom | GroupRoom | None
    victims: Sequence[Charge]
    awaited: Sequence[Pod] = ()


class Finder:
    """Finds whom to evict for one unit, in one term."""

    def __init__(self, state: CoordinatorState, nominations: Nominations, leaving: Leaving, lent: Lent) -> None:
        self._state = state
        self._nominations = nominations
        self._leaving = leaving
        self._lent = lent

    def stock(self, among: Iterable[str] | None = None) -> Stock:
        """Who may be evicted now. ``among``: uids of those that would help; None: all do."""
        return Stock(self._state.queues, self._state.now, among=among, but=self._leaving.refused)

    def leaves_for(self, unit: WaitingUnit) -> Callable[[Pod], bool]:
        """Whether a pod's room may be awaited for the unit: the pod was evicted, not long ago, or is to leave for
        another unit of the same queue, to which it was owed."""
        state, leaving = self._state, self._nominations.leaving
        turns = state.queue.turns

        def same_queue(made_room: MadeRoom) -> bool:
            pod = next(iter(made_room.pods.values()), None)
            return (
                made_room.reason == EvictionReason.RECLAIM
                and pod is not None and turns is not None and turns.queue_of(pod) == unit.line.name
            )  # fmt: skip

        def leaves(pod: Pod) -> bool:
            past = state.evicted.of(pod.uid)
            if past is not None and past.outcome in (ASKED, EVICTED) and state.now >= past.at + GIVE_UP_S:
                return False  # it takes long, or does not go
            if past is not None and past.outcome == EVICTED:
                return True
            return any(map(same_queue, leaving.get(pod.uid, ())))

        return leaves

    def on_a_node(
        self, pod: Pod, unit: WaitingUnit, blocked: Blocked | None, waited_s: float, stock: Stock
    ) -> Work[ChosenLeavers]:
        """The node on which the fewest must go, and who. What is found beside it serves the next unit of the kind: so
        one more costs as the nodes that are tried anew for it, mostly one."""
        none = ChosenLeavers(None, ())
        if pod.never_preempts:
            return none
        ranking = yield from self._lent.ranking(pod, unit)
        if ranking is None:
            return none
        tried = dict[str, ChosenLeavers]()

        def found_on(node: str) -> Work[ChosenLeavers]:
            chosen = tried.get(node)
            if chosen is None:
                state, of_one = self._state, self.stock(self._state.cluster.index.uids_on(node))
                if node not in state.cache.table.row_of:
                    return none
                room = NodeRoom(state, pod, state.constraints.prefiltered(pod), node)
                awaited = room.awaited(self.leaves_for(unit)) if blocked is None else ()
                yield room.work
                victims: Sequence[Charge] = ()
                if not awaited:
                    victims = yield from self.who(unit, room, blocked, waited_s, of_one, stock, tried=bool(tried))
                stock.weighed += of_one.weighed
                chosen = tried[node] = ChosenLeavers(room, victims, awaited)
            return chosen

        while True:
            # No node is better than one on which a single pod must go: the others are left for the next unit.
            while (ranking.fewest is None or ranking.fewest > 1) and max(len(ranking), len(tried)) < NODES_TRIED:
                if (untried := ranking.untried()) is None:
                    break
                at, node = untried
                chosen = yield from found_on(node)
                if chosen.victims or chosen.awaited:
                    ranking.found(at, node, len(chosen.victims))
            if (best := ranking.best()) is None:
                self._lent.tried_in_vain(pod, unit, ranking)
                return none
            at, node = best
            as_of_now = node in tried
            chosen = yield from found_on(node)
            if not chosen.victims and not chosen.awaited:
                continue  # whoever was found there is leaving for another by now, or not owed any more
            ranking.found(at, node, len(chosen.victims))
            if as_of_now:
                return chosen  # no other is better, as it was found last

    def who(
        self,
        unit: WaitingUnit,
        room: NodeRoom | GroupRoom,
        blocked: Blocked | None,
        waited_s: float,
        there: Stock,
        stock: Stock,
        *,
        tried: bool = False,
    ) -> Work[Sequence[Charge]]:
        """Who must go for that room; under a limit rather those who free some of it too, else others beside them, else
        (not where one was ``tried`` before) in the order in which they are owed. ``there``: those that stand where it
        may be made, ``stock``: all."""
        tree, now = self._state.queues, self._state.now
        if blocked is None:
            found = yield from search(tree, unit, now, waited_s=waited_s, room=room, stock=there)
            return found.victims
        both = yield from search(tree, unit, now, waited_s=waited_s, room=room, blocked=blocked, stock=there)
        if both.victims:
            return both.victims
        for_room = yield from search(tree, unit, now, waited_s=waited_s, room=room, stock=there)
        if not for_room.victims and not for_room.fits:
            return ()
        gone = for_room.victims
        beside = yield from search(tree, unit, now, waited_s=waited_s, blocked=blocked, stock=stock, gone=gone)
        if beside.victims or beside.fits:
            return (*gone, *beside.victims)
        if tried:
            return ()
        mixed = yield from search(tree, unit, now, waited_s=waited_s, room=room, blocked=blocked, stock=stock)
        return mixed.victims
