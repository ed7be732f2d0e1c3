"""The audit's view of zones: would a node surely let a pod on, and did its kubelet refuse one.

It shares no code with the scheduler, and says yes only where there is no doubt: each container, one after the other,
finds all that it is aligned by available in one zone, beside those before it. Where that is not so, memory may lie over
several zones, or the object is late, which is not judged. Where Katalyst's object tells of the node it alone counts: a
pod of dedicated cores that is bound to zones is surely let on where one zone has room for its main container and nobody
who wants it alone, or has nobody where it wants one alone, once the object names all that are bound there; others are
not asked for zones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TypeVar

from lab.audit.rules import Amounts, Json, add, amounts

KINDS = frozenset({"NodeResourceTopology", "CustomNodeResource"})
OUT_OF = "OutOf"
"""Before the resource that a node has too little of, in a kubelet's reason."""
REFUSED = frozenset({"TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError"})
"""Reasons of pods that a kubelet's managers refused."""


T = TypeVar("T")

UNREAD = (ValueError, KeyError, TypeError, AttributeError)
"""What reading an object raises that is not as its definition has it."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A zone of Katalyst's: what it has, and what of it who holds, by uid."""

    allocatable: Amounts
    held: list[tuple[str, Amounts]]


class ZonesAudit:
    """Objects by the name of their node."""

    def __init__(self) -> None:
        self._zones: dict[str, list[Amounts] | None] = {}
        self._katalyst: dict[str, list[_Taken] | None] = {}
        """None: nobody can read the object."""
        self._dedicated: dict[str, tuple[str, bool]] = {}
        """Of pods of dedicated cores by uid: their node, and whether they want their zones alone."""

    def saw(self, uid: str, pod: Json, *, ended: bool) -> None:
        """A pod as it is now; one that was of dedicated cores when it was bound stays that."""
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if ended:
            self._dedicated.pop(uid, None)
        elif node and uid not in self._dedicated and (asked := _bound_to_zones(pod)) is not None:
            self._dedicated[uid] = node, asked.get("numa_exclusive") == "true"

    def change(self, name: str, topology: Json | None, kind: str = "NodeResourceTopology") -> None:
        """An object came, changed or (None) went."""
        if kind == "CustomNodeResource":
            self._katalyst.pop(name, None)
            if topology is not None:
                self._katalyst[name] = _read(_taken, topology)
            return
        self._zones.pop(name, None)
        if topology is not None:
            self._zones[name] = _read(_available, topology)

    def admits(self, pod: Json, node: str) -> bool:
        """Whether there is no doubt that the node's kubelet lets the pod on."""
        if node in self._katalyst:
            return self._katalyst_admits(pod, node)
        has = self._zones.get(node, [])
        if has is None:
            return False
        zones = [dict(zone) for zone in has]
        spec = pod.get("spec") or {}
        if not zones:
            return True
        known = {name for zone in zones for name in zone}
        if spec.get("initContainers"):  # what they hold besides is not worked out
            every = [*spec["initContainers"], *(spec.get("containers") or ())]
            return not any(aligned({**spec, "initContainers": [], "containers": every}, known))
        return all(_seat(wanted, zones) for wanted in aligned(spec, known))

    def _katalyst_admits(self, pod: Json, node: str) -> bool:
        if _bound_to_zones(pod) is None:
            return True
        kept = kept_in_zones(pod)
        if kept is None:
            return False
        requests, alone = kept
        zones = self._katalyst[node]
        if zones is None:
            return False
        named = {uid for zone in zones for uid, _ in zone.held}
        if any(at == node and uid not in named for uid, (at, _) in self._dedicated.items()):
            return False  # nobody knows which zone that one has
        lonely = {uid for uid, (_, lonely) in self._dedicated.items() if lonely}
        return any(_has_room(zone, requests, lonely, alone=alone) for zone in zones)


def kept_in_zones(pod: Json) -> tuple[Amounts, bool] | None:
    """What Katalyst's agent keeps in zones for a pod of dedicated cores: its main container's requests, and whether
    alone; None where it keeps nothing, or nobody can read what it is to keep."""
    wanted, containers = _bound_to_zones(pod), (pod.get("spec") or {}).get("containers") or ()
    if not wanted or not containers:
        return None
    main = pod["metadata"]["annotations"].get("kubernetes.io/main-container-name") or containers[0]["name"]
    asked = next((one for one in containers if one["name"] == main), None)
    if asked is None:
        return None
    return amounts((asked.get("resources") or {}).get("requests")), wanted.get("numa_exclusive") == "true"


def _bound_to_zones(pod: Json) -> Json | None:
    """What a pod of dedicated cores says of the zones that it is bound to, {} where nobody can read it; None: it is not
    bound to any."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if annotations.get("katalyst.kubewharf.io/qos_level") != "dedicated_cores":
        return None
    try:
        wanted = json.loads(annotations.get("katalyst.kubewharf.io/memory_enhancement") or "{}")
    except ValueError:
        return {}
    if not isinstance(wanted, dict) or not all(isinstance(one, str) for one in wanted.values()):
        return {}
    return wanted if wanted.get("numa_binding") == "true" else None


def _has_room(zone: _Taken, requests: Amounts, lonely: set[str], *, alone: bool) -> bool:
    if (alone and zone.held) or any(uid in lonely for uid, _ in zone.held):
        return False
    free = {name: amount - sum(of.get(name, 0) for _, of in zone.held) for name, amount in zone.allocatable.items()}
    # a CPU of which a pod asks for a part is its own as a whole
    return all(-(-amount // 1000) * 1000 <= free[name] if name == "cpu" else amount <= free[name]
               for name, amount in requests.items() if name in free)  # fmt: skip


def refused(pod: Json) -> bool:
    """Whether the kubelet of its node refused the pod."""
    status = pod.get("status") or {}
    reason = status.get("reason") or ""
    return status.get("phase") == "Failed" and (reason in REFUSED or reason.startswith(OUT_OF))


def kubelets_zones(item: Json) -> list[Json]:
    """The zones of a NodeResourceTopology."""
    return [zone for zone in item.get("zones") or () if zone.get("type") == "Node"]


def sockets_zones(item: Json) -> list[Json]:
    """The zones of Katalyst's CustomNodeResource."""
    sockets = [one for one in (item.get("status") or {}).get("topologyZone") or () if one.get("type") == "Socket"]
    return [zone for one in sockets for zone in one.get("children") or () if zone.get("type") == "Numa"]


def holder(allocation: Json) -> str:
    """The uid of the pod that Katalyst's allocation is of."""
    return str(allocation["consumer"]).rpartition("/")[2]


def _read(read: Callable[[Json], list[T]], item: Json) -> list[T] | None:
    try:
        return read(item)
    except UNREAD:
        return None


def _available(item: Json) -> list[Amounts]:
    resources = (zone.get("resources") or () for zone in kubelets_zones(item))
    return [amounts({one["name"]: one.get("available", "0") for one in of}) for of in resources]


def _taken(item: Json) -> list[_Taken]:
    return [
        _Taken(
            amounts((zone.get("resources") or {}).get("allocatable")),
            [(holder(one), amounts(one.get("requests"))) for one in zone.get("allocations") or ()],
        )
        for zone in sockets_zones(item)
    ]


def _seat(wanted: Amounts, zones: list[Amounts]) -> bool:
    for zone in zones:
        if all(zone.get(name, 0) >= value for name, value in wanted.items()):
            for name, value in wanted.items():
                zone[name] -= value
            return True
    return False


def aligned(spec: Json, known: Set[str]) -> Iterator[Amounts]:
    """Of each container that stays, sidecars first, what it is aligned by, of what zones have (``known``)."""
    first, align = spec.get("initContainers") or (), _alignment(spec, known)
    yield from map(align, (*filter(_stays, first), *(spec.get("containers") or ())))


def widest(spec: Json, known: Set[str]) -> Amounts:
    """What a pod that is aligned as a whole is by: of each resource the most that it needs at once, at its start (an
    init container with the sidecars before it) or after it."""
    align, most = _alignment(spec, known), Amounts()
    sidecars: Amounts = {}
    for one in spec.get("initContainers") or ():
        needs = align(one)
        add(needs, sidecars)
        if _stays(one):
            sidecars = needs
        else:
            most = {name: max(most.get(name, 0), needs.get(name, 0)) for name in {**most, **needs}}
    for one in spec.get("containers") or ():
        add(sidecars, align(one))
    return {name: max(most.get(name, 0), sidecars.get(name, 0)) for name in {**most, **sidecars}}


def _stays(init_container: Json) -> bool:
    return init_container.get("restartPolicy") == "Always"


def _alignment(spec: Json, known: Set[str]) -> Callable[[Json], Amounts]:
    every = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    guaranteed = "resources" not in spec and all(map(_guaranteed, every))

    def align(container: Json) -> Amounts:
        limits = amounts((container.get("resources") or {}).get("limits"))
        return {
            name: value
            for name, value in limits.items()
            if name in known and value and ("/" in name or (guaranteed and (name != "cpu" or value % 1000 == 0)))
        }

    return align


def _guaranteed(container: Json) -> bool:
    resources = container.get("resources") or {}
    limits, requests = amounts(resources.get("limits")), amounts(resources.get("requests"))
    return all(limits.get(name) and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory"))
