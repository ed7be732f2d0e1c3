"""``conclave explain --batch`` about pods that claim devices: the page's example, and what else a question may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.explain.offline import answers
from shared.errors import ConfigError

Json = dict[str, Any]
PAGE = Path(__file__).parents[5] / "docs" / "devices.md"
EXAMPLE: Json = json.loads(PAGE.read_text().partition("<<'EOF'\n")[2].partition("\nEOF")[0])


def answer(**changes: Any) -> Json:
    question = {**EXAMPLE, "input": {**EXAMPLE["input"], **changes}}
    (found,) = answers([json.dumps(question).encode()])
    return found


def test_the_example_of_the_page_is_given_its_device() -> None:
    found = answer()
    assert (found["feasible"], found["best"], found["aborted"], found["postFilter"]) == (["n0"], ["n0"], False, {})
    (claim,) = found["allocations"]["n0"]
    assert claim["claim"] == "default/c"
    assert claim["devices"]["results"] == [
        {"request": "r", "driver": "gpu.example.com", "pool": "n0", "device": "gpu-0"}
    ]
    assert found["scores"]["n0"]["DynamicResources"] == 0


def test_without_a_device_preemption_helps_nobody() -> None:
    found = answer(resourceSlices=[])
    why = found["infeasible"]["n0"]
    assert (why["plugin"], why["reasons"]) == ("DynamicResources", ["cannot allocate all claims"])
    assert found["preemptionReason"] == "no node where preemption could help (all UnschedulableAndUnresolvable)"


def test_a_selector_that_fails_on_a_device_aborts_the_cycle() -> None:
    claim = json.loads(json.dumps(EXAMPLE["input"]["resourceClaims"][0]))
    expression = 'device.attributes["gpu.example.com"].size == 1'
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]
    found = answer(resourceClaims=[claim])
    assert (found["aborted"], found["feasible"], found["best"], found["scores"]) == (True, [], [], {})
    assert found["infeasible"]["n0"]["code"] == "Error"
    assert found["infeasible"]["n0"]["reasons"] == [
        "claim default/c: selector #0: CEL runtime error: no such key: size"
    ]


def test_a_pod_whose_claim_is_missing_is_told_so_before_it_is_queued_and_after() -> None:
    found = answer(resourceClaims=[])
    reasons = ['could not find ResourceClaim "default/c"']
    assert found["preEnqueue"]["reasons"] == reasons
    assert (found["infeasible"]["n0"]["stage"], found["infeasible"]["n0"]["reasons"]) == ("PreFilter", reasons)


def test_a_taint_rule_is_heeded() -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "bad", "effect": "NoExecute"}}}
    assert answer(deviceTaintRules=[rule])["feasible"] == ["n0"]
    rule["spec"]["deviceSelector"] = {"driver": "gpu.example.com"}
    assert answer(deviceTaintRules=[rule])["feasible"] == []


def test_a_bad_slice_is_named_with_its_line() -> None:
    bad = {"metadata": {"name": "s"}, "spec": {"devices": [{"name": "d", "attributes": {"x": {}}}]}}
    with pytest.raises(
        ConfigError, match=r"line 1: ResourceSlice s: spec\.devices\[0\]\.attributes\[x\]: has no value"
    ):
        answer(resourceSlices=[bad])


def test_where_nothing_is_said_of_devices_no_node_takes_the_pod() -> None:
    found = answer(resourceSlices=None, deviceClasses=None, resourceClaims=None)
    assert found["infeasible"]["n0"]["plugin"] == "DynamicResources"
    assert found["infeasible"]["n0"]["reasons"] == ["no slices, classes and claims are known here"]
    assert "allocations" not in found
