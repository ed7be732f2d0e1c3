"""Offline pods leave a node where less is lent than they hold: at once, no more than must, and once each."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType

import pytest
from msgspec.structs import replace

from services.coordinator.core import core
from services.coordinator.core.events import BinderChanged, PlanFailed
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoreSettings
from services.coordinator.inspect.explain import explain, explain_gone
from services.coordinator.preemption import giving_way
from services.coordinator.preemption.giving_way import (
    AGAIN_S,
    LABELLED_OUT,
    LONGEST_AGAIN_S,
    MARKED,
    NO_CONTROLLER,
    OPTED_OUT,
    UNHEARD_S,
    GivingWay,
)
from services.coordinator.preemption.requests import STUCK_S
from shared.errors import InvalidState
from shared.model.cluster_events import ObjectChanged
from shared.model.cluster_objects import DisruptionBudget
from shared.model.offline import EVICTION_LABEL, OfflineTerms
from shared.model.terms.labels import LabelSelector
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.preemption import giving_way as choice
from shared.scheduling.queues.share import dominant_share
from shared.scheduling.shards import Shards
from shared.turns import Log
from shared.wire.messages import EvictionReason
from shared.wire.records import Paused
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.preemption.test_giving_way import CPU, NOW, at, offline

ON = CoreSettings(validate=True, offline_eviction=True)


def lend(scene: Scene, name: str, amount: int | None, *, new: bool = False) -> None:
    """Somebody writes what the node lends; None: nobody says."""
    lent = {} if amount is None else {CPU: str(amount)}
    node = make_node(name).allocatable(**lent).node()
    if amount is None:
        node = replace(node, allocatable={k: v for k, v in node.allocatable.items() if k != CPU})
    scene.add_node(node)


def lent(*pods: PodBuilder, settings: CoreSettings = ON, nodes: int = 1) -> Scene:
    """Nodes that lend 8 cores each; the pods stand on the first."""
    scene = Scene(settings=settings)
    scene.core.state.epoch = NOW - scene.now
    for number in range(nodes):
        lend(scene, f"n{number}", 8000)
    scene.begin()
    for pod in pods:
        scene.add_pod(pod.on("n0").pod())
    scene.run()
    assert not scene.evicted
    return scene


def four() -> list[PodBuilder]:
    return [offline(f"p{number}", 2000, ran_s=100 + number) for number in range(4)]


def stay(scene: Scene) -> list[str]:
    return [str(dict(log.facts)["reason"]) for log in scene.of(Log) if log.event == "offline_pods_stay"]


def test_as_many_leave_as_must_and_at_once() -> None:
    scene = lent(*four())
    lend(scene, "n0", 4500)
    scene.run()
    assert scene.evicted == ["uid-p0", "uid-p1"]
    reasons = {eviction.reason for plan in scene.plans for eviction in plan.evictions}
    assert reasons == {EvictionReason.GIVE_WAY}
    told = [event for event in scene.of(EmitEvent) if event.reason == "GaveWay"]
    assert [event.name for event in told] == ["p0", "p1"]
    scene.run(until_s=600)
    assert len(scene.evicted) == 2


def test_nobody_leaves_while_it_is_switched_off_and_those_that_must_do_once_it_is_on() -> None:
    scene = lent(*four(), settings=CoreSettings(validate=True))
    lend(scene, "n0", 4500)
    scene.run(until_s=60)
    assert not scene.evicted
    scene.control = replace(scene.control, settings=ON, settings_number=1)
    scene.inbox.append(scene.control)
    scene.run()
    assert len(scene.evicted) == 2


def test_within_the_margin_nobody_leaves() -> None:
    scene = lent(*four())
    lend(scene, "n0", 7700)
    scene.run(until_s=600)
    assert not scene.evicted
    lend(scene, "n0", 7500)
    scene.run()
    assert len(scene.evicted) == 1


def test_nobody_leaves_before_the_grace_is_over_nor_where_it_ends_by_itself() -> None:
    scene = lent(*four(), settings=replace_settings(offline_grace_s=30.0))
    lend(scene, "n0", 4000)
    scene.run(until_s=29)
    lend(scene, "n0", 8000)
    scene.run(until_s=60)
    assert not scene.evicted
    lend(scene, "n0", 4000)
    scene.run(until_s=29)
    assert not scene.evicted
    scene.run(until_s=2)
    assert len(scene.evicted) == 2


def test_the_grace_begins_anew_where_no_more_than_the_margin_is_missing_meanwhile() -> None:
    scene = lent(*four(), settings=replace_settings(offline_grace_s=60.0))
    lend(scene, "n0", 7000)
    scene.run(until_s=1)
    lend(scene, "n0", 7900)
    scene.run(until_s=600)
    assert not scene.evicted
    lend(scene, "n0", 7000)
    scene.run(until_s=59)
    assert not scene.evicted
    scene.run(until_s=2)
    assert len(scene.evicted) == 1


def test_after_the_grace_it_is_to_hold_again_and_not_within_the_margin_alone() -> None:
    scene = lent(*four(), settings=replace_settings(offline_grace_s=10.0))
    scene.budget_forbids = {f"uid-p{number}" for number in range(4)}
    lend(scene, "n0", 7000)
    scene.run(until_s=15)
    lend(scene, "n0", 7900)
    scene.budget_forbids = set()
    scene.run(until_s=LONGEST_AGAIN_S)
    assert len(scene.evicted) == 1


def switch(scene: Scene, settings: CoreSettings, number: int = 1) -> None:
    scene.control = replace(scene.control, settings=settings, settings_number=number)
    scene.inbox.append(scene.control)
    scene.run()


@pytest.mark.parametrize("pending", ["a refusal", "a grace", "a protected time", "a victim not heard of"])
def test_once_it_is_switched_off_nobody_leaves_whatever_was_pending(pending: str) -> None:
    grace_s, runtime_s = 30.0 * (pending == "a grace"), 130.0 * (pending == "a protected time")
    scene = lent(*four(), settings=replace_settings(offline_grace_s=grace_s, offline_min_runtime_s=runtime_s))
    if pending == "a refusal":
        scene.budget_forbids = {f"uid-p{number}" for number in range(4)}
    scene.hold_plans = pending == "a victim not heard of"
    lend(scene, "n0", 4500)
    scene.run(until_s=10)
    if scene.hold_plans:
        scene.hold_plans = False
        scene.unknown_evictions = 2
        scene.inbox.append(scene.bind(scene.held_plans.pop()))
        scene.deliver(scene.inbox.popleft())
    switch(scene, CoreSettings(validate=True))
    scene.budget_forbids = set()
    lend(scene, "n0", 4400)
    scene.run(until_s=3 * LONGEST_AGAIN_S)
    assert not scene.evicted
    switch(scene, ON, 2)
    scene.run(until_s=1)
    assert len(scene.evicted) == 2


def test_a_setting_of_something_else_starts_no_grace_anew_and_repeats_nothing() -> None:
    scene = lent(*four(), settings=replace_settings(offline_grace_s=30.0))
    lend(scene, "n0", 4500)
    scene.run(until_s=20)
    switch(scene, replace_settings(offline_grace_s=30.0, gang_timeout_s=77.0))
    scene.run(until_s=11)
    assert len(scene.evicted) == 2


@pytest.mark.parametrize("slow", ["0", "1"])
def test_a_shard_whose_binder_does_not_answer_holds_up_no_other(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "WORK_PER_TURN", 8)
    monkeypatch.setattr(core, "LEAST_WORK", 8)
    shards = Shards(("0", "1"), 5)
    scene = Scene(agents=1, settings=ON, shards=shards)
    scene.core.state.epoch = NOW - scene.now
    names = [f"n{number}" for number in range(60)]
    for name in names:
        lend(scene, name, 8000)
        scene.add_pod(offline(f"p-{name}", 4000).on(name).pod())
    scene.begin()
    scene.run()
    scene.hold_plans = True
    for name in sorted(names, key=lambda name: shards.of(name) != slow):
        lend(scene, name, 0)
    for _ in range(100):
        scene.run(until_s=1)
        for plan in [plan for plan in scene.held_plans if shards.of(plan.evictions[0].node) != slow]:
            scene.held_plans.remove(plan)
            scene.inbox.append(scene.bind(plan))
    assert sorted(scene.evicted) == sorted(f"uid-p-{name}" for name in names if shards.of(name) != slow)
    scene.hold_plans = False
    while scene.held_plans:
        scene.inbox.append(scene.bind(scene.held_plans.pop(0)))
        scene.run(until_s=1)
    assert len(scene.evicted) == len(names)


def answer(scene: Scene, waiting: int) -> None:
    """The binder has asked all but so many victims, which stand in its line."""
    scene.waiting_evictions = waiting
    plans, scene.held_plans = scene.held_plans, []
    scene.inbox.extend(map(scene.bind, plans))
    scene.run(until_s=2)


def test_of_those_in_the_binder_s_line_the_end_is_heard_before_others_are_asked() -> None:
    scene = lent(*four(), nodes=2)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/b", BUDGET))
    scene.hold_plans = True
    lend(scene, "n0", 0)
    scene.run()
    assert sum(len(plan.evictions) for plan in scene.held_plans) == 4
    late = offline("late", 4000).on("n1").pod()
    scene.add_pod(late)
    scene.run()
    for waiting in (3, 2, 2):
        answer(scene, waiting)
        (names,) = scene.core.state.cluster.promised.values()
        assert len(names) == len(scene.core.giving_way.asked) == waiting
    scene.run(until_s=UNHEARD_S)
    assert len(scene.core.giving_way.asked) == 2
    answer(scene, 0)
    assert len(scene.evicted) == len(set(scene.evicted)) == 4
    assert len([event for event in scene.of(EmitEvent) if event.reason == "GaveWay"]) == 4
    assert scene.core.state.stats.gave_way == 4
    assert not scene.core.state.cluster.promised


def test_a_binder_that_only_says_that_they_wait_is_not_waited_for_for_ever() -> None:
    scene = lent(*four())
    scene.hold_plans = True
    lend(scene, "n0", 6000)
    scene.run()
    began = scene.now
    while scene.core.state.stats.asked_to_give_way == 1:
        answer(scene, 1)
        assert scene.now < began + STUCK_S + 2 * UNHEARD_S
    assert scene.now >= began + STUCK_S
    scene.hold_plans = False
    answer(scene, 0)
    assert len(scene.evicted) == 1


def test_switched_off_those_in_the_binder_s_line_are_not_asked_for_again() -> None:
    scene = lent(*four())
    scene.hold_plans = True
    lend(scene, "n0", 0)
    scene.run()
    scene.waiting_evictions = 4
    scene.inbox.append(scene.bind(scene.held_plans.pop()))
    scene.inbox.append(replace(scene.control, settings=CoreSettings(validate=True), settings_number=1))
    scene.run(batch=2, until_s=600)
    assert not scene.held_plans
    assert not scene.core.giving_way.asked


def test_without_a_binder_nobody_is_chosen_and_those_that_must_leave_once_there_is_one() -> None:
    scene = lent(*four())
    scene.inbox.append(BinderChanged("", 0))
    lend(scene, "n0", 6000)
    scene.run(until_s=20)
    lend(scene, "n0", 8000)
    scene.run(until_s=70)
    scene.inbox.append(BinderChanged("http://binder", 4))
    scene.run(until_s=5)
    assert not any(plan.evictions for plan in scene.plans)
    scene.inbox.append(BinderChanged("", 0))
    lend(scene, "n0", 4500)
    scene.run(until_s=20)
    scene.inbox.append(BinderChanged("http://binder", 5))
    scene.run(until_s=5)
    assert scene.evicted == ["uid-p0", "uid-p1"]


def test_while_nobody_has_answered_for_whom_it_asked_nobody_else_is_asked() -> None:
    scene = lent(*four())
    scene.hold_plans = True
    lend(scene, "n0", 6000)
    scene.run(until_s=10)
    scene.change_pod("uid-p1", offline=offline("p1", last_checkpoint=at(0)).pod().offline)
    scene.run(until_s=2 * UNHEARD_S)
    assert {eviction.uid for plan in scene.plans for eviction in plan.evictions} == {"uid-p0"}


def replace_settings(**changes: float | bool) -> CoreSettings:
    return CoreSettings(validate=True, **{"offline_eviction": True, **changes})  # type: ignore[arg-type]


def test_where_nobody_says_what_is_lent_nobody_leaves_and_it_is_told_once() -> None:
    scene = lent(*four())
    for number in range(3):
        lend(scene, "n0", None)
        scene.change_pod("uid-p0", labels={"seen": str(number)})
        scene.run(until_s=20)
    assert not scene.evicted
    assert stay(scene) == [f"nothing is said of {CPU}, which offline pods hold; nobody leaves for it"]


def test_while_victims_leave_nobody_else_is_asked() -> None:
    scene = lent(*four())
    scene.keep_victims = True
    for amount in (4500, 4400, 4300):
        lend(scene, "n0", amount)
        scene.run(until_s=100)
    assert scene.evicted == ["uid-p0", "uid-p1"]


def test_a_new_leader_counts_whom_the_one_before_has_marked_or_evicted() -> None:
    scene = lent(*four())
    scene.keep_victims = True
    lend(scene, "n0", 4500)
    scene.run()
    scene.change_pod("uid-p0", terminating=False, preempted=True)  # marked, and not deleted yet
    scene.replace_leader(set())
    scene.core.state.epoch = NOW
    scene.run(until_s=5)
    assert scene.evicted == ["uid-p0", "uid-p1"]


def asked_after_one_was_marked(*, ours: bool) -> list[str]:
    """Who is evicted by a new leader; the one before marked another than it would choose, and died."""
    scene = lent(*four()[:3], offline("p3", 2000, ran_s=500).priority(7))
    scene.hold_plans = True
    lend(scene, "n0", 4500)
    scene.run()
    scene.change_pod("uid-p3", preempted=True, offline=OfflineTerms(returns=True, gives_way=ours))
    scene.hold_plans = False
    scene.replace_leader(set())
    scene.core.state.epoch = NOW
    scene.run(until_s=100)
    return sorted(scene.evicted)


def test_a_new_leader_asks_first_whom_the_one_before_marked_and_did_not_evict() -> None:
    assert asked_after_one_was_marked(ours=True) == ["uid-p0", "uid-p3"]


def test_whom_somebody_else_marked_counts_as_leaving() -> None:
    assert asked_after_one_was_marked(ours=False) == ["uid-p0"]


@pytest.mark.parametrize(("blind", "asked"), [(giving_way, ["uid-p0"]), (choice, ["uid-p0", "uid-p1"])])
def test_one_that_trusts_the_mark_evicts_too_few_and_one_that_does_not_prefer_it_others(
    blind: ModuleType, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation."""
    monkeypatch.setattr(blind, "gives_way", lambda _: False)
    assert asked_after_one_was_marked(ours=True) == asked


def test_a_new_leader_tells_of_those_that_the_one_before_asked_and_of_nobody_twice() -> None:
    """One leaves already, one while it leads; its own are told by their answers."""
    scene = lent(*four())
    scene.keep_victims = True
    lend(scene, "n0", 4500)
    scene.run()
    marked = {"preempted": True, "offline": OfflineTerms(returns=True, gives_way=True)}
    scene.change_pod("uid-p0", terminating=True, **marked)
    scene.change_pod("uid-p1", terminating=False, **marked)
    lend(scene, "n0", 6500)  # enough for those who stay: who bears the mark alone would be asked again
    scene.replace_leader(set())
    scene.core.state.epoch = NOW
    before = len(scene.of(EmitEvent))
    scene.run(until_s=5)
    scene.change_pod("uid-p1", terminating=True)
    scene.run(until_s=10)
    lend(scene, "n0", 3500)
    scene.run(until_s=15)
    for uid in ("uid-p0", "uid-p1", scene.evicted[-1]):
        scene.change_pod(uid, terminating=True, **marked)
    scene.run(until_s=20)
    told = [event for event in scene.of(EmitEvent)[before:] if event.reason == "GaveWay"]
    assert [event.name for event in told] == ["p0", "p1", scene.evicted[-1].removeprefix("uid-")]
    assert [event.note for event in told[:2]] == [MARKED] * 2, "the mark does not say that they were evicted"


def test_who_is_gone_before_the_answer_is_told_once_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = lent(*four())
    lend(scene, "n0", 4500)
    scene.run()
    assert sum(event.reason == "GaveWay" for event in scene.of(EmitEvent)) == 2
    assert scene.core.validate() == []
    monkeypatch.setattr(scene.core.giving_way, "_told", {"uid-p0"})
    assert scene.core.validate() == ["gives-way: uid-p0 gave way, is gone, and is kept"]


def test_a_new_leader_finishes_what_the_one_before_did_not_ask_for() -> None:
    scene = lent(*four())
    scene.hold_plans = True
    lend(scene, "n0", 4500)
    scene.run()
    assert not scene.evicted
    scene.hold_plans = False
    scene.replace_leader(set())
    scene.core.state.epoch = NOW
    scene.run()
    assert scene.evicted == ["uid-p0", "uid-p1"]


def test_in_place_of_one_whose_eviction_is_refused_another_leaves_and_the_first_is_not_asked_in_a_loop() -> None:
    scene = lent(*four())
    scene.budget_forbids = {"uid-p0"}
    lend(scene, "n0", 6000)
    scene.run(until_s=3 * AGAIN_S)
    assert scene.evicted == ["uid-p1"]
    assert sum(len(plan.evictions) for plan in scene.plans) == 2


def test_those_that_may_not_leave_are_named_once_and_asked_again_after_a_pause() -> None:
    scene = lent(*four())
    scene.budget_forbids = {f"uid-p{number}" for number in range(4)}
    lend(scene, "n0", 6000)
    scene.run(until_s=AGAIN_S - 1)
    assert sum(len(plan.evictions) for plan in scene.plans) == 4
    (told,) = stay(scene)
    assert "default/p0" in told
    assert "429" in told
    assert [event.regarding for event in scene.of(EmitEvent) if event.reason == "OfflinePodsStay"] == [("v1", "Node")]
    scene.run(until_s=AGAIN_S)
    assert len(stay(scene)) == 1
    assert len([log for log in scene.of(Log) if log.event == "eviction_failed"]) == 4
    scene.budget_forbids = set()
    scene.run(until_s=2 * AGAIN_S)
    assert len(scene.evicted) == 1


def test_who_is_asked_to_leave_for_another_pod_already_counts_as_leaving() -> None:
    scene = lent(*(pod.cpu("1") for pod in four()))
    scene.keep_victims = True
    scene.add_pod(make_pod("high").cpu("1").priority(100).pod())
    scene.run()
    (victim,) = scene.evicted
    scene.change_pod(victim, terminating=False)  # asked, and the watch has not shown it yet
    lend(scene, "n0", 6000)
    scene.run(until_s=5)
    assert scene.evicted == [victim]


BUDGET = DisruptionBudget("default", "b", LabelSelector(), 5)


def wanted_twice(*, nominated_first: bool) -> Scene:
    """Of an only victim under a budget, lent and plain CPU are wanted: the one for its node, the other for a pod."""
    scene = lent(offline("v", 4000).cpu("3"), offline("w", 4000, ran_s=900))
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/b", BUDGET))
    scene.run()
    scene.hold_plans = True
    scene.slow_stores = int(nominated_first)
    online = make_pod("online").cpu("3").priority(100).pod()
    if nominated_first:
        scene.add_pod(online)
        scene.run()
        lend(scene, "n0", 4000)
        scene.run()
    else:
        lend(scene, "n0", 4000)
        scene.run()
        scene.add_pod(online)
    scene.run(until_s=3)
    assert {uid for plan in scene.held_plans for eviction in plan.evictions for uid in [eviction.uid]} == {"uid-v"}
    assert "uid-v" in scene.core.nominations.leaving
    assert scene.core.state.cluster.promised
    return scene


def let_go(scene: Scene) -> None:
    scene.hold_plans = False
    while scene.held_plans:
        scene.inbox.append(scene.bind(scene.held_plans.pop(0)))


@pytest.mark.parametrize("nominated_first", [False, True])
def test_a_victim_of_its_node_and_of_a_pod_is_asked_once_and_counted_once(nominated_first: bool) -> None:
    scene = wanted_twice(nominated_first=nominated_first)
    let_go(scene)
    scene.run(until_s=5)
    assert scene.evicted == ["uid-v"]
    assert sum(len(plan.evictions) for plan in scene.plans) == 1
    assert scene.bindings == [("uid-online", "n0")]
    assert not scene.core.state.cluster.promised


@pytest.mark.parametrize("what", ["refused", "unknown", "plan refused"])
def test_a_pod_asks_itself_for_a_victim_that_was_let_stay_for_its_node(what: str) -> None:
    scene = wanted_twice(nominated_first=False)
    lend(scene, "n0", 8000)
    scene.run()
    scene.budget_forbids = {"uid-v"} if what == "refused" else set()
    scene.unknown_evictions = int(what == "unknown")
    if what == "plan refused":
        (plan,) = scene.held_plans
        scene.held_plans.clear()
        scene.inbox.append(PlanFailed(plan.plan_id, "bad_request", refused=True))
    let_go(scene)
    scene.run(until_s=1)
    scene.budget_forbids = set()
    scene.run(until_s=60)
    assert scene.evicted == ["uid-v"]
    assert scene.bindings == [("uid-online", "n0")]
    assert not scene.core.state.cluster.promised


def test_a_pod_without_a_controller_leaves_only_where_it_says_so() -> None:
    bare, willing = offline("bare", 4000, ran_s=1, owned=False), offline("w", 4000, owned=False, preemptible="true")
    scene = lent(bare, willing)
    lend(scene, "n0", 0)
    scene.run(until_s=600)
    assert scene.evicted == ["uid-w"]
    short = f"less is lent than offline pods hold ({CPU}: 4000)"
    assert stay(scene) == [f"{short}, and nobody else may leave: default/bare: {NO_CONTROLLER}"]


@pytest.mark.parametrize(
    ("said", "labels", "why"),
    [
        ({}, {EVICTION_LABEL: "false"}, LABELLED_OUT),
        ({"preemptible": "true"}, {EVICTION_LABEL: "false"}, LABELLED_OUT),
        ({"preemptible": "false"}, {EVICTION_LABEL: "true"}, OPTED_OUT),
    ],
)
def test_who_says_that_it_does_not_give_way_stays_and_that_is_told(
    said: dict[str, str], labels: dict[str, str], why: str
) -> None:
    pod = offline("a", 4000, **said)  # type: ignore[arg-type]
    scene = lent(pod.set(labels=labels))
    lend(scene, "n0", 0)
    scene.run(until_s=60)
    assert not scene.evicted
    (told,) = stay(scene)
    assert told.endswith(f"default/a: {why}")


def test_who_is_protected_leaves_once_its_time_is_over() -> None:
    scene = lent(*four(), settings=replace_settings(offline_min_runtime_s=130.0))
    lend(scene, "n0", 6000)
    scene.run(until_s=25)
    assert not scene.evicted
    scene.run(until_s=2)
    assert scene.evicted == ["uid-p3"]  # the others have a while to go


def test_an_unreadable_annotation_is_named_once_and_counts_as_not_said() -> None:
    scene = lent(offline("a", 4000, last_checkpoint="yesterday", ran_s=500), offline("b", 4000, ran_s=1))
    lend(scene, "n0", 4000)
    scene.run()
    assert scene.evicted == ["uid-b"]
    lend(scene, "n0", 3900)
    scene.run()
    (log,) = [log for log in scene.of(Log) if log.event == "offline_terms_unread"]
    assert str(dict(log.facts)["reason"]).startswith("metadata.annotations[conclave.io/last-checkpoint]: 'yesterday'")


def test_a_budget_that_allows_no_eviction_is_not_tried_and_one_that_does_again_is_at_once() -> None:
    scene = lent(*four())
    key, selector = "default/b", LabelSelector()
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", key, DisruptionBudget("default", "b", selector, 0)))
    lend(scene, "n0", 6000)
    scene.run(until_s=5)
    assert not scene.evicted
    assert not any(plan.evictions for plan in scene.plans)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", key, DisruptionBudget("default", "b", selector, 1)))
    scene.run()
    assert scene.evicted == ["uid-p0"]


def test_a_gang_that_breaks_leaves_whole_from_other_nodes_too() -> None:
    scene = lent(nodes=2)
    key = f"{GroupSource.PLUGINS.value}:default/g"
    group = PodGroup(key, GroupSource.PLUGINS, "default", "g", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups.scheduling.x-k8s.io", "default/g", group))
    for number in range(2):
        scene.add_pod(replace(offline(f"g{number}", 4000).on(f"n{number}").pod(), group=key))
    scene.run()
    lend(scene, "n0", 1000)
    scene.run()
    assert sorted(scene.evicted) == ["uid-g0", "uid-g1"]


def test_while_scheduling_is_paused_nobody_leaves_and_those_that_must_do_after_it() -> None:
    scene = lent(*four())
    scene.inbox.append(
        replace(scene.control, paused=Paused(by="me", reason="maintenance", since="2026-11-29T00:00:00Z"))
    )
    lend(scene, "n0", 4500)
    scene.run(until_s=60)
    assert not scene.evicted
    scene.inbox.append(scene.control)
    scene.run()
    assert len(scene.evicted) == 2


@pytest.mark.parametrize("lands", [False, True])
def test_for_one_that_is_on_its_way_nobody_leaves_and_it_leaves_again_if_it_lands(lands: bool) -> None:
    scene = lent(*four()[:3])
    scene.hold_plans = True
    late = offline("late", 2000)
    del late.json["status"]["startTime"]
    scene.add_pod(late.pod())
    scene.run()
    lend(scene, "n0", 6000)
    scene.run()
    assert not any(plan.evictions for plan in scene.plans)
    scene.hold_plans = False
    if lands:
        scene.change_pod("uid-late", node_name="n0")  # its Binding was under way
    else:
        scene.inbox.append(scene.bind(scene.held_plans.pop()))
    scene.run(until_s=5)
    assert scene.evicted == (["uid-late"] if lands else [])


@pytest.mark.parametrize("unknown", [1, 2])
def test_one_of_which_nobody_knows_whether_it_was_asked_is_asked_again(unknown: int) -> None:
    scene = lent(*four())
    scene.unknown_evictions = unknown
    lend(scene, "n0", 6000)
    scene.run(until_s=20)
    assert len(scene.evicted) == 1


def test_a_hundred_nodes_that_lend_less_together_lose_what_they_must_and_no_more() -> None:
    scene = lent(nodes=100)
    for number in range(100):
        for pod in four():
            pod.json["metadata"].update(name=f"n{number}-{pod.json['metadata']['name']}")
            pod.json["metadata"]["uid"] = f"uid-{pod.json['metadata']['name']}"
            scene.add_pod(pod.on(f"n{number}").pod())
    scene.run(batch=500)
    for number in range(100):
        lend(scene, f"n{number}", 3000)
    scene.run(batch=500, until_s=5)
    assert len(scene.evicted) == 300
    assert len(set(scene.evicted)) == 300


def test_ablation_a_victim_that_nobody_forgets_is_found() -> None:
    scene = lent(*four())
    lend(scene, "n0", 4500)
    scene.core.giving_way.pod_gone = lambda uid, node: None  # type: ignore[method-assign]
    with pytest.raises(InvalidState, match="gives-way: uid-p"):
        scene.run(until_s=5)


def test_without_counting_those_that_leave_too_many_would_go(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = lent(*four())
    scene.keep_victims = True
    monkeypatch.setattr(GivingWay, "_leaves", lambda self, pod: False)
    for amount in (4500, 4400, 4300):
        lend(scene, "n0", amount)
        scene.run(until_s=1)
    assert len(scene.evicted) > 2


# --- told, and counted ------------------------------------------------------------------------------------------------


def test_who_asks_about_a_victim_or_the_one_in_its_place_is_told_for_whom_it_left() -> None:
    scene = lent(*four())
    lend(scene, "n0", 6000)
    scene.run()
    gone = explain_gone(scene.core, "default/p0", scene.now)
    assert gone is not None
    assert gone["summary"] == "it is gone: evicted from n0 0 s ago for online pods of node n0"
    scene.add_pod(offline("q0", 2000).pod())
    scene.run()
    waits = explain(scene.core, scene.pods["uid-q0"], {}, scene.now)["summary"]
    assert "Insufficient kubernetes.io/batch-cpu" in waits
    assert waits.endswith(
        "; another of its controller, default/p0, was evicted from n0 0 s ago for online pods of node n0"
    )
    lend(scene, "n0", 8000)
    scene.run(until_s=5)
    assert scene.bindings == [("uid-q0", "n0")]


def test_lent_cpu_is_a_dimension_of_queues_of_its_own() -> None:
    scene = lent()
    scene.inbox.append(ObjectChanged("queues", "batch", Queue("batch", maximum={CPU: 3000}, generation=1)))
    for number in range(4):
        scene.add_pod(replace(offline(f"p{number}", 1500).pod(), labels={QUEUE_LABEL: "batch"}))
    scene.add_pod(replace(make_pod("online").cpu("2").pod(), labels={QUEUE_LABEL: "batch"}))
    scene.run(until_s=5)
    assert sorted(uid for uid, _ in scene.bindings) == ["uid-online", "uid-p0", "uid-p1"]
    assert dominant_share({CPU: 3000, "cpu": 2000}, scene.core.state.cache.table.totals()) == Fraction(1, 2)
    assert dominant_share({CPU: 3000}, {CPU: 0}) == 0
