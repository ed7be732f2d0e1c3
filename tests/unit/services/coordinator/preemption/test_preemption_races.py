"""Preemption while the cluster moves on: nobody is evicted for nothing, no room is kept for nobody, nobody waits on."""

from __future__ import annotations

from random import Random

import pytest

from services.coordinator.core.events import Event, NominationStored, PlanAnswered
from services.coordinator.core.instructions import PatchCondition
from services.coordinator.preemption.nominations import MOST_UNKNOWN, Nominations
from shared.model.cluster_events import ObjectChanged
from shared.model.cluster_objects import DisruptionBudget
from shared.model.terms.labels import selector_of_labels
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.preemption.test_preemption import full, high
from tests.unit.services.coordinator.scene import Scene


def until_stored(scene: Scene) -> Event:
    """Run until etcd has the nomination, and take that news out of the inbox."""
    for _ in range(1000):
        found = next((event for event in scene.inbox if isinstance(event, NominationStored)), None)
        if found is not None:
            scene.inbox.remove(found)
            return found
        if not scene.step():
            scene.run(until_s=0)
    raise AssertionError("nothing was nominated")


def test_a_preemptor_that_found_room_before_its_nomination_was_stored_evicts_nobody() -> None:
    scene = full()
    scene.add_pod(high().pod())
    stored = until_stored(scene)
    scene.add_node(make_node("n2").node())
    scene.hold_plans = True
    scene.run(until_s=15)
    assert scene.core.place_of("uid-high") == ["assumed"]
    scene.deliver(stored)
    assert not any(plan.evictions for plan in scene.held_plans)


def test_a_node_that_came_while_the_nomination_was_being_stored_spares_the_victim() -> None:
    scene = full()
    scene.add_pod(high().pod())
    stored = until_stored(scene)
    scene.add_node(make_node("n2").node())
    scene.inbox.append(stored)
    scene.run(batch=2, until_s=15)
    assert not scene.evicted
    assert scene.bindings == [("uid-high", "n2")]


def test_a_node_that_comes_during_the_search_spares_the_victim() -> None:
    scene = full(40)
    scene.add_pod(high().pod())
    for _ in range(200):
        if scene.core.preemptor.searches:
            break
        scene.step()
    assert scene.core.preemptor.searches
    scene.add_node(make_node("free").node())
    scene.run(until_s=15)
    assert not scene.evicted
    assert scene.bindings == [("uid-high", "free")]


def test_a_victim_of_which_nobody_knows_whether_it_leaves_is_evicted_again() -> None:
    scene = full(1)
    scene.unknown_evictions = 1
    scene.add_pod(high().pod())
    scene.run(until_s=30)
    assert scene.evicted == ["uid-low0"]
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]


def test_a_victim_of_which_nobody_ever_knows_is_asked_some_times_before_another_is() -> None:
    scene = full(6)
    scene.unknown_evictions = MOST_UNKNOWN
    scene.add_pod(high().pod())
    scene.run(until_s=60)
    asked = [eviction.uid for plan in scene.plans for eviction in plan.evictions]
    assert len(set(asked[:MOST_UNKNOWN])) == 1
    assert len(asked) == MOST_UNKNOWN + 1
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]


def test_victims_in_the_binders_line_are_waited_for_however_long_it_is() -> None:
    """Thousands take longer than a plan may: nobody is asked in their place, tried meanwhile, or told twice."""
    scene = full(6)
    scene.waiting_evictions = 5 * MOST_UNKNOWN
    for number in range(2):
        scene.add_pod(high(f"high{number}").pod())
    scene.run(until_s=60)
    assert not scene.waiting_evictions
    asked = {eviction.uid for plan in scene.plans for eviction in plan.evictions}
    assert len(asked) == len(scene.evicted) == 2
    assert len(scene.bindings) == 2
    patches = [patch for patch in scene.of(PatchCondition) if patch.name.startswith("high")]
    assert len(patches) == len({patch.uid for patch in patches})


def gone_elsewhere(*, asked: bool) -> Scene:
    """A preemptor's victim leaves, or (``asked``) was asked to, when the preemptor finds another node; then comes a
    further preemptor."""
    scene = full(8)
    scene.keep_victims, scene.hold_plans = True, asked
    scene.add_pod(high().pod())
    scene.run(until_s=5)
    scene.add_node(make_node("free").node())
    scene.change_pod("uid-high", node_name="free")
    scene.run(until_s=5)
    scene.add_pod(make_pod("next").cpu("3").priority(100).pod())
    scene.run(until_s=5)
    scene.hold_plans = False
    for plan in scene.held_plans:
        scene.inbox.append(scene.bind(plan))
    scene.run(until_s=5)
    return scene


@pytest.mark.parametrize("asked", [False, True], ids=["leaves", "asked"])
def test_room_of_a_victim_whose_preemptor_went_elsewhere_is_used_before_another_is_evicted(asked: bool) -> None:
    scene = gone_elsewhere(asked=asked)
    assert len(scene.evicted) == 1
    scene.delete_pod(scene.evicted[0])
    scene.run(until_s=15)
    assert [uid for uid, _ in scene.bindings] == ["uid-next"]


def test_ablation_without_counting_who_leaves_already_another_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nominations, "leaves", lambda *_: False)
    assert len(gone_elsewhere(asked=True).evicted) == 2


def leaving(nodes: int = 1) -> Scene:
    """A victim is leaving for a pod that is nominated to its node; plans are held."""
    scene = full(nodes)
    scene.keep_victims = True
    scene.add_pod(high().pod())
    scene.run(until_s=5)
    scene.hold_plans = True
    return scene


def test_pods_that_yielded_to_a_nominated_one_are_woken_when_that_is_deleted() -> None:
    scene = leaving()
    scene.core.state.queue.entries["uid-high"].ready_at = scene.now + 5
    scene.delete_pod("uid-low0")
    scene.add_pod(make_pod("lower").cpu("3").priority(50).pod())
    scene.run(until_s=2)
    assert scene.core.place_of("uid-lower") == ["unschedulable"]
    scene.hold_plans = False
    scene.delete_pod("uid-high")
    scene.run(until_s=30)
    assert scene.bindings == [("uid-lower", "n0")]


def test_pods_that_yielded_to_a_nominated_one_are_woken_when_that_goes_elsewhere() -> None:
    scene = leaving()
    scene.core.state.queue.entries["uid-high"].ready_at = scene.now + 5
    scene.delete_pod("uid-low0")
    scene.add_pod(make_pod("lower").cpu("3").priority(50).pod())
    scene.run(until_s=2)
    scene.hold_plans = False
    scene.add_node(make_node("n1").node())
    scene.change_pod("uid-high", node_name="n1")
    scene.run(until_s=30)
    assert scene.bindings == [("uid-lower", "n0")]


def test_a_preemptor_whose_binding_lost_a_race_keeps_its_nomination() -> None:
    scene = leaving()
    scene.delete_pod("uid-low0")
    scene.run(until_s=15)
    plan = scene.held_plans[-1]
    assert [p.uid for p in plan.placements] == ["uid-high"]
    result = PlacementResult(plan.placements[0].unit, Outcome.CONFLICT, "n0", "the watch lags")
    told = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, [result])
    scene.core.outcomes.answered(PlanAnswered(plan.plan_id, told))
    assert list(scene.core.state.cluster.nominated) == ["n0"]


def test_a_preemptor_whose_nominated_node_is_closed_preempts_elsewhere() -> None:
    scene = full(2)
    scene.keep_victims = True
    scene.add_pod(high().pod())
    scene.run(until_s=5)
    (first,) = scene.evicted
    scene.keep_victims = False
    scene.add_node(make_node("n" + first[-1]).cordon().node())
    scene.core.state.queue.wake("uid-high", scene.now)
    scene.run(until_s=400)
    assert len(scene.evicted) == 2
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]


class FromTheFirst(Random):
    """Searches begin with the first node."""

    def random(self) -> float:
        return 0.0


def test_the_search_goes_on_until_somebody_can_go_without_violating_a_budget() -> None:
    scene = full(130)
    item = DisruptionBudget("default", "keep", selector_of_labels({"app": "low"}), allowed=0)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/keep", item))
    scene.change_pod("uid-low129", labels={"app": "other"})
    scene.run()
    scene.core.state.rng = FromTheFirst()
    scene.add_pod(high().pod())
    scene.run(until_s=20)
    assert scene.evicted == ["uid-low129"]


def test_an_older_nomination_withdrawn_keeps_what_the_pod_was_told() -> None:
    scene = full(1)
    scene.keep_victims = True
    scene.add_pod(high("low-preemptor", 50).pod())
    scene.run(until_s=2)
    assert [p.nominated for p in scene.of(PatchCondition)] == ["n0"]
    scene.add_pod(high("top", 1000).pod())
    scene.run(until_s=15)
    said = [p for p in scene.of(PatchCondition) if p.uid == "uid-low-preemptor"]
    assert all(p.message for p in said)
    assert [p.nominated for p in said if p.nominated is not None] == ["n0", ""]


def test_a_pod_that_preemption_did_not_help_is_woken_when_it_would() -> None:
    """What left is not enough by itself, but with what may be evicted beside it."""
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.add_pod(make_pod("top").cpu("2").priority(1000).on("n0").pod())
    scene.add_pod(make_pod("low").cpu("2").on("n0").pod())
    scene.run()
    scene.add_pod(high().pod())
    scene.run(until_s=30)
    assert not scene.evicted
    assert scene.core.place_of("uid-high") == ["unschedulable"]
    scene.delete_pod("uid-top")
    scene.run(until_s=30)
    assert scene.evicted == ["uid-low"]
    assert scene.bindings == [("uid-high", "n0")]


def test_what_no_eviction_would_open_wakes_nobody() -> None:
    scene = full(1)
    scene.add_pod(make_pod("top").cpu("1").priority(1000).on("n0").pod())
    scene.add_pod(make_pod("huge").cpu("5").priority(100).pod())
    scene.run(until_s=30)
    offered = scene.core.state.stats.units_offered
    scene.delete_pod("uid-top")
    scene.run(until_s=30)
    assert scene.core.state.stats.units_offered == offered


def test_a_nomination_ends_when_the_victims_have_left_in_vain() -> None:
    """Others took the room. Lower pods must not go on yielding to a pod that cannot use it."""
    scene = leaving()
    scene.hold_plans = False
    scene.add_pod(make_pod("top").cpu("3").priority(1000).on("n0").pod())
    scene.run()
    scene.add_pod(make_pod("small").cpu("1").pod())
    scene.delete_pod("uid-low0")
    scene.run(until_s=30)
    assert scene.pods["uid-high"].nominated_node == ""
    assert scene.bindings == [("uid-small", "n0")]
