"""What pods really use, beside what they request: profiles over time, and the utilisation of a node.

A profile rides in the pod's annotation ``conclave.io/usage`` as compact JSON; the limits that a node's status does not
know (disk, network) ride in ``conclave.io/twin-limits``. Schedulers must not read either: they are the twin's ground
truth. This file adds up and refuses to model contention: demand above a limit shows as a utilisation above 1.

Format of a profile: ``{"s":270,"u":[[0,300,41943040,0,0]]}``: the run lasts ``s`` seconds (absent: it never finishes)
and from each step's first number of seconds on the pod uses cpu millis, memory bytes, disk write bytes/s, network
bits/s. ``"x":1`` makes the run end with that exit code. Limits: ``{"disk":10000000,"net":10000000}``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from shared.errors import ObjectError

USAGE_ANNOTATION = "conclave.io/usage"
LIMITS_ANNOTATION = "conclave.io/twin-limits"
TWIN_NODE_ANNOTATION = "conclave.io/twin-node"
"""``"true"`` on a node: the cluster model plays its kubelet. Other nodes are left alone."""

MAX_STEPS = 256


@dataclass(frozen=True, slots=True)
class UsageNow:
    """An amount of everything at one moment."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_write_bytes_per_s: int = 0
    network_bits_per_s: int = 0

    def plus(self, other: UsageNow) -> UsageNow:
        """The sum, part by part."""
        return UsageNow(
            self.cpu_millis + other.cpu_millis,
            self.memory_bytes + other.memory_bytes,
            self.disk_write_bytes_per_s + other.disk_write_bytes_per_s,
            self.network_bits_per_s + other.network_bits_per_s,
        )

    def minus(self, other: UsageNow) -> UsageNow:
        """The difference, part by part."""
        return UsageNow(
            self.cpu_millis - other.cpu_millis,
            self.memory_bytes - other.memory_bytes,
            self.disk_write_bytes_per_s - other.disk_write_bytes_per_s,
            self.network_bits_per_s - other.network_bits_per_s,
        )


NO_USAGE = UsageNow()


@dataclass(frozen=True, slots=True)
class UsageProfile:
    """Steps of constant use: (seconds since the start, use from then on), ascending from 0.

    ``duration_s`` None: the pod never finishes by itself. ``exit_code`` 0 makes it Succeeded, else Failed.
    """

    steps: tuple[tuple[float, UsageNow], ...]
    duration_s: float | None = None
    exit_code: int = 0

    def at(self, running_s: float) -> UsageNow:
        """The use ``running_s`` seconds after the start; nothing before it and from the end on."""
        if running_s < 0 or (self.duration_s is not None and running_s >= self.duration_s):
            return NO_USAGE
        current = NO_USAGE
        for since_s, usage in self.steps:
            if since_s > running_s:
                break
            current = usage
        return current

    def to_json(self) -> str:
        """The annotation's value."""
        body: dict[str, Any] = {} if self.duration_s is None else {"s": _short(self.duration_s)}
        body["u"] = [
            [_short(since), u.cpu_millis, u.memory_bytes, u.disk_write_bytes_per_s, u.network_bits_per_s]
            for since, u in self.steps
        ]
        if self.exit_code:
            body["x"] = self.exit_code
        return msgspec.json.encode(body).decode()


FOREVER = UsageProfile(())
"""A pod without the annotation: uses nothing that is known and never finishes."""


def _short(number: float) -> float | int:
    return int(number) if float(number).is_integer() else round(number, 3)


class _ProfileJson(msgspec.Struct, forbid_unknown_fields=True):
    u: list[tuple[float, int, int, int, int]] = []
    s: float | None = None
    x: int = 0


class _LimitsJson(msgspec.Struct, forbid_unknown_fields=True):
    disk: int = 0
    net: int = 0


def profile_from_json(text: str) -> UsageProfile:
    """The profile of an annotation. Refused with ``ObjectError`` naming the annotation."""
    field = f"metadata.annotations[{USAGE_ANNOTATION}]"
    try:
        body = msgspec.json.decode(text, type=_ProfileJson)
    except msgspec.DecodeError as error:
        raise ObjectError(f'{error}; give JSON such as {{"s":270,"u":[[0,300,41943040,0,0]]}}', field=field) from None
    if len(body.u) > MAX_STEPS:
        raise ObjectError(f"{len(body.u)} steps; give at most {MAX_STEPS}", field=field)
    times = [step[0] for step in body.u]
    if times != sorted(times) or (times and times[0] < 0) or any(min(step) < 0 for step in body.u):
        raise ObjectError("steps must ascend in time and hold no negative number", field=field)
    if body.s is not None and body.s < 0:
        raise ObjectError(f"a duration of {body.s:g} s; give 0 or more", field=field)
    return UsageProfile(tuple((step[0], UsageNow(*step[1:])) for step in body.u), body.s, body.x)


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """What a node offers. 0 means that this part is not measured."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_write_bytes_per_s: int = 0
    network_bits_per_s: int = 0

    def utilisation(self, usage: UsageNow) -> Utilisation:
        """``usage`` as shares of these limits."""
        return Utilisation(
            _share(usage.cpu_millis, self.cpu_millis),
            _share(usage.memory_bytes, self.memory_bytes),
            _share(usage.disk_write_bytes_per_s, self.disk_write_bytes_per_s),
            _share(usage.network_bits_per_s, self.network_bits_per_s),
        )


NO_LIMITS = UsageLimits()


def limits_from_json(text: str, *, cpu_millis: int, memory_bytes: int) -> UsageLimits:
    """Limits of a node: cpu and memory of its status, disk and network of the annotation (empty: not measured).

    Refused with ``ObjectError`` naming the annotation.
    """
    body = _LimitsJson()
    if text:
        try:
            body = msgspec.json.decode(text, type=_LimitsJson)
        except msgspec.DecodeError as error:
            raise ObjectError(
                f'{error}; give JSON such as {{"disk":10000000,"net":10000000}}',
                field=f"metadata.annotations[{LIMITS_ANNOTATION}]",
            ) from None
    return UsageLimits(cpu_millis, memory_bytes, body.disk, body.net)


def _share(used: int, limit: int) -> float:
    return used / limit if limit > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of a node's limits; above 1 the demand exceeds the limit."""

    cpu: float = 0.0
    memory: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    @property
    def highest(self) -> float:
        """The most used part: what imbalance is measured on (targets T3)."""
        return max(self.cpu, self.memory, self.disk, self.network)


def imbalance(nodes: Iterable[Utilisation]) -> float:
    """Standard deviation over nodes (population) of each node's highest utilisation; source: targets T3."""
    values = [node.highest for node in nodes]
    if not values:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
