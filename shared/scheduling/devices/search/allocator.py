"""Which devices of one node a pod's claims are given: depth first, the first solution wins.

    claims in the pod's order
      requests in the claim's order
        alternatives in the list's order          the first one with which all that follows can be had
          devices, ``count`` of them or all        by driver, pool, slice and place in it, or the fullest first; of one
                                                 request only onward

A choice that leads nowhere is undone. ``_Search`` says each level as a function that *yields* the next level and is
sent what came of it, so that a claim of 32 devices does not nest as many calls. What came of a level:

- FOUND: everything from here on can be had; what was chosen stays chosen
- NOT: it cannot, and everything is undone
- TOO_MANY: it cannot, for a claim would get more than 32 devices; other devices do not help, only fewer

A selector that fails on a device, and what no choice can repair, ends the search (``SearchEnded``). So does its budget
of steps: it is counted, not timed, so that equal nodes are answered alike. Of like devices one is tried where it
failed.

Quirks of 1.36, mended since (``release``): a device whose counters fit keeps them for the rest of the search when a
taint or a constraint then bars it, and a shareable one when the search backs out of it (kubernetes#140431); one that
was shared and no longer may be is given to one alone (#140798); ``All`` fails the whole cycle where a pool is
incomplete or invalid (#141898).

Source: kube-scheduler 1.36 ``structured/internal/incubating/allocator_incubating.go``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from typing import NamedTuple

from shared.model.devices import MOST_RESULTS, DeviceClaim
from shared.scheduling.devices.capacity import Amounts
from shared.scheduling.devices.pools import offered_now
from shared.scheduling.devices.search import counters
from shared.scheduling.devices.search.constraints import AllocationConstraint, constraint_of
from shared.scheduling.devices.search.hopeless import hopeless
from shared.scheduling.devices.search.outcomes import AllocationFailure, FoundDevices, GivenDevice, SearchEnded
from shared.scheduling.devices.search.wanted import NodeOffer, Place, WantedDevices
from shared.scheduling.devices.taints import barred
from shared.scheduling.framework import Code
from shared.scheduling.state.releases import Release

CANNOT = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"

STEPS_PER_NODE = 40_000
"""Devices that are looked at on one node, again after every choice: about 0.2 s. A search that needs more has no
solution worth waiting for (kube-scheduler: ten seconds per node)."""


class _Outcome(Enum):
    FOUND = 1
    NOT = 2
    TOO_MANY = 3


_Level = Generator["_Level", _Outcome, _Outcome]


class _Undo(NamedTuple):
    """What a choice has changed. ``constraints``: how many were told of it."""

    wanted: WantedDevices
    constraints: int = 0
    charged: bool = False
    exclusive: bool = False
    shared: bool = False


def allocate(
    node: NodeOffer, claims: Sequence[DeviceClaim], steps: int = STEPS_PER_NODE
) -> FoundDevices | AllocationFailure:
    """The first solution, or why there is none within so many steps."""
    search = _Search(node, claims, steps)
    try:
        search.prepare()
        if node.release is not Release.V1_36 and hopeless(node, claims, search.wanted):
            outcome = _Outcome.NOT
        else:
            outcome = _run(search.request(0, 0))
    except SearchEnded as ended:
        return ended.failure._replace(steps=search.steps)
    if outcome is _Outcome.FOUND:
        return FoundDevices(tuple(map(tuple, search.given)), tuple(map(tuple, search.chosen)), search.steps)
    if outcome is _Outcome.TOO_MANY:
        return AllocationFailure(Code.ERROR, "allocation max size exceeded", steps=search.steps)
    invalid = any(pool.invalid for pool in node.pools)
    return AllocationFailure(Code.UNRESOLVABLE, INVALID_POOLS if invalid else CANNOT, steps=search.steps)


def _run(level: _Level) -> _Outcome:
    """Run the levels, each of which waits for the one that it yielded."""
    waiting: list[_Level] = []
    outcome: _Outcome | None = None
    while True:
        try:
            deeper = next(level) if outcome is None else level.send(outcome)
        except StopIteration as stop:
            found: _Outcome = stop.value
            if not waiting:
                return found
            level, outcome = waiting.pop(), found
        else:
            waiting.append(level)
            level, outcome = deeper, None


class _Search:
    def __init__(self, node: NodeOffer, claims: Sequence[DeviceClaim], budget: int) -> None:
        self._node, self._claims, self._budget = node, claims, budget
        self._legacy = node.release is Release.V1_36
        self.steps = 0
        self.given: list[list[GivenDevice]] = [[] for _ in claims]
        self.chosen: list[list[int]] = [[0] * len(claim.requests) for claim in claims]
        self.wanted: list[list[list[WantedDevices]]] = []
        """Per claim and request: its alternatives, or the one thing that it asks."""
        self._constraints: list[list[AllocationConstraint]] = []
        self._holders: dict[Place, set[int]] = {}
        """Which claims hold a device for themselves, in this search."""
        self._taken: dict[Place, dict[str, int]] = {}
        """How much is taken of a shared device, in this search."""
        self._sharers: dict[Place, int] = {}
        self._free: dict[int, counters.Free] = {}

    def prepare(self) -> None:
        """Look everything up; raises ``SearchEnded`` where that alone shows that there is no solution."""
        for c, claim in enumerate(self._claims):
            if claim.problem:
                raise SearchEnded(AllocationFailure(Code.ERROR, f"claim {{claim}}: {claim.problem}", c))
            requests: list[list[WantedDevices]] = []
            least = 0
            for request in claim.requests:
                alternative = bool(request.alternatives)
                asks = [self._node.look_up(c, request.name, ask, alternative=alternative) for ask in request.asks]
                requests.append(asks)
                least += min((one.count for one in asks), default=0)
            if least > MOST_RESULTS:
                text = f"claim {{claim}}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
                raise SearchEnded(AllocationFailure(Code.ERROR, text, c))
            self.wanted.append(requests)
            self._constraints.append([constraint_of(spec, self._node.release) for spec in claim.constraints])

    # --- the levels ---------------------------------------------------------------------------------------------------

    def request(self, c: int, r: int) -> _Level:
        """Request ``r`` of claim ``c``, and all that follows."""
        if c >= len(self._claims):
            return _Outcome.FOUND
        if r >= len(self._claims[c].requests):
            outcome = yield self.request(c + 1, 0)
            # too many for the next claim: this one may still choose other devices, which are counted apart
            return _Outcome.NOT if outcome is _Outcome.TOO_MANY else outcome
        if not self._claims[c].requests[r].alternatives:
            return (yield self._devices(c, r, self.wanted[c][r][0], 0, 0))
        too_many = True
        for index, wanted in enumerate(self.wanted[c][r]):
            outcome = yield self._devices(c, r, wanted, 0, 0)
            if outcome is _Outcome.TOO_MANY:
                continue
            too_many = False
            if outcome is _Outcome.FOUND:
                self.chosen[c][r] = index
                return _Outcome.FOUND
        return _Outcome.TOO_MANY if too_many else _Outcome.NOT

    def _devices(self, c: int, r: int, wanted: WantedDevices, n: int, start: int) -> _Level:
        """The ``n``-th device of a request and all after it, from ``start`` on."""
        if wanted.everything is not None and not wanted.everything:
            return _Outcome.NOT
        if n >= wanted.count:
            return (yield self.request(c, r + 1))
        if len(self.given[c]) + wanted.count - n > MOST_RESULTS:
            return _Outcome.TOO_MANY
        if wanted.everything is not None:
            self._step()
            undo = self._take(c, wanted, wanted.everything[n], must=True)
            if undo is None:
                return _Outcome.NOT
            outcome = yield self._devices(c, r, wanted, n + 1, start)
            if outcome is not _Outcome.FOUND:
                self._give_back(c, undo)
            return outcome
        failed: set[object] = set()
        places = self._node.places()
        for index in range(start, len(places)):
            self._step()
            place = places[index]
            if (failed and self._like(place) in failed) or not self._possible(c, wanted, place):
                continue
            undo = self._take(c, wanted, place, must=False)
            if undo is None:
                continue
            outcome = yield self._devices(c, r, wanted, n + 1, index + 1)
            if outcome is _Outcome.FOUND:
                return outcome
            self._give_back(c, undo)
            if outcome is _Outcome.TOO_MANY:
                return outcome
            like = self._like(place)
            if like is not None:
                failed.add(like)
        return _Outcome.NOT

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self._budget:
            text = f"gave up the search for devices after {self._budget} steps: too many combinations to try"
            raise SearchEnded(AllocationFailure(Code.UNRESOLVABLE, text, exhausted=True))

    # --- one device ---------------------------------------------------------------------------------------------------

    def _like(self, place: Place) -> object:
        """Equal for devices of which one is as good as the other here; None: it is like no other. In 1.36 a choice that
        is undone may leave traces, so there none is."""
        p, d = place
        one = self._node.pools[p].devices[d]
        if self._legacy or one.device.shareable:
            return None
        # admin access takes also what is in use, and then leaves more to others than a free device does
        holders = frozenset(self._holders.get(place, ())), one.id in self._node.usage.exclusive
        return one.facts, one.device.taints, one.device.consumes and (p, one.device.consumes), holders

    def _possible(self, c: int, wanted: WantedDevices, place: Place) -> bool:
        """What is cheap to know before anything is taken: in use, the selectors, the capacity."""
        return (
            not self._in_use(c, wanted, place)
            and self._node.selectable(c, wanted, place)
            and self._node.enough(wanted, place, self._taken.get(place, {}))
        )

    def _in_use(self, c: int, wanted: WantedDevices, place: Place) -> bool:
        """Admin access looks past all users but those of its own claim."""
        holders = self._holders.get(place)
        if wanted.ask.admin:
            return holders is not None and c in holders
        one = self._node.pools[place[0]].devices[place[1]]
        if holders or one.id in self._node.usage.exclusive:
            return True
        return not self._legacy and not one.device.shareable and one.id in self._node.usage.shares

    def _take(self, c: int, wanted: WantedDevices, place: Place, *, must: bool) -> _Undo | None:
        """Choose the device; None where it may not be. ``must``: no other will do."""
        device = self._node.pools[place[0]].devices[place[1]].device
        if must and self._in_use(c, wanted, place):
            return None
        undo = _Undo(wanted)
        if device.consumes and not (device.shareable and self._shared_already(place)):
            free = self._counters(place[0])
            counters.take(free, device)
            if counters.overdrawn(free):
                counters.take(free, device, -1)
                return None
            undo = undo._replace(charged=True)
        if barred(device, wanted.ask.tolerations):
            self._barred(c, place, undo)
            return None
        for index, constraint in enumerate(self._constraints[c]):
            values = self._node.values(constraint.attribute, place)
            if not constraint.add(wanted.request, wanted.alternative, values):
                if must:
                    text = f"claim {{claim}}, request {wanted.ask.name}: cannot add device {{device}}"
                    text += " because a claim constraint would not be satisfied"
                    raise SearchEnded(AllocationFailure(Code.ERROR, text, c, *place))
                for before in self._constraints[c][:index]:
                    before.remove(wanted.request, wanted.alternative)
                self._barred(c, place, undo)
                return None
        undo = undo._replace(constraints=len(self._constraints[c]))
        if not device.shareable:
            self._holders.setdefault(place, set()).add(c)
            undo = undo._replace(exclusive=True)
        if not self._node.enough(wanted, place, self._taken.get(place, {})):
            self._barred(c, place, undo)
            return None
        consumed: Amounts = ()
        if device.shareable:
            consumed = self._node.amounts(wanted, place) or ()
            self._sharers[place] = self._sharers.get(place, 0) + 1
            total = self._taken.setdefault(place, {})
            for name, amount in consumed:
                total[name] = total.get(name, 0) + amount
            undo = undo._replace(shared=True)
        self.given[c].append(GivenDevice(*place, wanted.name, wanted.ask, consumed))
        return undo

    def _barred(self, c: int, place: Place, undo: _Undo) -> None:
        """The device may not be chosen after all. 1.36 leaves what was changed for it as it is."""
        if not self._legacy:
            self._withdraw(c, place, undo)

    def _give_back(self, c: int, undo: _Undo) -> None:
        """Undo the last choice of a claim."""
        last = self.given[c].pop()
        self._withdraw(c, (last.pool, last.device), undo, last.consumed)

    def _withdraw(self, c: int, place: Place, undo: _Undo, consumed: Amounts = ()) -> None:
        for constraint in self._constraints[c][: undo.constraints]:
            constraint.remove(undo.wanted.request, undo.wanted.alternative)
        if undo.exclusive:
            self._holders[place].discard(c)
        # 1.36 takes nothing back of a shared device without capacity, so that it stays shared
        if undo.shared and (consumed or not self._legacy):
            self._sharers[place] -= 1
            for name, amount in consumed:
                self._taken[place][name] -= amount
        if undo.charged and (undo.exclusive or not self._legacy):
            device = self._node.pools[place[0]].devices[place[1]].device
            counters.take(self._counters(place[0]), device, -1)

    def _shared_already(self, place: Place) -> bool:
        """Whether somebody shares the device, who has paid for its counters."""
        one = self._node.pools[place[0]].devices[place[1]]
        if self._sharers.get(place) or one.id in self._node.usage.consumed:
            return True
        return not self._legacy and one.id in self._node.usage.shares

    def _counters(self, p: int) -> counters.Free:
        free = self._free.get(p)
        if free is None:
            pool = self._node.pools[p]
            used = (one for one in (*pool.devices, *pool.others) if self._node.usage.used(one.id))
            free = self._free[p] = offered_now(pool, used) or {}
        return free
