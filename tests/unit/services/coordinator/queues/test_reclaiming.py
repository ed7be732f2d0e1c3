"""What was borrowed is taken back: whom it costs, where, and what happens when somebody does not leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from msgspec.structs import replace

from services.coordinator.queues import finding, leaving
from shared.model.units.pod_group import GroupTopology
from shared.model.units.queue import Queue
from shared.scheduling.queues.notices import Notices
from shared.scheduling.queues.reclaim.search import Reclaim, search
from tests.builders import make_node
from tests.unit.services.coordinator.queues.queue_scenes import add, bound, change_group, cpus, gang, put, scene_with
from tests.unit.services.coordinator.scene import Scene

LENDER, BORROWER = Queue("a", guaranteed=cpus(4), reclaim=True), Queue("b")


def lent(*queues: Queue, nodes: int = 2, taken: int = 8, label: str = "b") -> Scene:
    """The borrower has everything."""
    scene = scene_with(*(queues or (LENDER, BORROWER)), nodes=nodes)
    add(scene, label, *(f"b{number}" for number in range(taken)))
    scene.run(batch=100, until_s=5)
    assert len(bound(scene)) == taken
    return scene


def limited(*more: Queue) -> Scene:
    """The borrower has all that the queue above both lets them have; nodes have room."""
    queues = (Queue("top", maximum=cpus(6), guaranteed=cpus(6)), replace(LENDER, parent="top"), Queue("b", "top"))
    return lent(*queues, *more, nodes=4, taken=6)


def test_of_a_group_that_is_no_gang_as_many_go_as_are_needed() -> None:
    scene = scene_with(LENDER, BORROWER, nodes=2)
    gang(scene, "web", 8, label="b", minimum=1, gang=False)
    scene.run(batch=100, until_s=5)
    add(scene, "a", "a0", "a1")
    scene.run(batch=100, until_s=30)
    assert Counter(name[0] for name in bound(scene)) == {"w": 8, "a": 2}
    assert len(scene.evicted) == 2


def test_of_a_group_that_goes_whole_or_not_at_all_nobody_stays() -> None:
    scene = scene_with(LENDER, BORROWER, nodes=2)
    gang(scene, "whole", 8, label="b", minimum=2, whole=True)
    scene.run(batch=100, until_s=5)
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=30)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 8


def test_a_group_that_is_changed_to_go_whole_is_known_as_such() -> None:
    scene = scene_with(LENDER, BORROWER, nodes=2)
    key = gang(scene, "whole", 8, label="b", minimum=2)
    scene.run(batch=100, until_s=5)
    group = scene.core.state.cluster.pod_groups[key]
    change_group(scene, replace(group, whole=True))
    scene.run()
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=30)
    assert len(scene.evicted) == 8


def test_a_gang_that_must_be_in_one_rack_gets_its_room_in_one() -> None:
    scene = scene_with(LENDER, BORROWER, nodes=0)
    for number in range(6):
        rack = f"r{number % 3}"
        scene.add_node(make_node(f"n{number}").allocatable(cpu="2").label(rack=rack).node())
    scene.run()
    add(scene, "b", *(f"b{number}" for number in range(12)))
    scene.run(batch=100, until_s=5)
    assert len(bound(scene)) == 12
    gang(scene, "g", 4, label="a", topology=GroupTopology("rack"))
    scene.run(batch=100, until_s=30)
    found = [(uid, node) for uid, node in scene.bindings if uid.startswith("uid-g-")]
    assert len(found) == 4
    assert len({scene.nodes[node].labels["rack"] for _, node in found}) == 1
    assert len(scene.evicted) == 4


def test_a_gang_that_no_rack_can_hold_costs_nobody_anything() -> None:
    scene = scene_with(LENDER, BORROWER, nodes=0)
    for number in range(4):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="2").label(rack=f"r{number}").node())
    scene.run()
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    gang(scene, "g", 3, label="a", topology=GroupTopology("rack"))
    scene.run(batch=100, until_s=30)
    assert scene.evicted == []


def test_a_node_that_is_cordoned_amid_the_search_for_a_gang_costs_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = lent(nodes=2)
    where = dict(scene.bindings)

    def interrupted(*args: Any, **facts: Any) -> Generator[int, None, Reclaim]:
        found = yield from search(*args, **facts)
        if not scene.nodes["n0"].unschedulable:
            scene.add_node(make_node("n0").allocatable(cpu="4").cordon().node())
            yield 10**9  # no more of it this turn
        return found

    monkeypatch.setattr(finding, "search", interrupted)
    gang(scene, "g", 4, label="a")
    scene.run(batch=100, until_s=30)
    assert scene.nodes["n0"].unschedulable
    assert {where[uid] for uid in scene.evicted} == {"n1"}
    assert {node for uid, node in scene.bindings if uid.startswith("uid-g-")} == {"n1"}


def test_a_rack_whose_nodes_change_amid_the_search_for_a_gang_is_asked_about_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = scene_with(LENDER, BORROWER, nodes=0)
    for number in range(4):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="2").label(rack=f"r{number % 2}").node())
    scene.run()
    add(scene, "b", *(f"b{number}" for number in range(8)))
    scene.run(batch=100, until_s=5)
    moved = list[str]()

    def interrupted(*args: Any, **facts: Any) -> Generator[int, None, Reclaim]:
        found = yield from search(*args, **facts)
        if found.victims and not moved:
            where = dict(scene.bindings)
            moved.append(min(where[uid] for uid in found.uids))
            scene.add_node(make_node(moved[0]).allocatable(cpu="2").label(rack="elsewhere").node())
            yield 10**9  # no more of it this turn
        return found

    monkeypatch.setattr(finding, "search", interrupted)
    gang(scene, "g", 4, label="a", topology=GroupTopology("rack"))
    scene.run(batch=100, until_s=30)
    found = [node for uid, node in scene.bindings if uid.startswith("uid-g-")]
    assert moved
    assert len(found) == 4
    assert len({scene.nodes[node].labels["rack"] for node in found}) == 1
    assert len(scene.evicted) == 4


def test_a_victim_that_stays_is_given_up_though_another_takes_long_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = limited()
    scene.keep_victims = True
    stuck = list[str]()

    def leaves(self: leaving.Leaving, uid: str) -> bool:
        pod = scene.core.state.cluster.index.get(uid)
        if pod is not None and pod.terminating and not stuck:
            stuck.append(uid)
        return pod is not None and pod.terminating and uid not in stuck

    monkeypatch.setattr(leaving.Leaving, "_leaves", leaves)
    add(scene, "a", "a0", cpu="2")
    scene.run(batch=100, until_s=leaving.GIVE_UP_S - 5)
    assert len(scene.evicted) == 2
    scene.run(batch=100, until_s=10)
    [uid] = stuck
    assert uid not in scene.core.state.queues.decided.leaving
    assert len(scene.evicted) == 3
    for uid in set(scene.evicted) - set(stuck):
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=5)
    assert bound(scene)[-1] == "a0"


def test_who_may_not_be_evicted_is_passed_over_and_another_goes() -> None:
    scene = limited()
    scene.budget_forbids = {f"uid-b{number}" for number in range(4)}
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=10)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 1
    assert scene.evicted[0] not in scene.budget_forbids


def test_where_nobody_may_be_evicted_it_is_asked_seldom() -> None:
    scene = limited()
    scene.budget_forbids = {f"uid-b{number}" for number in range(6)}
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=leaving.GIVE_UP_S - 5)
    asked = [eviction.uid for plan in scene.plans for eviction in plan.evictions]
    assert sorted(asked) == sorted(scene.budget_forbids)


def test_who_may_not_be_evicted_is_passed_over_where_nodes_are_short_too() -> None:
    scene = lent()
    scene.budget_forbids = {f"uid-b{number}" for number in range(8) if number != 3}
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=30)
    asked = Counter(eviction.uid for plan in scene.plans for eviction in plan.evictions)
    assert bound(scene)[-1] == "a0"
    assert scene.evicted == ["uid-b3"]
    assert set(asked.values()) == {1}


def test_a_victim_that_may_not_leave_stays_also_where_the_unit_has_gone_before_that_is_known() -> None:
    scene = limited()
    scene.budget_forbids = {f"uid-b{number}" for number in range(6)}
    add(scene, "a", "a0")
    decided = scene.core.state.queues.decided
    while not decided.leaving:
        if not scene.step():
            scene.run(until_s=0.2)
    scene.delete_pod("uid-a0")
    scene.run(batch=100, until_s=5)
    assert not decided.leaving
    scene.budget_forbids = set()
    add(scene, "a", "a1")
    scene.run(batch=100, until_s=5)
    assert bound(scene)[-1] == "a1"


def test_an_eviction_of_which_nobody_knows_is_asked_for_again() -> None:
    scene = limited()
    scene.unknown_evictions = 1
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=10)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 1


def test_a_victim_in_the_binders_line_is_asked_for_until_its_end() -> None:
    scene = limited()
    scene.waiting_evictions = 3 * leaving.MOST_UNKNOWN
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=10)
    assert bound(scene)[-1] == "a0"
    assert not scene.waiting_evictions
    assert len(scene.evicted) == 1


def test_a_victim_that_terminates_for_hours_keeps_nobody_else_of_the_queue_from_asking() -> None:
    """Kueue #6143: a pod stuck in Terminating blocks its ClusterQueue."""
    scene = limited()
    scene.keep_victims = True
    add(scene, "a", "a0")
    scene.run(batch=100, until_s=5)
    [stuck] = scene.evicted
    scene.keep_victims = False
    add(scene, "a", "a1", "a2")
    scene.run(batch=100, until_s=10)
    assert bound(scene)[6:] == ["a1", "a2"]
    scene.delete_pod(stuck)
    scene.run(batch=100, until_s=5)
    assert bound(scene)[-1] == "a0"
    assert len(scene.evicted) == 3


def test_a_unit_that_goes_takes_its_waiting_time_along() -> None:
    scene = lent(replace(LENDER, reclaim_after_s=20.0), BORROWER)
    gang(scene, "g", 2, label="a")
    scene.run(batch=100, until_s=15)
    for number in range(2):
        scene.delete_pod(f"uid-g-{number}")
    scene.run(batch=100)
    gang(scene, "g", 2, label="a")  # of the same name
    scene.run(batch=100, until_s=15)
    assert scene.evicted == []
    scene.run(batch=100, until_s=10)
    assert len(scene.evicted) == 2


def test_what_is_decided_is_known_without_a_look_at_all_pods() -> None:
    """One attempt after the other while victims leave: the sums that they rest on are right after each turn."""
    scene = lent()
    scene.keep_victims = True
    add(scene, "a", "a0")
    gang(scene, "g", 3, label="a")
    for _ in range(400):
        if not scene.step():
            scene.run(until_s=0.5)
        assert list(scene.core.state.queues.validate()) == []
        if len(scene.evicted) == 4:
            break
    assert len(scene.evicted) == 4
    decided = scene.core.state.queues.decided
    assert decided.leaving.keys() == set(scene.evicted)
    for uid in list(scene.evicted):
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=30)
    assert not decided.leaving
    assert not decided.coming


def test_without_looking_again_a_unit_goes_on_saying_what_is_not_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notices, "look_again", lambda *_: iter(()))
    scene = limited()
    add(scene, "b", "b6")
    scene.run(batch=100, until_s=5)
    put(scene, Queue("top", maximum=cpus(5), guaranteed=cpus(5)))
    scene.run(batch=100, until_s=200)
    assert "cpu 6 of maximum 6" in scene.pods["uid-b6"].condition[2]
