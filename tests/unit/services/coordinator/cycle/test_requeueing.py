"""Whom a change wakes: those it helps, in queue order, as far as the room goes; and what the others cost: nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from services.coordinator.core.core import SWEEP_QUEUE_S
from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.constraints import Constraints
from shared.scheduling.places import Place
from shared.scheduling.queue import SWEPT_AT_ONCE
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.cycle.test_mesh_rules import apart, zoned
from tests.unit.services.coordinator.scene import Scene, check_overcommit, check_places


def full(nodes: int = 4, *, cpu: str = "4") -> Scene:
    """``nodes`` nodes of 4 cores, each held by one pod."""
    scene = Scene(agents=2)
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").node())
        scene.add_pod(make_pod(f"holder{number}").cpu(cpu).on(f"n{number}").pod())
    scene.begin()
    scene.run()
    return scene


def waiting(scene: Scene, count: int, build: Any, *, first: int = 0) -> None:
    for number in range(first, first + count):
        scene.add_pod(build(number).pod())
    scene.run(batch=50)


def parked(scene: Scene) -> int:
    return scene.core.state.queue.count()[Place.UNSCHEDULABLE]


class Counted(Constraints):
    """Counts what is asked of it."""

    asked = 0

    def rejecting_at(self, pod, row):
        Counted.asked += 1
        return super().rejecting_at(pod, row)

    def judge(self, pod):
        Counted.asked += 1
        return super().judge(pod)

    def diagnosis(self, pod):
        Counted.asked += 1
        return super().diagnosis(pod)


def asked_by_one_departure(count: int, build: Any) -> int:
    """How often a group is looked at when one pod leaves and ``count`` pods wait."""
    scene = full()
    waiting(scene, count, build)
    assert parked(scene) == count
    scene.core.state.constraints.__class__ = Counted
    Counted.asked = 0
    scene.delete_pod("uid-holder0")
    scene.run(batch=10, until_s=5)
    assert not check_overcommit(scene)
    assert not check_places(scene)
    return Counted.asked


@pytest.mark.parametrize(
    "build",
    [
        lambda number: make_pod(f"w{number}").cpu("3"),
        lambda number: make_pod(f"w{number}").cpu("3").memory(f"{number + 1}Mi"),
        lambda number: make_pod(f"w{number}").cpu(f"{5000 + number}m"),
    ],
    ids=["one class", "a class of one per pod", "all too large for the room"],
)
def test_an_event_costs_the_same_however_many_pods_wait(build: Any) -> None:
    few, many = asked_by_one_departure(10, build), asked_by_one_departure(300, build)
    assert many == few


def test_room_for_two_wakes_two_and_the_others_sleep_on() -> None:
    scene = full()
    waiting(scene, 20, lambda number: make_pod(f"w{number}").cpu("2"))
    offered = len(scene.of(SendOffer))
    scene.delete_pod("uid-holder1")
    scene.run(until_s=5)
    assert scene.bindings == [("uid-w0", "n1"), ("uid-w1", "n1")]
    assert parked(scene) == 18
    assert all(entry.attempts <= 1 for entry in scene.core.state.queue.entries.values())
    assert len(scene.of(SendOffer)) - offered <= 2 * len(scene.agents)


def test_room_goes_to_the_highest_priority_first_and_what_is_left_to_whom_it_fits() -> None:
    scene = full()
    sizes = {"low": ("1", 0), "high": ("3", 5), "middle": ("2", 3)}
    for name, (cpu, priority) in sizes.items():
        pod = replace(make_pod(name).cpu(cpu).priority(priority).pod(), never_preempts=True)
        scene.add_pod(pod)
    scene.run()
    scene.delete_pod("uid-holder2")
    scene.run(until_s=5)
    assert sorted(scene.bindings) == [("uid-high", "n2"), ("uid-low", "n2")]
    assert parked(scene) == 1


def test_room_that_the_woken_pod_leaves_to_others_goes_to_the_next() -> None:
    """It was woken for one node's room, and is deleted before it is placed."""
    scene = full()
    waiting(scene, 2, lambda number: make_pod(f"w{number}").cpu("4"))
    scene.delete_pod("uid-holder0")
    scene.step()
    assert scene.core.place_of("uid-w0") == ["in_flight"]
    scene.delete_pod("uid-w0")
    scene.run(until_s=5)
    assert ("uid-w1", "n0") in scene.bindings


def test_room_that_the_woken_pod_leaves_by_going_elsewhere_goes_to_the_next() -> None:
    scene = full()
    waiting(scene, 2, lambda number: make_pod(f"w{number}").cpu("4"))
    for holder in ("uid-holder0", "uid-holder1"):
        scene.delete_pod(holder)
    scene.run(until_s=5)
    assert sorted(uid for uid, _ in scene.bindings) == ["uid-w0", "uid-w1"]


def test_a_pod_kept_away_by_others_wakes_when_they_leave_another_node_of_the_zone() -> None:
    scene = zoned(4, zones=2)
    for number in range(2):
        scene.add_pod(apart(f"a{number}", key="topology.kubernetes.io/zone").pod())
    scene.run()
    assert len(scene.bindings) == 2
    waiting(scene, 3, lambda number: apart(f"w{number}", key="topology.kubernetes.io/zone"))
    assert parked(scene) == 3
    scene.delete_pod("uid-a0")
    scene.run(until_s=5)
    assert len(scene.bindings) == 3
    assert parked(scene) == 2


def test_pods_that_were_parked_together_are_swept_in_equal_parts_and_all_within_one_period() -> None:
    scene = Scene(agents=1)
    scene.add_node(make_node("n0").allocatable(cpu="1").node())
    scene.begin()
    count = 5 * SWEPT_AT_ONCE
    waiting(scene, count, lambda number: make_pod(f"w{number}").cpu("2"))
    assert parked(scene) == count
    queue = scene.core.state.queue
    woken: list[int] = []
    sweep = queue.sweep

    def counted(now: float) -> bool:
        before = queue.count()[Place.UNSCHEDULABLE]
        more = sweep(now)
        woken.append(before - queue.count()[Place.UNSCHEDULABLE])
        return more

    queue.sweep = counted  # type: ignore[method-assign]
    scene.run(until_s=queue.settings.sweep_age_s + 2 * SWEEP_QUEUE_S)
    assert max(woken) == SWEPT_AT_ONCE
    assert sum(woken) == count == parked(scene)


def test_pods_parked_for_want_of_agents_wake_when_one_joins_though_there_are_many() -> None:
    scene = Scene(agents=0, settings=CoreSettings(agents_grace_s=0.0))
    scene.add_node(make_node("n0").allocatable(cpu="4", pods="600").node())
    scene.begin()
    scene.run()
    waiting(scene, 520, lambda number: make_pod(f"w{number}").cpu("1m"))
    assert parked(scene) == 520
    scene.join("agent-0")
    scene.run(batch=100, until_s=20)
    assert len(scene.bindings) == 520


def test_a_pod_that_changes_while_it_waits_is_judged_as_it_is_now() -> None:
    scene = full()
    waiting(scene, 1, lambda number: make_pod(f"w{number}").cpu("3"))
    scene.delete_pod("uid-holder0")
    scene.change_pod("uid-w0", pod_class=make_pod("x").cpu("5").pod().pod_class)
    scene.run(batch=5, until_s=5)
    assert parked(scene) == 1
    scene.change_pod("uid-w0", pod_class=make_pod("x").cpu("1").pod().pod_class)
    scene.run(until_s=5)
    assert scene.bindings == [("uid-w0", "n0")]


def test_ten_thousand_pods_that_want_one_node_cost_nothing_elsewhere() -> None:
    scene = full()

    def build(number: int) -> PodBuilder:
        return make_pod(f"w{number}").cpu("3").select(**{"kubernetes.io/hostname": "n3"})

    scene.add_node(make_node("n3").label(**{"kubernetes.io/hostname": "n3"}).node())
    waiting(scene, 300, build)
    scene.core.state.constraints.__class__ = Counted
    Counted.asked = 0
    scene.delete_pod("uid-holder0")
    scene.run(until_s=5)
    assert Counted.asked <= 1
    scene.delete_pod("uid-holder3")
    scene.run(until_s=5)
    assert scene.bindings == [("uid-w0", "n3")]


def test_preemptors_of_one_group_are_served_by_one_search_first_come_first() -> None:
    scene = full(6)
    before = scene.core.state.stats.preemption_searches
    for number in range(4):
        scene.add_pod(make_pod(f"high{number}").cpu("3").priority(10).pod())
    scene.run(batch=10, until_s=20)
    assert sorted(uid for uid, _ in scene.bindings) == [f"uid-high{number}" for number in range(4)]
    assert len(scene.evicted) == 4
    assert scene.core.state.stats.preemption_searches - before == 1


def test_victims_that_never_leave_hold_up_their_preemptor_alone() -> None:
    scene = full(2)
    scene.keep_victims = True
    scene.add_pod(make_pod("high").cpu("3").priority(10).pod())
    scene.run(until_s=2)
    assert len(scene.evicted) == 1
    scene.keep_victims = False
    scene.add_pod(make_pod("other").cpu("3").priority(10).pod())
    scene.run(until_s=20)
    assert ("uid-other", "n1") in scene.bindings or ("uid-other", "n0") in scene.bindings
    assert len(set(scene.evicted)) == 2


def test_a_pod_may_be_evicted_once_it_no_longer_opts_out() -> None:
    scene = full(1)
    scene.change_pod("uid-holder0", preemptible=False)
    scene.add_pod(make_pod("high").cpu("3").priority(10).pod())
    scene.run(until_s=3)
    assert not scene.evicted
    scene.change_pod("uid-holder0", preemptible=True)
    scene.run(until_s=5)
    assert scene.evicted == ["uid-holder0"]


def test_a_class_that_no_node_takes_is_not_offered() -> None:
    scene = full()
    offered = len(scene.of(SendOffer))
    waiting(scene, 5, lambda number: make_pod(f"w{number}").cpu("3"))
    assert len(scene.of(SendOffer)) == offered
    assert parked(scene) == 5


def test_while_no_agent_is_there_a_change_wakes_nobody_over_and_over_and_what_it_gave_is_kept() -> None:
    scene = full(nodes=1)
    waiting(scene, 3, lambda number: make_pod(f"p{number}").cpu("2"))
    for agent in list(scene.agents):
        scene.leave(agent)
    scene.run(until_s=30)
    attempts = scene.core.state.stats.parked
    scene.delete_pod("uid-holder0")
    scene.run(until_s=5)
    assert scene.core.state.stats.parked - attempts <= 3
    scene.join("late")
    scene.run(until_s=5)
    assert len(scene.bindings) == 2
