"""Waiting pods between two turns: what changes while something about them is on its way."""

from __future__ import annotations

from msgspec.structs import replace

from services.coordinator.core.events import ControlSeen
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import NodeUpserted, ObjectChanged, PodUpserted
from shared.model.cluster_objects import DisruptionBudget
from shared.model.terms.labels import selector_of_labels
from shared.scheduling.parked_groups import ParkedGroup
from shared.scheduling.places import Place
from shared.turns import Tick
from shared.wire.records import Paused
from tests.builders import make_pod
from tests.unit.services.coordinator.cycle.test_mesh_rules import apart
from tests.unit.services.coordinator.cycle.test_requeueing import full, parked, waiting
from tests.unit.services.coordinator.preemption.test_preemption import full as low_full
from tests.unit.services.coordinator.scene import check_overcommit, check_places


def test_a_pause_in_the_midst_of_parking_many_lets_the_loop_rest() -> None:
    scene = full()
    for number in range(400):
        scene.add_pod(make_pod(f"w{number}").cpu("3").pod())
    events = [scene.inbox.popleft() for _ in range(len(scene.inbox))]
    scene.deliver(*events)
    assert scene.core.state.queue.count()[Place.ACTIVE]
    scene.deliver(ControlSeen(paused=Paused(by="somebody", reason="", since="2026-01-01T00:00:00Z")))
    scene.run(batch=10)
    assert scene.timer is not None
    assert scene.timer > scene.now


def test_searches_leave_nothing_behind() -> None:
    scene = low_full(settings=CoreSettings(preemption_strict=True))
    budget = DisruptionBudget("default", "low", selector_of_labels({"app": "low"}), 0)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/low", budget))
    scene.add_pod(make_pod("high").cpu("3").priority(10).pod())
    scene.run()
    for number in range(10):
        scene.add_pod(make_pod(f"guest{number}").on("n0").pod())
        scene.run()
        scene.delete_pod(f"uid-guest{number}")
        scene.run()
    assert scene.core.state.stats.preemption_searches >= 10
    assert not scene.evicted
    assert len(scene.core.preemptor._order) == len(scene.core.preemptor.searches) == 0


def test_a_preemptor_whose_nomination_is_dropped_for_room_that_another_gets_preempts_all_the_same() -> None:
    scene = full(2)
    scene.change_pod("uid-holder1", preemptible=False)
    scene.add_pod(replace(make_pod("first").cpu("4").priority(20).pod(), never_preempts=True))
    scene.run()
    scene.add_pod(make_pod("second").cpu("4").priority(10).pod())
    while not scene.core.state.cluster.nominated:
        scene.step()
    held = list(scene.inbox)  # the API server's answer to the nomination
    scene.inbox.clear()
    scene.delete_pod("uid-holder1")
    scene.step()
    scene.inbox.extendleft(reversed(held))
    scene.run(until_s=30)
    assert ("uid-first", "n1") in scene.bindings
    assert ("uid-second", "n0") in scene.bindings
    assert not check_overcommit(scene)
    assert not check_places(scene)


def test_preemptors_go_on_with_nodes_whose_budget_is_used_up_meanwhile() -> None:
    """One search for forty preemptors takes some turns; the budget is told as used up between two of them."""
    scene = full(40)
    for number in range(40):
        scene.change_pod(f"uid-holder{number}", labels={"app": "low"})
    budget = DisruptionBudget("default", "low", selector_of_labels({"app": "low"}), 40)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/low", budget))
    scene.run(batch=100)
    for number in range(40):
        scene.add_pod(make_pod(f"high{number}").cpu("3").priority(10).pod())
    used_up = replace(budget, allowed=0)
    told = False
    for _ in range(100_000):
        if scene.evicted and not told:
            told = True
            scene.inbox.appendleft(ObjectChanged("poddisruptionbudgets", "default/low", used_up))
        if not scene.step(100):
            break
        if scene.timer is not None and scene.timer <= scene.now and not scene.inbox:
            scene.inbox.append(Tick())
    scene.run(batch=100, until_s=30)
    assert len(scene.bindings) == 40


def test_room_left_by_a_woken_pod_goes_to_its_group_though_the_node_is_still_being_served() -> None:
    scene = full(2)
    for number in range(2):
        pod = make_pod(f"first{number}").cpu("4").priority(5).pod()
        scene.add_pod(replace(pod, never_preempts=True))
    for number in range(500):
        select = {"kubernetes.io/hostname": f"other{number}"}
        scene.add_pod(make_pod(f"w{number}").cpu("1").select(**select).pod())
    scene.run(batch=600, until_s=20)
    assert parked(scene) == 502
    scene.delete_pod("uid-holder0")
    scene.step()
    assert scene.core.requeuer.busy
    scene.delete_pod("uid-first0")
    scene.deliver(scene.inbox.pop())  # before the agents answer
    scene.run(batch=10, until_s=20)
    assert ("uid-first1", "n0") in scene.bindings


def test_a_search_that_began_before_its_pods_were_tried_again_does_not_go_on() -> None:
    """What changed while nobody of the group was parked was offered to none of them."""
    scene = low_full(40, settings=CoreSettings(preemption_strict=True))
    budget = DisruptionBudget("default", "low", selector_of_labels({"app": "low"}), 0)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/low", budget))
    scene.run()
    scene.add_pod(make_pod("high").cpu("3").priority(10).pod())
    while not scene.core.preemptor.searches:
        scene.step()
    search = next(iter(scene.core.preemptor.searches.values()))
    rows = scene.core.state.cluster.table.row_of
    first, left = next(name for name, row in rows.items() if row not in search.due), min(search.due)
    scene.deliver(ControlSeen(paused=Paused(by="somebody", reason="", since="2026-01-01T00:00:00Z")))
    other = scene.core.state.cluster.table.names[left]
    for node, label in ((other, "low"), (first, "free")):
        scene.delete_pod(f"uid-low{node[1:]}")
        if node == other:
            scene.run(batch=100)
            assert scene.core.place_of("uid-high") != ["unschedulable"]
        scene.add_pod(make_pod(f"next-{node}").cpu("3").set(labels={"app": label}).on(node).pod())
        scene.run(batch=100)
    scene.deliver(ControlSeen())
    scene.run(batch=100, until_s=30)
    assert scene.evicted == [f"uid-next-{first}"]
    assert scene.bindings == [("uid-high", first)]


class Passes(dict[int, ParkedGroup]):
    """Counts how often somebody went over all groups."""

    count = 0

    def __iter__(self):
        Passes.count += 1
        return super().__iter__()

    def values(self):
        Passes.count += 1
        return super().values()

    def items(self):
        Passes.count += 1
        return super().items()


def test_groups_that_wait_are_gone_over_once_a_turn_however_many_objects_and_nodes_change() -> None:
    scene = full(100)
    waiting(scene, 3, lambda number: apart(f"w{number}").cpu("3"))
    related = scene.core.state.queue.waiting.related = Passes(scene.core.state.queue.waiting.related)
    assert related
    Passes.count = 0
    nodes = [replace(node, labels={"new": "label"}) for node in scene.nodes.values()]
    volumes = [ObjectChanged("csinodes", node.name, {"driver": 3}) for node in nodes]
    scene.deliver(*volumes, *[NodeUpserted(node) for node in nodes])
    assert Passes.count == 1


def test_searches_hold_nodes_only_once_their_turn_comes() -> None:
    """Pods with labels of their own are groups of their own: each with all nodes would be pods times nodes."""
    scene = full(40)
    pods = [make_pod(f"w{n}").cpu("3").priority(5).set(labels={"name": f"w{n}"}).pod() for n in range(30)]
    scene.deliver(*[PodUpserted(pod) for pod in pods])
    searches = scene.core.preemptor.searches.values()
    assert len(searches) > 20
    assert sum(len(search.rows) for search in searches) <= 40
