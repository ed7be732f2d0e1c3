"""Devices, claims and pods in few words."""

from __future__ import annotations

from typing import Any

from shared.model.devices import (
    NANO,
    AllocatedDevice,
    Allocation,
    AttributeConstraint,
    Capacity,
    ClaimRef,
    Device,
    DeviceAsk,
    DeviceAttribute,
    DeviceClaim,
    DeviceClass,
    DevicePod,
    DeviceRequest,
    DeviceSlice,
    Reach,
)
from shared.model.node import Node
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.dynamic_resources import Devices, PodDevices
from shared.scheduling.devices.inventory import Inventory
from shared.scheduling.state.releases import Release

DRIVER = "gpu.example.com"
NODE = Node("n0", labels={"zone": "a"}, allocatable={})


def device(name: str, **changes: Any) -> Device:
    """``attributes`` as a dict of plain values, ``capacity`` of whole amounts."""
    kinds = {int: "int", bool: "bool", str: "string", tuple: "strings"}
    attributes = tuple((key, DeviceAttribute(kinds[type(v)], v)) for key, v in changes.pop("attributes", {}).items())
    capacity = tuple((key, Capacity(amount * NANO)) for key, amount in changes.pop("capacity", {}).items())
    return Device(name, attributes, capacity, **changes)


def local(*devices: Device, node: str = "n0", pool: str = "", **changes: Any) -> DeviceSlice:
    """All devices of one node's pool."""
    changes = {"driver": DRIVER, "generation": 1, "count": 1, "reach": Reach(node)} | changes
    name = changes.pop("name", f"{pool or node}-slice")
    return DeviceSlice(name=name, pool=pool or node, devices=devices, **changes)


def claim(
    *requests: DeviceRequest | DeviceAsk,
    name: str = "c",
    constraints: tuple[AttributeConstraint, ...] = (),
    **changes: Any,
) -> DeviceClaim:
    asked = tuple(one if isinstance(one, DeviceRequest) else DeviceRequest(one.name, one) for one in requests)
    return DeviceClaim("default", name, f"uid-{name}", asked, constraints, **changes)


def ask(name: str = "r", count: int = 1, **changes: Any) -> DeviceAsk:
    return DeviceAsk(name, changes.pop("class_name", "any"), count=count, **changes)


def allocated(*ids: str, pool: str = "n0", name: str = "used", **changes: Any) -> DeviceClaim:
    """A claim that has these devices."""
    results = tuple(AllocatedDevice("r", DRIVER, pool, one, **changes) for one in ids)
    return DeviceClaim("default", name, f"uid-{name}", allocation=Allocation(results))


def cluster(*things: DeviceSlice | DeviceClaim | DeviceClass, release: Release = Release.V1_38) -> Devices:
    inventory = Inventory(release)
    inventory.classes["any"] = DeviceClass("any")
    for thing in things:
        if isinstance(thing, DeviceSlice):
            inventory.put_slice(thing)
        elif isinstance(thing, DeviceClass):
            inventory.classes[thing.name] = thing
        else:
            inventory.put_claim(thing)
    return Devices(inventory, Selectors(release))


def pod(*claims: DeviceClaim) -> DevicePod:
    return DevicePod("default", "pod", "uid-pod", tuple(ClaimRef(one.name, one.name) for one in claims))


def prepared(devices: Devices, *claims: DeviceClaim, now: float = 0.0) -> PodDevices:
    for one in claims:
        devices.inventory.put_claim(one)
    found = devices.prepare(pod(*claims), now)
    assert isinstance(found, PodDevices), found
    return found


def outcome(devices: Devices, *claims: DeviceClaim, node: Node = NODE) -> str | list[str]:
    """The names of the devices that the claims are given on the node, or ``code: reason``."""
    found = prepared(devices, *claims)
    refused = found.rejection(node)
    if refused is not None:
        return f"{refused.code.value}: {refused.reasons[0]}"
    return [one.device for _, given in found.allocations(node, lambda: "share") for one in given.results]
