"""Carrying a plan out: events in, instructions out; batch by batch, and nobody is evicted for whom no room is kept.

    waiting --Reserve--> reserving --kept on the target--> reserved --Evict--> leaving --its room was taken--> arrived
                             |                                |                   |                              |
                             +-- not in time, elsewhere, gone +-- refused         +-- nobody came                Ready
                                 (nothing was evicted)            (it stays)                                     done

Whatever ends a move gives its reservation back, unless somebody uses it, or its pod may have left: while an eviction
has no answer, or one that says nothing, the room is kept and the move counts as made in the history. A batch ends when
the replacements of its moves are Ready, so that never more than a part of a workload is missing. Too many failures, or
one replacement that does not come, end the whole: the cluster is not as it was planned for; whoever was not asked to
leave by then stays. Whoever carries this out may die at any step: who was not evicted stands, who was evicted is
replaced by its owner, and reservations end by their time to live.

Moves of one owner have interchangeable rooms: where a replacement takes another's, the two moves exchange theirs.
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
    """Seconds for each step of a move. ``answer_s``: within which an eviction is answered; ``unsure_s``: for so long
    one without an answer may still be made; ``elsewhere_s``: how long a pod of the same owner that is bound elsewhere
    may turn out to be another one; ``ready_s``: until the replacement serves; ``unit_s``: until a unit takes the room
    that was made for it; ``failed_part``: more of the moves so far than this have failed: it ends."""

    reserve_s: float = 30.0
    evict_s: float = 60.0
    again_s: float = 2.0
    answer_s: float = 12.0
    unsure_s: float = 30.0
    arrive_s: float = 180.0
    elsewhere_s: float = 20.0
    ready_s: float = 600.0
    unit_s: float = 120.0
    failed_part: float = 0.3

    @property
    def time_to_live_s(self) -> int:
        """Of a reservation: longer than all that is waited for."""
        return int(self.reserve_s + self.evict_s + self.unsure_s + self.arrive_s) + 60


class MoveState(Enum):
    """Where a move is."""

    WAITING = "waiting"
    RESERVING = "reserving"
    RESERVED = "reserved"
    LEAVING = "leaving"
    ARRIVED = "arrived"
    DONE = "done"
    FAILED = "failed"


TRANSITIONS = {
    MoveState.WAITING: {MoveState.RESERVING, MoveState.FAILED},
    MoveState.RESERVING: {MoveState.RESERVED, MoveState.FAILED},
    MoveState.RESERVED: {MoveState.LEAVING, MoveState.FAILED},
    MoveState.LEAVING: {MoveState.ARRIVED, MoveState.FAILED},
    MoveState.ARRIVED: {MoveState.DONE, MoveState.FAILED},
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
    """``refused``: it will not be evicted, "" where it is; ``later``: ask again; ``unsure``: it may be evicted all the
    same, since the request had no answer."""

    step: str
    refused: str = ""
    later: bool = False
    unsure: bool = False


class PodWatched(Struct, frozen=True):
    """A pod as a watch shows it. ``owner``: ``kind/name`` of its controller; ``took``: the step of the move whose room
    it took; ``gone``: it leaves, or has left; ``ready``: it serves."""

    uid: str
    namespace: str
    name: str
    owner: str
    node: str = ""
    took: str = ""
    gone: bool = False
    ready: bool = False


class WatchLost(Struct, frozen=True):
    """Pods or reservations are not seen any more: nobody may be evicted blindly."""

    why: str


class StopAsked(Struct, frozen=True):
    """Nothing more is to be begun."""

    why: str


CarryingEvent = RoomTold | ReserveRefused | EvictionAnswered | PodWatched | WatchLost | StopAsked


@dataclass(slots=True)
class Underway:
    """One move of the pod ``uid``.

    ``owner``: namespace and ``kind/name`` of its controller; ``room``: the move whose room it has, its own unless moves
    of one owner have exchanged theirs; ``unsure_until``: when it is certain that an eviction without an answer was not
    made, ``refused``: what the next one was told; ``gone``: it has left, or may have; ``lost``: how its room ended
    while nobody knew whether it leaves; ``taken``: it was taken then; ``elsewhere``: where a pod of its owner was bound
    meanwhile; ``why``: of a failure; ``spared``: it failed by nothing of its own: it was not begun, or all was stopped
    before it ended; ``replacement``: uid and name of the pod that came for it.
    """

    move: Move
    owner: tuple[str, str]
    uid: str
    name: str
    room: Move
    state: MoveState = MoveState.WAITING
    deadline: float = 0.0
    ask_at: float = 0.0
    asked: bool = False
    asked_at: float = 0.0
    tried_at: float = 0.0
    unsure_until: float = 0.0
    gone: bool = False
    given_back: bool = False
    refused: str = ""
    lost: str = ""
    taken: bool = False
    elsewhere: str = ""
    ready: bool = False
    why: str = ""
    spared: bool = False
    replacement: tuple[str, str] = ("", "")

    def may_leave(self, now: float) -> bool:
        """Whether an eviction is on its way that nobody knows the end of."""
        return self.state is MoveState.RESERVED and (self.asked or now < self.unsure_until)


@dataclass(slots=True)
class Carrying:
    """``owners``: ``kind/name`` of each move's controller by uid; ``known``: uids of pods that stood before."""

    moves: Sequence[Move]
    owners: dict[str, str]
    known: set[str]
    patience: CarryingPatience = field(default_factory=CarryingPatience)
    stopped: str = ""
    _hurried: bool = False
    _steps: dict[str, Underway] = field(default_factory=dict)
    _rooms: dict[str, Underway] = field(default_factory=dict)
    """Who has the room of each step."""
    _active: dict[str, Underway] = field(default_factory=dict)
    _waiting: dict[str, Underway] = field(default_factory=dict)
    _of_pod: dict[str, list[Underway]] = field(default_factory=dict)
    """The moves of each pod of the plan, in order."""
    _owners: set[tuple[str, str]] = field(default_factory=set)
    _batch: int = 0
    _ended: int = 0
    _failed: int = 0
    _now: float = 0.0
    _out: list[CarryingInstruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        for move in self.moves:
            owner = move.namespace, self.owners.get(move.uid, "")
            one = Underway(move, owner, move.uid, move.name, move)
            self._steps[move.step] = self._rooms[move.step] = self._waiting[move.step] = one
            self._of_pod.setdefault(move.uid, []).append(one)
            if owner[1]:
                self._owners.add(owner)

    @property
    def underway(self) -> list[Underway]:
        """Every move in the plan's order."""
        return list(self._steps.values())

    @property
    def ends(self) -> tuple[int, int]:
        """(moves that were made, moves that failed by themselves)."""
        ended = [one for one in self._steps.values() if not one.spared]
        return sum(one.state is MoveState.DONE for one in ended), sum(one.state is MoveState.FAILED for one in ended)

    @property
    def over(self) -> bool:
        """Whether nothing is to be done any more."""
        return not self._active and (bool(self.stopped) or not self._waiting)

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
                if (one := self._active.get(step)) is not None and one.state is MoveState.RESERVING:
                    self._fail(one, f"no room was reserved: {why}", reserved=False)
            case EvictionAnswered():
                self._answered(event)
            case PodWatched():
                self._seen(event)
            case WatchLost(why) | StopAsked(why):
                return self.stop(why)
        return self._settled()

    def tick(self, now: float) -> Sequence[CarryingInstruction]:
        """What is due."""
        self._now = now
        for one in list(self._active.values()):
            if now >= self._due(one):
                if self._asks_again(one):
                    self._ask(one)
                else:
                    self._late(one)
        return self._settled()

    def due(self) -> float | None:
        """When ``tick`` is wanted; None: no time is set."""
        return min((self._due(one) for one in self._active.values()), default=None)

    def stop(self, why: str) -> Sequence[CarryingInstruction]:
        """Begin nothing more: who was not asked to leave stays. Those that have left are not waited for: their room
        stays kept until they come, or its time to live is over. Evictions without an answer are waited for."""
        self.stopped, self._hurried = self.stopped or why, True
        return self._settled()

    def expected(self) -> set[str]:
        """Steps of the rooms that are kept: of pods that have left, or may have, and whose replacement has not come."""
        arrived = (MoveState.ARRIVED, MoveState.DONE)
        return {
            one.room.step
            for one in self._steps.values()
            if (one.gone or one.may_leave(self._now)) and not one.given_back and one.state not in arrived
        }

    def concerns(self, uid: str, namespace: str, owner: str) -> bool:
        """Whether it matters here what becomes of such a pod."""
        return uid in self._of_pod or (namespace, owner) in self._owners

    def watched(self) -> list[PodWatched]:
        """The pods of moves under way, as gone: what is to be told of those that a list does not show."""
        before = (MoveState.RESERVING, MoveState.RESERVED)
        found = [(one, one.uid, one.name) for one in self._active.values() if one.state in before]
        found += [(one, *one.replacement) for one in self._active.values() if one.state is MoveState.ARRIVED]
        return [PodWatched(uid, one.owner[0], name, one.owner[1], gone=True) for one, uid, name in found if uid]

    def departed(self) -> dict[str, str]:
        """Steps of the moves whose pod has left, or may have, and the uid of the pod that came for it."""
        return {
            step: one.replacement[0] for step, one in self._steps.items() if one.gone or one.may_leave(self._now)
        }  # fmt: skip

    def past(self, now: float) -> tuple[PastMove, ...]:
        """What the history is told: everybody who left, or may have, wherever the replacement is. ``now``: in seconds
        since 1970, of the last event."""
        return tuple(
            PastMove(
                one.move.workload, one.move.source, one.room.target, now - (self._now - one.asked_at),
                one.replacement[0],
            )
            for one in self._steps.values()
            if one.gone or one.may_leave(self._now)
        )  # fmt: skip

    # --- inside -------------------------------------------------------------------------------------------------

    def _go(self, one: Underway, state: MoveState) -> None:
        if state not in TRANSITIONS[one.state]:
            raise ValueError(f"{one.move.key} goes from {one.state.value} to {state.value}")
        before, one.state, step = one.state, state, one.move.step
        self._waiting.pop(step, None)
        if state in (MoveState.DONE, MoveState.FAILED):
            self._active.pop(step, None)
            if before is not MoveState.WAITING:
                self._ended += 1
                self._failed += state is MoveState.FAILED
        else:
            self._active[step] = one

    def _next_batch(self) -> None:
        while not self.stopped and not self._active and self._waiting:
            self._batch = min(one.move.batch for one in self._waiting.values())
            for one in [one for one in self._waiting.values() if one.move.batch == self._batch]:
                if one.state is MoveState.WAITING:
                    self._begin(one)

    def _begin(self, one: Underway) -> None:
        before = [other for other in self._of_pod[one.move.uid] if other.move.batch < one.move.batch]
        if before:  # it went over a third node
            one.uid, one.name = before[-1].replacement
            if before[-1].state is not MoveState.DONE or not one.uid:
                self._cancel(one, "its first step was not made")
                return
            self._of_pod.setdefault(one.uid, []).append(one)
        self._go(one, MoveState.RESERVING)
        one.deadline = self._now + self.patience.reserve_s
        self._out.append(Reserve(one.move))

    def _room(self, event: RoomTold) -> None:
        one = self._rooms.get(event.step)
        if one is None or one.move.step not in self._active or one.state is MoveState.ARRIVED:
            return
        if event.phase == "Succeeded":
            self._taken(one, event.taken_by)
        elif event.phase in ("Failed", "Expired", ""):
            what = event.message or (event.phase.lower() if event.phase else "it was deleted")
            one.lost = f"the reservation ended: {what}"
            one.given_back = one.given_back or not event.phase
            if not one.may_leave(self._now):
                self._without_room(one)
        elif event.phase == "Available" and one.state is MoveState.RESERVING:
            if event.node != one.move.target:
                self._fail(one, f"room was reserved on {event.node}, not on {one.move.target}")
                return
            self._go(one, MoveState.RESERVED)
            one.deadline = self._now + self.patience.evict_s
            if not self.stopped:
                self._ask(one)
        elif one.state is MoveState.RESERVING:
            one.why = event.message

    def _taken(self, one: Underway, by: str) -> None:
        """Somebody uses the room up."""
        one = self._exchanged(one)
        if one.state is MoveState.LEAVING:
            self._arrived(one)
            return
        one.lost, one.taken = f"its room was taken by {by or 'another pod'} before it left", True
        if not one.may_leave(self._now):
            self._without_room(one)

    def _exchanged(self, one: Underway) -> Underway:
        """Whose room it is now: that of a move of the same owner whose pod has left, where this one's has not."""
        if one.state is MoveState.LEAVING:
            return one
        for other in self._active.values():
            if other.state is MoveState.LEAVING and other.owner == one.owner and one.owner[1] and other is not one:
                one.room, other.room = other.room, one.room
                self._rooms[one.room.step], self._rooms[other.room.step] = one, other
                return other
        return one

    def _without_room(self, one: Underway) -> None:
        """Its room has ended, and it is known whether it left."""
        left = one.state is MoveState.LEAVING
        self._fail(one, one.lost, reserved=not one.taken and not one.given_back)
        if left:
            self._halt(f"{one.move.key} has left, and {one.lost}")

    def _arrived(self, one: Underway) -> None:
        self._go(one, MoveState.ARRIVED)
        one.deadline = self._now + self.patience.ready_s
        if one.ready:
            self._go(one, MoveState.DONE)

    def _ask(self, one: Underway) -> None:
        one.asked, one.tried_at, one.asked_at = True, self._now, one.asked_at or self._now
        self._out.append(EvictMoved(one.move, one.uid, one.name))

    def _asks_again(self, one: Underway) -> bool:
        """Whether another try is due whose answer can come in time."""
        waits = one.state is MoveState.RESERVED and not one.asked and not self.stopped and not (one.lost or one.refused)
        return waits and max(self._now, one.ask_at) + self.patience.answer_s <= one.deadline

    def _due(self, one: Underway) -> float:
        if one.state is MoveState.RESERVED:
            if one.asked:
                return (one.tried_at if self.stopped else one.deadline) + self.patience.answer_s
            if self.stopped:
                return one.unsure_until
            return one.ask_at if self._asks_again(one) else max(one.deadline, one.unsure_until)
        return one.deadline

    def _answered(self, event: EvictionAnswered) -> None:
        one = self._active.get(event.step)
        if one is None or one.state is not MoveState.RESERVED:
            return
        one.asked = False
        if not event.refused:
            self._left(one)
            return
        if event.unsure:
            one.unsure_until = self._now + self.patience.unsure_s
        if one.lost and not one.may_leave(self._now):
            self._without_room(one)
        elif event.later:
            one.why, one.ask_at = event.refused, self._now + self.patience.again_s
        elif not one.may_leave(self._now):
            self._fail(one, f"the eviction was refused: {event.refused}")
        else:
            one.refused, one.deadline = f"the eviction was refused: {event.refused}", one.unsure_until

    def _left(self, one: Underway) -> None:
        self._go(one, MoveState.LEAVING)
        one.gone, one.why, one.asked_at = True, "", one.asked_at or self._now
        one.deadline = self._now + self.patience.arrive_s
        if one.taken:
            self._arrived(one)
        elif one.lost:
            self._without_room(one)

    def _seen(self, event: PodWatched) -> None:
        for mine in self._of_pod.get(event.uid, ()):
            if event.gone and mine.uid == event.uid:
                if mine.state is MoveState.RESERVED:
                    self._left(mine)  # whoever asked it to: its room is kept
                    return
                if mine.state is MoveState.RESERVING:
                    self._fail(mine, "it left before room was reserved")
                    return
        if event.took and not event.gone and (other := self._rooms.get(event.took)) is not None:
            other = self._exchanged(other)
            if other.state in (MoveState.LEAVING, MoveState.ARRIVED, MoveState.DONE) or other.may_leave(self._now):
                other.replacement = event.uid, event.name
        came = next((one for one in self._active.values() if one.replacement[0] == event.uid), None)
        if came is not None:
            self._came(came, event)
        if event.uid in self.known or not event.node or event.gone:
            return
        self.known.add(event.uid)
        if event.took or not event.owner:
            return
        owner = event.namespace, event.owner
        waiting = [
            one
            for one in self._active.values()
            if one.state is MoveState.LEAVING and one.owner == owner and not one.elsewhere and not one.replacement[0]
        ]
        for one in waiting:
            if event.node == one.room.target:  # by room that somebody else has kept, or that was free
                one.replacement, one.ready = (event.uid, event.name), event.ready
                one.deadline = min(one.deadline, self._now + self.patience.elsewhere_s)
                return
        for one in waiting[:1]:
            one.elsewhere = f"its replacement {event.name} was bound to {event.node}, not to {one.room.target}"
            one.deadline = min(one.deadline, self._now + self.patience.elsewhere_s)

    def _came(self, one: Underway, event: PodWatched) -> None:
        """Its replacement, as it is now."""
        if event.gone:
            if one.state is MoveState.ARRIVED:
                self._fail(one, f"its replacement {event.name} left again before it was Ready", reserved=False)
                self._halt(f"{one.move.key}: {one.why}")
            else:
                one.replacement = "", ""
            return
        one.ready = one.ready or event.ready
        if one.ready and one.state is MoveState.ARRIVED:
            self._go(one, MoveState.DONE)

    def _late(self, one: Underway) -> None:
        wait = {MoveState.RESERVING: self.patience.reserve_s, MoveState.RESERVED: self.patience.evict_s}
        after = f"within {wait.get(one.state, self.patience.arrive_s):g} s{f' ({one.why})' if one.why else ''}"
        if one.state is MoveState.RESERVING:
            self._fail(one, f"no room was reserved {after}")
        elif one.state is MoveState.RESERVED and one.asked:
            one.gone = True
            self._fail(one, "its eviction had no answer: it may have left, so its room is kept", reserved=False)
        elif one.state is MoveState.RESERVED:
            if one.lost:
                self._without_room(one)
            else:
                self._fail(one, one.refused or f"it was not evicted {after}")
        elif one.state is MoveState.ARRIVED:
            name = one.replacement[1] or "its replacement"
            self._fail(one, f"{name} has come, and is not Ready within {self.patience.ready_s:g} s", reserved=False)
            self._halt(f"{one.move.key}: {one.why}")
        elif one.replacement[0]:  # it stands where it was meant to, without its room
            one.given_back = True
            self._out.append(GiveBack(one.room))
            self._arrived(one)
        else:
            why = one.elsewhere or f"no replacement came {after}: is its owner scaled down, paused or over a quota?"
            self._fail(one, why)
            self._halt(f"{one.move.key}: {why}")

    def _fail(self, one: Underway, why: str, *, reserved: bool = True) -> None:
        self._go(one, MoveState.FAILED)
        one.why, one.spared = why, bool(self.stopped)
        if reserved:
            one.given_back = True
            self._out.append(GiveBack(one.room))
        if one.move.group:
            for other in [other for other in self._waiting.values() if other.move.group == one.move.group]:
                self._cancel(other, f"{one.move.key} is not moved, and without it nothing is won")

    def _cancel(self, one: Underway, why: str) -> None:
        """It was not begun, and is not."""
        self._go(one, MoveState.FAILED)
        one.why, one.spared = why, True

    def _halt(self, why: str) -> None:
        self.stopped = self.stopped or why

    def _settled(self) -> Sequence[CarryingInstruction]:
        failed = self._failed
        if not self.stopped and failed >= FEWEST_TO_STOP and failed > self.patience.failed_part * self._ended:
            self.stopped = f"{failed} of {self._ended} moves failed"
        if self.stopped:
            self._end_batch()
        self._next_batch()
        return self._told()

    def _end_batch(self) -> None:
        """Who was not asked to leave stays, and nobody need be Ready; nor come, where we are in a hurry."""
        left = (MoveState.LEAVING, MoveState.ARRIVED)
        for one in list(self._active.values()):
            if one.state not in left and not one.may_leave(self._now):
                self._fail(one, f"stopped: {self.stopped}")
            elif one.state is MoveState.ARRIVED:
                self._go(one, MoveState.DONE)
            elif one.state is MoveState.LEAVING and self._hurried:
                self._fail(one, f"stopped: {self.stopped}", reserved=False)

    def _told(self) -> Sequence[CarryingInstruction]:
        out, self._out = self._out, []
        return out
