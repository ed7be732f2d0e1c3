"""Who must leave when a device is tainted, and when."""

from __future__ import annotations

from typing import Any

import pytest

from twin.model.device_taints import (
    DeviceTaintPools,
    RuleCounts,
    TaintEviction,
    eviction_of,
    rule_condition,
    seconds_of,
    selects,
    tolerated_s,
)

Json = dict[str, Any]
T0 = "2026-01-01T00:00:00Z"
WHAT_IF = (
    "if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger"
    " an update."
)
DEVICE = ("d", "p", "gpu-0")


def taint(effect: str = "NoExecute", **more: Any) -> Json:
    return {"key": "k", "effect": effect, "timeAdded": T0, **more}


def published(name: str = "s", *taints: Json, generation: int = 1, device: str = "gpu-0") -> Json:
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    devices = [{"name": device, "taints": list(taints)}]
    return {"metadata": {"name": name}, "spec": {"driver": "d", "pool": pool, "devices": devices}}


def claim(*tolerations: Json, device: str = "gpu-0") -> Json:
    result = {"driver": "d", "pool": "p", "device": device, "tolerations": list(tolerations)}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def rule(selector: Json | None, effect: str = "NoExecute") -> Json:
    spec: Json = {"taint": taint(effect)}
    if selector is not None:
        spec["deviceSelector"] = selector
    return {"metadata": {"name": "r", "uid": "u", "generation": 3}, "spec": spec}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        ({}, True),
        ({"driver": "d"}, True),
        ({"driver": "e"}, False),
        ({"pool": "p", "device": "gpu-0"}, True),
        ({"pool": "p", "device": "gpu-1"}, False),
    ],
)
def test_a_rule_taints_what_its_selector_names_and_without_one_nothing(selector: Json | None, expected: bool) -> None:
    assert selects(rule(selector), DEVICE) is expected


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0.0),
        ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], None),
        ([{"key": "k", "operator": "Exists"}], 0.0),  # only tolerations of NoExecute count
        ([{"key": "other", "operator": "Exists", "effect": "NoExecute"}], 0.0),
        ([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}], 0.0),
        (
            [
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
            ],
            30.0,
        ),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0.0),
    ],
)
def test_a_taint_is_borne_as_long_as_the_shortest_toleration_says(
    tolerations: list[Json], expected: float | None
) -> None:
    assert tolerated_s(taint(), tolerations) == expected


def test_only_taints_of_the_newest_generation_evict_and_only_noexecute() -> None:
    pools = DeviceTaintPools()
    assert pools.put(published("old", taint())) == {"gpu-0"}
    assert eviction_of(claim(), pools, {}) == TaintEviction(seconds_of(T0))
    assert pools.put(published("new", taint("NoSchedule"), generation=2)) == {"gpu-0"}
    assert eviction_of(claim(), pools, {}) is None
    assert pools.remove(published("new", generation=2)) == {"gpu-0"}
    assert eviction_of(claim(), pools, {}) is not None
    assert pools.remove(published("old")) == {"gpu-0"}
    assert not pools.tainted


def test_of_several_taints_the_first_that_ends_counts_and_every_rule_is_named() -> None:
    pools = DeviceTaintPools()
    pools.put(published("s", taint()))
    late = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    found = eviction_of(claim(late), pools, {"r": rule({})})
    assert found == TaintEviction(seconds_of(T0) + 60, frozenset(("r",)))
    assert TaintEviction(5).joined(TaintEviction(3, frozenset("r"))) == TaintEviction(3, frozenset("r"))


@pytest.mark.parametrize(
    ("effect", "counts", "reason", "message"),
    [
        ("NoExecute", RuleCounts(pods=1, namespaces=1), "PodsPendingEviction",
         "1 pod needs to be evicted in 1 namespace."),
        ("NoExecute", RuleCounts(pods=3, namespaces=2, evicted=1), "PodsPendingEviction",
         "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller."),
        ("NoExecute", RuleCounts(), "NotStarted", ""),
        ("NoExecute", RuleCounts(evicted=2), "Completed", "2 pods evicted since starting the controller."),
        ("NoSchedule", RuleCounts(), "OtherEffect", "Eviction only happens for the NoExecute effect."),
        ("None", RuleCounts(pods=1, namespaces=1, published=2, allocated=1), "NoEffect",
         f"2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace {WHAT_IF}"),
    ],
)  # fmt: skip
def test_a_rule_is_told_what_it_comes_to(effect: str, counts: RuleCounts, reason: str, message: str) -> None:
    condition = rule_condition(rule({}, effect), counts)
    assert (condition["reason"], condition["message"]) == (reason, message)
    assert condition["status"] == ("True" if reason == "PodsPendingEviction" else "False")
    assert condition["observedGeneration"] == 3
