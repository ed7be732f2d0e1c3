"""Who had to leave for whom: told of both, as long as it is remembered; a victim is not a pod that never was."""

from __future__ import annotations

from msgspec.structs import replace

from services.coordinator.core.decisions import PastDecision, Recent
from services.coordinator.inspect.explain import explain, explain_gone
from services.coordinator.preemption.evictions import REFUSED, LastEvictions, PastEviction
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene


def eviction(number: int, by: str = "high") -> PastEviction:
    return PastEviction(float(number), f"uid-{number}", "default", f"v{number}", 0, "n0", f"uid-{by}", by, 9)


def test_evictions_are_found_by_victim_by_name_and_by_who_they_were_for_and_are_bounded() -> None:
    evicted = LastEvictions(limit=3)
    for number in range(5):
        evicted.asked(eviction(number))
    assert len(evicted) == 3
    assert evicted.of("uid-1") is None
    assert evicted.named("default/v1") is None
    assert [one.name for one in evicted.by("uid-high")] == ["v2", "v3", "v4"]
    evicted.asked(replace(eviction(2), at=9.0))
    assert [one.name for one in evicted.by("uid-high")] == ["v3", "v4", "v2"]


def test_one_that_was_let_stay_is_no_victim() -> None:
    evicted = LastEvictions()
    evicted.asked(eviction(1))
    evicted.became("uid-1", REFUSED)
    assert evicted.of("uid-1") is None
    assert evicted.named("default/v1") is None
    assert evicted.by("uid-high")[0].outcome == REFUSED


def preempted() -> Scene:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.add_pod(make_pod("low").cpu("4").priority(1).pod())
    scene.run()
    scene.add_pod(make_pod("high").cpu("4").priority(9).pod())
    scene.run(until_s=20)
    assert scene.pods["uid-high"].node_name == "n0"
    return scene


def test_a_pod_that_was_placed_by_preemption_tells_whom_it_cost() -> None:
    scene = preempted()
    answer = explain(scene.core, scene.pods["uid-high"], {}, scene.now)
    (victim,) = answer["evicted"]
    assert (victim["pod"], victim["priority"], victim["node"], victim["outcome"]) == ("default/low", 1, "n0", "evicted")
    assert "evicted default/low (priority 1) for it" in answer["summary"]
    assert answer["victim_of"] is None


def test_a_victim_that_is_gone_is_told_as_a_victim() -> None:
    scene = preempted()
    answer = explain_gone(scene.core, "default/low", scene.now)
    assert answer is not None
    assert (answer["state"], answer["victim_of"]["pod"], answer["victim_of"]["priority"]) == (
        "evicted", "default/high", 9,
    )  # fmt: skip
    assert "for default/high (priority 9)" in answer["summary"]


def test_a_pod_that_we_placed_and_that_is_gone_is_told_so_and_one_nobody_knows_is_not() -> None:
    scene = preempted()
    scene.delete_pod("uid-high")
    scene.run()
    answer = explain_gone(scene.core, "default/high", scene.now)
    assert answer is not None
    assert (answer["state"], answer["decision"]["node"]) == ("gone", "n0")
    assert explain_gone(scene.core, "default/nobody", scene.now) is None


def test_decisions_are_numbered_and_found_after_a_number_as_far_as_they_are_remembered() -> None:
    recent = Recent(limit=3)
    for number in range(5):
        recent.remember(
            f"u{number}", PastDecision(0.0, number, "n0", "p", 1, (), f"u{number}", "default", f"p{number}")
        )
    found, dropped = recent.after(1)
    assert ([one.number for one in found], dropped) == ([3, 4, 5], 1)
    assert recent.after(5) == ([], 0)
    assert recent.named("default/p0") is None
