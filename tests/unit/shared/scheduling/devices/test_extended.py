"""Extended resources that a class stands for: which class, which requests, and whose business they are on a node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.model.devices import ContainerAsk, DeviceClass, DevicePod
from shared.model.node import Node
from shared.model.resources import is_extended
from shared.scheduling.devices import extended
from tests.unit.shared.scheduling.devices.builders import (
    NODE,
    allocated,
    ask,
    claim,
    cluster,
    device,
    local,
    pod,
    prepared,
)

GPU, CLASS = "example.com/gpu", DeviceClass("gpu", extended_resource="example.com/gpu")


def asking(*containers: ContainerAsk, total: int = 1) -> DevicePod:
    return replace(pod(), containers=containers, requests=(("cpu", 100), (GPU, total)))


def container(name: str, count: int, *, ends: bool = False, **more: int) -> ContainerAsk:
    return ContainerAsk(name, tuple(sorted({"cpu": 1, GPU: count, **more}.items())), ends)


def made(found: DevicePod) -> tuple[list[tuple[str, int]], list[tuple[str, str]]]:
    requests, mapped = extended.claimed(found, {GPU: CLASS})
    return [(one.name, one.exactly.count) for one in requests if one.exactly], [
        (m.container, m.request) for m in mapped
    ]


@pytest.mark.parametrize(
    ("containers", "requests", "served"),
    [
        ([container("a", 1)], [("container-0-request-1", 1)], [("a", "container-0-request-1")]),
        # the rank is among all requests of the container, by name
        ([container("a", 1, aaa=1, zzz=1)], [("container-0-request-2", 1)], [("a", "container-0-request-2")]),
        (
            [container("a", 1), container("none", 0), container("b", 2)],
            [("container-0-request-1", 1), ("container-2-request-1", 2)],
            [("a", "container-0-request-1"), ("b", "container-2-request-1")],
        ),
        # an init container that ends uses what later ones hold, and asks for the rest
        (
            [container("i", 3, ends=True), container("a", 2)],
            [("container-0-request-1", 1), ("container-1-request-1", 2)],
            [("a", "container-1-request-1"), ("i", "container-1-request-1"), ("i", "container-0-request-1")],
        ),
        (
            [container("i", 1, ends=True), container("a", 2)],
            [("container-1-request-1", 2)],
            [("a", "container-1-request-1"), ("i", "container-1-request-1")],
        ),
        # of several that end the largest asks for all of them
        (
            [container("i", 1, ends=True), container("j", 3, ends=True)],
            [("container-1-request-1", 3)],
            [("i", "container-1-request-1"), ("j", "container-1-request-1")],
        ),
        # a sidecar before it lasts, and is not its to use
        (
            [container("side", 2), container("i", 1, ends=True)],
            [("container-0-request-1", 2), ("container-1-request-1", 1)],
            [("side", "container-0-request-1"), ("i", "container-1-request-1")],
        ),
    ],
)
def test_each_container_is_served_by_requests_of_one_claim(
    containers: list[ContainerAsk], requests: list[tuple[str, int]], served: list[tuple[str, str]]
) -> None:
    assert made(asking(*containers)) == (requests, served)


def test_of_two_classes_for_a_resource_the_newer_stands_for_it_and_of_equally_old_the_first_by_name() -> None:
    old, new, also = (
        DeviceClass(name, extended_resource=GPU, created=created)
        for name, created in (
            ("a", "2026-01-01T00:00:00Z"),
            ("c", "2026-02-01T00:00:00Z"),
            ("b", "2026-02-01T00:00:00Z"),
        )
    )
    assert extended.class_of(GPU, {one.name: one for one in (old, new)}) is new
    assert extended.class_of(GPU, {one.name: one for one in (old, new, also)}) is also
    assert extended.class_of("deviceclass.resource.kubernetes.io/a", {"a": old}) is old
    assert extended.class_of("example.com/other", {"a": old}) is None


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (GPU, True), ("deviceclass.resource.kubernetes.io/gpu", True), ("cpu", False), ("hugepages-2Mi", False),
        ("node.kubernetes.io/x", False), ("requests.example.com/x", False),
        ("conclave.io/gpu-milli", False),
    ],
)  # fmt: skip
def test_what_counts_as_an_extended_resource(name: str, is_one: bool) -> None:
    assert is_extended(name) is is_one


def test_on_nodes_that_offer_the_resource_it_is_not_the_classs_business() -> None:
    devices = cluster(CLASS, local(device("d0")))
    plugged = replace(NODE, name="n1", allocatable={GPU: 4})
    found = devices.prepare(asking(container("a", 1)), 0.0)
    assert found is not None
    assert not hasattr(found, "reasons")
    assert (found.rejection(NODE), found.rejection(plugged)) == (None, None)  # type: ignore[union-attr]
    assert [len(found.allocations(node, str)) for node in (NODE, plugged)] == [1, 0]  # type: ignore[union-attr]
    assert found.rejection(Node("n2")).reasons == ("cannot allocate all claims",)  # type: ignore[union-attr]


def test_a_claim_that_an_earlier_attempt_left_bars_every_node_until_it_is_deleted() -> None:
    left = replace(claim(ask(), name="left"), owner="uid-pod", for_extended=True)
    devices = cluster(CLASS, local(device("d0")), left)
    found = devices.prepare(asking(container("a", 1)), 0.0)
    assert found.rejection(NODE).reasons == ("cannot schedule extended resource claim",)  # type: ignore[union-attr]
    assert found.unblock().delete is left  # type: ignore[union-attr]
    devices.inventory.put_claim(replace(left, resource_version="2"))
    devices.inventory.remove_claim(left.key)
    assert devices.inventory.left_over == {}
    assert devices.prepare(asking(container("a", 1)), 0.0).rejection(NODE) is None  # type: ignore[union-attr]


def test_a_resource_that_neither_a_class_nor_the_node_has_does_not_fit() -> None:
    devices = cluster(CLASS, local(device("d0")))
    wants = asking(container("a", 1))
    wants = replace(wants, requests=(*wants.requests, ("example.com/other", 1)))
    assert devices.prepare(wants, 0.0).rejection(NODE).reasons == ("cannot fit resource",)  # type: ignore[union-attr]


def test_a_claim_of_its_own_is_allocated_beside_what_a_device_plugin_offers() -> None:
    """The claim for extended resources is then empty, and binding fails (the oracle's extended-empty-claim)."""
    own = claim(ask(), name="own")
    devices = cluster(CLASS, local(device("d0")), own, allocated("d9"))
    both = replace(asking(container("a", 1)), claims=pod(own).claims)
    found = devices.prepare(both, 0.0)
    plugged = replace(NODE, allocatable={GPU: 4})
    assert found.rejection(plugged) is None  # type: ignore[union-attr]
    given = found.allocations(plugged, str)  # type: ignore[union-attr]
    assert [(one.name, len(allocation.results)) for one, allocation in given] == [
        ("own", 1),
        ("<extended-resources>", 0),
    ]
    assert prepared(devices, own).searches
