"""What the drivers of a simulated node publish, by the annotation of the node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.errors import ConfigError
from twin.model.devices import (
    FAILED_KEY,
    CapacitySteps,
    DevicePartition,
    DeviceTaintSpec,
    Driver,
    drivers_of,
    slice_specs,
)

Json = dict[str, Any]
CONSUMABLE = {"memory": CapacitySteps("1Gi", step="1Gi")}
SEVENTH = DevicePartition("1g", {"slices": "1"}, count=7)


def devices(driver: Driver) -> dict[str, Json]:
    return {one["name"]: one for spec in slice_specs("n", driver, 3) for one in spec.get("devices") or ()}


def test_every_device_has_its_number_and_its_turn_of_a_list() -> None:
    attributes: Any = {"index": "{i}", "uuid": "GPU-{i}", "numa": [0, 1], "model": "H100", "v": {"version": "1.2.3"}}
    found = devices(Driver("d", 3, attributes=attributes, capacity={"memory": "80Gi"}))
    assert [one["attributes"]["index"] for one in found.values()] == [{"int": 0}, {"int": 1}, {"int": 2}]
    assert [one["attributes"]["numa"] for one in found.values()] == [{"int": 0}, {"int": 1}, {"int": 0}]
    assert found["gpu-2"]["attributes"]["uuid"] == {"string": "GPU-2"}
    assert found["gpu-0"]["attributes"]["v"] == {"version": "1.2.3"}
    assert found["gpu-0"]["capacity"] == {"memory": {"value": "80Gi"}}


def test_a_consumable_capacity_makes_a_device_one_for_several_claims() -> None:
    (found,) = devices(Driver("d", 1, capacity={"memory": "80Gi"}, consumable=CONSUMABLE)).values()
    assert found["allowMultipleAllocations"] is True
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    assert found["capacity"]["memory"]["requestPolicy"] == policy


def test_partitions_share_the_counters_of_their_device_and_the_whole_takes_all() -> None:
    driver = Driver("d", 2, counters={"slices": "7"}, partitions=[SEVENTH])
    counters, *rest = slice_specs("n", driver, 1)
    assert [one["name"] for one in counters["sharedCounters"]] == ["gpu-0", "gpu-1"]
    assert "devices" not in counters
    found = devices(driver)
    assert len(found) == 16
    assert found["gpu-1"]["consumesCounters"] == [{"counterSet": "gpu-1", "counters": {"slices": {"value": "7"}}}]
    assert found["gpu-1-1g-6"]["consumesCounters"] == [{"counterSet": "gpu-1", "counters": {"slices": {"value": "1"}}}]
    assert {spec["pool"]["resourceSliceCount"] for spec in (counters, *rest)} == {len(rest) + 1}


@pytest.mark.parametrize(
    ("driver", "sizes"),
    [
        (Driver("d", 0), [0]),
        (Driver("d", 128), [128]),
        (Driver("d", 129), [128, 1]),
        (Driver("d", 129, failed=[0]), [64, 64, 1]),
        (Driver("d", 9, counters={"slices": "7"}, partitions=[SEVENTH]), [0, 0, 64, 8]),
        (Driver("d", 8, stopped=True), []),
    ],
)
def test_a_slice_has_no_more_than_the_api_takes(driver: Driver, sizes: list[int]) -> None:
    specs = slice_specs("n", driver, 1)
    assert [len(spec.get("devices") or ()) for spec in specs] == sizes
    assert all(len(spec.get("sharedCounters") or ()) <= 8 for spec in specs)


def test_a_device_fails_is_tainted_or_is_gone_by_its_number() -> None:
    taints = [DeviceTaintSpec("slow", "NoSchedule", value="x", devices=[1]), DeviceTaintSpec("all", "None")]
    found = devices(Driver("d", 3, failed=[1], absent=[0], taints=taints))
    assert list(found) == ["gpu-1", "gpu-2"]
    assert [one["key"] for one in found["gpu-1"]["taints"]] == [FAILED_KEY, "slow", "all"]
    assert found["gpu-1"]["taints"][0]["effect"] == "NoExecute"
    assert [one["key"] for one in found["gpu-2"]["taints"]] == ["all"]


@pytest.mark.parametrize(
    ("drivers", "why"),
    [
        ("nonsense", "invalid character|malformed"),
        ([{"count": 1}], r"missing required field `driver`"),
        ([{"driver": "d", "count": 1, "number": 2}], r"unknown field `number`"),
        ([{"driver": "d", "count": "x"}], r"Expected `int`"),
        ([{"driver": "d", "count": -1}], r"\[0\]\.count: -1 devices .* give fewer"),
        ([{"driver": "d", "count": 2000}], r"\[0\]\.count: 2000 devices"),
        ([{"driver": "d", "count": 1}, {"driver": "d", "count": 1}], r"\[1\]\.driver: d is there twice"),
        ([{"driver": "d", "count": 2, "failed": [2]}], r"\[0\]\.failed: there is no device 2; .* 0 to 1"),
        ([{"driver": "d", "count": 2, "taints": [{"key": "k", "effect": "None", "devices": [-1]}]}],
         r"taints\[0\]\.devices: there is no device -1"),
        ([{"driver": "d", "count": 1, "consumable": {"memory": {"min": "1"}}}], r"consumable\.memory: no such"),
        ([{"driver": "d", "count": 1, "partitions": [{"name": "p", "takes": {"a": "1"}}]}],
         r"partitions\[0\]\.takes\.a: no such counter"),
        ([{"driver": "d", "count": 1, "partitions": [{"name": "p", "takes": {}}]}], r"partitions\[0\]\.takes: empty"),
        ([{"driver": "d", "count": 1, "counters": {"a": "1"},
           "partitions": [{"name": "p", "takes": {"a": "1"}, "count": 0}]}], r"partitions\[0\]\.count: 0 is not 1"),
        ([{"driver": "d", "count": 1, "attributes": {"a": []}}], r"attributes\.a: an empty list"),
        ([{"driver": "d", "count": 1, "attributes": {"a": {"int": "1"}}}], r"attributes\.a: write"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(drivers: Any, why: str) -> None:
    text = drivers if isinstance(drivers, str) else json.dumps(drivers)
    with pytest.raises(ConfigError, match=why) as caught:
        drivers_of(text)
    assert str(caught.value).startswith("conclave.io/twin-devices")
    assert "\n" not in str(caught.value)
