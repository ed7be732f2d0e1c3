"""A victim that is only assumed on its node: until the watch shows it bound there, nobody knows that it is in the way.

Its Binding may fail, or go to a next-best node; an eviction sent meanwhile would hit a pod that holds nothing there.
"""

from __future__ import annotations

from services.coordinator.core.events import PlanAnswered
from shared.wire.messages import VERSION, Outcome, PlacementResult, Plan, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene


def assumed_victim() -> tuple[Scene, Plan]:
    """``low`` is assumed on ``n0``, its plan under way; ``high`` could have that room only. ``n1`` has 2 CPUs free."""
    scene = Scene()
    for name in ("n0", "n1"):
        scene.add_node(make_node(name).node())
    scene.add_pod(make_pod("system").cpu("2").priority(5000).on("n1").pod())
    scene.begin()
    scene.run()
    scene.hold_plans = True
    scene.add_pod(make_pod("low").cpu("2").priority(10).pod())
    scene.run()
    (plan,) = scene.held_plans
    assert [(p.uid, p.node, p.alternatives) for p in plan.placements] == [("uid-low", "n0", ["n1"])]
    scene.held_plans.clear()
    scene.add_pod(make_pod("high").cpu("3").priority(1000).pod())
    scene.run(until_s=5)
    assert scene.pods["uid-high"].nominated_node == "n0"
    return scene, plan


def answer(scene: Scene, plan: Plan, outcome: Outcome, node: str, reason: str = "") -> None:
    result = PlacementResult(plan.placements[0].unit, outcome, node, reason, 100)
    told = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, [result])
    scene.inbox.append(PlanAnswered(plan.plan_id, told))
    scene.inbox.extend(scene.bind(held) for held in scene.held_plans)  # whatever was asked meanwhile happens
    scene.hold_plans = False


def test_a_victim_that_is_not_seen_bound_is_not_evicted_yet() -> None:
    scene, _ = assumed_victim()
    assert not [eviction.uid for plan in scene.held_plans for eviction in plan.evictions]


def test_a_victim_that_was_assumed_is_evicted_once_it_is_seen_bound() -> None:
    scene, plan = assumed_victim()
    scene.hold_plans = False
    scene.inbox.append(scene.bind(plan))
    scene.run(until_s=15)
    assert scene.evicted == ["uid-low"]
    assert scene.bindings == [("uid-low", "n0"), ("uid-high", "n0")]


def test_a_victim_that_went_to_a_next_best_node_is_spared() -> None:
    scene, plan = assumed_victim()
    scene.bindings.append(("uid-low", "n1"))
    answer(scene, plan, Outcome.BOUND, "n1")
    scene.change_pod("uid-low", node_name="n1")
    scene.run(until_s=15)
    assert not scene.evicted
    assert scene.bindings == [("uid-low", "n1"), ("uid-high", "n0")]


def test_a_victim_whose_binding_failed_is_spared() -> None:
    scene, plan = assumed_victim()
    answer(scene, plan, Outcome.CONFLICT, "n0", "another binding was faster")
    scene.run(until_s=30)
    assert not scene.evicted
    assert sorted(scene.bindings) == [("uid-high", "n0"), ("uid-low", "n1")]
