"""Many preemptors at once: each asks whom it needs to leave at once, however few nodes there are, and nobody twice."""

from __future__ import annotations

import pytest

from services.coordinator.preemption.promises import Promises
from shared.model.cluster_events import ObjectChanged
from shared.model.cluster_objects import DisruptionBudget
from shared.model.terms.labels import selector_of_labels
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_overcommit


def crowded(nodes: int, pods: int) -> Scene:
    """Nodes with so many pods of low priority each, and no room beside them; whoever is evicted stays for a while."""
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu=str(pods)).node())
        for place in range(pods):
            scene.add_pod(make_pod(f"low-{number}-{place}").cpu("1").priority(0).on(f"n{number}").pod())
    scene.begin()
    scene.run()
    scene.keep_victims = True
    return scene


def burst(scene: Scene, count: int) -> None:
    for number in range(count):
        scene.add_pod(make_pod(f"high-{number}").cpu("1").priority(100).pod())


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize(("nodes", "pods"), [(1, 10), (4, 10), (10, 4)])
def test_each_preemptor_of_a_burst_asks_a_victim_of_its_own_at_once(nodes: int, pods: int, batch: int) -> None:
    scene = crowded(nodes, pods)
    burst(scene, nodes * pods)
    scene.run(batch=batch, until_s=3)
    assert len(set(scene.evicted)) == nodes * pods
    assert len(scene.evicted) == nodes * pods
    for uid in sorted(scene.evicted):
        scene.delete_pod(uid)
    scene.run(batch=batch, until_s=15)
    assert len(scene.bindings) == nodes * pods
    assert check_overcommit(scene) == []


@pytest.mark.parametrize("batch", [1, 100])
def test_no_more_leave_than_a_burst_needs(batch: int) -> None:
    scene = crowded(4, 10)
    burst(scene, 13)
    scene.run(batch=batch, until_s=3)
    assert len(set(scene.evicted)) == 13


def test_a_preemptor_yields_to_one_that_left_its_group_for_a_nomination() -> None:
    """What stands for a group of parked pods has no uid: the nominated one counts for the others, who were like it."""
    scene = crowded(1, 2)
    burst(scene, 2)
    scene.run(batch=100, until_s=3)
    assert len(set(scene.evicted)) == 2


def test_a_preemptor_is_bound_as_its_room_comes_though_others_victims_do_not_leave() -> None:
    """One victim with a finalizer, or an hour of grace, must not hold up who waits for the others on its node."""
    scene = crowded(1, 4)
    burst(scene, 4)
    scene.run(batch=100, until_s=3)
    for count, uid in enumerate(sorted(scene.evicted)[:3], 1):
        scene.delete_pod(uid)
        scene.run(batch=100, until_s=15)
        assert len(scene.bindings) == count
    assert check_overcommit(scene) == []


def test_room_that_came_free_is_used_though_the_victim_of_a_later_one_stays_on_the_node() -> None:
    scene = crowded(1, 2)
    burst(scene, 2)
    scene.run(batch=100, until_s=3)
    first = next(e for plan in scene.plans for e in plan.evictions if e.preemptor == "uid-high-0")
    scene.delete_pod(first.uid)
    scene.run(batch=100, until_s=15)
    assert scene.bindings == [("uid-high-0", "n0")]
    assert len(scene.evicted) == 2


def test_the_later_of_two_leaves_the_room_to_the_earlier_when_its_own_victim_goes_first() -> None:
    scene = crowded(1, 2)
    burst(scene, 2)
    scene.run(batch=100, until_s=3)
    second = next(e for plan in scene.plans for e in plan.evictions if e.preemptor == "uid-high-1")
    scene.delete_pod(second.uid)
    scene.run(batch=100, until_s=15)
    assert len(scene.bindings) == 1
    assert len(scene.evicted) == 2
    assert check_overcommit(scene) == []


def guarded(allowed: int) -> Scene:
    """Four nodes, a pod of low priority on each: two under one budget, and two without, which are more important."""
    scene = Scene()
    for number in range(4):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="1").node())
        built = make_pod(f"low-{number}").cpu("1").priority(0 if number < 2 else 5).on(f"n{number}")
        scene.add_pod(built.set(labels={"app": "kept" if number < 2 else "other"}).pod())
    item = DisruptionBudget("default", "keep", selector_of_labels({"app": "kept"}), allowed=allowed)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/keep", item))
    scene.begin()
    scene.run()
    return scene


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_budget_is_counted_down_across_a_burst(allowed: int, batch: int) -> None:
    """The API server counts an eviction when it is made; those that are decided and not made yet count here."""
    scene = guarded(allowed)
    scene.keep_victims = scene.hold_plans = True
    burst(scene, 2)
    scene.run(batch=batch, until_s=3)
    asked = {eviction.uid for plan in scene.held_plans for eviction in plan.evictions}
    assert len(asked) == 2
    assert len(asked & {"uid-low-0", "uid-low-1"}) == allowed
    scene.hold_plans = False
    while scene.held_plans:
        scene.inbox.append(scene.bind(scene.held_plans.pop()))
    scene.run(batch=batch, until_s=3)
    assert not scene.core.state.cluster.promised


def test_without_counting_what_is_decided_a_burst_breaks_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation."""
    monkeypatch.setattr(Promises, "make", lambda *_: None)
    scene = guarded(1)
    scene.keep_victims = scene.hold_plans = True
    burst(scene, 2)
    scene.run(batch=100, until_s=3)
    asked = {eviction.uid for plan in scene.held_plans for eviction in plan.evictions}
    assert asked == {"uid-low-0", "uid-low-1"}
