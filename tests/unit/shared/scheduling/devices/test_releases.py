"""Where kube-scheduler's releases differ: the mesh decides by what was mended, 1.36 is answered as it was."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.model.devices import NANO, AttributeConstraint, DeviceTaint, Reach
from shared.model.node import Node
from shared.scheduling.state.releases import Release
from tests.unit.shared.scheduling.devices.builders import (
    DRIVER,
    allocated,
    ask,
    claim,
    cluster,
    device,
    local,
    outcome,
)

NEW, OLD = Release.V1_38, Release.V1_36
CANNOT = "UnschedulableAndUnresolvable: cannot allocate all claims"
UPDATING = f"claim default/c, request r: asks for all devices, but resource pool {DRIVER}/p is currently being updated"
EVERYTHING = claim(ask(mode="All"))


@pytest.mark.parametrize(("release", "code"), [(NEW, "UnschedulableAndUnresolvable"), (OLD, "Error")])
def test_all_with_an_incomplete_pool_concerns_its_node_alone(release: Release, code: str) -> None:
    """kubernetes#141898: it used to end the whole cycle."""
    devices = cluster(local(device("d0"), pool="p", count=2), release=release)
    assert outcome(devices, EVERYTHING) == f"{code}: {UPDATING}"


@pytest.mark.parametrize(("release", "said"), [(NEW, CANNOT), (OLD, f"Error: {UPDATING}")])
def test_counters_of_a_pool_that_does_not_reach_a_node_are_nothing_to_it(release: Release, said: str) -> None:
    counters = local(name="c", pool="p", count=2, counter_sets=(("set", (("c", NANO),)),))
    assert outcome(cluster(counters, release=release), EVERYTHING, node=Node("n1")) == said


@pytest.mark.parametrize(("release", "said"), [(NEW, CANNOT), (OLD, ["d0"])])
def test_what_is_shared_is_not_given_to_one_alone(release: Release, said: object) -> None:
    """kubernetes#140798: the driver no longer allows sharing, and a user still shares it."""
    devices = cluster(local(device("d0")), allocated("d0", share="s"), release=release)
    assert outcome(devices, claim(ask())) == said


PARTS = (("whole", 2, ()), ("half-0", 1, (DeviceTaint("bad", "", "NoSchedule"),)), ("half-1", 1, ()), ("half-2", 1, ()))


@pytest.mark.parametrize(("release", "said"), [(NEW, ["half-1", "half-2"]), (OLD, CANNOT)])
def test_a_barred_device_gives_its_counters_back(release: Release, said: object) -> None:
    parts = (device(name, consumes=(("set", (("c", n * NANO),)),), taints=taints) for name, n, taints in PARTS[1:])
    devices = cluster(
        local(*parts, count=2),
        local(name="counters", count=2, counter_sets=(("set", (("c", 2 * NANO),)),)),
        release=release,
    )
    assert outcome(devices, claim(ask(count=2))) == said


@pytest.mark.parametrize(("release", "said"), [(NEW, ["d0", "d1", "d3"]), (OLD, ["d0", "d1", "d2"])])
def test_distinct_is_told_from_all_devices_of_the_request(release: Release, said: object) -> None:
    """kubernetes#140600: it was told from the last one."""
    groups = (device(f"d{i}", attributes={"group": group}) for i, group in enumerate("abac"))
    distinct = AttributeConstraint(f"{DRIVER}/group", distinct=True)
    devices = cluster(local(*groups), release=release)
    assert outcome(devices, claim(ask(count=3), constraints=(distinct,))) == said


@pytest.mark.parametrize(("release", "said"), [(NEW, ["d0"]), (OLD, CANNOT)])
@pytest.mark.parametrize(("written", "asked"), [("memory", f"{DRIVER}/memory"), (f"{DRIVER}/memory", "memory")])
def test_a_capacity_may_be_named_with_its_domain_or_without(
    release: Release, said: object, written: str, asked: str
) -> None:
    """kubernetes#142202."""
    devices = cluster(local(device("d0", capacity={written: 4})), release=release)
    assert outcome(devices, claim(ask(capacity=((asked, NANO),)))) == said


@pytest.mark.parametrize("release", [NEW, OLD])
def test_counts_beyond_all_integers_are_too_many(release: Release) -> None:
    """kubernetes#141307: two of them used to add up to less than nothing."""
    most = 2**63 - 1
    devices = cluster(local(device("d0")), release=release)
    found = outcome(devices, claim(ask("a", most), ask("b", most)))
    assert found == f"Error: claim default/c: number of requested devices {2 * most} exceeds the claim limit of 32"


def test_lists_match_where_they_have_something_in_common_and_differ_where_they_have_nothing() -> None:
    roots = [("a", "b"), ("b", "c"), ("c",), ("d",)]
    devices = cluster(local(*(device(f"d{i}", attributes={"root": root}) for i, root in enumerate(roots))))
    match = AttributeConstraint(f"{DRIVER}/root")
    distinct = replace(match, distinct=True)
    assert outcome(devices, claim(ask(count=2), constraints=(match,))) == ["d0", "d1"]
    assert outcome(devices, claim(ask(count=3), constraints=(match,))) == CANNOT
    assert outcome(devices, claim(ask(count=3), constraints=(distinct,))) == ["d0", "d2", "d3"]


def test_a_pool_whose_parts_reach_different_nodes_is_whole_for_each() -> None:
    parts = [local(device(f"d{i}"), name=f"s{i}", pool="p", count=2, reach=Reach(f"n{i}")) for i in range(2)]
    devices = cluster(*parts)
    assert outcome(devices, EVERYTHING, node=Node("n0")) == ["d0"]
    assert outcome(devices, EVERYTHING, node=Node("n1")) == ["d1"]
