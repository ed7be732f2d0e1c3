"""The search is bounded in steps, says so, and does not depend on how deep it goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.model.devices import AttributeConstraint, DeviceClaim, DeviceRequest, DeviceSlice, Reach
from shared.model.node import Node
from shared.scheduling.devices import dynamic_resources, inventory
from shared.scheduling.devices.search import allocator
from shared.scheduling.framework import Code
from tests.unit.shared.scheduling.devices.builders import (
    DRIVER,
    allocated,
    ask,
    claim,
    cluster,
    device,
    local,
    outcome,
    prepared,
)

NODES = [Node(f"n{i}") for i in range(4)]
DISTINCT = (AttributeConstraint(f"{DRIVER}/group", distinct=True), AttributeConstraint(f"{DRIVER}/root"))
GAVE_UP = "gave up the search for devices after 40000 steps: too many combinations to try"


def hopeless(node: str, alike: Callable[[str, int], int]) -> DeviceSlice:
    """16 devices of different groups on one root are wanted; there are 16 groups, 15 on each of the two roots."""
    attributes = ({"group": i // 2 % 15 + i % 2, "root": i % 2, "serial": alike(node, i)} for i in range(128))
    devices = (device(f"d{i}", attributes=found) for i, found in enumerate(attributes))
    return local(*devices, node=node, reach=Reach(node))


def test_a_constraint_that_nothing_satisfies_ends_with_its_own_reason() -> None:
    devices = cluster(hopeless("n0", lambda _, i: i))
    found = prepared(devices, claim(ask(count=16), constraints=DISTINCT)).rejection(NODES[0])
    assert found is not None
    assert (found.code, found.reasons) == (Code.UNRESOLVABLE, (GAVE_UP,))


def test_without_the_bound_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_resources, "STEPS_PER_NODE", 60_000)
    devices = cluster(hopeless("n0", lambda _, i: i))
    found = prepared(devices, claim(ask(count=16), constraints=DISTINCT))
    assert "after 60000 steps" in str(found.rejection(NODES[0]))
    assert found._steps > 50_000


def test_of_devices_that_are_alike_one_is_tried_where_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of 128, and one more that is not there: a million million combinations, each as hopeless as the first."""
    devices = cluster(local(*(device(f"d{i}") for i in range(128))))
    wanted = claim(ask("some", 8), ask("other", selectors=('device.driver == "other.example.com"',)))
    assert outcome(devices, wanted) == f"UnschedulableAndUnresolvable: {allocator.CANNOT}"
    monkeypatch.setattr(allocator._Search, "_like", lambda *_: None)
    devices = cluster(local(*(device(f"d{i}") for i in range(128))))
    assert outcome(devices, wanted) == f"UnschedulableAndUnresolvable: {GAVE_UP}"


def test_nodes_share_a_budget_and_what_is_left_out_is_asked_again_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_resources, "STEPS_PER_POD", 60_000)
    devices = cluster(*(hopeless(node.name, lambda node, i: hash((node, i))) for node in NODES))
    wanted = claim(ask(count=16), constraints=DISTINCT)
    first = prepared(devices, wanted)
    said = [first.rejection(node).reasons[0] for node in NODES]  # type: ignore[union-attr]
    assert said == [GAVE_UP, *[dynamic_resources.OVER_BUDGET] * 3]
    again = prepared(devices, wanted)
    said = [again.rejection(node).reasons[0] for node in NODES]  # type: ignore[union-attr]
    assert said == [GAVE_UP, GAVE_UP, *[dynamic_resources.OVER_BUDGET] * 2]


def test_equal_nodes_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    real = dynamic_resources.allocate
    monkeypatch.setattr(
        dynamic_resources, "allocate", lambda node, *given: searched.append(node.name) or real(node, *given)
    )
    devices = cluster(*(local(device("d0"), device("d1"), node=node.name) for node in NODES))
    for number in range(3):
        found = prepared(devices, claim(ask(), name=f"c{number}"))
        assert [one.results[0].pool for node in NODES for _, one in found.allocations(node, str)] == [
            "n0",
            "n1",
            "n2",
            "n3",
        ]
    assert searched == ["n0"]


def test_groups_are_forgotten_when_there_are_too_many_and_made_again_for_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory, "MOST_GROUPS", 4)
    nodes = [Node(f"n{i}") for i in range(12)]
    kept = cluster(*(local(device("d0", attributes={"n": i}), device("d1"), node=f"n{i}") for i in range(12)))
    wanted = claim(ask(selectors=("device.attributes[device.driver].?n.orValue(99) < 6",)))
    for number in range(40):
        busy = allocated("d0", pool=f"n{number % 12}", name=f"used-{number}")
        if number % 3 == 2:
            kept.inventory.remove_claim(f"default/used-{number - 1}")
        kept.inventory.put_claim(busy)
        fresh = cluster(
            *(local(device("d0", attributes={"n": i}), device("d1"), node=f"n{i}") for i in range(12)),
            *kept.inventory.claims.values(),
        )
        expected = prepared(fresh, wanted).mask(nodes).tolist()
        assert prepared(kept, wanted).mask(nodes).tolist() == expected
        one = prepared(kept, wanted)
        kept.inventory.epoch_begins()  # in the midst of a cycle
        assert [one.rejection(node) is None for node in nodes] == expected
        assert len(kept.inventory._groups) <= 25
    assert kept.inventory.epoch > 0


def test_forty_claims_of_32_devices_do_not_exhaust_the_stack() -> None:
    """They would nest 1,300 calls."""
    claims = [claim(ask(count=32), name=f"c{i}") for i in range(40)]
    devices = cluster(*(local(*(device(f"d{i}-{j}") for j in range(128)), pool=f"p{i}") for i in range(10)))
    found = outcome(devices, *claims)
    assert len(found) == len(set(found)) == 40 * 32


def test_more_devices_than_a_claim_may_have_lead_to_the_alternative_with_fewer() -> None:
    devices = cluster(local(*(device(f"d{i}") for i in range(40))))
    some = DeviceRequest("a", alternatives=(ask("many", 30), ask("few", 20)))
    more = DeviceRequest("b", alternatives=(ask("many", 30), ask("few", 5)))
    found = prepared(devices, claim(some, more))
    ((_, allocation),) = found.allocations(Node("n0"), str)
    assert {one.request for one in allocation.results} == {"a/few", "b/few"}
    both = claim(
        DeviceRequest("a", alternatives=(ask("x", 20),)), DeviceRequest("b", alternatives=(ask("x", 5), ask("y", 20)))
    )
    assert len(outcome(devices, both)) == 25


def test_where_every_alternative_is_too_many_the_whole_cycle_fails() -> None:
    devices = cluster(local(*(device(f"d{i}") for i in range(70))))
    requests = [DeviceRequest("a", alternatives=(ask("x", mode="All"), ask("y", 1)))]
    assert outcome(devices, claim(*requests)) == ["d0"]
    requests = [DeviceRequest("a", alternatives=(ask("x", mode="All"), ask("y", mode="All")))]
    assert outcome(devices, claim(*requests)) == (
        "Error: claim default/c: number of requested devices 70 exceeds the claim limit of 32"
    )


GROUPS = [device(f"d{i}", attributes={"group": i % 15, "serial": i}) for i in range(120)]
GROUP = f"{DRIVER}/group"


@pytest.mark.parametrize(
    ("wanted", "constraint"),
    [
        (claim(ask(count=16), constraints=(AttributeConstraint(GROUP, distinct=True),)), "distinct"),
        (claim(ask(count=9), constraints=(AttributeConstraint(GROUP),)), "match"),
        (claim(ask("a", 4), ask("b", 9), constraints=(AttributeConstraint(GROUP, requests=("b",)),)), "of one request"),
        (claim(ask("a", 8), ask("b", 8), constraints=(AttributeConstraint(GROUP, distinct=True),)), "of all requests"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_counting_shows_to_be_impossible_is_not_searched(
    wanted: DeviceClaim, constraint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = prepared(cluster(local(*GROUPS)), wanted)
    assert found.rejection(NODES[0]).reasons == (allocator.CANNOT,)  # type: ignore[union-attr]
    assert found._steps == 0
    monkeypatch.setattr(allocator, "hopeless", lambda *_: False)
    assert outcome(cluster(local(*GROUPS)), wanted) == f"UnschedulableAndUnresolvable: {GAVE_UP}"


@pytest.mark.parametrize(
    "wanted",
    [
        claim(ask(count=15), constraints=(AttributeConstraint(GROUP, distinct=True),)),
        claim(ask(count=8), constraints=(AttributeConstraint(GROUP),)),
        claim(
            DeviceRequest("a", alternatives=(ask("many", 9), ask("few", 8))), constraints=(AttributeConstraint(GROUP),)
        ),
        claim(
            DeviceRequest("a", alternatives=(ask("many", 9), ask("free", 9))),
            constraints=(AttributeConstraint(GROUP, requests=("a/many",)),),
        ),
    ],
)
def test_what_is_just_possible_is_found(wanted: DeviceClaim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_resources, "STEPS_PER_NODE", 10**6)
    assert isinstance(outcome(cluster(local(*GROUPS)), wanted), list)


def test_a_selector_that_fails_is_told_though_counting_shows_that_nothing_is_possible() -> None:
    failing = ask("b", selectors=(f'device.attributes["{DRIVER}"].size == 1',))
    wanted = claim(ask(count=16), failing, constraints=(AttributeConstraint(GROUP, distinct=True, requests=("r",)),))
    assert "gave up" in str(outcome(cluster(local(*GROUPS)), wanted))
