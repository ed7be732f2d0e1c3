"""Figures as the dashboard tells them: one style of quantities, the fullest resource, the same pods everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from services.coordinator.health.history import LEVELS
from services.coordinator.inspect.overview import Queue
from tests.unit.services.coordinator.ui.javascript import run

DASH = "\N{EN DASH}"
GPU, SHARES = "nvidia.com/gpu", "conclave.io/gpu-milli"


def resources(**shares: float | None) -> list[dict[str, Any]]:
    names = {"cpu": "cpu_millis", "memory": "memory_bytes", "gpu": GPU, "part": SHARES, "storage": "ephemeral-storage"}
    return [{"name": names.get(name, name), "share": share} for name, share in shares.items()]


@pytest.mark.parametrize(
    ("millis", "told"),
    [(0, "0"), (250, "0.25"), (1500, "1.5"), (4_000_000, "4,000"), (1_353_300, "1,353.3"), (999, "0.999")],
)
def test_cpu_is_told_in_cores_and_never_in_millicores(millis: int, told: str) -> None:
    script = (
        "const { amount, cores } = await ui('format.js'); return [amount('cpu', m), amount('cpu_millis', m), cores(m)]"
    )
    assert run(script, m=millis) == [told] * 3


def test_an_amount_that_nobody_knows_is_a_dash() -> None:
    script = "const { amount } = await ui('format.js'); return names.map((name) => amount(name, NaN))"
    assert run(script, names=["cpu", "memory", GPU]) == [DASH] * 3


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ({"cpu": 0.3, "memory": 0.4, "part": 0.0, "gpu": 0.81}, [GPU, "cpu_millis", "memory_bytes"]),
        ({"cpu": 0.3, "memory": 0.4, "gpu": 0.0, "part": 0.9}, [SHARES, "cpu_millis", "memory_bytes"]),
        ({"cpu": 0.9, "memory": 0.4, "part": 0.1, "gpu": 0.2}, ["cpu_millis", "memory_bytes", GPU]),
        ({"cpu": 0.1, "memory": 0.2, "storage": 0.7}, ["ephemeral-storage", "cpu_millis", "memory_bytes"]),
        ({"cpu": 0.1, "memory": 0.2, "amd.com/xdna": 0.6}, ["amd.com/xdna", "cpu_millis", "memory_bytes"]),
        ({"cpu": 0.1, "memory": 0.2, "gpu": None}, ["memory_bytes", "cpu_millis"]),
        ({}, []),
    ],
)
def test_the_fullest_resource_stands_first_whatever_it_is(shares: dict[str, float | None], told: list[str]) -> None:
    script = "const { requested } = await ui('figures.js'); return requested(list).map((one) => one.name)"
    assert run(script, list=resources(**shares)) == told


def test_the_chart_follows_the_fullest_device_of_each_moment() -> None:
    script = "const { fullestDevice } = await ui('resources.js'); return [fullestDevice(one), fullestDevice(none)]"
    one = {"cpu_millis": 0.99, SHARES: 0.0, GPU: 0.81, "other/device": None}
    assert run(script, one=one, none={"cpu_millis": 0.5}) == [{"name": GPU, "share": 0.81}, None]


def test_a_latency_of_a_time_in_which_nothing_came_is_no_zero() -> None:
    script = "const { latency } = await ui('figures.js'); return [latency(0), latency(undefined), latency(41.2)]"
    assert run(script) == [DASH, DASH, "41 ms"]


def test_every_pod_without_a_node_waits_whatever_keeps_it() -> None:
    places = {"active": 12, "backoff": 3, "unschedulable": 100, "in_flight": 20, "gated": 447, "unsupported": 1}
    script = "const { waiting, waitingBy } = await ui('waiting.js'); return [waiting(places), waitingBy(places).length]"
    assert run(script, places=places) == [583, 6]


def test_the_places_are_those_that_the_leader_counts_and_remembers() -> None:
    places = run("return (await ui('waiting.js')).PLACES")
    assert set(places) == set(Queue.__struct_fields__)
    assert {f"pending_{place}" for place in places} <= set(LEVELS)


@pytest.mark.parametrize(
    ("shares", "nodes", "opens"),
    [
        ({}, 10, "fullest"),
        ({GPU: [0.9, None, 0.1, None]}, 4, GPU),
        ({GPU: [0.9], SHARES: [0.95]}, 1, SHARES),
        ({GPU: [0.9], "rdma/hca": [0.99]}, 1, GPU),
        ({"google.com/tpu": [0.5]}, 1, "google.com/tpu"),
        ({GPU: [0.9, *[None] * 99]}, 100, "fullest"),
        ({GPU: [None, None]}, 2, "fullest"),
    ],
)
def test_the_map_of_a_gpu_cluster_opens_on_its_gpus(shares: dict[str, Any], nodes: int, opens: str) -> None:
    script = "const { opensOn } = await ui('resources.js'); return opensOn(shares, nodes)"
    assert run(script, shares=shares, nodes=nodes) == opens
