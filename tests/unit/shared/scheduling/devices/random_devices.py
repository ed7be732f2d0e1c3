"""Small random clusters of devices, and pods that claim some of them: for comparison with ``naive_devices``."""

from __future__ import annotations

import random
from collections.abc import Callable

from shared.model.constraints import Requirement, SelectorTerm
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
    DeviceTaint,
    DeviceToleration,
    Reach,
    RequestPolicy,
)
from shared.model.node import Node

DRIVERS = ("a.example.com", "b.example.com")
ZONES = ("z0", "z1")
NODES = tuple(Node(f"n{i}", labels={"zone": ZONES[i % 2]}, allocatable={}) for i in range(3))
MODEL, NUMA, CAPACITY = "model", "example.com/numa", "memory"

Predicate = Callable[[str, Device], bool]


def _attribute(device: Device, name: str) -> object:
    return next((one.value for key, one in device.attributes if key == name), None)


SELECTORS: dict[str, Predicate] = {
    f'device.driver == "{DRIVERS[0]}"': lambda driver, device: driver == DRIVERS[0],
    'device.attributes[device.driver].?model.orValue("") == "x"': (
        lambda driver, device: _attribute(device, MODEL) == "x"
    ),
    'device.attributes["example.com"].?numa.orValue(0) >= 1': (
        lambda driver, device: (_attribute(device, NUMA) or 0) >= 1
    ),
    '!("numa" in device.attributes["example.com"])': lambda driver, device: _attribute(device, NUMA) is None,
    'device.attributes[device.driver].exists(id, id == "model")': lambda driver, device: bool(
        _attribute(device, MODEL)
    ),
    "device.allowMultipleAllocations": lambda driver, device: device.shareable,
    '"example.com" in device.attributes': lambda driver, device: _attribute(device, NUMA) is not None,
}
"""The expression, and what it says."""

CLASSES = {
    "any": DeviceClass("any"),
    "a": DeviceClass("a", selectors=(next(iter(SELECTORS)),)),
}


def some_device(rng: random.Random, name: str, *, partitioned: bool) -> Device:
    attributes = []
    if rng.random() < 0.7:
        attributes.append((NUMA, DeviceAttribute("int", rng.randrange(3))))
    if rng.random() < 0.8:
        attributes.append((MODEL, DeviceAttribute("string", rng.choice("xy"))))
    capacity: tuple[tuple[str, Capacity], ...] = ()
    shareable = rng.random() < 0.3
    if shareable or rng.random() < 0.3:
        policy = RequestPolicy(NANO, least=NANO, step=NANO, most=3 * NANO, ranged=True) if rng.random() < 0.5 else None
        capacity = ((CAPACITY, Capacity(rng.randrange(2, 5) * NANO, policy)),)
    taints = (DeviceTaint("bad", "", rng.choice(("NoSchedule", "NoExecute", "None"))),) if rng.random() < 0.2 else ()
    consumes = (("set", (("c", rng.randrange(1, 3) * NANO),)),) if partitioned and rng.random() < 0.7 else ()
    return Device(name, tuple(sorted(attributes)), capacity, taints, consumes, shareable)


def some_slices(rng: random.Random) -> list[DeviceSlice]:
    """At most three pools with at most five devices that one node sees."""
    found = []
    for number in range(rng.randrange(1, 4)):
        driver, pool = rng.choice(DRIVERS), f"p{number}"
        node = rng.choice(NODES).name
        reach = rng.choice(
            (
                Reach(node),
                Reach(node),
                Reach(all_nodes=True),
                Reach(terms=(SelectorTerm((Requirement("zone", "In", (rng.choice(ZONES),)),)),)),
            )
        )
        partitioned = rng.random() < 0.3
        parts = rng.randrange(1, 3)
        devices = [some_device(rng, f"d{i}", partitioned=partitioned) for i in range(rng.randrange(1, 4))]
        count = parts + partitioned + (rng.random() < 0.1)
        generation = rng.randrange(1, 3)
        found += [
            DeviceSlice(f"s{number}-{n}", driver, pool, generation, count, reach, devices=tuple(devices[n::parts]))
            for n in range(parts)
        ]
        if partitioned:
            sets = (("set", (("c", rng.randrange(1, 5) * NANO),)),)
            found.append(DeviceSlice(f"s{number}-c", driver, pool, generation, count, reach, counter_sets=sets))
        if rng.random() < 0.15:
            found.append(DeviceSlice(f"s{number}-old", driver, pool, generation - 1, 1, reach, devices=tuple(devices)))
        if rng.random() < 0.1:
            elsewhere = Reach(rng.choice(NODES).name)
            found.append(DeviceSlice(f"s{number}-new", driver, pool, generation + 1, 1, elsewhere))
    rng.shuffle(found)
    return found


def some_ask(rng: random.Random, name: str, *, may_want_all: bool) -> DeviceAsk:
    everything = may_want_all and rng.random() < 0.2
    return DeviceAsk(
        name,
        rng.choice(tuple(CLASSES)),
        tuple(rng.sample(tuple(SELECTORS), rng.choice((0, 0, 1)))),
        "All" if everything else "ExactCount",
        rng.choice((1, 1, 2)),
        admin=True if rng.random() < 0.1 else None,
        tolerations=(DeviceToleration("bad", "Exists"),) if rng.random() < 0.3 else (),
        capacity=((CAPACITY, rng.randrange(1, 4) * NANO // rng.choice((1, 2))),) if rng.random() < 0.2 else (),
    )


def some_claim(rng: random.Random, name: str) -> DeviceClaim:
    constrained = rng.random() < 0.4
    requests = []
    for number in range(rng.randrange(1, 3)):
        title = f"r{number}"
        if rng.random() < 0.3:
            asks = tuple(some_ask(rng, f"s{i}", may_want_all=not constrained) for i in range(2))
            requests.append(DeviceRequest(title, alternatives=asks))
        else:
            requests.append(DeviceRequest(title, some_ask(rng, title, may_want_all=not constrained)))
    constraints: tuple[AttributeConstraint, ...] = ()
    if constrained:
        names = rng.choice(((), ("r0",), ("r0/s1",)))
        attribute = rng.choice((NUMA, f"{DRIVERS[0]}/{MODEL}"))
        constraints = (AttributeConstraint(attribute, rng.random() < 0.5, names),)
    return DeviceClaim("default", name, f"uid-{name}", tuple(requests), constraints)


def some_users(rng: random.Random, slices: list[DeviceSlice]) -> list[DeviceClaim]:
    """Claims that have some of the devices already."""
    found = []
    for one in slices:
        for device in one.devices:
            if rng.random() < 0.25:
                share = "share" if device.shareable and rng.random() < 0.8 else ""
                consumed = tuple((name, NANO) for name, _ in device.capacity) if share else ()
                admin = True if rng.random() < 0.1 else None
                result = AllocatedDevice("r", one.driver, one.pool, device.name, admin, share=share, consumed=consumed)
                name = f"used-{one.name}-{device.name}"
                found.append(DeviceClaim("default", name, name, allocation=Allocation((result,))))
    return found


def pod_of(claims: list[DeviceClaim]) -> DevicePod:
    return DevicePod("default", "pod", "uid-pod", tuple(ClaimRef(claim.name, claim.name) for claim in claims))
