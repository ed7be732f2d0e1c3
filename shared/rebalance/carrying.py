"""Carrying a plan out: events in, instructions out; batch by batch, and nobody is evicted for whom no room is kept.

    waiting --Reserve--> reserving --kept on the target--> reserved --Evict--> leaving --its room was taken--> done
                             |                                |                   |
                             +-- not in time, elsewhere, gone +-- refused         +-- nobody came, or went elsewhere
                                 (nothing was evicted)            (it stays)          (the pod's owner has replaced it)

Whatever ends a move gives its reservation back, unless somebody uses it. A batch ends when each of its moves has; too
many failures, or one replacement that did not come where it was meant to, end the whole: the cluster is not as it was
planned for. Whoever carries this out may die at any step: who was not evicted stands, who was evicted is replaced by
its owner, and reservations end by their time to live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from shared.rebalance.history import PastMove
from shared.rebalance.plan import Move

FEWEST_TO_STOP = 3


class CarryingPatience(Struct, frozen=True):
    """Seconds for each step of a move; ``failed_part``: more of the moves so far than this have failed: it ends."""

    reserve_s: float = 30.0
    evict_s: float = 60.0
    again_s: float = 2.0
    arrive_s: float = 180.0
    failed_part: float = 0.3

    @property
    def time_to_live_s(self) -> int:
        """Of a reservation: longer than all that is waited for."""
        return int(self.reserve_s + self.evict_s + self.arrive_s) + 60


class MoveState(Enum):
    """Where a move is."""

    WAITING = "waiting"
    RESERVING = "reserving"
    RESERVED = "reserved"
    LEAVING = "leaving"
    DONE = "done"
    FAILED = "failed"


TRANSITIONS = {
    MoveState.WAITING: {MoveState.RESERVING, MoveState.FAILED},
    MoveState.RESERVING: {MoveState.RESERVED, MoveState.FAILED},
    MoveState.RESERVED: {MoveState.LEAVING, MoveState.FAILED},
    MoveState.LEAVING: {MoveState.DONE, MoveState.FAILED},
    MoveState.DONE: set[MoveState](),
    MoveState.FAILED: set[MoveState](),
}


class Reserve(Struct, frozen=True):
    """Ask for room for the move's replacement."""

    move: Move


class EvictMoved(Struct, frozen=True):
    """Ask the eviction API. ``uid``, ``name``: of the pod that stands there now."""

    move: Move
    uid: str
    name: str


class GiveBack(Struct, frozen=True):
    """The move's reservation is not needed any more."""

    move: Move


CarryingInstruction = Reserve | EvictMoved | GiveBack


class RoomTold(Struct, frozen=True):
    """A move's reservation as it is now. ``phase``: of the object, "" where it is gone; ``taken_by``: the pod that used
    it up."""

    step: str
    phase: str
    node: str = ""
    message: str = ""
    taken_by: str = ""


class ReserveRefused(Struct, frozen=True):
    """The API server did not take the reservation."""

    step: str
    why: str


class EvictionAnswered(Struct, frozen=True):
    """``refused``: it will not be evicted, "" where it is; ``later``: ask again."""

    step: str
    refused: str = ""
    later: bool = False


class PodWatched(Struct, frozen=True):
    """A pod as a watch shows it. ``owner``: ``kind/name`` of its controller; ``took``: the step of the move whose room
    it took; ``gone``: it leaves, or has left."""

    uid: str
    namespace: str
    name: str
    owner: str
    node: str = ""
    took: str = ""
    gone: bool = False


CarryingEvent = RoomTold | ReserveRefused | EvictionAnswered | PodWatched


@dataclass(slots=True)
class Underway:
    """One move of the pod ``uid``. ``owner``: ``kind/name`` of its controller; ``why``: of a failure;
    ``replacement``: uid and name of the pod that came for it."""

    move: Move
    owner: str
    uid: str = ""
    name: str = ""
    state: MoveState = MoveState.WAITING
    deadline: float = 0.0
    ask_at: float = 0.0
    asked: bool = False
    gone: bool = False
    why: str = ""
    replacement: tuple[str, str] = ("", "")


@dataclass(slots=True)
class Carrying:
    """``owners``: ``kind/name`` of each move's controller by uid; ``known``: uids of pods that stood before."""

    moves: Sequence[Move]
    owners: dict[str, str]
    known: set[str]
    patience: CarryingPatience = field(default_factory=CarryingPatience)
    stopped: str = ""
    _steps: dict[str, Underway] = field(default_factory=dict)
    _batch: int = 0
    _now: float = 0.0
    _out: list[CarryingInstruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        for move in self.moves:
            owner = self.owners.get(move.uid, "")
            self._steps[move.step] = Underway(move, owner, move.uid, move.name)

    @property
    def underway(self) -> list[Underway]:
        """Every move in the plan's order."""
        return list(self._steps.values())

    @property
    def over(self) -> bool:
        """Whether nothing is to be done any more."""
        return not self._in_progress() and (bool(self.stopped) or not self._later())

    def start(self, now: float) -> Sequence[CarryingInstruction]:
        """The first batch."""
        self._now = now
        self._next_batch()
        return self._told()

    def tell(self, event: CarryingEvent, now: float) -> Sequence[CarryingInstruction]:
        """What follows from an event."""
        self._now = now
        match event:
            case RoomTold():
                self._room(event)
            case ReserveRefused(step, why):
                if (one := self._at(step, MoveState.RESERVING)) is not None:
                    self._fail(one, f"no room was reserved: {why}", reserved=False)
            case EvictionAnswered():
                self._answered(event)
            case PodWatched():
                self._seen(event)
        return self._settled()

    def tick(self, now: float) -> Sequence[CarryingInstruction]:
        """What is due."""
        self._now = now
        for one in self._in_progress():
            if one.state is MoveState.RESERVED and not one.asked and now >= one.ask_at and now < one.deadline:
                self._ask(one)
            elif now >= one.deadline:
                self._late(one)
        return self._settled()

    def due(self) -> float | None:
        """When ``tick`` is wanted; None: no time is set."""
        times = [
            min(one.deadline, one.ask_at) if one.state is MoveState.RESERVED and not one.asked else one.deadline
            for one in self._in_progress()
        ]
        return min(times, default=None)

    def stop(self, why: str) -> Sequence[CarryingInstruction]:
        """Begin nothing more: who has not left stays. Those that have left are not waited for: their room stays kept
        until they come, or its time to live is over."""
        self.stopped = self.stopped or why
        for one in self._in_progress():
            self._fail(one, f"stopped: {why}", reserved=one.state is not MoveState.LEAVING)
        return self._told()

    def expected(self) -> set[str]:
        """Steps of moves whose pod has left and whose replacement is on its way."""
        return {one.move.step for one in self._in_progress() if one.state is MoveState.LEAVING}

    def past(self, now: float) -> tuple[PastMove, ...]:
        """What the history is told: everybody who left, wherever the replacement is."""
        return tuple(
            PastMove(one.move.workload, one.move.source, one.move.target, now, one.replacement[0])
            for one in self.underway
            if one.gone or one.state is MoveState.DONE
        )

    # --- inside -------------------------------------------------------------------------------------------------

    def _in_progress(self) -> list[Underway]:
        waiting = (MoveState.WAITING, MoveState.DONE, MoveState.FAILED)
        return [one for one in self._steps.values() if one.state not in waiting]

    def _later(self) -> list[Underway]:
        return [one for one in self._steps.values() if one.state is MoveState.WAITING]

    def _at(self, step: str, *states: MoveState) -> Underway | None:
        one = self._steps.get(step)
        return one if one is not None and one.state in states else None

    def _go(self, one: Underway, state: MoveState) -> None:
        if state not in TRANSITIONS[one.state]:
            raise ValueError(f"{one.move.key} goes from {one.state.value} to {state.value}")
        one.state = state

    def _next_batch(self) -> None:
        while not self.stopped and not self._in_progress() and (later := self._later()):
            self._batch = min(one.move.batch for one in later)
            for one in later:
                if one.move.batch == self._batch:
                    self._begin(one)

    def _begin(self, one: Underway) -> None:
        before = [
            other
            for other in self._steps.values()
            if other.move.uid == one.move.uid and other.move.batch < one.move.batch
        ]
        if before:  # it went over a third node
            one.uid, one.name = before[-1].replacement
            if before[-1].state is not MoveState.DONE or not one.uid:
                self._go(one, MoveState.FAILED)
                one.why = "its first step was not made"
                return
        self._go(one, MoveState.RESERVING)
        one.deadline = self._now + self.patience.reserve_s
        self._out.append(Reserve(one.move))

    def _room(self, event: RoomTold) -> None:
        one = self._at(event.step, MoveState.RESERVING, MoveState.RESERVED, MoveState.LEAVING)
        if one is None:
            return
        leaving = one.state is MoveState.LEAVING
        if event.phase == "Succeeded" and leaving:
            self._go(one, MoveState.DONE)
        elif event.phase == "Succeeded":
            self._fail(one, f"its room was taken by {event.taken_by or 'another pod'} before it left", reserved=False)
        elif event.phase in ("Failed", "Expired", ""):
            what = event.message or (event.phase.lower() if event.phase else "it was deleted")
            self._fail(one, f"the reservation ended: {what}", reserved=bool(event.phase))
            if leaving:
                self.stopped = self.stopped or f"{one.move.key} has left, and its reservation ended: {what}"
        elif event.phase == "Available" and one.state is MoveState.RESERVING:
            if event.node != one.move.target:
                self._fail(one, f"room was reserved on {event.node}, not on {one.move.target}")
                return
            self._go(one, MoveState.RESERVED)
            one.deadline = self._now + self.patience.evict_s
            self._ask(one)
        elif one.state is MoveState.RESERVING:
            one.why = event.message

    def _ask(self, one: Underway) -> None:
        one.asked = True
        self._out.append(EvictMoved(one.move, one.uid, one.name))

    def _answered(self, event: EvictionAnswered) -> None:
        one = self._at(event.step, MoveState.RESERVED)
        if one is None:
            return
        one.asked = False
        if not event.refused:
            self._left(one)
        elif event.later:
            one.why, one.ask_at = event.refused, self._now + self.patience.again_s
        else:
            self._fail(one, f"the eviction was refused: {event.refused}")

    def _left(self, one: Underway) -> None:
        self._go(one, MoveState.LEAVING)
        one.gone, one.why = True, ""
        one.deadline = self._now + self.patience.arrive_s

    def _seen(self, event: PodWatched) -> None:
        if event.took and not event.gone:
            other = self._at(event.took, MoveState.LEAVING, MoveState.DONE)
            if other is not None:
                other.replacement = event.uid, event.name
        before = (MoveState.RESERVING, MoveState.RESERVED)
        one = next((one for one in self._in_progress() if one.uid == event.uid and one.state in before), None)
        if one is not None and event.gone:
            if one.state is MoveState.RESERVED:
                self._left(one)  # whoever asked it to: its room is kept
            else:
                self._fail(one, "it left before room was reserved")
            return
        if event.uid in self.known or not event.node or event.gone:
            return
        self.known.add(event.uid)
        if event.took or not event.owner:
            return
        key = event.owner, event.namespace
        fitting = [
            o for o in self._in_progress() if o.state is MoveState.LEAVING and (o.owner, o.move.namespace) == key
        ]
        if fitting:
            one = fitting[0]
            one.replacement = event.uid, event.name
            why = f"its replacement {event.name} was bound to {event.node}, not to {one.move.target}"
            self._fail(one, why)
            self.stopped = self.stopped or f"{one.move.key}: {why}"

    def _late(self, one: Underway) -> None:
        wait = {MoveState.RESERVING: self.patience.reserve_s, MoveState.RESERVED: self.patience.evict_s}
        after = f"within {wait.get(one.state, self.patience.arrive_s):g} s{f' ({one.why})' if one.why else ''}"
        if one.state is MoveState.RESERVING:
            self._fail(one, f"no room was reserved {after}")
        elif one.state is MoveState.RESERVED:
            self._fail(one, f"it was not evicted {after}")
        else:
            why = f"no replacement came {after}: is its owner scaled down, paused or over a quota?"
            self._fail(one, why)
            self.stopped = self.stopped or f"{one.move.key}: {why}"

    def _fail(self, one: Underway, why: str, *, reserved: bool = True) -> None:
        self._go(one, MoveState.FAILED)
        one.why = why
        if reserved:
            self._out.append(GiveBack(one.move))

    def _settled(self) -> Sequence[CarryingInstruction]:
        ended = [one for one in self.underway if one.state in (MoveState.DONE, MoveState.FAILED)]
        failed = sum(one.state is MoveState.FAILED for one in ended)
        if not self.stopped and failed >= FEWEST_TO_STOP and failed > self.patience.failed_part * len(ended):
            self.stopped = f"{failed} of {len(ended)} moves failed"
        self._next_batch()
        return self._told()

    def _told(self) -> Sequence[CarryingInstruction]:
        out, self._out = self._out, []
        return out
