"""Pods of a namespace that is being deleted are not tried: the API server refuses each Binding there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core.core import PodIntake
from shared.kube.objects import ObjectMeta, PartialObject
from shared.kube.scheduling_kinds import SCHEDULING_KINDS
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import PlanAnswered, Scene

GOING = "unable to create new content in namespace doomed because it is being terminated"


def scene() -> Scene:
    found = Scene()
    found.add_node(make_node("n").node())
    found.inbox.append(ObjectChanged("namespaces", "doomed", {"team": "a"}))
    found.begin()
    found.run()
    return found


def a_pod(name: str, cpu: str = "1") -> Pod:
    return replace(make_pod(name).cpu(cpu).pod(), namespace="doomed")


def ends(world: Scene) -> None:
    (kind,) = (kind for kind in SCHEDULING_KINDS if kind.name == "namespaces")
    meta = ObjectMeta(name="doomed", labels={"team": "a"}, deletion_timestamp="2026-11-29T12:00:00Z")
    world.inbox.append(ObjectChanged("namespaces", "doomed", kind.convert(PartialObject(metadata=meta))))
    world.run()


def test_who_waits_there_or_comes_is_not_tried_and_who_comes_to_its_successor_is() -> None:
    world = scene()
    world.add_pod(a_pod("parked", cpu="100"))
    world.run()
    assert set(world.core.state.queue.entries) == {"uid-parked"}
    ends(world)
    world.add_pod(a_pod("late"))
    world.add_node(make_node("large").allocatable(cpu="200").node())
    world.run(until_s=400.0)
    assert (world.bindings, world.core.state.queue.entries) == ([], {})
    world.delete_pod("uid-parked")
    world.delete_pod("uid-late")
    world.add_pod(a_pod("early"))  # of the namespace made anew, before the watch of namespaces shows it
    world.run()
    assert world.bindings == []
    world.inbox.append(ObjectChanged("namespaces", "doomed", None))
    world.run()
    assert [uid for uid, _ in world.bindings] == ["uid-early"]
    assert world.core.state.ending == {}


def refused(world: Scene) -> int:
    """The API server refuses whatever the mesh sends there, for as long as it likes; how many plans that were."""
    world.hold_plans = True
    world.add_pod(a_pod("flying"))
    world.run()
    ends(world)
    for _ in range(4):
        for plan in world.held_plans:
            results = [PlacementResult(one.unit, Outcome.REFUSED, reason=GOING) for one in plan.placements]
            told = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results, 0, [], [])
            world.inbox.append(PlanAnswered(plan.plan_id, told))
        world.held_plans.clear()
        world.run(until_s=60.0)
    return len({plan.plan_id for plan in world.plans})


def test_who_is_on_his_way_as_it_ends_is_not_tried_again() -> None:
    world = scene()
    assert refused(world) == 1
    assert world.core.state.queue.entries == {}


def test_switched_off_he_is_tried_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodIntake, "namespace_changed", lambda *_, **__: None)
    assert refused(scene()) > 2
