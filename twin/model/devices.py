"""The devices of a simulated node: what its drivers publish, by the annotation ``conclave.io/twin-devices``.

A list of drivers in JSON. Each has ``count`` devices that are alike, whole or in ``partitions`` that share
``counters``, or to be shared by a ``consumable`` capacity; some may be ``failed`` (a NoExecute taint), ``absent`` or
tainted, and the driver itself ``stopped``. A text with ``{i}`` has the number of the device in it, a list of values is
dealt in turns. Pure: text in, specs of ResourceSlices out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from shared.errors import ConfigError

Json = dict[str, Any]

DEVICES_ANNOTATION = "conclave.io/twin-devices"
FAILED_KEY = "conclave.io/twin-failed"
"""The taint of a device that failed."""
MOST_DEVICES = 1024
"""Of one driver on one node, partitions included."""
IN_A_SLICE, IN_A_SLICE_SPECIAL, SETS_IN_A_SLICE = 128, 64, 8
"""Devices, devices where any has taints or counters, and sets of counters that one slice may have."""

Scalar = bool | int | str
Attribute = Scalar | dict[str, str] | list[Scalar]


class CapacitySteps(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a capacity may be asked for: at least ``min`` (which who asks for nothing gets), by ``step``."""

    min: str
    step: str | None = None
    max: str | None = None


class DevicePartition(Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of part of a device. ``takes``: of its counters; ``count``: how many there are of each device."""

    name: str
    takes: dict[str, str]
    count: int = 1
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, str] = {}


class DeviceTaintSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """``devices``: their numbers; without any, all."""

    key: str
    effect: str
    value: str = ""
    devices: list[int] | None = None


class Driver(Struct, frozen=True, forbid_unknown_fields=True):
    """What one driver has on a node."""

    driver: str
    count: int
    device: str = "gpu"
    """Devices are called ``gpu-0`` and so on, their partitions ``gpu-0-NAME-0``."""
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, str] = {}
    consumable: dict[str, CapacitySteps] = {}
    """Capacities of which several claims may take their part of one device."""
    counters: dict[str, str] = {}
    """Of each device, for its partitions."""
    partitions: list[DevicePartition] = []
    failed: list[int] = []
    absent: list[int] = []
    taints: list[DeviceTaintSpec] = []
    stopped: bool = False
    """It has withdrawn its slices."""


@lru_cache(maxsize=256)
def drivers_of(text: str) -> tuple[Driver, ...]:
    """The drivers that an annotation names. Raises ``ConfigError``: which field, and what is wrong with it."""
    try:
        found = msgspec.json.decode(text, type=tuple[Driver, ...])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{DEVICES_ANNOTATION}: {error}; docs/devices.md says what may be in it") from None
    check_drivers(found, DEVICES_ANNOTATION)
    return found


def check_drivers(drivers: tuple[Driver, ...] | list[Driver], where: str) -> None:
    """Raises ``ConfigError``. Names and amounts are judged by the API server."""
    names = [one.driver for one in drivers]
    for index, one in enumerate(drivers):
        here = f"{where}[{index}]"
        if names.index(one.driver) != index:
            raise ConfigError(f"{here}.driver: {one.driver} is there twice; join the two")
        each = 1 + sum(max(0, part.count) for part in one.partitions)
        if not 0 <= one.count * each <= MOST_DEVICES:
            raise ConfigError(
                f"{here}.count: {one.count} devices with {each - 1} partitions each are not between 0 and"
                f" {MOST_DEVICES} together; give fewer"
            )
        for name, numbers in (
            ("failed", one.failed), ("absent", one.absent),
            *((f"taints[{i}].devices", taint.devices or []) for i, taint in enumerate(one.taints)),
        ):  # fmt: skip
            bad = next((number for number in numbers if not 0 <= number < one.count), None)
            if bad is not None:
                raise ConfigError(f"{here}.{name}: there is no device {bad}; give numbers from 0 to {one.count - 1}")
        for name in one.consumable:
            if name not in one.capacity:
                raise ConfigError(f"{here}.consumable.{name}: no such capacity; name it under capacity, too")
        if one.consumable and one.partitions:
            raise ConfigError(f"{here}.partitions: a device is shared by consumable or by partitions; drop one of them")
        for number, part in enumerate(one.partitions):
            _check_partition(part, one, f"{here}.partitions[{number}]")
        _check_lists(one, here)


def _check_partition(part: DevicePartition, driver: Driver, where: str) -> None:
    if part.count < 1:
        raise ConfigError(f"{where}.count: {part.count} is not 1 or more")
    unknown = next((name for name in part.takes if name not in driver.counters), None)
    if unknown is not None:
        raise ConfigError(f"{where}.takes.{unknown}: no such counter; name it under counters, too")
    if not part.takes:
        raise ConfigError(f"{where}.takes: empty; say what it takes of which counter")


def _check_lists(driver: Driver, where: str) -> None:
    holders = [(where, driver.attributes)]
    holders += [(f"{where}.partitions[{i}]", part.attributes) for i, part in enumerate(driver.partitions)]
    for here, attributes in holders:
        for name, value in attributes.items():
            if value == []:
                raise ConfigError(f"{here}.attributes.{name}: an empty list; give one value per device, or a value")
            if isinstance(value, dict) and value.keys() != {"version"}:
                raise ConfigError(f'{here}.attributes.{name}: write {{"version": "1.2.3"}}, or a plain value')


def slice_specs(node: str, driver: Driver, generation: int) -> list[Json]:
    """The specs of a driver's slices: those with counters first, as devices refer to them."""
    if driver.stopped:
        return []
    present = [number for number in range(driver.count) if number not in driver.absent]
    devices = [one for number in present for one in _devices(driver, number)]
    sets = [_counter_set(driver, number) for number in present] if driver.counters else []
    special = bool(sets) or any(one.get("taints") for one in devices)
    parts: list[Json] = [{"sharedCounters": chunk} for chunk in _chunks(sets, SETS_IN_A_SLICE)]
    parts += [{"devices": chunk} for chunk in _chunks(devices, IN_A_SLICE_SPECIAL if special else IN_A_SLICE)]
    parts = parts or [{}]  # a pool without devices is still told
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
    return [{"driver": driver.driver, "pool": pool, "nodeName": node, **part} for part in parts]


def _chunks(items: list[Json], most: int) -> Iterator[list[Json]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def _counter_set(driver: Driver, number: int) -> Json:
    return {"name": f"{driver.device}-{number}", "counters": _counters(driver.counters)}


def _counters(amounts: dict[str, str]) -> Json:
    return {name: {"value": amount} for name, amount in amounts.items()}


def _devices(driver: Driver, number: int) -> Iterator[Json]:
    """A device, and its partitions after it."""
    name = f"{driver.device}-{number}"
    taints = _taints(driver, number)
    whole: Json = {"name": name, "attributes": _attributes(driver.attributes, number)}
    if driver.capacity:
        whole["capacity"] = {
            key: _capacity(value, driver.consumable.get(key)) for key, value in driver.capacity.items()
        }
    if driver.consumable:
        whole["allowMultipleAllocations"] = True
    if driver.counters:
        whole["consumesCounters"] = [{"counterSet": name, "counters": _counters(driver.counters)}]
    yield whole | ({"taints": taints} if taints else {})
    for part in driver.partitions:
        for index in range(part.count):
            device: Json = {
                "name": f"{name}-{part.name}-{index}",
                "attributes": _attributes({**driver.attributes, **part.attributes}, number),
                "consumesCounters": [{"counterSet": name, "counters": _counters(part.takes)}],
            }
            if part.capacity:
                device["capacity"] = {key: {"value": value} for key, value in part.capacity.items()}
            yield device | ({"taints": taints} if taints else {})


def _taints(driver: Driver, number: int) -> list[Json]:
    found: list[Json] = [{"key": FAILED_KEY, "effect": "NoExecute"}] if number in driver.failed else []
    return found + [
        {"key": one.key, "effect": one.effect} | ({"value": one.value} if one.value else {})
        for one in driver.taints
        if one.devices is None or number in one.devices
    ]


def _capacity(value: str, steps: CapacitySteps | None) -> Json:
    if steps is None:
        return {"value": value}
    limits = {key: amount for key, amount in (("min", steps.min), ("step", steps.step), ("max", steps.max)) if amount}
    return {"value": value, "requestPolicy": {"default": steps.min, "validRange": limits}}


def _attributes(attributes: dict[str, Attribute], number: int) -> Json:
    return {name: _attribute(value, number) for name, value in attributes.items()}


def _attribute(value: Attribute, number: int) -> Json:
    if isinstance(value, list):
        value = value[number % len(value)]
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"int": number} if value == "{i}" else {"string": value.replace("{i}", str(number))}
