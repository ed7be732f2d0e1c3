"""Who is bound next: lone pods and gangs in turn, so that neither holds up the other.

Lone pods go first come, first served; after each comes a member of a gang, if one waits. Gangs go one after another, so
that the members of one are bound close together; after a second, a gang that is still first goes to the end. What a
slow or hanging webhook can hold is bounded: one gang at most half of the Bindings in flight, all gangs three quarters.
Until one of its members is bound a gang has one Binding out, the probe, and no other before it is known what became of
it: what refuses one member mostly refuses all, and a gang that breaks before anybody is bound can be given back whole.
It costs one answer of the API server, some milliseconds, between the first and the last member.

Not its job: whether a unit may be bound (``binding_cycle.py``).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

SLICE_S = 1.0
"""A gang keeps its place at the head for so long."""


class BindingLine:
    """Units that wait for their Binding, and how many Bindings of each gang are in flight."""

    def __init__(self, room: int) -> None:
        self.in_flight = 0
        self._of_gangs = 0
        self._room = room
        self._gangs_room = max(1, room - room // 4)
        self.pods: deque[str] = deque()
        self.gangs: OrderedDict[str, dict[str, None]] = OrderedDict()
        self._out: dict[str, list[str]] = {}
        self._sent: dict[str, int] = {}
        self._head = ""
        self._head_since = 0.0
        self._pod_went = False

    def add(self, uid: str, gang: str) -> None:
        """The unit waits for its Binding. ``gang``: the key of its gang, "" for a lone pod."""
        if gang:
            self.gangs.setdefault(gang, {})[uid] = None
        else:
            self.pods.append(uid)

    def next(self, now: float, at_once: Callable[[str, int], int]) -> str | None:
        """The unit whose turn it is; None: nobody waits, or no room. ``at_once``: Bindings a gang may have, of most."""
        if self.in_flight >= self._room:
            return None
        if not self.gangs:
            return self.pods.popleft() if self.pods else None
        gang = self._gang(now, at_once)
        # A lone pod at least every other time: one slow webhook of a gang must not hold up everybody (I3).
        if self.pods and (not gang or not self._pod_went):
            self._pod_went = True
            return self.pods.popleft()
        if not gang:
            return None
        self._pod_went = False
        waiting = self.gangs[gang]
        uid = next(iter(waiting))
        del waiting[uid]
        if not waiting:
            del self.gangs[gang]
        return uid

    def sent(self, uid: str, gang: str) -> None:
        """A Binding of the unit is in flight."""
        self.in_flight += 1
        if gang:
            self._out.setdefault(uid, []).append(gang)
            self._sent[gang] = self._sent.get(gang, 0) + 1
            self._of_gangs += 1

    def answered(self, uid: str) -> None:
        """A Binding of the unit has its answer, or none will come."""
        self.in_flight -= 1
        if not self._out or (out := self._out.get(uid)) is None:
            return
        gang = out.pop(0)
        if not out:
            del self._out[uid]
        self._of_gangs -= 1
        self._sent[gang] -= 1
        if not self._sent[gang]:
            del self._sent[gang]

    def forget(self, gang: str) -> None:
        """The gang sends no more for now."""
        self.gangs.pop(gang, None)

    def waiting(self) -> set[str]:
        """Everybody who waits."""
        return {*self.pods, *(uid for members in self.gangs.values() for uid in members)}

    def _gang(self, now: float, at_once: Callable[[str, int], int]) -> str:
        """The gang whose turn it is. Passes over those alone that wait for the answer to a call, which are few."""
        if self._of_gangs >= self._gangs_room:
            return ""
        head = next(iter(self.gangs))
        if head != self._head:
            self._head, self._head_since = head, now
        elif now - self._head_since > SLICE_S:
            self.gangs.move_to_end(head)
            self._head = next(iter(self.gangs))
            self._head_since = now
        most = max(1, self._room // 2)
        for gang in self.gangs:
            if self._sent.get(gang, 0) < at_once(gang, most):
                return gang
        return ""
