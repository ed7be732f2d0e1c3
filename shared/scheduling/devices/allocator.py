"""Which devices of one node a pod's claims are given: depth first, the first solution wins.

    claims in the pod's order
      requests in the claim's order
        alternatives in the list's order          the first one with which all that follows can be had
          devices, ``count`` of them or all        by driver, pool, slice and place in it; of one request only onward

A choice that leads nowhere is undone. ``_Search`` says each of the four levels as a function that *yields* the next
level and is sent what came of it, so that a claim of 32 devices does not nest as many calls. What came of a level:

- FOUND: everything from here on can be had; what was chosen stays chosen
- NOT: it cannot, and everything is undone
- TOO_MANY: it cannot, for a claim would get more than 32 devices; other devices do not help, only fewer

A selector that fails on a device, and what no choice can repair, ends the search (``Failure``). So does its budget of
steps: it is counted, not timed, so that equal nodes are answered alike. Of like devices one is tried where it failed.

Quirks of 1.36, mended since (``release``): a device whose counters fit keeps them for the rest of the search when a
taint or a constraint then bars it, and a shareable one when the search backs out of it (kubernetes#140431); one that
was shared and no longer may be is given to one alone (#140798); ``All`` fails the whole cycle where a pool is
incomplete or invalid (#141898).

Source: kube-scheduler 1.36 ``structured/internal/incubating/allocator_incubating.go``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from shared.model.devices import MOST_RESULTS, Ask, DeviceClaim, DeviceClass
from shared.scheduling.devices import counters
from shared.scheduling.devices.capacity import Amounts, consumption, suffices
from shared.scheduling.devices.constraints import Constraint, constraint_of
from shared.scheduling.devices.expressions import SelectorError
from shared.scheduling.devices.pools import Pool, PoolDevice, offered_now, reaches
from shared.scheduling.devices.selectors import Selectors
from shared.scheduling.devices.taints import barred
from shared.scheduling.devices.usage import Usage
from shared.scheduling.framework import Code
from shared.scheduling.state.releases import Release

CANNOT = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"

STEPS_PER_NODE = 20_000
"""Devices that are tried on one node. A search that needs more has no solution worth waiting for (kube-scheduler: ten
seconds per node)."""


class Given(NamedTuple):
    """One device chosen: which one, for which request (``name`` or ``name/alternative``), and how much of it."""

    pool: int
    device: int
    request: str
    ask: Ask
    consumed: Amounts


class Found(NamedTuple):
    """``given``: per claim, in the order of its requests. ``chosen``: per claim and request, which alternative."""

    given: tuple[tuple[Given, ...], ...]
    chosen: tuple[tuple[int, ...], ...]
    steps: int = 0


class Failure(NamedTuple):
    """Why nothing is given. ``code`` ERROR fails the whole cycle. ``text`` may hold ``{claim}``, ``{pool}`` and
    ``{device}`` (``say`` fills them in), as equal nodes share one answer. ``exhausted``: the steps were used up."""

    code: Code
    text: str
    claim: int = -1
    pool: int = -1
    device: int = -1
    steps: int = 0
    exhausted: bool = False

    def say(self, claims: Sequence[DeviceClaim], pools: Sequence[Pool]) -> str:
        """The reason in full."""
        text = self.text
        if self.claim >= 0:
            text = text.replace("{claim}", claims[self.claim].key)
        if self.pool >= 0:
            pool = pools[self.pool]
            text = text.replace("{pool}", "/".join(pool.id))
            if self.device >= 0:
                text = text.replace("{device}", "/".join(pool.devices[self.device].id))
        return text


class _Outcome(Enum):
    FOUND = 1
    NOT = 2
    TOO_MANY = 3


_Level = Generator["_Level", _Outcome, _Outcome]


class _Ended(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


@dataclass(slots=True)
class _Wanted:
    """One request or alternative, looked up: ``everything``: the devices that ``All`` means; ``verdicts``: what its
    selectors said."""

    ask: Ask
    request: str
    alternative: str
    selectors: tuple[tuple[str, str], ...]
    """(whose: ``class NAME`` or ``claim {claim}``, with its number; expression)."""
    count: int = 0
    everything: list[tuple[int, int]] | None = None
    verdicts: dict[tuple[int, int], bool] = field(default_factory=dict)
    amounts: dict[tuple[int, int], Amounts | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.request}/{self.alternative}" if self.alternative else self.request


class _Undo(NamedTuple):
    wanted: _Wanted
    constraints: int
    charged: bool
    exclusive: bool
    counted: bool


class Allocator:
    """What one node can give. ``pools`` in order; ``node``: its name and labels, for devices that say who reaches
    them."""

    def __init__(
        self, pools: Sequence[Pool], usage: Usage, selectors: Selectors, classes: Mapping[str, DeviceClass],
        release: Release, node: tuple[str, Mapping[str, str]],
    ) -> None:  # fmt: skip
        self.pools, self.usage, self.selectors, self.classes = pools, usage, selectors, classes
        self.release, self.node = release, node

    def allocate(self, claims: Sequence[DeviceClaim], steps: int = STEPS_PER_NODE) -> Found | Failure:
        """The first solution, or why there is none within so many steps."""
        search = _Search(self, claims, steps)
        try:
            search.prepare()
            outcome = _run(search.request(0, 0))
        except _Ended as ended:
            return ended.failure._replace(steps=search.steps)
        if outcome is _Outcome.FOUND:
            return Found(tuple(map(tuple, search.given)), tuple(map(tuple, search.chosen)), search.steps)
        if outcome is _Outcome.TOO_MANY:
            return Failure(Code.ERROR, "allocation max size exceeded", steps=search.steps)
        invalid = any(pool.invalid for pool in self.pools)
        return Failure(Code.UNRESOLVABLE, INVALID_POOLS if invalid else CANNOT, steps=search.steps)


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
    def __init__(self, of: Allocator, claims: Sequence[DeviceClaim], steps: int) -> None:
        self._of, self._claims, self._budget = of, claims, steps
        self._legacy = of.release is Release.V1_36
        self.steps = 0
        self.given: list[list[Given]] = [[] for _ in claims]
        self.chosen: list[list[int]] = [[0] * len(claim.requests) for claim in claims]
        self._wanted: list[list[list[_Wanted]]] = []
        self._constraints: list[list[Constraint]] = []
        self._holders: dict[tuple[int, int], set[int]] = {}
        """Which claims hold a device for themselves, in this search."""
        self._shared: dict[tuple[int, int], dict[str, int]] = {}
        """What is taken of a shared device, in this search."""
        self._sharers: dict[tuple[int, int], int] = {}
        self._free: dict[int, counters.Free] = {}

    # --- before the search --------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Look everything up; raises ``_Ended`` where that alone shows that there is no solution."""
        for c, claim in enumerate(self._claims):
            if claim.problem:
                raise _Ended(Failure(Code.ERROR, f"claim {{claim}}: {claim.problem}", c))
            requests: list[list[_Wanted]] = []
            least = 0
            for request in claim.requests:
                alternatives = [self._look_up(c, request.name, ask, bool(request.alternatives)) for ask in request.asks]
                requests.append(alternatives)
                least += min((one.count for one in alternatives), default=0)
            if least > MOST_RESULTS:
                text = f"claim {{claim}}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
                raise _Ended(Failure(Code.ERROR, text, c))
            self._wanted.append(requests)
            self._constraints.append([constraint_of(spec, self._of.release) for spec in claim.constraints])

    def _look_up(self, c: int, request: str, ask: Ask, alternative: bool) -> _Wanted:
        class_ = self._of.classes.get(ask.class_name)
        if class_ is None:
            text = f"claim {{claim}}, request {ask.name}: could not retrieve device class {ask.class_name}"
            raise _Ended(Failure(Code.ERROR, text, c))
        selectors = [(f"class {class_.name}: selector #{i}", one) for i, one in enumerate(class_.selectors)]
        selectors += [(f"claim {{claim}}: selector #{i}", one) for i, one in enumerate(ask.selectors)]
        found = _Wanted(ask, request, ask.name if alternative else "", tuple(selectors), ask.count)
        if ask.mode == "All":
            found.everything = self._everything(c, found)
            found.count = len(found.everything)
        return found

    def _everything(self, c: int, wanted: _Wanted) -> list[tuple[int, int]]:
        """All devices that match and may be asked for as much as is wanted of them."""
        found = []
        code = Code.ERROR if self._legacy else Code.UNRESOLVABLE
        for p, pool in enumerate(self._of.pools):
            if not pool.usable:
                state = "being updated" if pool.incomplete else "invalid"
                text = f"claim {{claim}}, request {wanted.ask.name}: asks for all devices, but resource pool {{pool}}"
                raise _Ended(Failure(code, f"{text} is currently {state}", c, p))
            possible = (d for d in range(len(pool.devices)) if self._selectable(c, wanted, p, d))
            found += [(p, d) for d in possible if self._enough(wanted, p, d)]
        return found

    # --- the levels ---------------------------------------------------------------------------------------------------

    def request(self, c: int, r: int) -> _Level:
        """Request ``r`` of claim ``c``, and all that follows."""
        if c >= len(self._claims):
            return _Outcome.FOUND
        if r >= len(self._claims[c].requests):
            outcome = yield self.request(c + 1, 0)
            # a claim before may take another alternative, which leaves this one the same: but its devices differ
            return _Outcome.NOT if outcome is _Outcome.TOO_MANY else outcome
        alternatives = self._wanted[c][r]
        if not self._claims[c].requests[r].alternatives:
            return (yield self._devices(c, r, alternatives[0], 0, (0, 0)))
        too_many = True
        for index, wanted in enumerate(alternatives):
            outcome = yield self._devices(c, r, wanted, 0, (0, 0))
            if outcome is _Outcome.TOO_MANY:
                continue
            too_many = False
            if outcome is _Outcome.FOUND:
                self.chosen[c][r] = index
                return _Outcome.FOUND
        return _Outcome.TOO_MANY if too_many else _Outcome.NOT

    def _devices(self, c: int, r: int, wanted: _Wanted, n: int, start: tuple[int, int]) -> _Level:
        """The ``n``-th device of a request and all after it, from ``start`` on."""
        if wanted.everything is not None and not wanted.everything:
            return _Outcome.NOT
        if n >= wanted.count:
            return (yield self.request(c, r + 1))
        if len(self.given[c]) + wanted.count - n > MOST_RESULTS:
            return _Outcome.TOO_MANY
        if wanted.everything is not None:
            undo = self._take(c, wanted, *wanted.everything[n], must=True)
            if undo is None:
                return _Outcome.NOT
            outcome = yield self._devices(c, r, wanted, n + 1, start)
            if outcome is not _Outcome.FOUND:
                self._give_back(c, undo)
            return outcome
        failed: set[object] = set()
        for p in range(start[0], len(self._of.pools)):
            pool = self._of.pools[p]
            if not pool.usable:
                continue
            for d in range(start[1] if p == start[0] else 0, len(pool.devices)):
                like = self._like(p, d)
                if like in failed or not self._possible(c, wanted, p, d):
                    continue
                undo = self._take(c, wanted, p, d, must=False)
                if undo is None:
                    continue
                outcome = yield self._devices(c, r, wanted, n + 1, (p, d + 1))
                if outcome is _Outcome.FOUND:
                    return outcome
                self._give_back(c, undo)
                if outcome is _Outcome.TOO_MANY:
                    return outcome
                if like is not None:
                    failed.add(like)
        return _Outcome.NOT

    # --- one device ---------------------------------------------------------------------------------------------------

    def _like(self, p: int, d: int) -> object:
        """Equal for devices of which one is as good as the other here; None: it is like no other. In 1.36 a choice that
        is undone may leave traces, so there none is."""
        one = self._of.pools[p].devices[d]
        if self._legacy or one.device.shareable:
            return None
        # admin access takes also what is in use, and then leaves more to others than a free device does
        holders = frozenset(self._holders.get((p, d), ())), one.id in self._of.usage.exclusive
        return one.facts, one.device.taints, one.device.consumes and (p, one.device.consumes), holders

    def _possible(self, c: int, wanted: _Wanted, p: int, d: int) -> bool:
        """What is cheap to know before anything is taken: in use, the selectors, the capacity."""
        if wanted.ask.admin:
            if c in self._holders.get((p, d), ()):
                return False
        elif self._in_use(p, d):
            return False
        return self._selectable(c, wanted, p, d) and self._enough(wanted, p, d)

    def _in_use(self, p: int, d: int) -> bool:
        one = self._of.pools[p].devices[d]
        if one.id in self._of.usage.exclusive or self._holders.get((p, d)):
            return True
        return not self._legacy and not one.device.shareable and one.id in self._of.usage.shares

    def _selectable(self, c: int, wanted: _Wanted, p: int, d: int) -> bool:
        found = wanted.verdicts.get((p, d))
        if found is None:
            one = self._of.pools[p].devices[d]
            found = wanted.verdicts[p, d] = self._selected(c, wanted, one) and self._reached(one)
        return found

    def _selected(self, c: int, wanted: _Wanted, one: PoolDevice) -> bool:
        for whose, expression in wanted.selectors:
            try:
                if not self._of.selectors.matches(expression, one.facts):
                    return False
            except SelectorError as error:
                raise _Ended(Failure(Code.ERROR, f"{whose}: {error}", c)) from None
        return True

    def _reached(self, one: PoolDevice) -> bool:
        return not one.slice.per_device or reaches(one.device.reach, *self._of.node)

    def _amounts(self, wanted: _Wanted, p: int, d: int) -> Amounts | None:
        key = (p, d)
        if key not in wanted.amounts:
            one = self._of.pools[p].devices[d]
            wanted.amounts[key] = consumption(one.id[0], one.device, wanted.ask.capacity, self._of.release)
        return wanted.amounts[key]

    def _enough(self, wanted: _Wanted, p: int, d: int) -> bool:
        one = self._of.pools[p].devices[d]
        if not one.device.capacity and not wanted.ask.capacity:
            return True
        amounts = self._amounts(wanted, p, d)
        used = self._of.usage.consumed.get(one.id, {})
        return amounts is not None and suffices(one.device, amounts, used, self._shared.get((p, d), {}))

    def _take(self, c: int, wanted: _Wanted, p: int, d: int, *, must: bool) -> _Undo | None:
        """Choose the device; None where it may not be. ``must``: no other will do."""
        self.steps += 1
        if self.steps > self._budget:
            text = f"gave up the search for devices after {self._budget} steps: too many combinations to try"
            raise _Ended(Failure(Code.UNRESOLVABLE, text, exhausted=True))
        one = self._of.pools[p].devices[d]
        device, key = one.device, (p, d)
        if wanted.ask.admin:
            if not device.shareable and c in self._holders.get(key, ()):
                return None
        elif self._in_use(p, d):
            return None
        charged = False
        if device.consumes and not (device.shareable and self._shares_already(p, d)):
            free = self._counters(p)
            counters.take(free, device)
            if counters.overdrawn(free):
                counters.take(free, device, -1)
                return None
            charged = True
        undo = _Undo(wanted, 0, charged, exclusive=False, counted=False)
        if barred(device, wanted.ask.tolerations):
            self._back_out(c, p, d, undo)
            return None
        for index, constraint in enumerate(self._constraints[c]):
            if not constraint.add(wanted.request, wanted.alternative, one.id[0], device):
                if must:
                    text = f"claim {{claim}}, request {wanted.ask.name}: cannot add device {{device}}"
                    text += " because a claim constraint would not be satisfied"
                    raise _Ended(Failure(Code.ERROR, text, c, p, d))
                for before in self._constraints[c][:index]:
                    before.remove(wanted.request, wanted.alternative)
                self._back_out(c, p, d, undo)
                return None
        undo = undo._replace(constraints=len(self._constraints[c]))
        if not device.shareable:
            self._holders.setdefault(key, set()).add(c)
            undo = undo._replace(exclusive=True)
        if not self._enough(wanted, p, d):
            if not self._legacy:
                self._withdraw(c, p, d, undo)
            return None
        consumed: Amounts = ()
        if device.shareable:
            consumed = self._amounts(wanted, p, d) or ()
            self._sharers[key] = self._sharers.get(key, 0) + 1
            total = self._shared.setdefault(key, {})
            for name, amount in consumed:
                total[name] = total.get(name, 0) + amount
            undo = undo._replace(counted=True)
        self.given[c].append(Given(p, d, wanted.name, wanted.ask, consumed))
        return undo

    def _give_back(self, c: int, undo: _Undo) -> None:
        """Undo the last choice of a claim."""
        last = self.given[c].pop()
        self._withdraw(c, last.pool, last.device, undo, last.consumed)

    def _withdraw(self, c: int, p: int, d: int, undo: _Undo, consumed: Amounts = ()) -> None:
        for constraint in self._constraints[c][: undo.constraints]:
            constraint.remove(undo.wanted.request, undo.wanted.alternative)
        if undo.exclusive:
            self._holders[p, d].discard(c)
        # 1.36 takes nothing back of a shared device without capacity, so that it stays shared
        if undo.counted and (consumed or not self._legacy):
            self._sharers[p, d] -= 1
            for name, amount in consumed:
                self._shared[p, d][name] -= amount
        if undo.charged and (undo.exclusive or not self._legacy):
            counters.take(self._counters(p), self._of.pools[p].devices[d].device, -1)

    def _back_out(self, c: int, p: int, d: int, undo: _Undo) -> None:
        """The device is barred before it was chosen. 1.36 leaves its counters taken."""
        if not self._legacy:
            self._withdraw(c, p, d, undo)

    def _shares_already(self, p: int, d: int) -> bool:
        """Whether somebody shares the device, who has paid for its counters."""
        one = self._of.pools[p].devices[d]
        if self._sharers.get((p, d)) or one.id in self._of.usage.consumed:
            return True
        return not self._legacy and one.id in self._of.usage.shares

    def _counters(self, p: int) -> counters.Free:
        free = self._free.get(p)
        if free is None:
            pool = self._of.pools[p]
            used = (one for one in (*pool.devices, *pool.others) if self._of.usage.used(one.id))
            free = self._free[p] = offered_now(pool, used) or {}
        return free
