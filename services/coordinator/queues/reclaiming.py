"""Takes back what was borrowed: who may ask, whom it costs (``shared/scheduling/queues/reclaim/``).

    a unit that a limit holds back --reserved: it counts already--> evictions --all gone--> it goes before all others
    a unit that no node takes --the node, or nodes, where the fewest must go--> nominated, as in any preemption
    a limit below what is used --> evictions in proportion

A look serves the units of one queue after the other, beside those whose victims still leave (``leaving.py``), and
follows those; it goes on with a queue while it finds room there, so a burst costs what its units do, however many wait.
It, and the search for a group beside it, are made in parts over turns, each as large as the turn's work allows; what
was chosen over more than one is asked once more of the moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.state import CoordinatorState
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.queues.finding import ChosenLeavers, Finder
from services.coordinator.queues.leaving import Leaving
from services.coordinator.queues.lent import Lent
from services.coordinator.queues.rooms import GroupRoom, NodeRoom
from shared.model.pod import Pod
from shared.model.units.queue import UnitOrder
from shared.scheduling.cycle.feasibility import failure_message
from shared.scheduling.groups.preemption import places_to_empty
from shared.scheduling.places import Place
from shared.scheduling.queue_entries import Entry, QueuedGroup
from shared.scheduling.queues.nodes import Blocked, Charge, WaitingUnit
from shared.scheduling.queues.reclaim.lowered import over_limit
from shared.scheduling.queues.reclaim.search import Work, by_own_pods, search, still_owed
from shared.scheduling.queues.reclaim.victims import Stock
from shared.scheduling.queues.structure import Structure
from shared.scheduling.queues.turns import QueueTurns
from shared.scheduling.reasons import UNSCHEDULABLE
from shared.wire.messages import EvictionReason

EVERY_S, AGAIN_S = 1.0, 0.1
"""How often queues are looked at, and how soon again where room was made for some units: the next may be many; or where
one came to wait."""

QUEUES_PER_LOOK = 16

HEADS_PER_QUEUE = 16
"""Units of one queue that its limits hold back, for which somebody is looked for in vain at a time."""

SHAPES_LOOKED_AT = 256
"""Kinds of units of one queue among which they are."""

UNITS_TRIED = 4
"""Units of one queue that no node takes, for which room is looked for in vain at a time."""

UNITS_LOOKED_AT = 64
"""Those among which they are."""

UNITS_SERVED = 256
"""Units of one queue for which room is made before others are looked at."""

PODS_WEIGHED = 20_000
"""Pods weighed as victims after which a look ends; the next goes on with the next queue."""

NODES_PER_WORK = 125
"""Nodes that are looked at in one unit of the turn's work."""

LOOKED = 25
"""Work of a queue or unit that is looked at, in nodes."""


class _Task(Struct, frozen=True):
    """Under way; ends where the queues themselves change, and begins anew with the next look."""

    structure: Structure
    steps: Work[None]


class Reclaimer:
    """Takes back what queues have lent, in one term."""

    def __init__(self, state: CoordinatorState, ledger: Ledger, nominations: Nominations) -> None:
        self._state = state
        self._nominations = nominations
        self._leaving = Leaving(state, ledger, nominations)
        self._looked_at = 0.0
        self._next = 0
        self._again = self._in_vain = False
        """The look under way, or the last, has made room for somebody; has looked for it and made none."""
        self._look: _Task | None = None
        self._search: _Task | None = None
        self.lent = Lent(state)
        self._finder = Finder(state, nominations, self._leaving, self.lent)

    @property
    def under_way(self) -> bool:
        """Whether a look or a search is."""
        return self._search is not None or self._look is not None

    def wake_at(self) -> float | None:
        """When queues are to be looked at again."""
        if self._state.paused is not None:
            return None
        if self.under_way or self._leaving.busy:
            return self._state.now
        turns, queues = self._state.queue.turns, self._state.queues.queues.values()
        if turns is not None and self._may_look_early(turns):
            return self._looked_at + AGAIN_S
        busy = self._leaving.attempts or any(queue.reclaim or queue.preempts_within for queue in queues)
        return self._looked_at + EVERY_S if busy else None

    def step(self, turns: QueueTurns) -> None:
        """Go on with the look at the queues that may take something back and at those that leave, and with the search
        for a group beside it; each may take half of the work there is."""
        state = self._state
        if state.paused is not None:
            self.lent.forget()  # nobody asks for the sums meanwhile
            return
        if self._look is None and state.now >= self._looked_at + (AGAIN_S if self._may_look_early(turns) else EVERY_S):
            self._look = _Task(state.queues.structure, self._over_queues(turns))
        left = state.work * NODES_PER_WORK
        if self._look is not None:
            spared = left // 2 if self._search is not None else 0
            left = spared + self._go_on(self._look, left - spared)
        if self._search is not None:
            left = self._go_on(self._search, left)
        self._leaving.step()
        state.work = max(0, left // NODES_PER_WORK)

    def _may_look_early(self, turns: QueueTurns) -> bool:
        """Whether somebody came to wait since the last look, and that one was not in vain: where nothing can be taken
        back, thousands that come make no look more."""
        return bool(turns.fresh or turns.held_anew) and not self._in_vain

    def _go_on(self, task: _Task, left: int) -> int:
        """At least one part of it; returns what is left of the work."""
        try:
            # `is not`: what the task holds of lines and limits is of a tree that is no more.
            if task.structure is not self._state.queues.structure:
                raise StopIteration
            left -= next(task.steps)
            while left > 0:
                left -= next(task.steps)
        except StopIteration:
            if task is self._search:
                self._search = None
            else:
                self._look = None
                self._looked_at = self._state.now - (EVERY_S - AGAIN_S if self._again else 0.0)
                self._in_vain = self._in_vain and not self._again
        return left

    # --- a look -------------------------------------------------------------------------------------------------

    def _over_queues(self, turns: QueueTurns) -> Work[None]:
        self._again = self._in_vain = turns.held_anew = False
        self.lent.begin()
        yield from self._leaving.follow()
        queues, stock = self._state.queues.queues, self._finder.stock()
        names = sorted(name for name, queue in queues.items() if queue.reclaim or queue.preempts_within)
        for name in [name for name in turns.fresh if name not in queues or not queues[name].reclaim]:
            del turns.fresh[name]  # it reclaims no more
        for _ in range(min(len(names), QUEUES_PER_LOOK)):
            self._next = (self._next + 1) % len(names)
            yield LOOKED
            yield from self._look_at(names[self._next], turns, stock)
            if stock.weighed >= PODS_WEIGHED:
                self._in_vain = True
                break

    @property
    def _version(self) -> Hashable:
        """What counts, the nodes, and what rules read beside them, as of now."""
        state = self._state
        return state.queues.version, state.cluster.table.clock, state.cluster.objects_version

    # --- a limit holds units back -------------------------------------------------------------------------------

    def _look_at(self, name: str, turns: QueueTurns, stock: Stock) -> Work[None]:
        tree = self._state.queues
        queue = tree.queues[name]
        if (name, "") not in self._leaving.attempts:
            lowered = yield from over_limit(tree, name, stock)
            if lowered.victims:
                self._leaving.evict(name, "", lowered.victims)
                return
        yield from self._look_at_held(name, turns, stock)
        if queue.reclaim:
            yield from self._look_at_parked(name, turns, stock)

    def _look_at_held(self, name: str, turns: QueueTurns, stock: Stock) -> Work[None]:
        """Units that limits hold back, the first of each kind, and the next of it where that one was helped."""
        tree = self._state.queues
        line = tree.structure.nodes[name].own
        heads = [head for shape in islice(line.held, SHAPES_LOOKED_AT) if (head := shape.head()) is not None]
        heapq.heapify(heads)
        in_vain = served = 0
        while heads and in_vain < HEADS_PER_QUEUE and served < UNITS_SERVED:
            _, unit = heapq.heappop(heads)
            yield LOOKED
            kinds = line.shapes.values() if line.order is UnitOrder.FIFO else (unit.shape,)
            # `is`: turns lie between; under this key another unit may wait by now.
            blocked = tree.blocked(line, unit.amounts) if tree.units.get(unit.key) is unit else None
            if blocked is None or blocked.problem or not (yield from self._lift(name, unit, blocked, turns, stock)):
                in_vain += 1
                self._in_vain = True
                continue
            served += 1
            self._again = True
            behind = [head for shape in kinds if shape is not None and (head := shape.head()) is not None]
            if behind:
                heapq.heappush(heads, min(behind))

    def _lift(self, name: str, unit: WaitingUnit, blocked: Blocked, turns: QueueTurns, stock: Stock) -> Work[bool]:
        """Look for those that have to leave so that the limit lets the unit go, and a node, or nodes, take it then."""
        tree, began, waited_s = self._state.queues, self._version, turns.waited_s(unit.key, self._state.now)
        if waited_s < tree.queues[name].reclaim_after_s and not by_own_pods(unit, blocked):
            return False
        places = self._places(unit.key)
        if places is None:
            found = yield from search(tree, unit, self._state.now, waited_s=waited_s, blocked=blocked, stock=stock)
            chosen = ChosenLeavers(None, found.victims)
        elif isinstance(places, Pod):
            chosen = yield from self._finder.on_a_node(places, unit, blocked, waited_s, stock)
        else:
            chosen = yield from self._over_nodes(unit.key, places, unit, blocked, waited_s, stock)
        room, victims, _ = chosen
        if not victims or not self._leaving.may_leave(victims):
            return False
        if began != self._version and not self._is_held_back(unit, chosen):
            return False
        # Before anybody is asked: what the victims leave would go to whoever is first in the order by then.
        tree.reserve(unit)
        self._leaving.evict(name, unit.key, victims)
        if isinstance(room, NodeRoom):
            leaving = [pod for one in victims if (pod := self._state.cluster.index.get(one.uid)) is not None]
            self._nominations.keep(room.nodes, leaving, "")
        return True

    def _places(self, key: str) -> Pod | list[Pod] | None:
        """The unit's pod, where no node would take it though the limit let it go, else None; of a group its pods, since
        only a trial over all nodes tells."""
        state = self._state
        if (group := state.queue.groups.get(key)) is None:
            entry = state.queue.entries.get(key)
            return entry.pod if entry is not None and state.constraints.fits_nowhere(entry.pod) else None
        return [entry.pod for entry in group.in_order()]

    def _is_held_back(self, unit: WaitingUnit, chosen: ChosenLeavers) -> bool:
        """Whether a limit still does, and lets the unit go once the victims have left; and, where nodes were asked,
        they take it then."""
        tree, state, (room, victims, _) = self._state.queues, self._state, chosen
        blocked = tree.blocked(unit.line, unit.amounts) if tree.units.get(unit.key) is unit else None
        if blocked is None or blocked.problem:
            return False
        if not still_owed(tree, unit, victims, blocked, nodes=room is not None):
            return False
        if room is None:
            return True
        group, entry = state.queue.groups.get(unit.key), state.queue.entries.get(unit.key)
        entries = group.in_order() if group is not None else [entry] if entry is not None else []
        pods = [one.pod for one in entries]
        now = room.anew(pods, unit) if pods else None
        return now is not None and now.fits(victims)

    # --- no node takes units ------------------------------------------------------------------------------------

    def _look_at_parked(self, name: str, turns: QueueTurns, stock: Stock) -> Work[None]:
        """Some units of the queue that no node takes: what was borrowed may be in their way. Those first that were
        looked at longest ago, with which the next look goes on: who waits gets what he waits for. Then some that came
        since the last look, else thousands for which room is made already would stand before them."""
        yield from self._look_at_some(name, turns, stock, turns.parked)
        yield from self._look_at_some(name, turns, stock, turns.fresh)

    def _look_at_some(
        self, name: str, turns: QueueTurns, stock: Stock, among: Mapping[str, Mapping[str, object]]
    ) -> Work[None]:
        """Those ``among`` the parked ones, in order, until some were asked about in vain."""
        looked, in_vain, served = set[str](), 0, 0
        while len(looked) < UNITS_LOOKED_AT + 2 * served:
            some = [key for key in islice(among.get(name, ()), UNITS_LOOKED_AT) if key not in looked]
            if not some:
                return
            for key in some:
                if in_vain >= UNITS_TRIED or served >= UNITS_SERVED or stock.weighed >= PODS_WEIGHED:
                    return
                looked.add(key)
                came = key in turns.fresh.get(name, ())
                turns.looked_at(name, key)
                yield LOOKED
                found = yield from self._look_at_one(name, key, turns, stock)
                in_vain += found is False
                served += found is True
                self._in_vain = self._in_vain or found is False or (came and not found)

    def _look_at_one(self, name: str, key: str, turns: QueueTurns, stock: Stock) -> Work[bool | None]:
        """Whether room is made for it now; None: it was not asked."""
        state, parked = self._state, turns.parked.get(name, {})
        is_group = key in state.queue.groups
        if is_group and self._search is not None:
            return None  # one at a time
        if (since := parked.pop(key, None)) is None:
            return None  # it was woken meanwhile
        # To the end: the next look goes on with those that were looked at longest ago.
        parked[key] = since
        waits = self._waits(key, turns)
        if waits is None:
            return None
        pods, unit = waits
        blocked = state.queues.blocked(unit.line, unit.amounts)
        if blocked is not None:
            if not blocked.problem and not by_own_pods(unit, blocked):
                state.queue.wake(pods[0].uid, state.now)  # it is held back, and looked at as such
            return False
        waited_s = max(state.now - since, turns.waited_s(key, state.now))
        if waited_s < state.queues.queues[name].reclaim_after_s:
            return None  # the nodes are tried for those of its kind whose time has come
        if is_group:
            seeking = self._make_room_for_a_group(key, pods, unit, waited_s, turns)
            self._search = _Task(state.queues.structure, seeking)
            return False
        return (yield from self._make_room_on_a_node(pods[0], unit, waited_s, turns, stock))

    def _waits(self, key: str, turns: QueueTurns) -> tuple[list[Pod], WaitingUnit] | None:
        """The pods of a parked unit, and the unit as if it stood in its queue's line; None: it is not parked, never
        preempts, room is made for it already, or was made in vain."""
        state = self._state
        unit: QueuedGroup | Entry | None = state.queue.groups.get(key) or state.queue.entries.get(key)
        if unit is None:
            return None
        members = unit.in_order() if isinstance(unit, QueuedGroup) else [unit]
        pods = [member.pod for member in members if member.place is Place.UNSCHEDULABLE]
        if self._nominations.tries.refusal(key):
            return None
        if not pods or any(pod.nominated_node or pod.uid in self._nominations.made for pod in pods):
            return None
        return None if pods[0].never_preempts else (pods, state.queues.stand_in(turns.waiting(unit)))

    def _make_room_on_a_node(
        self, pod: Pod, unit: WaitingUnit, waited_s: float, turns: QueueTurns, stock: Stock
    ) -> Work[bool]:
        """For a lone pod: where the fewest must go. Whether room is made."""
        began = self._version
        chosen = yield from self._finder.on_a_node(pod, unit, None, waited_s, stock)
        if isinstance(chosen.room, NodeRoom) and chosen.awaited:
            made = self._take_what_leaves(unit.key, chosen.room, turns)
        else:
            made = chosen.room is not None and self._conclude(unit.key, chosen.room, chosen.victims, began, turns)
        if not made:
            return False
        self._again = True
        return True

    # --- no nodes take a group ----------------------------------------------------------------------------------

    def _make_room_for_a_group(
        self, key: str, pods: list[Pod], unit: WaitingUnit, waited_s: float, turns: QueueTurns
    ) -> Work[None]:
        """For members that go together."""
        began = self._version
        room, victims, _ = yield from self._over_nodes(key, pods, unit, None, waited_s, self._finder.stock())
        if room is not None and victims:
            self._conclude(key, room, victims, began, turns)

    def _over_nodes(
        self, key: str, pods: list[Pod], unit: WaitingUnit, blocked: Blocked | None, waited_s: float, stock: Stock
    ) -> Work[ChosenLeavers]:
        """Who must go for a group, over all nodes, or over those of one topology domain after the other."""
        state, none = self._state, ChosenLeavers(None, ())
        group = state.groups.as_it_stands(key)
        if group is None:
            return none
        standing = (state.cluster.index.get(uid) for uid in state.cluster.members.get(key, ()))
        bound = [pod for pod in standing if pod is not None and not pod.terminating]
        for allowed in places_to_empty(state.cluster, state.feasibility, group, pods, bound):
            room = GroupRoom(state, pods, unit, allowed)
            yield room.work
            if room.fits(()):
                if blocked is None:
                    return none
                found = yield from search(
                    state.queues, unit, state.now, waited_s=waited_s, blocked=blocked, stock=stock
                )
                return ChosenLeavers(room, found.victims)
            if group.never_preempts or all(pod.never_preempts for pod in pods):
                continue  # a limit may be lifted for it, nodes are not emptied
            there = self._finder.stock(room.helpful())
            victims = yield from self._finder.who(unit, room, blocked, waited_s, there, stock)
            if victims:
                return ChosenLeavers(room, victims)
        return none

    # --- who leaves ---------------------------------------------------------------------------------------------

    def _conclude(
        self, key: str, room: NodeRoom | GroupRoom, victims: Sequence[Charge], began: Hashable, turns: QueueTurns
    ) -> bool:
        """The pods are nominated, which is the reservation, and the victims asked once that is stored: if what was
        chosen stands still."""
        state, tree = self._state, self._state.queues
        waits = self._waits(key, turns)
        if waits is None:
            return False
        pods, unit = waits
        stay = [pod for pod in victims if self._leaving.may_leave((pod,))]
        if began != self._version or len(stay) < len(victims):
            now, victims = room.anew(pods, unit), stay
            if now is None or tree.blocked(unit.line, unit.amounts) is not None:
                return False
            if not victims or not still_owed(tree, unit, victims) or not now.fits(victims):
                return False
            room = now
        leaving = [pod for charge in victims if (pod := state.cluster.index.get(charge.uid)) is not None]
        made_room = self._nominations.make(
            room.nodes, leaving, frozenset(), failure_message(state.constraints.diagnosis(pods[0])),
            group=key if isinstance(room, GroupRoom) else "", reason=EvictionReason.RECLAIM,
            told=UNSCHEDULABLE if isinstance(room, GroupRoom) else state.constraints.reason(pods[0]),
        )  # fmt: skip
        # At once, with the line below: the next unit of this look must find these leaving and this one coming, or
        # it would take back the same share again.
        self._leaving.nominate(made_room.victims)
        turns.expect(state.cluster.nominated_to, state.queue.entries)
        state.stats.reclaimed += len(leaving)
        state.log("quota_reclaimed", queue=unit.line.name, unit=unit.key, victims=len(leaving))
        return True

    def _take_what_leaves(self, key: str, room: NodeRoom, turns: QueueTurns) -> bool:
        """The pod is nominated where others make room that nobody else is to have, if that stands still."""
        state, waits = self._state, self._waits(key, turns)
        if waits is None:
            return False
        pods, unit = waits
        now = room.anew(pods, unit)
        awaited = now.awaited(self._finder.leaves_for(unit)) if now is not None else []
        if now is None or not awaited or state.queues.blocked(unit.line, unit.amounts) is not None:
            return False
        message = failure_message(state.constraints.diagnosis(pods[0]))
        told = state.constraints.reason(pods[0])
        made_room = self._nominations.make(
            now.nodes, awaited, frozenset(), message, reason=EvictionReason.RECLAIM, told=told
        )  # fmt: skip
        self._leaving.nominate(made_room.victims)
        turns.expect(state.cluster.nominated_to, state.queue.entries)
        return True
