"""Which pods must leave because a device that they were given is tainted, when, and what is told of it.

What ``pkg/controller/devicetainteviction`` of Kubernetes 1.36 decides, over plain JSON. A pod leaves by the earliest
end of a toleration of any NoExecute taint on any device of its claims: those of slices of the newest generation of a
pool, and those of DeviceTaintRules that select the device. A rule without a selector selects none. Claims for extended
resources count, too, which 1.36 overlooks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = dict[str, Any]
DeviceKey = tuple[str, str, str]
"""Driver, pool, device."""

NO_EXECUTE = "NoExecute"
IN_PROGRESS = "EvictionInProgress"


class DeviceTaintPools:
    """Taints of the devices that slices publish."""

    def __init__(self) -> None:
        self._slices: dict[tuple[str, str], dict[str, Json]] = {}
        self._tainted: dict[tuple[str, str], dict[str, list[Json]]] = {}
        """Pools that have any evicting taint: those of each device."""

    def put(self, slice_: Json) -> set[str]:
        """A slice came or changed. Answers the devices whose taints are others now."""
        return self._set(slice_, slice_["spec"])

    def remove(self, slice_: Json) -> set[str]:
        """A slice went."""
        return self._set(slice_, None)

    def _set(self, slice_: Json, spec: Json | None) -> set[str]:
        key = (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"])
        pool = self._slices.setdefault(key, {})
        if spec is None:
            pool.pop(slice_["metadata"]["name"], None)
        else:
            pool[slice_["metadata"]["name"]] = spec
        before, after = self._tainted.pop(key, {}), _tainted(pool.values())
        if after:
            self._tainted[key] = after
        if not pool:
            del self._slices[key]
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}

    def taints(self, device: DeviceKey) -> list[Json]:
        """NoExecute taints of one device."""
        return self._tainted.get(device[:2], {}).get(device[2], [])

    @property
    def tainted(self) -> bool:
        """Whether any device has such a taint."""
        return bool(self._tainted)

    def devices(self) -> Iterator[DeviceKey]:
        """Every device of the newest generation of its pool."""
        for (driver, pool), slices in self._slices.items():
            for spec in _newest(slices.values()):
                yield from ((driver, pool, one["name"]) for one in spec.get("devices") or ())


def _newest(slices: Iterable[Json]) -> list[Json]:
    every = list(slices)
    newest = max((one["pool"]["generation"] for one in every), default=0)
    return [one for one in every if one["pool"]["generation"] == newest]


def _tainted(slices: Iterable[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for spec in _newest(slices):
        for device in spec.get("devices") or ():
            evicting = [one for one in device.get("taints") or () if one["effect"] == NO_EXECUTE]
            if evicting:
                found[device["name"]] = evicting
    return found


def selects(rule: Json, device: DeviceKey) -> bool:
    """Whether a DeviceTaintRule taints this device."""
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    names = zip(("driver", "pool", "device"), device, strict=True)
    return all(selector.get(key) in (None, name) for key, name in names)


@dataclass(frozen=True, slots=True)
class TaintEviction:
    """When a pod is to leave, and the names of the rules for which it does."""

    at_s: float
    rules: frozenset[str] = frozenset()

    def joined(self, other: TaintEviction | None) -> TaintEviction:
        """Both are reasons."""
        if other is None:
            return self
        return TaintEviction(min(self.at_s, other.at_s), self.rules | other.rules)


def eviction_of(claim: Json, pools: DeviceTaintPools, rules: Mapping[str, Json]) -> TaintEviction | None:
    """Of the consumers of an allocated claim; None: they may stay."""
    found: TaintEviction | None = None
    for result in claim["status"]["allocation"]["devices"].get("results") or ():
        device = (result["driver"], result["pool"], result["device"])
        taints = [("", one) for one in pools.taints(device)]
        taints += [(name, rule["spec"]["taint"]) for name, rule in rules.items() if selects(rule, device)]
        for rule_name, taint in taints:
            stays_s = tolerated_s(taint, result.get("tolerations") or ())
            if stays_s is not None:
                named = frozenset((rule_name,)) if rule_name else frozenset()
                found = TaintEviction(seconds_of(taint["timeAdded"]) + stays_s, named).joined(found)
    return found


def tolerated_s(taint: Json, tolerations: Iterable[Json]) -> float | None:
    """How long a taint is borne: 0 where nothing tolerates it, None for ever."""
    shortest: float | None = None
    for one in tolerations:
        if one.get("effect") != NO_EXECUTE or not _tolerates(one, taint):
            continue
        if one.get("tolerationSeconds") is None:
            return None
        seconds = max(0.0, float(one["tolerationSeconds"]))
        shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest or 0.0


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def seconds_of(text: str) -> float:
    """An API time in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """What a rule comes to. ``evicted``: by this controller, since it started."""

    pods: int = 0
    namespaces: int = 0
    evicted: int = 0
    published: int = 0
    allocated: int = 0


def rule_condition(rule: Json, counts: RuleCounts) -> Json:
    """The condition EvictionInProgress, in the real controller's words; without its times."""
    effect, parts = rule["spec"]["taint"]["effect"], []
    status, reason = "False", "OtherEffect"
    if effect == NO_EXECUTE and counts.pods:
        status, reason = "True", "PodsPendingEviction"
        verb = "needs" if counts.pods == 1 else "need"
        where = "1 namespace" if counts.namespaces == 1 else f"{counts.namespaces} different namespaces"
        parts.append(f"{_count(counts.pods, 'pod')} {verb} to be evicted in {where}.")
    elif effect == NO_EXECUTE:
        reason = "Completed" if counts.evicted else "NotStarted"
    elif effect == "None":
        reason = "NoEffect"
        where = "1 namespace" if counts.namespaces == 1 else f"{counts.namespaces} different namespaces"
        parts.append(
            f"{_count(counts.published, 'published device')} selected. "
            f"{_count(counts.allocated, 'allocated device')} selected. "
            f"{_count(counts.pods, 'pod')} would be evicted in {where} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    else:
        parts.append("Eviction only happens for the NoExecute effect.")
    if counts.evicted:
        parts.append(f"{_count(counts.evicted, 'pod')} evicted since starting the controller.")
    return {
        "type": IN_PROGRESS,
        "status": status,
        "observedGeneration": rule["metadata"].get("generation", 0),
        "reason": reason,
        "message": " ".join(parts),
    }


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"
