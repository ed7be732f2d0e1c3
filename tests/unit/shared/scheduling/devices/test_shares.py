"""Devices of any driver as GPUs, claims as requests for them, and which of several shared devices is given."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.model.devices import NANO, AllocatedDevice, Allocation, Device, DeviceClaim, RequestPolicy
from shared.model.gpu_shares import DEFAULT, GpuShares, parse_gpu_shares
from shared.scheduling.devices.dynamic_resources import Devices
from shared.scheduling.devices.search.wanted import NodeOffer
from shared.scheduling.devices.shares import asked_shares, free_shares
from tests.unit.shared.scheduling.devices.builders import (
    DRIVER,
    NODE,
    allocated,
    ask,
    claim,
    cluster,
    device,
    local,
    outcome,
)


def shared(name: str, **capacity: int) -> Device:
    """A device that claims share."""
    one = device(name, capacity=capacity, shareable=True)
    policy = RequestPolicy(default=NANO, least=NANO, step=NANO, ranged=True)
    return replace(one, capacity=tuple((key, replace(value, policy=policy)) for key, value in one.capacity))


def sharing(name: str, **consumed: int) -> DeviceClaim:
    amounts = tuple((key, amount * NANO) for key, amount in consumed.items())
    result = AllocatedDevice("r", DRIVER, "n0", name, share=f"s-{name}-{consumed}", consumed=amounts)
    return DeviceClaim("default", f"of-{name}-{len(consumed)}", "uid", allocation=Allocation((result,)))


def partition(name: str, of: str, slices: int) -> Device:
    return device(name, consumes=((of, (("slices", slices * NANO),)),))


def partitionable(*more: DeviceClaim) -> Devices:
    """Two GPUs of seven slices, whole or in parts of one and three."""
    sets = tuple((f"g{i}", (("slices", 7 * NANO),)) for i in (0, 1))
    devices = [
        partition(f"g{i}-{kind}", f"g{i}", size) for i in (0, 1) for kind, size in (("all", 7), ("1g", 1), ("3g", 3))
    ]
    return cluster(local(name="counters", count=2, counter_sets=sets), local(*devices, name="devices", count=2), *more)


def free(devices: Devices, shares: GpuShares = DEFAULT) -> list[int]:
    return free_shares(devices.inventory.of(NODE).pools, devices.inventory.usage, shares)


def asked(devices: Devices, *claims: DeviceClaim, shares: GpuShares = DEFAULT) -> tuple[int, int]:
    inventory = devices.inventory
    offer = NodeOffer(
        inventory.of(NODE).pools, inventory.usage, devices.selectors, inventory.classes, inventory.release, NODE.name,
        NODE.labels,
    )  # fmt: skip
    return asked_shares(offer, claims, shares)


def wants(count: int = 1, **capacity: int) -> DeviceClaim:
    return claim(ask(count=count, capacity=tuple((key, amount * NANO) for key, amount in capacity.items())))


def test_a_whole_device_is_free_or_not() -> None:
    devices = cluster(local(device("a"), device("b"), device("c")), allocated("b"))
    assert free(devices) == [1000, 0, 1000]
    assert asked(devices, wants()) == (1, 1000)
    assert asked(devices, wants(2), wants()) == (3, 1000)


def test_a_shared_device_has_what_is_left_of_the_capacity_that_is_taken_most_of() -> None:
    used = sharing("a", memory=20, cores=3)
    devices = cluster(local(shared("a", memory=80, cores=10), shared("b", memory=80, cores=10)), used)
    assert free(devices) == [700, 1000]
    assert free(devices, parse_gpu_shares(f"{DRIVER}:memory=1000")) == [750, 1000]
    assert asked(devices, wants(memory=20, cores=4)) == (1, 400)
    assert asked(devices, wants(memory=20, cores=4), shares=parse_gpu_shares(f"{DRIVER}:memory=1000")) == (1, 250)


def test_partitions_are_what_they_take_of_their_device() -> None:
    assert free(partitionable()) == [1000, 1000]
    devices = partitionable(allocated("g0-3g"))
    assert free(devices) == [571, 1000]
    of_size = claim(ask(selectors=('device.driver == "gpu.example.com"',)))
    assert asked(devices, of_size) == (1, 1000)  # the first that it may be given is a whole one
    assert free(partitionable(allocated("g1-all"))) == [1000, 0]


def test_a_driver_may_count_for_nothing_or_for_several_devices_in_one() -> None:
    devices = cluster(local(device("a"), device("b")), allocated("b"))
    assert free(devices, parse_gpu_shares(f"{DRIVER}=0")) == []
    assert asked(devices, wants(), shares=parse_gpu_shares(f"{DRIVER}=0")) == (0, 0)
    assert free(devices, parse_gpu_shares(f"{DRIVER}=2500")) == [1000, 1000, 500, 0, 0, 0]
    assert asked(devices, wants(), shares=parse_gpu_shares(f"{DRIVER}=2500")) == (3, 1000)


def test_what_no_device_here_can_be_is_no_gpu() -> None:
    devices = cluster(local(device("a")))
    assert asked(devices, claim(ask(selectors=("false",)))) == (0, 0)
    assert asked(devices, claim(ask(class_name="none"))) == (0, 0)
    assert asked(devices, claim(ask(selectors=("device.nosuch",)))) == (0, 0)


@pytest.mark.parametrize(("fullest_first", "given"), [(True, "b"), (False, "a")])
def test_the_fullest_shared_device_with_room_is_given(fullest_first: bool, given: str) -> None:
    things: tuple[Any, ...] = (
        local(shared("a", memory=80), shared("b", memory=80), shared("c", memory=80)),
        sharing("b", memory=40), sharing("c", memory=70),
    )  # fmt: skip
    plain = cluster(*things)
    devices = Devices(plain.inventory, plain.selectors, fullest_first=fullest_first)
    assert outcome(devices, wants(memory=20)) == [given]
    assert outcome(devices, wants(memory=80)) == ["a"]


@pytest.mark.parametrize(("fullest_first", "given"), [(True, "g1-1g"), (False, "g0-all")])
def test_a_partition_comes_from_the_device_that_is_broken_already(fullest_first: bool, given: str) -> None:
    plain = partitionable(allocated("g1-3g"))
    devices = Devices(plain.inventory, plain.selectors, fullest_first=fullest_first)
    assert outcome(devices, claim(ask())) == [given]


def taking(share: str, amount: int = 4, one: str = "a", **changes: Any) -> DeviceClaim:
    """One claim with part of a device, by the name that its share has so far."""
    result = AllocatedDevice("r", DRIVER, "n0", one, share=share, **({"consumed": (("memory", amount),)} | changes))
    return DeviceClaim("default", "c", "uid-c", allocation=Allocation((result,)))


@pytest.mark.parametrize(
    ("before", "after", "freed"),
    [
        (taking("assumed-1"), taking("0c39"), False),
        (taking("assumed-1"), taking("0c39", 5), False),
        (taking("assumed-1"), taking("0c39", 3), True),
        (taking("assumed-1"), taking("0c39", consumed=()), True),
        (taking("assumed-1"), taking("0c39", one="b"), True),
        (taking("assumed-1"), replace(taking("0c39"), allocation=None), True),
        (taking("", consumed=()), taking("0c39"), True),
        (taking("0c39"), taking("", consumed=()), True),
        (taking("", admin=True), replace(taking(""), allocation=None), False),
    ],
)
def test_devices_are_freed_where_a_claim_uses_less_of_them_whatever_its_share_is_called(
    before: DeviceClaim, after: DeviceClaim, freed: bool
) -> None:
    inventory = cluster(local(shared("a", memory=8), shared("b", memory=8)), before).inventory
    assert not inventory.freed
    inventory.put_claim(after)
    assert inventory.freed is freed
