"""Gangs that wait: who wakes them, what they cost others, and what their members demand of each other."""

from __future__ import annotations

from msgspec.structs import replace

from services.coordinator.core.events import PlanAnswered
from services.coordinator.core.instructions import PatchCondition
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.wire.messages import VERSION, Outcome, PlacementResult, PlanResult
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.groups.test_gangs import KEY, add_members, place_of, scene_with, tell_group
from tests.unit.services.coordinator.scene import Scene


def fill(scene: Scene, count: int, cpu: str = "2") -> None:
    for number in range(count):
        scene.add_pod(make_pod(f"filler{number}").cpu(cpu).pod())
    scene.run(batch=100)


def test_a_gang_sleeps_until_room_for_all_that_it_lacks_has_come_free() -> None:
    scene = scene_with(nodes=4, cpu="4")
    fill(scene, 8)
    tell_group(scene, 4)
    add_members(scene, 4)
    scene.run(batch=100, until_s=15.0)
    offered, refused = scene.core.state.stats.units_offered, scene.core.state.stats.gangs_refused
    for number in range(3):
        scene.delete_pod(f"uid-filler{number}")
        scene.run(batch=100, until_s=15.0)
    assert place_of(scene, "m0") == ["unschedulable"]
    assert scene.core.state.stats.gangs_refused == refused
    assert scene.core.state.stats.units_offered == offered
    scene.delete_pod("uid-filler3")
    scene.run(batch=100)
    assert len(scene.bindings) == 8 + 4


def test_the_smaller_of_two_gangs_goes_where_the_larger_does_not_fit() -> None:
    scene = scene_with(nodes=4, cpu="4")
    fill(scene, 8)
    other = group_key(GroupSource.NATIVE, "default", "small")
    tell_group(scene, 4)
    add_members(scene, 4)
    small = PodGroup(other, GroupSource.NATIVE, "default", "small", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups", "default/small", small))
    for number in range(2):
        scene.add_pod(replace(make_pod(f"s{number}").cpu("2").pod(), group=other))
    scene.run(batch=100, until_s=15.0)
    for number in range(2):
        scene.delete_pod(f"uid-filler{number}")
    scene.run(batch=100, until_s=1.0)
    assert {uid for uid, _ in scene.bindings[8:]} == {"uid-s0", "uid-s1"}
    assert place_of(scene, "m0") == ["unschedulable"]


def test_a_gang_whose_bindings_are_always_refused_holds_up_nobody() -> None:
    scene = scene_with(nodes=2, cpu="4")
    scene.hold_plans = True
    tell_group(scene, 2)
    add_members(scene, 2)
    waited = []
    for attempt in range(50):
        scene.run(batch=100, until_s=12.0)
        for plan in [plan for plan in scene.held_plans if plan.gangs]:
            scene.held_plans.remove(plan)
            results = [PlacementResult(p.unit, Outcome.REFUSED, reason="a webhook says no") for p in plan.placements]
            answer = PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results)
            scene.inbox.append(PlanAnswered(plan.plan_id, answer))
        asked = scene.now
        scene.add_pod(make_pod(f"lone{attempt}").cpu("1m").pod())
        scene.run(batch=100)
        [plan] = [plan for plan in scene.held_plans if not plan.gangs]
        scene.held_plans.remove(plan)
        scene.inbox.append(scene.bind(plan))
        scene.run(batch=100)
        waited.append(scene.now - asked)
    assert max(waited) < 5.0
    assert "a webhook says no" in scene.pods["uid-m0"].condition[2]
    assert {uid for uid, _ in scene.bindings} == {f"uid-lone{number}" for number in range(50)}


def apart() -> dict[str, object]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job": "train"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_members_that_keep_apart_from_each_other_go_together_or_not_at_all() -> None:
    def member(number: int) -> None:
        builder = make_pod(f"m{number}").cpu("1").set(labels={"job": "train"})
        builder.json["spec"].update(apart())
        scene.add_pod(replace(builder.pod(), group=KEY))

    scene = Scene()
    for number in range(2):
        scene.add_node(make_node(f"n{number}").label(**{"kubernetes.io/hostname": f"n{number}"}).node())
    scene.begin()
    tell_group(scene, 3)
    for number in range(3):
        member(number)
    scene.run(batch=100, until_s=20.0)
    assert scene.bindings == []
    assert "anti-affinity" in scene.pods["uid-m0"].condition[2]
    scene.add_node(make_node("n2").label(**{"kubernetes.io/hostname": "n2"}).node())
    scene.run(batch=100, until_s=20.0)
    assert len({node for _, node in scene.bindings}) == 3


def test_a_gang_of_two_classes_is_placed_as_one() -> None:
    scene = scene_with(nodes=3, cpu="4")
    tell_group(scene, 5)
    scene.add_pod(replace(make_pod("driver").cpu("4").pod(), group=KEY))
    add_members(scene, 4)
    scene.run(batch=100, until_s=10.0)
    assert len(scene.bindings) == 5
    assert len([plan for plan in scene.plans if plan.gangs][-1].gangs[0].members) == 5


def test_members_of_a_basic_group_go_as_they_fit() -> None:
    scene = scene_with(nodes=1, cpu="4")
    tell_group(scene, 1, gang=False)
    add_members(scene, 3)
    scene.run(batch=100, until_s=2.0)
    assert len(scene.bindings) == 2
    assert not any(plan.gangs for plan in scene.plans)


def test_members_wait_for_agents_and_nodes_as_one() -> None:
    scene = Scene(agents=0)
    scene.begin()
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=10.0)
    scene.add_node(make_node("n0").node())
    scene.run(batch=100, until_s=10.0)
    scene.join("agent-0")
    scene.run(batch=100, until_s=15.0)
    assert len(scene.bindings) == 2


def test_a_group_that_goes_while_it_is_offered_places_nobody() -> None:
    scene = scene_with()
    tell_group(scene, 2)
    add_members(scene, 2)
    while not scene.core.cycle.open or not scene.core.cycle.open[0].together:
        assert scene.step(batch=10)
    scene.deliver(ObjectChanged("podgroups", "default/train", None))
    scene.run(batch=100, until_s=1.0)
    assert scene.bindings == []
    assert place_of(scene, "m0") == place_of(scene, "m1") == ["gated"]


def busy(patience_s: float = 60.0, *, nodes: int = 4) -> Scene:
    """Full of small pods of the gang's priority; the gang of four has been tried in vain."""
    scene = Scene(settings=CoreSettings(validate=True, gang_patience_s=patience_s))
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="4").node())
    scene.begin()
    fill(scene, 2 * nodes)
    tell_group(scene, 4)
    add_members(scene, 4)
    scene.run(batch=100)
    return scene


def gang_went_after(scene: Scene, seconds: int) -> int | None:
    """Each second the oldest small pod that runs ends, and a new one comes."""
    for second in range(seconds):
        scene.add_pod(make_pod(f"next{second}").cpu("2").pod())
        oldest = next(uid for uid, _ in scene.bindings if uid in scene.pods)
        scene.delete_pod(oldest)
        scene.run(batch=100, until_s=1.0)
        if {f"uid-m{number}" for number in range(4)} <= {uid for uid, _ in scene.bindings}:
            return second
    return None


def test_a_gang_that_small_pods_would_starve_has_nodes_kept_for_it() -> None:
    scene = busy()
    went = gang_went_after(scene, 100)
    assert went is not None
    assert 59 <= went < 80
    assert not scene.evicted
    assert all(patch.nominated is None for patch in scene.of(PatchCondition)), "the API server is not told"
    waiting = [uid for uid, pod in scene.pods.items() if not pod.node_name]
    for _ in range(len(waiting)):
        scene.delete_pod(next(uid for uid, _ in scene.bindings if uid in scene.pods and "next" in uid))
        scene.run(batch=100, until_s=1.0)
    assert all(scene.pods[uid].node_name for uid in waiting if uid in scene.pods), "small pods go on as before"


def test_ablation_without_it_the_gang_starves() -> None:
    assert gang_went_after(busy(patience_s=0.0), 100) is None


def test_nodes_are_not_kept_for_long_where_nobody_ends_and_others_have_their_turn() -> None:
    scene = busy()
    other = group_key(GroupSource.NATIVE, "default", "other")
    group = PodGroup(other, GroupSource.NATIVE, "default", "other", gang=True, min_count=2)
    scene.inbox.append(ObjectChanged("podgroups", "default/other", group))
    for number in range(2):
        scene.add_pod(replace(make_pod(f"o{number}").cpu("2").pod(), group=other))
    nominated = scene.core.state.cluster.nominated_to
    scene.run(batch=100, until_s=58)
    assert not nominated
    scene.run(batch=100, until_s=5)
    assert nominated.keys() == {f"uid-m{number}" for number in range(4)}
    assert "on nodes that are kept for the pod group" not in scene.pods["uid-o0"].condition[2]
    scene.run(batch=100, until_s=60)
    assert nominated.keys() == {"uid-o0", "uid-o1"}
    scene.run(batch=100, until_s=60)
    assert not nominated, "the pause before the next turn is longer"
    scene.run(batch=100, until_s=60)
    assert nominated.keys() == {f"uid-m{number}" for number in range(4)}


def test_nodes_are_kept_for_longer_while_pods_end_there_at_most_for_the_groups_timeout() -> None:
    scene = busy(nodes=8)
    tell_group(scene, 4, timeout_s=150.0)
    nominated = scene.core.state.cluster.nominated_to
    scene.run(batch=100, until_s=65)
    for _ in range(4):  # two of eight places that it needs come free, one after the other, and one is lost to a rival
        assert nominated.keys() == {f"uid-m{number}" for number in range(4)}
        ends = next(uid for uid, node in scene.bindings if uid in scene.pods and node in set(nominated.values()))
        scene.delete_pod(ends)
        scene.add_pod(make_pod(f"above-{ends}").cpu("2").priority(9).pod())
        scene.run(batch=100, until_s=30)
    scene.run(batch=100, until_s=40)
    assert not nominated


def test_pods_that_a_controller_keeps_running_are_not_waited_for() -> None:
    scene = Scene(settings=CoreSettings(validate=True))
    scene.add_node(make_node("n0").allocatable(cpu="4").node())
    scene.begin()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}
    for number in range(2):
        builder = make_pod(f"web{number}").cpu("2")
        builder.json["metadata"]["ownerReferences"] = [owner]
        scene.add_pod(builder.pod())
    tell_group(scene, 2)
    add_members(scene, 2)
    scene.run(batch=100, until_s=300)
    assert not scene.core.state.cluster.nominated_to


def test_nothing_is_kept_for_a_gang_that_could_not_go_if_all_its_equals_ended() -> None:
    scene = busy(nodes=1)
    scene.run(batch=100, until_s=300)
    assert not scene.core.state.cluster.nominated_to


def test_while_nodes_are_kept_a_gang_is_not_tried_at_every_place_that_comes_free() -> None:
    scene = busy()
    scene.run(batch=100, until_s=65)
    kept = set(scene.core.state.cluster.nominated_to.values())
    tried = scene.core.state.stats.gangs_refused
    [first, *_] = [uid for uid, node in scene.bindings if node in kept]
    scene.delete_pod(first)
    scene.run(batch=100, until_s=5)
    assert scene.core.state.stats.gangs_refused == tried


def test_a_kept_node_that_is_closed_is_given_up() -> None:
    scene = busy(nodes=6)
    scene.run(batch=100, until_s=65)
    node = next(iter(scene.core.state.cluster.nominated_to.values()))
    scene.add_node(make_node(node).allocatable(cpu="4").cordon().node())
    for uid in [uid for uid, where in scene.bindings if where != node]:
        scene.delete_pod(uid)
    scene.run(batch=100, until_s=20)
    assert {f"uid-m{number}" for number in range(4)} <= {uid for uid, _ in scene.bindings}


def test_a_gang_whose_patience_is_over_wakes_nobody_while_nodes_are_kept_for_another() -> None:
    scene = busy(5.0)
    key = group_key(GroupSource.NATIVE, "default", "second")
    group = PodGroup(key, GroupSource.NATIVE, "default", "second", gang=True, min_count=4)
    scene.inbox.append(ObjectChanged("podgroups", "default/second", group))
    for number in range(4):
        scene.add_pod(replace(make_pod(f"s{number}").cpu("2").pod(), group=key))
    scene.run(batch=100, until_s=9.0)  # it comes to rest, or fails
    assert scene.core.state.cluster.nominated_to.keys() == {f"uid-m{number}" for number in range(4)}
    scene.run(batch=100, until_s=4.0)
    assert scene.core.state.cluster.nominated_to.keys() == {f"uid-s{number}" for number in range(4)}
