"""Two pods and one last place that the binder, which knows more, refuses to both: they back off, they do not spin."""

from __future__ import annotations

import pytest

from services.coordinator.core.events import PlanAnswered
from services.coordinator.cycle.failures import ConflictTracker
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

MOST = 200


def refusals_at_once(pods: int = 2) -> int:
    """How many plans are made, and refused by the binder, before time has to pass."""
    scene = Scene()
    scene.hold_plans = True
    scene.add_node(make_node("n0").allocatable(cpu="2").node())
    scene.begin()
    scene.run()
    for number in range(pods):
        scene.add_pod(make_pod(f"p{number}").cpu("2").pod())
    scene.run(batch=100)
    refused = 0
    while scene.held_plans and refused < MOST:
        plan = scene.held_plans.pop(0)
        refused += 1
        results = [PlacementResult(p.unit, Outcome.CONFLICT, p.node, f"{p.node}: a loan") for p in plan.placements]
        scene.deliver(
            PlanAnswered(plan.plan_id, PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results))
        )
        scene.run(batch=100)
    assert scene.core.validate() == []
    return refused


@pytest.mark.parametrize("pods", [1, 2, 3])
def test_pods_that_are_refused_in_turns_back_off(pods: int) -> None:
    losses = Scene().core.state.settings.max_losses
    assert refusals_at_once(pods) <= pods * losses


def test_ablation_where_parking_forgets_lost_races_two_pods_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConflictTracker, "parked", ConflictTracker.forget)
    assert refusals_at_once() == MOST
