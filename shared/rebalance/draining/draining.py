"""Emptying a node: events in, instructions out. Nobody is asked to leave before there is room for everybody.

    seeking --room is kept elsewhere--> held --its turn--> asked --evicted--> leaving --gone, another is Ready--> done
       ^  |                              | |                 |                   |
       |  +-- none in time ----------+   | +-- refused ------+--> stays          +-- none comes, or never Ready --> lost
       +--- its room was lost, or does not do any more ------+
                                     v
                                   stays: nobody is evicted, unless ``partial`` or once they go

Where somebody must stay the node does not get empty, so nobody is evicted in vain. As many are under way as their
workloads can miss, and budgets are the eviction API's: who is refused by one is asked again until the time is over.
What ends badly ends the whole: whoever was not asked to leave stays, and who has left is waited for. Who carries this
out may die at any step: who was not evicted stands, who was evicted is replaced by its owner, and rooms end by their
time to live.

Rooms of one owner's pods are interchangeable: where a replacement takes another's, the two exchange theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from shared.rebalance.carrying import EvictionAnswered, ReserveRefused, RoomTold, WatchLost
from shared.rebalance.draining.leavers import Leaver
from shared.rebalance.limits import at_most_at_once

NEVER = float("inf")


class DrainPatience(Struct, frozen=True):
    """Seconds. ``seek_s``: until room is found; ``again_s``: before a refused eviction is tried again (kubectl's);
    ``unsure_s``: for so long an eviction without an answer may still be made; ``arrive_s``: from a pod's end to its
    replacement; ``ready_s``: until that serves; ``tries``: rooms that are looked for a pod."""

    seek_s: float = 30.0
    again_s: float = 5.0
    unsure_s: float = 30.0
    arrive_s: float = 180.0
    ready_s: float = 600.0
    tries: int = 3
    at_once: int = 20
    workload_part: float = 0.25


class LeaverState(Enum):
    """Where a pod that is to leave is."""

    SEEKING = "seeking"
    HELD = "held"
    ASKED = "asked"
    LEAVING = "leaving"
    DONE = "done"
    STAYS = "stays"
    LOST = "lost"


STEPS = {
    LeaverState.SEEKING: {LeaverState.HELD, LeaverState.LEAVING, LeaverState.STAYS},
    LeaverState.HELD: {LeaverState.SEEKING, LeaverState.ASKED, LeaverState.LEAVING, LeaverState.STAYS},
    LeaverState.ASKED: {LeaverState.SEEKING, LeaverState.LEAVING, LeaverState.STAYS, LeaverState.LOST},
    LeaverState.LEAVING: {LeaverState.DONE, LeaverState.LOST},
    LeaverState.DONE: set[LeaverState](),
    LeaverState.STAYS: set[LeaverState](),
    LeaverState.LOST: set[LeaverState](),
}
_UNDER_WAY = (LeaverState.ASKED, LeaverState.LEAVING)
_OVER = (LeaverState.DONE, LeaverState.STAYS, LeaverState.LOST)


class SeekRoom(Struct, frozen=True):
    """Ask for room anywhere but on the node. ``step``: tells this room from another one for the same pod."""

    leaver: Leaver
    step: str


class EvictLeaver(Struct, frozen=True):
    """Ask the eviction API."""

    leaver: Leaver


class ReturnRoom(Struct, frozen=True):
    """Its room is not needed any more."""

    step: str


class AskOwner(Struct, frozen=True):
    """Whether its controller wants another pod."""

    leaver: Leaver


DrainInstruction = SeekRoom | EvictLeaver | ReturnRoom | AskOwner


class PodShown(Struct, frozen=True):
    """A pod as a watch shows it. ``owner``: ``kind/name``; ``took``: the step of the room that it took; ``leaves``: it
    is being deleted; ``gone``: it is deleted; ``ready``: it serves."""

    uid: str
    namespace: str
    name: str
    owner: str = ""
    node: str = ""
    took: str = ""
    leaves: bool = False
    gone: bool = False
    ready: bool = False


class OwnerWants(Struct, frozen=True):
    """``more``: the controller of the pod ``uid`` lacks a pod; False: it wants no other."""

    uid: str
    more: bool


class RoomUnfit(Struct, frozen=True):
    """The pod ``uid`` was not asked to leave: as things stand its room would not take its replacement."""

    uid: str
    why: str


DrainEvent = RoomTold | ReserveRefused | EvictionAnswered | PodShown | OwnerWants | RoomUnfit | WatchLost


@dataclass(slots=True)
class Departure:
    """One pod. ``step``: of its room, "" none; ``room_on``: where that is kept; ``tries``: rooms asked for; ``waits``:
    its eviction has no answer yet; ``unsure_until``: when it is certain that one without an answer was not made;
    ``refused``: for good, by what; ``why``: of how it stands; ``replacement``: uid and name of who came for it,
    ``target``: where."""

    leaver: Leaver
    state: LeaverState = LeaverState.SEEKING
    step: str = ""
    tries: int = 0
    room_on: str = ""
    deadline: float = NEVER
    ask_at: float = 0.0
    waits: bool = False
    unsure_until: float = 0.0
    refused: str = ""
    gone: bool = False
    ready: bool = False
    owner_asked: bool = False
    why: str = ""
    replacement: tuple[str, str] = ("", "")
    target: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.state in _OVER


@dataclass(slots=True)
class Draining:
    """``known``: uids of pods that stood before; ``partial``: who has room leaves, also where others have none."""

    node: str
    leavers: Sequence[Leaver]
    known: set[str]
    partial: bool = False
    patience: DrainPatience = field(default_factory=DrainPatience)
    stopped: str = ""
    begun: bool = False
    """Whether somebody may be asked to leave: room was looked for everybody."""
    _of: dict[str, Departure] = field(default_factory=dict)
    _rooms: dict[str, Departure] = field(default_factory=dict)
    _now: float = 0.0
    _out: list[DrainInstruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._of = {one.uid: Departure(one) for one in self.leavers}

    @property
    def departures(self) -> list[Departure]:
        """Of every pod, in order."""
        return list(self._of.values())

    @property
    def over(self) -> bool:
        """Whether nothing is to be done any more."""
        return all(one.over for one in self._of.values())

    def start(self, now: float) -> Sequence[DrainInstruction]:
        """Look for everybody's room."""
        self._now = now
        for one in self._of.values():
            self._seek(one)
        return self._settled()

    def tell(self, event: DrainEvent, now: float) -> Sequence[DrainInstruction]:
        """What follows from an event."""
        self._now = now
        match event:
            case RoomTold():
                self._room(event)
            case ReserveRefused(step, why):
                if (one := self._rooms.get(step)) is not None and one.state is LeaverState.SEEKING:
                    self._rooms.pop(step)
                    one.step = ""
                    self._stay(one, f"no room was reserved: {why}")
            case EvictionAnswered():
                self._answered(event)
            case PodShown():
                self._shown(event)
            case OwnerWants(uid, more):
                self._owner(self._of[uid], more=more)
            case RoomUnfit(uid, why):
                self._unfit(self._of[uid], why)
            case WatchLost(why):
                return self.stop(why)
        return self._settled()

    def tick(self, now: float) -> Sequence[DrainInstruction]:
        """What is due."""
        self._now = now
        for one in self._of.values():
            if now >= self._due(one):
                self._late(one)
        return self._settled()

    def due(self) -> float:
        """When ``tick`` is wanted; infinity: no time is set."""
        return min((self._due(one) for one in self._of.values()), default=NEVER)

    def stop(self, why: str) -> Sequence[DrainInstruction]:
        """Nobody more is asked to leave, and nobody is waited for: for who has left, or may have, room stays kept until
        the replacement comes, or its time to live is over."""
        self._halt(why)
        for one in self._of.values():
            if one.state is LeaverState.LEAVING and (one.replacement[0] or not one.leaver.replaced):
                what = "its replacement was not Ready yet" if one.gone else "it was not gone yet"
                self._finish(one, f"{what} ({self.stopped})")
            elif one.state is LeaverState.LEAVING:
                self._go(one, LeaverState.LOST)
                one.why = f"it leaves; its replacement was not waited for ({self.stopped})"
            elif one.state is LeaverState.ASKED and self._may_leave(one):
                self._go(one, LeaverState.LOST)
                one.why = f"it may leave: its eviction had no answer ({self.stopped})"
        return self._settled()

    def kept(self) -> set[str]:
        """Steps of the rooms that whoever comes for a pod that left, or may have, is to find."""
        return {
            one.step for one in self._of.values() if one.state is LeaverState.LOST and not one.replacement[0]
        }  # fmt: skip

    def concerns(self, uid: str, namespace: str, owner: str) -> bool:
        """Whether it matters here what becomes of such a pod."""
        return uid in self._of or any(
            one.leaver.namespace == namespace and one.leaver.controller == owner for one in self._of.values() if owner
        )

    # --- inside -------------------------------------------------------------------------------------------------

    def _go(self, one: Departure, state: LeaverState) -> None:
        if state not in STEPS[one.state]:
            raise ValueError(f"{one.leaver.key} goes from {one.state.value} to {state.value}")
        one.state, one.deadline = state, NEVER

    def _seek(self, one: Departure) -> None:
        if not one.leaver.replaced:
            self._go(one, LeaverState.HELD)  # nobody comes for it who needs room
            return
        one.tries += 1
        one.step, one.room_on = f"{one.leaver.uid}/{one.tries}", ""
        one.deadline = self._now + self.patience.seek_s
        self._rooms[one.step] = one
        self._out.append(SeekRoom(one.leaver, one.step))

    def _return(self, one: Departure) -> None:
        if one.step and self._rooms.pop(one.step, None) is not None:
            self._out.append(ReturnRoom(one.step))
        one.step = ""

    def _stay(self, one: Departure, why: str) -> None:
        """It is not moved; the others neither, unless those who can shall."""
        self._return(one)
        self._go(one, LeaverState.STAYS)
        one.why = why
        if self.begun and not self.partial:
            self._halt(f"{one.leaver.key} stays: {why}")

    def _finish(self, one: Departure, why: str) -> None:
        self._go(one, LeaverState.DONE)
        one.why = why
        self._return(one)

    def _lose(self, one: Departure, why: str) -> None:
        self._go(one, LeaverState.LOST)
        one.why = why
        self._halt(f"{one.leaver.key}: {why}")

    def _halt(self, why: str) -> None:
        self.stopped = self.stopped or why

    def _room(self, event: RoomTold) -> None:
        one = self._rooms.get(event.step)
        if one is None:
            return
        if event.phase == "Succeeded":
            self._rooms.pop(event.step)
            one.step = ""
            self._taken(self._heir(one), event.taken_by)
        elif event.phase in ("Failed", "Expired", ""):
            self._rooms.pop(event.step)
            one.step = ""
            self._roomless(one, event.message or event.phase.lower() or "it was deleted")
        elif event.phase == "Available" and event.taken_by:
            self._named(self._heir(one), event.taken_by)
        elif event.phase == "Available" and one.state is LeaverState.SEEKING:
            if event.node == self.node:
                self._stay(one, f"room was found on {self.node} alone")
                return
            self._go(one, LeaverState.HELD)
            one.room_on, one.why = event.node, ""
        elif event.phase == "Available" and event.node != self.node:
            one.room_on = event.node  # of one that exchanged its room for one that was still looked for
        elif one.state is LeaverState.SEEKING:
            one.why = event.message

    def _taken(self, one: Departure, by: str) -> None:
        if one.state is not LeaverState.LEAVING:
            self._roomless(one, f"it was taken by {by or 'another pod'}")

    def _named(self, one: Departure, by: str) -> None:
        """Somebody is about to take its room: it is not to leave on that."""
        if not one.over:
            self._rooms.pop(one.step, None)
            one.step = ""
            self._taken(one, by)

    def _unfit(self, one: Departure, why: str) -> None:
        if one.state is not LeaverState.ASKED:
            return
        one.waits, one.why = False, why
        if self._may_leave(one):
            one.ask_at = one.unsure_until  # its room is judged once more then
            return
        self._return(one)
        self._roomless(one, why)

    def _has_room(self, one: Departure) -> bool:
        return bool(one.room_on) or not one.leaver.replaced

    def _look_again(self, one: Departure) -> None:
        """It has no room, or none yet: another is looked for once it is certain that it was not evicted."""
        if one.state is LeaverState.ASKED and self._may_leave(one):
            one.ask_at = one.unsure_until
            return
        if not one.step:
            self._roomless(one, one.why)
            return
        if one.state is not LeaverState.SEEKING:
            self._go(one, LeaverState.SEEKING)
        one.deadline = self._now + self.patience.seek_s

    def _roomless(self, one: Departure, why: str) -> None:
        """Its room has ended: another one is looked for, while it has not left."""
        one.room_on = ""
        if one.state is LeaverState.LEAVING or one.over or (one.state is LeaverState.ASKED and self._may_leave(one)):
            return  # whoever comes is placed as any pod is
        if self.stopped:  # no room is sought any more: one asked for and given back in one turn would stay
            self._stay(one, f"{why}; stopped: {self.stopped}")
            return
        if one.tries >= self.patience.tries:
            self._stay(one, f"its room is lost again and again: {why}")
            return
        if one.state is not LeaverState.SEEKING:
            self._go(one, LeaverState.SEEKING)
        self._seek(one)
        one.why = f"its room was lost: {why}"

    def _heir(self, one: Departure) -> Departure:
        """Whose room it is now: that of a pod of the same owner that has left, where this one has not."""
        if one.state is LeaverState.LEAVING or one.over:
            return one
        # Those whose room is taken already have none to exchange: whoever still has one comes first.
        for other in sorted(self._of.values(), key=lambda each: not each.step):
            if self._awaits(other) and other.leaver.owner == one.leaver.owner and other is not one:
                one.step, other.step = other.step, one.step
                one.room_on, other.room_on = other.room_on, one.room_on
                for each in (one, other):
                    if each.step:
                        self._rooms[each.step] = each
                self._exchanged(one)
                return other
        return one

    def _exchanged(self, one: Departure) -> None:
        """It got the room of one that has left: where that has none, or none yet, it does not leave on that."""
        if not one.step:
            self._roomless(one, "another pod's replacement took it")
        elif not one.room_on:
            self._look_again(one)

    def _awaits(self, one: Departure) -> bool:
        return one.state is LeaverState.LEAVING and one.leaver.replaced and not one.replacement[0]

    def _may_leave(self, one: Departure) -> bool:
        return one.waits or self._now < one.unsure_until

    def _answered(self, event: EvictionAnswered) -> None:
        one = self._of.get(event.step)
        if one is None or one.state is not LeaverState.ASKED:
            return
        one.waits = False
        if not event.refused:
            self._leaves(one)
            return
        one.why = event.refused
        if event.unsure:
            one.unsure_until = self._now + self.patience.unsure_s
        if event.later and not self.stopped:
            if self._has_room(one):
                one.ask_at = self._now + self.patience.again_s
            else:
                self._look_again(one)
        elif self._may_leave(one):
            one.refused, one.ask_at = event.refused, one.unsure_until
        else:
            self._stay(one, f"the eviction was refused: {event.refused}")

    def _leaves(self, one: Departure) -> None:
        self._go(one, LeaverState.LEAVING)
        one.why, one.waits = "", False
        if not one.leaver.takes:
            self._return(one)  # its replacement takes no reservation: to it the room would be taken

    def _shown(self, event: PodShown) -> None:
        mine = self._of.get(event.uid)
        if mine is not None:
            if (event.leaves or event.gone) and mine.state in (
                LeaverState.SEEKING, LeaverState.HELD, LeaverState.ASKED,
            ):  # fmt: skip
                self._leaves(mine)  # whoever asked it to
            if event.gone and mine.state is LeaverState.LEAVING:
                mine.gone = True
                self._progress(mine)
            return
        came = next((one for one in self._of.values() if one.replacement[0] == event.uid), None)
        if came is None:
            came = self._newcomer(event)
        if came is not None:
            self._came(came, event)

    def _newcomer(self, event: PodShown) -> Departure | None:
        """For whom a pod comes that was not there before; None: for nobody."""
        if event.uid in self.known or event.leaves or event.gone or not event.node:
            return None
        self.known.add(event.uid)
        room = self._rooms.get(event.took) if event.took else None
        if room is not None:
            one: Departure | None = self._heir(room)
            if one is not None and not self._awaits(one):
                self._named(one, event.name)
                return None
        else:
            # A pod that took a room which is named already comes for one that has none left.
            one = min(
                (
                    each for each in self._of.values()
                    if self._awaits(each) and event.owner
                    and (each.leaver.namespace, each.leaver.controller) == (event.namespace, event.owner)
                ),
                key=lambda each: bool(event.took and each.step), default=None,
            )  # fmt: skip
        if one is None:
            return None
        one.replacement, one.target, one.ready = (event.uid, event.name), event.node, False
        if event.node == self.node:
            self._lose(one, f"its replacement {event.name} came back to {self.node}: does it tolerate the cordon?")
            return None
        one.deadline = self._now + self.patience.ready_s
        if not event.took:
            self._return(one)
        return one

    def _came(self, one: Departure, event: PodShown) -> None:
        if one.state is not LeaverState.LEAVING:
            return
        if event.leaves or event.gone:
            one.replacement, one.target, one.ready = ("", ""), "", False
            one.why = f"its replacement {event.name} left again before it was Ready"
            one.owner_asked = False
            self._return(one)  # what it took is spent
            one.deadline = self._now + self.patience.arrive_s
            return
        one.ready = one.ready or event.ready
        self._progress(one)

    def _progress(self, one: Departure) -> None:
        """It has left, or its replacement serves."""
        if one.gone and (one.ready or not one.leaver.replaced):
            self._finish(one, "")
        elif one.gone and not one.replacement[0] and one.deadline == NEVER:
            one.deadline = self._now + self.patience.arrive_s
        elif one.ready:
            one.deadline = NEVER

    def _owner(self, one: Departure, *, more: bool) -> None:
        if not self._awaits(one) or not one.owner_asked:
            return
        if more:
            why = f" ({one.why})" if one.why else ""
            self._lose(one, f"it has left, and no replacement was placed within {self.patience.arrive_s:g} s{why}")
        else:
            self._finish(one, "its controller wants no other pod")

    def _due(self, one: Departure) -> float:
        if one.state is LeaverState.ASKED:
            return NEVER if one.waits else one.ask_at
        return one.deadline

    def _late(self, one: Departure) -> None:
        if one.state is LeaverState.SEEKING:
            why = f" ({one.why})" if one.why else ": does a mesh run that serves its scheduler?"
            self._stay(one, f"no room was found within {self.patience.seek_s:g} s{why}")
        elif one.state is LeaverState.ASKED:
            if one.refused or self.stopped:
                self._stay(one, f"the eviction was refused: {one.refused or one.why}")
            elif not self._has_room(one):
                self._look_again(one)
            else:
                self._ask(one)
        elif one.replacement[0]:
            self._lose(one, f"{one.replacement[1]} has come, and is not Ready within {self.patience.ready_s:g} s")
        else:
            one.deadline = NEVER
            if not one.owner_asked:
                one.owner_asked = True
                self._out.append(AskOwner(one.leaver))

    def _ask(self, one: Departure) -> None:
        one.waits = True
        self._out.append(EvictLeaver(one.leaver))

    def _settled(self) -> Sequence[DrainInstruction]:
        if not self.begun and not any(one.state is LeaverState.SEEKING for one in self._of.values()):
            roomless = [one.leaver.key for one in self._of.values() if one.state is LeaverState.STAYS]
            if roomless and not self.partial:
                self._halt(f"there is no room for {', '.join(roomless)}, so nobody was evicted")
            self.begun = True
        if self.stopped:
            self._end()
        elif self.begun:
            self._next()
        out, self._out = self._out, []
        return out

    def _end(self) -> None:
        """Whoever was not asked to leave stays."""
        for one in self._of.values():
            if one.state in (LeaverState.SEEKING, LeaverState.HELD):
                self._stay(one, f"stopped: {self.stopped}")
            elif one.state is LeaverState.ASKED and not self._may_leave(one):
                self._stay(one, f"{one.why}; stopped: {self.stopped}")

    def _next(self) -> None:
        """Those whose turn it is: as many as their workloads can miss."""
        under_way = Counter(one.leaver.owner for one in self._of.values() if one.state in _UNDER_WAY)
        for one in self._of.values():
            if under_way.total() >= self.patience.at_once:
                return
            owner, replaced = one.leaver.owner, one.leaver.replaced
            most = at_most_at_once(one.leaver.copies, self.patience.workload_part)
            if one.state is LeaverState.HELD and (not replaced or under_way[owner] < most):
                self._go(one, LeaverState.ASKED)
                under_way[owner] += 1
                self._ask(one)
