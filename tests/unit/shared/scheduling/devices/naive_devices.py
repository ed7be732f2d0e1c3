"""The rules about devices said once more, as plainly as they can be: every combination is tried, whole.

Nothing is cut short and nothing is undone: a combination of devices is made first and then asked whether it may be, by
sums and sets over all of it. So it takes only small clusters. Selectors are Python functions (``random_devices``).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from shared.model.devices import NANO, Device, DeviceAsk, DeviceClaim, DeviceSlice
from shared.model.node import Node
from tests.unit.shared.scheduling.devices.random_devices import CLASSES, SELECTORS

CANNOT, INVALID = "cannot allocate all claims", "invalid resource pools were encountered"


@dataclass(frozen=True)
class Offered:
    driver: str
    pool: str
    device: Device

    @property
    def id(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device.name


@dataclass(frozen=True)
class Pick:
    claim: int
    request: str
    ask: DeviceAsk
    offered: Offered


@dataclass
class Seen:
    """What a node sees: devices in order, counters by pool, and pools that are of no use."""

    devices: list[Offered]
    counters: dict[tuple[str, str], dict[tuple[str, str], int]]
    bad: list[str]
    invalid: bool


def reached(one: DeviceSlice, node: Node) -> bool:
    reach = one.reach
    if reach.node_name:
        return reach.node_name == node.name
    if reach.all_nodes:
        return True
    return any(all(node.labels.get(need.key) in need.values for need in term.expressions) for term in reach.terms or ())


def seen_by(node: Node, slices: list[DeviceSlice]) -> Seen:
    found = Seen([], {}, [], invalid=False)
    for driver, pool in sorted({(one.driver, one.pool) for one in slices}):
        mine = [one for one in slices if (one.driver, one.pool) == (driver, pool)]
        here = [one for one in mine if reached(one, node)]
        if not here:
            continue
        newest = max(one.generation for one in here)
        here = sorted((one for one in here if one.generation == newest), key=lambda one: one.name)
        current = [one for one in mine if one.generation == newest]
        if len(here) != here[0].count:
            if max(one.generation for one in mine) > newest:
                continue
            if len(current) != here[0].count:
                found.bad.append(f"{driver}/{pool} is currently being updated")
                continue
        devices = [
            Offered(driver, pool, device) for one in sorted(here, key=lambda s: s.name) for device in one.devices
        ]
        offered = {(name, c): n for one in here for name, counters in one.counter_sets for c, n in counters}
        consumed = {
            (name, c) for one in current for d in one.devices for name, counters in d.consumes for c, _ in counters
        }
        names = [one.device.name for one in devices]
        if len(set(names)) < len(names) or consumed - offered.keys():
            found.bad.append(f"{driver}/{pool} is currently invalid")
            found.invalid = True
            continue
        found.devices += devices
        found.counters[driver, pool] = offered
    return found


def amount(ask: DeviceAsk, name: str, device: Device) -> float | None:
    """What is taken of one capacity; None: it may not be asked for that much."""
    capacity = dict(device.capacity)[name]
    wanted = dict(ask.capacity).get(name)
    policy = capacity.policy
    if policy is None:
        return capacity.value if wanted is None else wanted
    if wanted is None:
        return policy.default or capacity.value
    wanted = max(wanted, policy.least or 0)
    steps = ceil((ceil(wanted / NANO) - (policy.least or 0) / NANO) / ((policy.step or NANO) / NANO))
    rounded = (policy.least or 0) + steps * (policy.step or NANO)
    return None if policy.most is not None and rounded > policy.most else rounded


def matches(ask: DeviceAsk, offered: Offered) -> bool:
    selectors = (*CLASSES[ask.class_name].selectors, *ask.selectors)
    return all(SELECTORS[one](offered.driver, offered.device) for one in selectors)


def has_capacity(ask: DeviceAsk, device: Device, used: Counter[str]) -> bool:
    names = {name for name, _ in device.capacity}
    if {name for name, _ in ask.capacity} - names:
        return False
    amounts = {name: amount(ask, name, device) for name in names}
    return all(a is not None and a + used[name] <= dict(device.capacity)[name].value for name, a in amounts.items())


class Naive:
    """One node and one pod."""

    def __init__(
        self, node: Node, slices: list[DeviceSlice], users: list[DeviceClaim], claims: list[DeviceClaim]
    ) -> None:
        self.seen, self.claims = seen_by(node, slices), claims
        self.alone: set[tuple[str, str, str]] = set()
        self.shared: set[tuple[str, str, str]] = set()
        self.consumed: dict[tuple[str, str, str], Counter[str]] = {}
        for user in users:
            for result in user.allocation.results if user.allocation else ():
                if result.admin:
                    continue
                (self.shared if result.share else self.alone).add(result.id)
                if result.consumed:
                    self.consumed.setdefault(result.id, Counter()).update(dict(result.consumed))

    def answer(self) -> list[list[tuple[str, tuple[str, str, str]]]] | str:
        """Per claim (request, device) in order, or why not."""
        asks = [(claim, ask) for claim in self.claims for request in claim.requests for ask in request.asks]
        for claim, ask in asks:
            if ask.mode == "All" and self.seen.bad:
                who = f"claim {claim.key}, request {ask.name}"
                return f"{who}: asks for all devices, but resource pool {self.seen.bad[0]}"
        for picks in self.combinations():
            if self.holds(picks):
                found: list[list[tuple[str, tuple[str, str, str]]]] = [[] for _ in self.claims]
                for pick in picks:
                    found[pick.claim].append((pick.request, pick.offered.id))
                return found
        return INVALID if self.seen.invalid else CANNOT

    def combinations(self) -> Iterator[tuple[Pick, ...]]:
        """Every choice of alternatives and devices, the preferred first."""
        levels = []
        for index, claim in enumerate(self.claims):
            for request in claim.requests:
                options = []
                for ask in request.asks:
                    name = f"{request.name}/{ask.name}" if request.alternatives else request.name
                    options += [tuple(Pick(index, name, ask, one) for one in devices) for devices in self.choices(ask)]
                levels.append(options)
        for combination in itertools.product(*levels):
            yield tuple(itertools.chain.from_iterable(combination))

    def choices(self, ask: DeviceAsk) -> Iterator[tuple[Offered, ...]]:
        fitting = [one for one in self.seen.devices if matches(ask, one)]
        if ask.mode != "All":
            yield from itertools.combinations(fitting, ask.count)
            return
        every = [one for one in fitting if has_capacity(ask, one.device, self.consumed.get(one.id, Counter()))]
        if every:
            yield tuple(every)

    def holds(self, picks: tuple[Pick, ...]) -> bool:
        return (
            all(self.free(picks, index) for index in range(len(picks)))
            and all(self.tolerated(pick) for pick in picks)
            and self.capacities(picks)
            and self.counters(picks)
            and all(self.constrained(picks, index) for index in range(len(self.claims)))
        )

    def free(self, picks: tuple[Pick, ...], index: int) -> bool:
        """A device has one holder; admin access looks past all but those of its own claim."""
        pick = picks[index]
        one = pick.offered
        before = [other for other in picks[:index] if other.offered.id == one.id and not one.device.shareable]
        if pick.ask.admin:
            return all(other.claim != pick.claim for other in before)
        if one.id in self.alone or (one.id in self.shared and not one.device.shareable):
            return False
        return not before

    def tolerated(self, pick: Pick) -> bool:
        barring = [taint for taint in pick.offered.device.taints if taint.effect in ("NoSchedule", "NoExecute")]
        return not barring or bool(pick.ask.tolerations)

    def capacities(self, picks: tuple[Pick, ...]) -> bool:
        total = {id_: Counter(used) for id_, used in self.consumed.items()}
        for pick in picks:
            one = pick.offered
            used = total.setdefault(one.id, Counter())
            if not has_capacity(pick.ask, one.device, used):
                return False
            if one.device.shareable:
                for name, _ in one.device.capacity:
                    used[name] += int(amount(pick.ask, name, one.device) or 0)
        return True

    def counters(self, picks: tuple[Pick, ...]) -> bool:
        for pool, offered in self.seen.counters.items():
            taken: Counter[tuple[str, str]] = Counter()
            for one in self.seen.devices:
                if (one.driver, one.pool) == pool and one.id in self.alone | self.shared:
                    taken.update({(name, c): n for name, counters in one.device.consumes for c, n in counters})
            charged = False
            sharing = set(self.shared)
            for pick in picks:
                one = pick.offered
                if (one.driver, one.pool) != pool or not one.device.consumes or one.id in sharing:
                    continue
                taken.update({(name, c): n for name, counters in one.device.consumes for c, n in counters})
                charged = True
                if one.device.shareable:
                    sharing.add(one.id)
            if charged and any(taken[key] > n for key, n in offered.items()):
                return False
        return True

    def constrained(self, picks: tuple[Pick, ...], index: int) -> bool:
        for constraint in self.claims[index].constraints:
            values = []
            for pick in picks:
                named = {pick.request, pick.request.partition("/")[0]}
                if pick.claim != index or (constraint.requests and named.isdisjoint(constraint.requests)):
                    continue
                own = dict(pick.offered.device.attributes)
                driver, _, short = constraint.attribute.partition("/")
                value = own.get(constraint.attribute) or (own.get(short) if driver == pick.offered.driver else None)
                if value is None:
                    return False
                values.append((value.kind, value.value))
            kinds = len(set(values))
            if values and (kinds != len(values) if constraint.distinct else kinds != 1):
                return False
        return True
