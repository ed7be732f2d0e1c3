"""The audit's sums by zone (NUMA node): can all that stand on a node sit in its zones at once, by any order at all?

It shares no code with the scheduler, and reads the log alone. No object of the kubelet's names who sits in which zone,
so what is summed is what holds however they were seated: each container (or pod, by scope) that a policy keeps in one
zone is in one, and no zone gives more than is allocatable in it; what may lie over several zones takes of their sum.
Where no seating of that kind exists, zones are over-committed for certain. Katalyst's object names its pods: those sit
where it says, with what they ask for at least, and who is alone in a zone leaves nobody else room.

Not determined by the log, so held against nobody: which zone a kubelet chose; what finished init containers hold; zones
without an object, or one that cannot be read; pods that are not aligned (shared CPUs); one that wants several zones
alone; and a search that would take too long (``MOST_TRIES``). ``unjudged`` counts Bindings of aligned pods for which
an object was there and no answer was found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from lab.audit.ledger import ELIGIBILITY_GRACE_S
from lab.audit.rules import Amounts, Json, add, amounts
from lab.audit.zones import aligned, kept_in_zones

MOST_TRIES = 20_000
"""Seats tried for one Binding; source: our own choice, some 50 ms. Where most fit, so many as there are pods are."""
LEVELS = {"None": "none", "BestEffort": "best-effort", "Restricted": "restricted", "SingleNUMANode": "single-numa-node"}
"""Names of policies in ``topologyPolicies``; PodLevel or ContainerLevel may follow."""


@dataclass(frozen=True, slots=True)
class _Item:
    """What sits together. ``spread``: what of a whole zone no zone has, when more than one may give it; ``zone``: the
    only one that it may be in; ``alone``: nobody else is there."""

    amounts: tuple[tuple[str, int], ...]
    spread: bool = False
    zone: int | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class NodeInside:
    """A node's zones as an object shows them. ``most``: of each zone what it could give if it were empty, by which the
    kubelet tells who needs several; ``named``: by uid where Katalyst's object has a pod, and how much there."""

    katalyst: bool
    policy: str
    by_pod: bool
    zones: tuple[Amounts, ...]
    most: tuple[Amounts, ...]
    named: dict[str, list[tuple[int, Amounts]]] = field(default_factory=dict)

    @property
    def resources(self) -> set[str]:
        """What any zone has of."""
        return {name for zone in self.most for name, value in zone.items() if value}


UNREADABLE = NodeInside(False, "", False, (), ())


def inside_of(kind: str, item: Json) -> NodeInside:
    """The zones of an object; ``UNREADABLE`` where it contradicts itself, or no manager has a policy of that name."""
    try:
        return _of_katalyst(item) if kind == "CustomNodeResource" else _of_kubelet(item)
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNREADABLE


def _of_kubelet(item: Json) -> NodeInside:
    said = {one["name"]: one["value"] for one in item.get("attributes") or ()}
    level = str((item.get("topologyPolicies") or ["None"])[0])
    name = re.sub("(Pod|Container)Level$", "", level)
    policy = said.get("topologyManagerPolicy", LEVELS.get(name, ""))
    scope = said.get("topologyManagerScope", "pod" if level.endswith("PodLevel") else "container")
    zones = [zone for zone in item.get("zones") or () if zone.get("type") == "Node"]
    _check([zone["name"] for zone in zones], policy, scope)
    has = [{one["name"]: one for one in zone.get("resources") or ()} for zone in zones]
    free = tuple(amounts({name: one["allocatable"] for name, one in zone.items()}) for zone in has)
    full = [amounts({name: one["capacity"] for name, one in zone.items()}) for zone in has]
    # CPUs that are reserved count when a kubelet works out how many zones a request needs
    most = tuple(
        {**zone, "cpu": whole["cpu"]} if zone.get("cpu") else zone for zone, whole in zip(free, full, strict=True)
    )
    return NodeInside(False, policy, scope == "pod", free, most)


def _of_katalyst(item: Json) -> NodeInside:
    sockets = [one for one in (item.get("status") or {}).get("topologyZone") or () if one.get("type") == "Socket"]
    zones = [zone for one in sockets for zone in one.get("children") or () if zone.get("type") == "Numa"]
    _check([zone["name"] for zone in zones], "none", "container")
    named: dict[str, list[tuple[int, Amounts]]] = {}
    for place, zone in enumerate(zones):
        for one in zone.get("allocations") or ():
            uid = str(one["consumer"]).rpartition("/")[2]
            named.setdefault(uid, []).append((place, amounts(one.get("requests"))))
    free = tuple(amounts((zone.get("resources") or {}).get("allocatable")) for zone in zones)
    return NodeInside(True, "single-numa-node", False, free, free, named)


def _check(names: Sequence[str], policy: str, scope: str) -> None:
    numbers = [int(found[0]) if (found := re.search(r"\d+$", name)) else -1 for name in names]
    if -1 in numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"zones {names}")
    if policy not in LEVELS.values() or scope not in ("pod", "container"):
        raise ValueError(f"policy {policy}, scope {scope}")


@dataclass(frozen=True, slots=True)
class _Stander:
    """A pod on a node as it was when it came; what a kubelet gave it stays as it was. ``mine``: its scheduler is the
    one that is judged; ``dedicated``: what Katalyst keeps in zones for it, and whether alone; None: nothing."""

    spec: Json
    came_s: float
    mine: bool
    dedicated: tuple[Amounts, bool] | None


class ZoneSums:
    """Feed objects and pods in order; a Binding that no seating allows is told."""

    def __init__(self) -> None:
        self._inside: dict[tuple[str, str], list[tuple[float, NodeInside | None]]] = {}
        """By kind and node: since when it is so, as far back as it may have been seen last; None: no object."""
        self._pods: dict[str, dict[str, _Stander]] = {}
        self.unjudged = 0

    def change(self, kind: str, node: str, item: Json | None, time_s: float) -> None:
        """An object came, changed or (None) went."""
        history = self._inside.setdefault((kind, node), [(-math.inf, None)])
        inside = inside_of(kind, item) if item is not None else None
        if history[-1][1] != inside:
            history.append((time_s, inside))
        while len(history) > 1 and history[1][0] < time_s - ELIGIBILITY_GRACE_S:
            history.pop(0)

    def left(self, uid: str, node: str) -> None:
        """The pod is gone, or has finished."""
        self._pods.get(node, {}).pop(uid, None)

    def bound(self, uid: str, pod: Json, node: str, time_s: float, *, mine: bool) -> str:
        """A pod is on the node now: why it cannot be, by its zones; "" where it can, or nobody knows. ``mine``: whether
        whoever is judged put it there."""
        there = self._pods.setdefault(node, {})
        new = there[uid] = _Stander(pod.get("spec") or {}, time_s, mine, kept_in_zones(pod))
        worlds = self._worlds(node, time_s)
        if not mine or None in worlds:  # without an object nobody is asked for zones
            return ""
        found = [_judge(inside, there, uid, new, time_s) for inside in worlds if inside is not None]
        if None in found:
            self.unjudged += 1
        return "" if None in found or "" in found else found[-1] or ""

    def _worlds(self, node: str, time_s: float) -> list[NodeInside | None]:
        """What anybody may have seen of it by now; Katalyst's object counts alone where there is one."""
        for kind in ("CustomNodeResource", "NodeResourceTopology"):
            history = self._inside.get((kind, node), [(-math.inf, None)])
            first = max(at for at, (since, _) in enumerate(history) if not at or since < time_s - ELIGIBILITY_GRACE_S)
            if any(inside is not None for _, inside in history[first:]):
                return [inside for _, inside in history[first:]]
        return [None]


def _judge(inside: NodeInside, there: dict[str, _Stander], uid: str, new: _Stander, time_s: float) -> str | None:
    """ "" where the pod may be there, None where nobody can tell. Whom another scheduler put there a moment ago counts
    not: nobody may have seen it."""
    if inside is UNREADABLE:
        return None
    mine = list(_items(inside, uid, new))
    if not mine:
        return ""
    others = [
        item
        for other, one in there.items()
        if other != uid and (one.mine or time_s - one.came_s > ELIGIBILITY_GRACE_S)
        for item in _items(inside, other, one)
    ]
    fits = _seated(inside, [*others, *mine])
    if fits or not _seated(inside, others):  # it is not this one by which they are over-committed
        return "" if fits is not None else None
    wanted: Amounts = {}
    for item in (*others, *mine):
        add(wanted, dict(item.amounts))
    parts = (f"{name} {wanted[name]} of {[zone.get(name, 0) for zone in inside.zones]}" for name in sorted(wanted))
    return f"no seating in its zones exists: {', '.join(parts)}"


def _items(inside: NodeInside, uid: str, one: _Stander) -> Iterator[_Item]:
    if inside.katalyst:
        yield from _dedicated(inside, uid, one)
        return
    if "resources" in one.spec:  # a kubelet leaves pods with requests of their own alone
        return
    parts = [part for part in aligned(one.spec, inside.resources) if part]
    if inside.by_pod and parts and inside.policy != "none":
        whole: Amounts = {}
        for part in parts:
            add(whole, part)
        parts = [whole]
    for part in parts:
        spread = inside.policy != "single-numa-node" and not (
            inside.policy == "restricted" and _in_one(part, inside.most)
        )
        if spread:  # devices that are in no zone may be given too
            part = {name: value for name, value in part.items() if "/" not in name}
        yield _Item(tuple(sorted(part.items())), spread=spread)


def _dedicated(inside: NodeInside, uid: str, one: _Stander) -> Iterator[_Item]:
    if one.dedicated is None:
        return
    requests, alone = one.dedicated
    # a CPU of which a pod asks for a part is its own as a whole
    asked = {name: -(-value // 1000) * 1000 if name == "cpu" else value for name, value in requests.items()}
    asked = {name: value for name, value in asked.items() if name in inside.resources}
    places = inside.named.get(uid, [])
    if len(places) > 1:  # whole zones: what it has in each is all that is known
        yield from (_Item(tuple(sorted(held.items())), zone=place, alone=alone) for place, held in places)
    elif places or not alone or _in_one(asked, inside.zones):
        yield _Item(tuple(sorted(asked.items())), zone=places[0][0] if places else None, alone=alone)


def _in_one(asked: Amounts, zones: Sequence[Amounts]) -> bool:
    return any(all(zone.get(name, 0) >= value for name, value in asked.items()) for zone in zones)


def _seated(inside: NodeInside, items: Sequence[_Item]) -> bool | None:
    """Whether some seating has room for all; None: not found out."""
    free = [dict(zone) for zone in inside.zones]
    total: Amounts = {}
    for zone in free:
        add(total, zone)
    wanted: Amounts = {}
    for item in items:
        add(wanted, dict(item.amounts))
    if any(value > total.get(name, 0) for name, value in wanted.items()):
        return False
    apart = sorted((one for one in items if not one.spread), key=lambda one: _size(one, total), reverse=True)
    apart.sort(key=lambda one: one.zone is None)
    spread: Amounts = {}
    for one in items:
        if one.spread:
            add(spread, dict(one.amounts))
    search = _Search(free, apart, spread)
    return search.run(0)


def _size(item: _Item, total: Amounts) -> Fraction:
    return max((Fraction(value, total[name]) for name, value in item.amounts), default=Fraction(0)) + item.alone


class _Search:
    """Depth first, the largest first. Zones that are alike are tried once."""

    def __init__(self, free: list[Amounts], items: Sequence[_Item], spread: Amounts) -> None:
        self._free, self._items, self._spread = free, items, spread
        self._who: list[list[_Item]] = [[] for _ in free]
        self._left = MOST_TRIES

    def run(self, at: int) -> bool | None:
        if at == len(self._items):
            return all(sum(zone.get(name, 0) for zone in self._free) >= value for name, value in self._spread.items())
        item, unknown = self._items[at], False
        tried: list[tuple[Amounts, bool, bool]] = []
        for place, zone in enumerate(self._free):
            there = self._who[place]
            lonely = any(one.alone for one in there)
            if (item.zone is not None and item.zone != place) or (zone, bool(there), lonely) in tried:
                continue
            tried.append((dict(zone), bool(there), lonely))
            if lonely or (item.alone and there):
                continue
            if any(zone.get(name, 0) < value for name, value in item.amounts):
                continue
            self._left -= 1
            if self._left < 0:
                return None
            add(zone, dict(item.amounts), -1)
            there.append(item)
            found = self.run(at + 1)
            if found:
                return True
            add(zone, dict(item.amounts))
            there.pop()
            unknown = unknown or found is None
        return None if unknown else False
