"""Plans are sent until answered, to whoever leads; a placement ends by the watch or by a look at the API server."""

from __future__ import annotations

import msgspec
import pytest

from services.coordinator.binding.plans import FEW_UNITS
from services.coordinator.core.events import BinderChanged, PlanAnswered, PlanFailed
from services.coordinator.core.instructions import FetchPod, PatchCondition, SendPlan
from shared.model.cluster_events import ObjectChanged
from shared.model.devices import ClaimRef, DeviceClass, DevicePod
from shared.scheduling.places import Place
from shared.turns import Log, Stop
from shared.wire.messages import VERSION, Outcome, PlacementResult, Plan, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_places
from tests.unit.shared.scheduling.devices.builders import ask, claim, device, local


def planned(*, nodes: int = 2, **pod: str) -> Scene:
    """One pod, one plan, held at the binder."""
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    scene.run()
    scene.hold_plans = True
    scene.add_pod(make_pod("a").cpu("3").pod())
    scene.run()
    assert len(scene.held_plans) == 1
    return scene


def answer(scene: Scene, outcome: Outcome, node: str = "", reason: str = "") -> PlanAnswered:
    plan = scene.held_plans[-1]
    result = PlacementResult(plan.placements[0].unit, outcome, node, reason)
    return PlanAnswered(plan.plan_id, PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, [result]))


def test_a_failed_plan_is_sent_again_unchanged_after_a_growing_pause() -> None:
    scene = planned()
    pauses = []
    for _ in range(7):
        before = scene.now
        scene.deliver(PlanFailed(1, "peer_unknown", refused=False))
        scene.run(until_s=0.5)
        pauses.append(scene.timer is not None)
        assert scene.held_plans[-1] == scene.held_plans[0]
        assert scene.now >= before
    assert len(scene.held_plans) == 8
    assert scene.core.place_of("uid-a") == ["assumed"]


def test_a_new_binder_gets_all_open_plans_at_once() -> None:
    scene = planned()
    sent = scene.deliver(BinderChanged("http://other", 9))
    assert [s.url for s in sent if isinstance(s, SendPlan)] == ["http://other"]
    assert not scene.deliver(BinderChanged("http://other", 9)), "told twice, done once"


def test_a_new_binder_that_is_not_ready_is_asked_again_while_the_old_one_hangs() -> None:
    scene = planned()
    scene.deliver(BinderChanged("http://other", 9))  # the first send, to a binder that was stopped, is still out
    scene.deliver(PlanFailed(1, "not_leader", refused=True))
    scene.run(until_s=1)
    assert len(scene.held_plans) == 3


def test_without_a_binder_plans_wait_for_one() -> None:
    scene = planned()
    scene.deliver(BinderChanged("", 0))
    assert not [s for s in scene.deliver(PlanFailed(1, "peer_unknown", refused=False)) if isinstance(s, SendPlan)]
    scene.run(until_s=30)
    assert len(scene.held_plans) == 1
    scene.deliver(BinderChanged("http://next", 4))
    assert len(scene.held_plans) == 2


def test_a_binder_that_has_seen_a_higher_term_ends_this_one() -> None:
    scene = planned()
    assert [i for i in scene.deliver(PlanFailed(1, "stale_term", refused=True)) if isinstance(i, Stop)]


@pytest.mark.parametrize("code", ["not_leader", "peer_unreachable", "overloaded"])
def test_a_refusal_that_says_nothing_about_the_plan_is_tried_again(code: str) -> None:
    scene = planned()
    scene.deliver(PlanFailed(1, code, refused=True))
    scene.run(until_s=0.5)
    assert scene.held_plans == [scene.held_plans[0]] * 2


def test_a_plan_refused_for_what_it_is_gives_its_units_back() -> None:
    scene = planned()
    scene.deliver(PlanFailed(1, "wire_invalid", refused=True))
    assert scene.core.state.queue.count()[Place.BACKOFF] == 1
    assert not scene.core.state.cache.accounts
    assert "wire_invalid" in scene.of(PatchCondition)[0].message


def test_a_conflict_gives_back_at_once_and_avoids_the_refused_node() -> None:
    scene = planned()
    first = scene.held_plans[0].placements[0].node
    scene.deliver(answer(scene, Outcome.CONFLICT, first, "full"))
    scene.run()
    assert len(scene.held_plans) == 2
    assert scene.held_plans[1].placements[0].node != first


def test_a_conflict_that_names_no_node_holds_nothing_against_any() -> None:
    """A gang is given back because others of it do not fit: nothing is wrong with this member's node."""
    scene = planned()
    first = scene.held_plans[0].placements[0].node
    scene.deliver(answer(scene, Outcome.CONFLICT, reason="2 of at least 3 members fit"))
    assert not scene.core.failures.conflicts.avoids("uid-a", first)
    scene.run()
    assert len(scene.held_plans) == 2


def test_conflicts_in_a_row_end_in_backoff() -> None:
    scene = planned(nodes=1)
    for _ in range(10):
        if scene.core.state.queue.count()[Place.BACKOFF]:
            break
        scene.deliver(answer(scene, Outcome.CONFLICT, reason="full"))
        scene.run()
    assert scene.core.state.queue.count()[Place.BACKOFF] == 1
    assert not check_places(scene)


def test_refused_backs_off_with_the_reason() -> None:
    scene = planned()
    scene.deliver(answer(scene, Outcome.REFUSED, reason="quota exceeded"))
    assert scene.core.state.queue.count()[Place.BACKOFF] == 1
    assert "quota exceeded" in scene.of(PatchCondition)[0].message


@pytest.mark.parametrize(
    ("reason", "level"),
    [("quota exceeded", "warning"), ("unable to create in namespace n because it is being terminated", "debug")],
)
def test_an_operator_is_told_of_what_is_refused_but_not_of_what_is_deleted_next(reason: str, level: str) -> None:
    scene = planned()
    scene.deliver(answer(scene, Outcome.REFUSED, reason=reason))
    assert [line.level for line in scene.of(Log) if line.event == "pod_not_placed"] == [level]


def test_elsewhere_is_accounted_there() -> None:
    scene = planned()
    scene.deliver(answer(scene, Outcome.ELSEWHERE, "n1"))
    assert scene.core.state.cache.accounts["uid-a"].node_name == "n1"
    assert scene.core.place_of("uid-a") == ["assumed"]


def test_gone_is_checked_with_the_api_server_before_the_pod_is_dropped() -> None:
    scene = planned()
    scene.deliver(answer(scene, Outcome.GONE))
    assert scene.of(FetchPod)
    assert not scene.core.state.cache.accounts
    scene.run(until_s=5)
    assert scene.core.state.queue.entries["uid-a"].place in (Place.BACKOFF, Place.IN_FLIGHT), "it was there after all"


def test_an_unresolved_placement_is_looked_up_and_settled() -> None:
    scene = planned()
    scene.deliver(answer(scene, Outcome.UNRESOLVED))
    scene.run(until_s=10)
    assert not scene.of(FetchPod)
    scene.pods["uid-a"] = scene.pods["uid-a"].__class__(
        **{name: getattr(scene.pods["uid-a"], name) for name in scene.pods["uid-a"].__struct_fields__}
        | {"node_name": "n0"}
    )
    scene.run(until_s=15)
    assert len(scene.of(FetchPod)) == 1
    assert scene.core.state.cache.accounts["uid-a"].assumed_at is None
    assert not scene.core.ledger.placed


def test_the_binder_is_asked_again_for_a_unit_that_is_still_on_its_way() -> None:
    """Its end is heard as soon as there is one, and not only when the placement is looked up."""
    scene = planned()
    first = scene.held_plans[0]
    told = answer(scene, Outcome.UNRESOLVED)
    waited = msgspec.structs.replace(told.result, elapsed_us=2_000_000)
    sent = scene.deliver(PlanAnswered(told.plan_id, waited, 2.0))
    (again,) = (instruction.plan for instruction in sent if isinstance(instruction, SendPlan))
    assert again.plan_id != first.plan_id
    assert [p.uid for p in again.placements] == [p.uid for p in first.placements]
    assert scene.core.place_of("uid-a") == ["assumed"]
    result = PlacementResult(again.placements[0].unit, Outcome.CONFLICT, "n0", "n0: node(s) were unschedulable")
    end = msgspec.structs.replace(waited, plan_id=again.plan_id, results=[result])
    scene.deliver(PlanAnswered(again.plan_id, end, 0.1))
    assert not scene.core.state.cache.accounts


def test_an_answer_to_an_unknown_plan_changes_nothing() -> None:
    scene = planned()
    told = answer(scene, Outcome.BOUND, scene.held_plans[0].placements[0].node)
    scene.deliver(told)
    bound = scene.core.state.stats.bound
    assert not scene.deliver(told)
    assert scene.core.state.stats.bound == bound == 1


def test_a_full_binder_holds_rounds_back() -> None:
    scene = planned(nodes=8)
    for number in range(3):
        for member in range(FEW_UNITS // 2):
            scene.add_pod(make_pod(f"p{number}-{member}").cpu("100m").pod())
        scene.run(batch=100)
    assert len(scene.held_plans) == scene.core.state.settings.plans_in_flight
    assert scene.core.state.queue.count()[Place.ACTIVE] > 0
    scene.hold_plans = False
    for plan in scene.held_plans:
        scene.inbox.append(scene.bind(plan))
    scene.run()
    assert len(scene.bindings) == 1 + 3 * (FEW_UNITS // 2)


def test_lone_pods_wait_for_no_plan_while_few_units_are_at_the_binder() -> None:
    scene = planned(nodes=8)
    for number in range(FEW_UNITS):
        scene.add_pod(make_pod(f"p{number}").cpu("100m").pod())
        scene.run()
    assert len(scene.held_plans) == FEW_UNITS, "each went alone, the last waits"
    assert scene.core.state.queue.count()[Place.ACTIVE] == 1


def test_bindings_crowd_while_a_binder_is_at_work_on_more_than_a_few_units() -> None:
    scene = planned(nodes=8)
    assert not scene.core.ledger.crowded()
    for number in range(FEW_UNITS):
        scene.add_pod(make_pod(f"p{number}").cpu("100m").pod())
    scene.run(batch=100)
    assert scene.core.ledger.crowded()
    scene.deliver(PlanFailed(scene.held_plans[-1].plan_id, "peer_unknown", refused=False))
    assert not scene.core.ledger.crowded(), "nobody is at work on what is to be sent again"


def still_on_their_way(plan: Plan) -> PlanAnswered:
    """The binder's answer where nothing of the plan has had its end for two seconds."""
    results = [PlacementResult(p.unit, Outcome.UNRESOLVED, p.node) for p in plan.placements]
    told = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results, 2_000_000)
    return PlanAnswered(plan.plan_id, told, 2.0)


def test_bindings_do_not_crowd_while_a_binder_is_only_asked_again_for_many_units() -> None:
    """They may wait for their volumes for ten minutes, and nothing is bound meanwhile."""
    scene = planned(nodes=8)
    for number in range(FEW_UNITS):
        scene.add_pod(make_pod(f"p{number}").cpu("100m").pod())
    scene.run(batch=100)
    for _ in range(3):
        for plan in [opened.plan for opened in scene.core.ledger.plans.values()]:
            scene.deliver(still_on_their_way(plan))
    (last,) = scene.core.ledger.plans.values()
    assert last.in_flight
    assert len(last.plan.placements) == 1 + FEW_UNITS
    assert not scene.core.ledger.crowded()


def test_units_that_wait_at_the_binder_for_long_leave_room_for_others() -> None:
    """A pod may wait for its volume for ten minutes: asking for its end again is not backpressure."""
    scene = planned(nodes=8)
    for number in range(2):
        scene.add_pod(make_pod(f"slow{number}").cpu("3").pod())
        scene.run()
    slow = list(scene.held_plans)
    assert len(slow) == scene.core.state.settings.plans_in_flight
    for plan in slow:
        scene.deliver(still_on_their_way(plan))
    scene.hold_plans = False
    scene.add_pod(make_pod("other").cpu("1").pod())
    scene.run(until_s=1)
    assert [uid for uid, _ in scene.bindings] == ["uid-other"]


def test_all_units_on_their_way_are_asked_for_by_one_plan_at_a_time() -> None:
    """Each such plan keeps a connection to the binder busy for seconds."""
    scene = planned(nodes=8)
    for number in range(2):
        scene.add_pod(make_pod(f"slow{number}").cpu("3").pod())
        scene.run()
    for _ in range(3):
        for plan in [opened.plan for opened in scene.core.ledger.plans.values()]:
            scene.deliver(still_on_their_way(plan))
    (last,) = (opened.plan for opened in scene.core.ledger.plans.values())
    assert {p.uid for p in last.placements} == {"uid-a", "uid-slow0", "uid-slow1"}
    scene.run(until_s=60)
    assert not scene.of(FetchPod), "their end is asked for, nobody has to look them up"


def claiming() -> Scene:
    """As ``planned``, of a pod with a claim; each node has one device."""
    scene = Scene()
    scene.inbox.append(ObjectChanged("deviceclasses", "any", DeviceClass("any")))
    for name in ("n0", "n1", "n2"):
        scene.add_node(make_node(name).node())
        scene.inbox.append(ObjectChanged("resourceslices", name, local(device("d"), node=name)))
    scene.inbox.append(ObjectChanged("resourceclaims", "default/c", claim(ask())))
    scene.begin()
    scene.run()
    scene.hold_plans = True
    pod = make_pod("a").cpu("3").pod()
    scene.add_pod(msgspec.structs.replace(pod, asks=DevicePod("default", "a", pod.uid, (ClaimRef("c", "c"),))))
    scene.run()
    assert len(scene.held_plans) == 1
    assert scene.core.state.devices.accounts.holds("uid-a")
    return scene


@pytest.mark.parametrize("told", ["by the binder", "by the binder, on the same node", "by the watch"])
def test_a_pod_that_another_has_bound_holds_no_devices_that_were_chosen_here(told: str) -> None:
    scene = claiming()
    mine = scene.held_plans[0].placements[0].node
    node = mine if "same" in told else next(name for name in scene.nodes if name != mine)
    if told == "by the watch":
        scene.change_pod("uid-a", node_name=node)
        scene.run()
    else:
        scene.deliver(answer(scene, Outcome.ELSEWHERE, node))
    assert scene.core.state.cache.accounts["uid-a"].node_name == node
    assert not scene.core.state.devices.accounts.assumed
    assert not scene.core.state.devices.inventory.usage.exclusive


@pytest.mark.parametrize("told", ["by the binder", "by the watch"])
def test_a_pod_that_is_bound_as_it_was_planned_holds_its_devices_until_its_claims_are_shown(told: str) -> None:
    scene = claiming()
    node = scene.held_plans[0].placements[0].node
    if told == "by the watch":
        scene.change_pod("uid-a", node_name=node)
        scene.run()
    else:
        scene.deliver(answer(scene, Outcome.BOUND, node))
    assert scene.core.state.devices.accounts.holds("uid-a")
