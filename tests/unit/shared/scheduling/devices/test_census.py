"""Every device is counted once and in one state, as often as nodes alike have such."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from shared.model.devices import AllocatedDevice, Allocation, DeviceClaim, DeviceTaint, Reach
from shared.model.node import Node
from shared.scheduling.devices import census as census_module
from shared.scheduling.devices.census import STATES, Census, DeviceCounts, counts_of
from shared.scheduling.devices.dynamic_resources import Devices
from shared.scheduling.devices.pools import DevicePool
from shared.scheduling.devices.usage import DeviceUsage
from tests.unit.shared.scheduling.devices.builders import DRIVER, NODE, allocated, cluster, device, local
from tests.unit.shared.scheduling.devices.test_shares import partitionable, shared, sharing

BARS = DeviceTaint("broken", "", "NoSchedule")


def here(devices: Devices) -> dict[str, int]:
    """The states of what the node reaches, those with any."""
    [(_, counts)] = Census(devices.inventory).on(NODE)
    assert sum(getattr(counts, state) for state in STATES) == counts.devices
    return {state: number for state in STATES if (number := getattr(counts, state))}


def test_a_device_is_free_allocated_or_tainted_and_who_has_a_tainted_one_has_it() -> None:
    mild = DeviceTaint("slow", "", "None")
    slices = local(
        device("a"), device("b"), device("c", taints=(BARS,)), device("d", taints=(BARS,)), device("e", taints=(mild,))
    )
    assert here(cluster(slices)) == {"free": 3, "tainted": 2}
    assert here(cluster(slices, allocated("a", "c"))) == {"free": 2, "allocated": 2, "tainted": 1}


def test_a_partition_is_blocked_by_those_that_have_what_it_would_take() -> None:
    assert here(partitionable()) == {"free": 6}
    assert here(partitionable(allocated("g0-3g"))) == {"free": 4, "allocated": 1, "blocked": 1}
    assert here(partitionable(allocated("g0-all"))) == {"free": 3, "allocated": 1, "blocked": 2}


def test_what_is_in_use_counts_parts_of_devices_as_parts() -> None:
    [(_, parted)] = Census(partitionable(allocated("g0-3g")).inventory).on(NODE)
    assert (parted.whole, round(parted.share, 3)) == (2, round(3 / 14, 3))
    sliced = cluster(local(shared("a", memory=80), shared("b", memory=80)), sharing("a", memory=20))
    [(_, counts)] = Census(sliced.inventory).on(NODE)
    assert (counts.allocated, counts.share) == (1, 0.125)


def test_devices_with_admin_access_stay_free() -> None:
    assert here(cluster(local(device("a")), allocated("a", admin=True))) == {"free": 1}


def nodes_of(count: int) -> list[Node]:
    return [Node(f"n{number}", labels={}, allocatable={}) for number in range(count)]


def test_a_pool_that_all_nodes_reach_is_counted_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However different the nodes' own devices are, and whoever asks: sums, shares, or a list of nodes."""
    counted: list[str] = []

    def counting(pool: DevicePool, usage: DeviceUsage) -> DeviceCounts:
        counted.append(pool.id[1])
        return counts_of(pool, usage)

    monkeypatch.setattr(census_module, "counts_of", counting)
    nodes, everywhere = nodes_of(20), replace(Reach(""), all_nodes=True)
    devices = cluster(local(device("a"), device("b"), pool="net", driver="nic.example.com", reach=everywhere))
    for number in range(20):  # each is a group of its own
        devices.inventory.put_slice(local(*(device(f"d{n}") for n in range(number + 1)), node=f"n{number}"))
    census = Census(devices.inventory)

    def ask() -> list[str]:
        counted.clear()
        census.drivers(nodes)
        census.shares(nodes)
        for node in nodes:
            census.on(node)
        return sorted(counted)

    assert ask() == sorted(["net", *(f"n{number}" for number in range(20))])
    assert ask() == []
    given = Allocation((AllocatedDevice("r", "nic.example.com", "net", "a"),))
    devices.inventory.put_claim(DeviceClaim("default", "c", "uid-c", allocation=given))
    assert ask() == ["net"]
    devices.inventory.put_slice(local(device("a"), node="n3"))
    assert ask() == ["n3"]


def test_a_pool_that_cannot_be_used_has_no_device() -> None:
    devices = cluster(local(device("a"), count=2))
    assert Census(devices.inventory).drivers(nodes_of(1)) == {DRIVER: DeviceCounts()}
    assert Census(devices.inventory).shares(nodes_of(1)) == {}


@pytest.mark.parametrize("seed", range(8))
def test_the_sum_over_all_nodes_is_that_of_pool_after_pool_whatever_changed_in_between(seed: int) -> None:
    rng, nodes = Random(seed), nodes_of(5)
    devices = cluster()
    inventory = devices.inventory
    census = Census(inventory)
    for step in range(30):
        what = rng.choice(["local", "network", "claim", "gone"])
        node = rng.randrange(5)
        named = [device(f"d{n}", taints=(BARS,) if rng.random() < 0.2 else ()) for n in range(rng.randint(1, 4))]
        if what == "local":
            inventory.put_slice(local(*named, node=f"n{node}"))
        elif what == "network":
            reach = replace(Reach(""), all_nodes=True)
            inventory.put_slice(local(*named, pool=f"net{node % 2}", driver="nic.example.com", reach=reach))
        elif what == "claim":
            pool, driver = rng.choice([(f"n{node}", DRIVER), (f"net{node % 2}", "nic.example.com")])
            given = Allocation((AllocatedDevice("r", driver, pool, f"d{rng.randrange(3)}"),))
            inventory.put_claim(DeviceClaim("default", f"c{step}", f"uid-{step}", allocation=given))
        elif inventory.claims:
            inventory.remove_claim(rng.choice(sorted(inventory.claims)))
        pools = {pool.id: pool for node in nodes for pool in inventory.of(node).pools}
        wanted: dict[str, list[int]] = {}
        for (driver, _), pool in pools.items():
            counts = counts_of(pool, inventory.usage)
            sums = wanted.setdefault(driver, [0] * len(STATES))
            for place, state in enumerate(STATES):
                sums[place] += getattr(counts, state)
        found = {
            driver: [getattr(counts, state) for state in STATES] for driver, counts in census.drivers(nodes).items()
        }
        assert found == wanted
        shares = census.shares(nodes)
        for place, one in enumerate(nodes):
            for driver in wanted:
                reached = [counts_of(pool, inventory.usage) for pool in inventory.of(one).pools if pool.id[0] == driver]
                whole, used = sum(counts.whole for counts in reached), sum(counts.used for counts in reached)
                assert shares[driver][place] == (round(used / whole, 3) if whole else None)
