"""The audit's sums by zone (NUMA node): can all that stand on a node sit in its zones at once, by any order at all?

It shares no code with the scheduler, and reads the log alone. No object of the kubelet's names who sits in which zone,
so what is summed is what holds however they were seated: each container (or pod, by scope) that a policy keeps in one
zone is in one, and no zone gives more than is allocatable in it; what may lie over several zones takes of their sum.
Where no seating of that kind exists, zones are over-committed for certain. Katalyst's object names its pods: those sit
where it says, with what they ask for at least, and who is alone in a zone leaves nobody else room.

Not determined by the log, so held against nobody: which zone a kubelet chose; what finished init containers hold; zones
without an object, or one that cannot be read; pods that are not aligned (shared CPUs); one that wants several zones
alone; and a search that would take too long (``zone_seats.py``). ``unjudged`` counts Bindings of aligned pods for which
an object was there and no answer was found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.audit.ledger import ELIGIBILITY_GRACE_S
from lab.audit.rules import Amounts, Json, add, amounts
from lab.audit.zone_seats import Key, ZoneItem, seated
from lab.audit.zones import UNREAD, aligned, holder, kept_in_zones, kubelets_zones, sockets_zones, widest

LEVELS = {"None": "none", "BestEffort": "best-effort", "Restricted": "restricted", "SingleNUMANode": "single-numa-node"}
"""Names of policies in ``topologyPolicies``; PodLevel or ContainerLevel may follow."""


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
    def resources(self) -> frozenset[str]:
        """What any zone has of."""
        return frozenset(name for zone in self.most for name, value in zone.items() if value)


UNREADABLE = NodeInside(False, "", False, (), ())


def inside_of(kind: str, item: Json) -> NodeInside:
    """The zones of an object; ``UNREADABLE`` where it contradicts itself, or no manager has a policy of that name."""
    try:
        return _of_katalyst(item) if kind == "CustomNodeResource" else _of_kubelet(item)
    except UNREAD:
        return UNREADABLE


def _of_kubelet(item: Json) -> NodeInside:
    said = {one["name"]: one["value"] for one in item.get("attributes") or ()}
    level = str((item.get("topologyPolicies") or ["None"])[0])
    name = re.sub("(Pod|Container)Level$", "", level)
    policy = said.get("topologyManagerPolicy", LEVELS.get(name, ""))
    scope = said.get("topologyManagerScope", "pod" if level.endswith("PodLevel") else "container")
    zones = kubelets_zones(item)
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
    zones = sockets_zones(item)
    _check([zone["name"] for zone in zones], "none", "container")
    named: dict[str, list[tuple[int, Amounts]]] = {}
    for place, zone in enumerate(zones):
        for one in zone.get("allocations") or ():
            uid = holder(one)
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
    """A pod on a node as it was when it came; what a kubelet gave it stays as it was, whatever its policy is by now.
    ``under``: the objects by one of which it got that; ``mine``: its scheduler is the one that is judged;
    ``dedicated``: what Katalyst keeps in zones for it, and whether alone; None: nothing."""

    spec: Json
    came_s: float
    mine: bool
    under: tuple[NodeInside | None, ...]
    dedicated: tuple[Amounts, bool] | None
    items: dict[frozenset[str], tuple[ZoneItem, ...]] = field(default_factory=dict)
    """Its items in zones that have such resources."""


class ZoneSums:
    """Feed objects and pods in order; a Binding that no seating allows is told."""

    def __init__(self) -> None:
        self._inside: dict[tuple[str, str], list[tuple[float, NodeInside | None]]] = {}
        """By kind and node: since when it is so, as far back as it may have been seen last; None: no object."""
        self._pods: dict[str, dict[str, _Stander]] = {}
        self._seats: dict[str, dict[Key, int]] = {}
        """By node: in which zones all had room when last that was found out."""
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
        worlds = self._worlds(node, time_s)
        new = there[uid] = _Stander(pod.get("spec") or {}, time_s, mine, tuple(worlds), kept_in_zones(pod))
        if not mine or None in worlds:  # without an object nobody is asked for zones
            return ""
        seats = self._seats.setdefault(node, {})
        found = [_judge(inside, there, uid, new, time_s, seats) for inside in worlds if inside is not None]
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


def _judge(
    inside: NodeInside, there: dict[str, _Stander], uid: str, new: _Stander, time_s: float, seats: dict[Key, int]
) -> str | None:
    """ "" where the pod may be there, None where nobody can tell. Whom another scheduler put there a moment ago counts
    not: nobody may have seen it."""
    if inside is UNREADABLE:
        return None
    mine = list(_dedicated(inside, uid, new) if inside.katalyst else _aligned(inside, uid, new.spec, (inside,)))
    if not mine:
        return ""
    others = [
        item
        for other, one in there.items()
        if other != uid and (one.mine or time_s - one.came_s > ELIGIBILITY_GRACE_S)
        for item in _items(inside, other, one)
    ]
    if (fits := seated(inside.zones, [*others, *mine], seats)) is not False:
        return "" if fits else None
    if not (before := seated(inside.zones, others, seats)):  # False: it is not this one by which there is too much
        return None if before is None else ""
    wanted: Amounts = {}
    for item in (*others, *mine):
        add(wanted, dict(item.amounts))
    parts = (f"{name} {wanted[name]} of {[zone.get(name, 0) for zone in inside.zones]}" for name in sorted(wanted))
    return f"no seating in its zones exists: {', '.join(parts)}"


def _items(inside: NodeInside, uid: str, one: _Stander) -> Iterable[ZoneItem]:
    if inside.katalyst:
        return _dedicated(inside, uid, one)
    known = inside.resources
    if known not in one.items:
        one.items[known] = tuple(_aligned(inside, uid, one.spec, one.under))
    return one.items[known]


def _aligned(inside: NodeInside, uid: str, spec: Json, under: Sequence[NodeInside | None]) -> Iterator[ZoneItem]:
    """What of zones like ``inside`` its kubelet gave a pod that it let on ``under`` one of these objects. Where that
    may have been without one, or by one that cannot be read, it lies over several zones."""
    if "resources" in spec:  # a kubelet leaves pods with requests of their own alone
        return
    managers = [one for one in under if one is not None and one is not UNREADABLE and not one.katalyst]
    known = inside.resources.intersection(*(one.resources for one in managers))
    parts = [part for part in aligned(spec, known) if part]
    by_pod = all(one.by_pod and one.policy != "none" for one in managers)
    largest = widest(spec, known) if by_pod else {}
    if by_pod and parts:
        whole: Amounts = {}
        for part in parts:
            add(whole, part)
        parts = [whole]
    for number, part in enumerate(parts):
        spread = len(managers) < len(under) or any(_spreads(one, largest or part) for one in managers)
        if spread:  # devices that are in no zone may be given too
            part = {name: value for name, value in part.items() if "/" not in name}
        yield ZoneItem((uid, number), tuple(sorted(part.items())), spread=spread)


def _spreads(inside: NodeInside, asked: Amounts) -> bool:
    """Whether several zones may give what is asked for at once."""
    if inside.policy == "restricted":
        return not _in_one(asked, inside.most)
    return inside.policy != "single-numa-node"


def _dedicated(inside: NodeInside, uid: str, one: _Stander) -> Iterator[ZoneItem]:
    if one.dedicated is None:
        return
    requests, alone = one.dedicated
    # a CPU of which a pod asks for a part is its own as a whole
    asked = {name: -(-value // 1000) * 1000 if name == "cpu" else value for name, value in requests.items()}
    asked = {name: value for name, value in asked.items() if name in inside.resources}
    places = inside.named.get(uid, [])
    if len(places) > 1:  # whole zones: what it has in each is all that is known
        for number, (place, held) in enumerate(places):
            yield ZoneItem((uid, number), tuple(sorted(held.items())), zone=place, alone=alone)
    elif places or not alone or _in_one(asked, inside.zones):
        yield ZoneItem((uid, 0), tuple(sorted(asked.items())), zone=places[0][0] if places else None, alone=alone)


def _in_one(asked: Amounts, zones: Sequence[Amounts]) -> bool:
    return any(all(zone.get(name, 0) >= value for name, value in asked.items()) for zone in zones)
