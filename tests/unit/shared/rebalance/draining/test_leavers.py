"""Who leaves a node is what kubectl drain says under the same flags; who could never leave is told before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.kube.pods.standing_pods import SourcedPod
from shared.rebalance.draining.leavers import DrainFlags, NodeDepartures, departures
from tests.builders import PodBuilder, make_pod
from tests.unit.shared.rebalance.worlds import budget, owned


def found(*pods: PodBuilder, budgets: Any = (), **flags: bool) -> NodeDepartures:
    raws = [msgspec.convert(pod.json, SourcedPod) for pod in pods]
    return departures(raws, "a", DrainFlags(**flags), budgets)


def pod(name: str, kind: str = "ReplicaSet", *, phase: str = "Running", **meta: Any) -> PodBuilder:
    one = owned(name, "a", **meta)
    one.json["metadata"]["ownerReferences"][0]["kind"] = kind
    one.json["status"] = {"phase": phase}
    return one


def bare(name: str, phase: str = "Running") -> PodBuilder:
    one = make_pod(name).cpu("1").on("a")
    one.json["status"] = {"phase": phase}
    return one


def with_empty_dir(one: PodBuilder) -> PodBuilder:
    one.json["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    return one


@pytest.mark.parametrize(
    ("one", "flag", "by_flag"),
    [
        (bare("x"), "force", "leaves"),
        (pod("x", "DaemonSet"), "ignore_daemon_sets", "stays"),
        (with_empty_dir(pod("x")), "delete_local_data", "leaves"),
    ],
)
def test_a_pod_that_needs_a_flag_keeps_everybody_until_it_is_given(one: PodBuilder, flag: str, by_flag: str) -> None:
    without = found(one, pod("y"))
    assert list(without.forbidden) == ["default/x"]
    assert "--" in without.forbidden["default/x"]
    given = found(one, pod("y"), **{flag: True})
    assert given.forbidden == {}
    assert ["default/x" in given.stay, "default/x" in [leaver.key for leaver in given.leavers]] == [
        by_flag == "stays", by_flag == "leaves",
    ]  # fmt: skip


def test_finished_pods_need_no_flag_and_no_room_and_mirror_pods_stay() -> None:
    mirror = bare("m")
    mirror.json["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    there = found(with_empty_dir(bare("done", "Succeeded")), pod("job", "Job", phase="Failed"), mirror)
    assert there.forbidden == {}
    assert [(one.name, one.replaced) for one in there.leavers] == [("done", False), ("job", False)]
    assert list(there.stay) == ["default/m"]


def test_who_leaves_already_is_waited_for_and_needs_no_room() -> None:
    leaving = pod("x", deletionTimestamp="2026-01-01T00:00:00Z")
    assert [(one.name, one.replaced, one.copies) for one in found(leaving, pod("y")).leavers] == [
        ("x", False, 1), ("y", True, 1),
    ]  # fmt: skip


def test_a_pod_under_two_budgets_is_told_before_anybody_is_evicted() -> None:
    budgets = [budget("one", "web", 1), budget("two", "web", 1)]
    assert "2 budgets cover it" in found(pod("x"), budgets=budgets).forbidden["default/x"]
    assert found(pod("x"), budgets=budgets[:1]).leavers[0].budgets == ("one",)


def test_the_least_important_leave_first_and_copies_elsewhere_count() -> None:
    high, low = pod("a-high"), pod("z-low")
    high.json["spec"]["priority"], low.json["spec"]["priority"] = 100, 1
    elsewhere = owned("other", "b")
    there = found(high, low, elsewhere)
    assert [(one.name, one.copies, one.replaced) for one in there.leavers] == [
        ("z-low", 3, True), ("a-high", 3, True),
    ]  # fmt: skip


@pytest.mark.parametrize("more", [{"phase": "Pending"}, {"terminating": True}])
def test_of_who_waits_or_leaves_already_no_budget_is_asked(more: dict[str, Any]) -> None:
    who = pod("x")
    if more.pop("terminating", False):
        who.json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    else:
        who.phase(more["phase"])
    there = found(who, budgets=[budget("one", "web", 1), budget("two", "web", 1)])
    assert there.forbidden == {}
    assert there.leavers[0].budgets == ()
