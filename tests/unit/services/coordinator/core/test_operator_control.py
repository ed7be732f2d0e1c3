"""What operators tell the mesh: pause, drain, settings. By events alone, no mocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.coordinator.core import core as turning
from services.coordinator.core.events import ControlSeen, IntentsListed
from services.coordinator.core.instructions import PatchCondition, SendOffer, SendPlan, SetTimer
from services.coordinator.core.state import CoreSettings
from services.coordinator.inspect.explain import explain
from shared.model.cluster_events import Listed, NodeDeleted
from shared.policy.rollout.judging import RolloutSettings
from shared.scheduling.places import Place
from shared.wire.messages import Eviction
from shared.wire.records import Drained, Paused
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_places

PAUSED = Paused(by="operator:anna", reason="network works", since="2026-11-22T02:00:00.000Z")


def drained(*nodes: str) -> tuple[Drained, ...]:
    return tuple(
        Drained(node=node, by="operator:anna", reason="disk", since="2026-11-22T02:00:00.000Z") for node in nodes
    )


def begun(*nodes: str, control: ControlSeen | None = None, settings: CoreSettings | None = None) -> Scene:
    scene = Scene(settings=settings)
    for name in nodes:
        scene.add_node(make_node(name).node())
    scene.control = control or ControlSeen()
    scene.begin()
    scene.run()
    return scene


def tell(scene: Scene, control: ControlSeen) -> None:
    scene.control = control
    scene.deliver(control)


# --- pause ----------------------------------------------------------------------------------------------------------


def test_a_paused_mesh_offers_nothing_and_the_queue_fills() -> None:
    scene = begun("n0")
    tell(scene, ControlSeen(PAUSED))
    for number in range(3):
        scene.add_pod(make_pod(f"p{number}").pod())
    scene.run(until_s=60)
    assert not scene.of(SendOffer)
    assert scene.core.state.queue.count()[Place.ACTIVE] == 3
    assert not check_places(scene)


def test_what_is_under_way_when_scheduling_is_paused_finishes() -> None:
    scene = begun("n0")
    scene.add_pod(make_pod("offered").pod())
    scene.step()
    assert scene.core.cycle.open
    tell(scene, ControlSeen(PAUSED))
    scene.run(until_s=5)
    assert scene.bindings == [("uid-offered", "n0")]


def test_resuming_offers_at_once() -> None:
    scene = begun("n0", control=ControlSeen(PAUSED))
    scene.add_pod(make_pod("p").pod())
    scene.run(until_s=60)
    offers = [i for i in scene.deliver(ControlSeen()) if isinstance(i, SendOffer)]
    assert offers
    scene.run()
    assert scene.bindings == [("uid-p", "n0")]


def test_a_new_leader_that_finds_a_pause_offers_nothing() -> None:
    scene = begun("n0", control=ControlSeen(PAUSED))
    scene.add_pod(make_pod("p").pod())
    scene.run()
    scene.replace_leader(set())
    scene.run(until_s=60)
    assert not scene.of(SendOffer)
    tell(scene, ControlSeen())
    scene.run()
    assert scene.bindings == [("uid-p", "n0")]


def without_control(*, waits: bool = True) -> Scene:
    """A leader that has listed everything but what operators said, which comes late: a pause."""
    scene = Scene()
    if not waits:
        scene.core.takeover.listed("control")
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("p").pod())
    scene.begin()
    scene.inbox.remove(scene.control)
    scene.run(until_s=30)
    tell(scene, ControlSeen(PAUSED))
    scene.run(until_s=30)
    return scene


def test_nothing_is_offered_before_it_is_known_whether_scheduling_is_paused() -> None:
    scene = without_control()
    assert scene.core.state.started
    assert not scene.of(SendOffer)


def test_ablation_a_leader_that_does_not_wait_offers_into_a_pause() -> None:
    assert without_control(waits=False).of(SendOffer)


def test_a_paused_mesh_does_not_spin_while_backoffs_end() -> None:
    scene = begun("n0")
    scene.add_pod(make_pod("big").cpu("500").pod())
    scene.run(until_s=0.5)
    scene.core.state.queue.wake("uid-big", scene.now)
    assert scene.core.place_of("uid-big") == ["backoff"]
    tell(scene, ControlSeen(PAUSED))
    scene.trace.clear()
    scene.run(until_s=120)
    assert len(scene.of(SetTimer)) < 20
    assert scene.core.place_of("uid-big") == ["active"]


def evictions(scene: Scene) -> list[Eviction]:
    return [eviction for plan in scene.of(SendPlan) for eviction in plan.plan.evictions]


def test_nobody_is_chosen_for_eviction_while_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turning, "LEAST_WORK", 1)
    monkeypatch.setattr(turning, "WORK_PER_TURN", 1)
    scene = begun("n0", "n1", "n2")
    for number in range(3):
        scene.add_pod(make_pod(f"low{number}").cpu("4").priority(0).on(f"n{number}").pod())
    scene.run()
    scene.add_pod(make_pod("high").cpu("4").priority(100).pod())
    while not scene.core.preemptor.searches:
        assert scene.step()
    tell(scene, ControlSeen(PAUSED))
    scene.run(until_s=30)
    assert not evictions(scene)
    assert scene.core.preemptor.searches, "the search waits for the end of the pause"
    tell(scene, ControlSeen())
    scene.run(until_s=30)
    assert len(scene.evicted) == 1
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]


def test_explain_says_that_scheduling_is_paused_and_by_whom() -> None:
    scene = begun("n0", control=ControlSeen(PAUSED))
    scene.add_pod(make_pod("p").pod())
    scene.run()
    answer = explain(scene.core, scene.pods["uid-p"], {}, scene.now)
    assert "paused by operator:anna: network works" in answer["summary"]


# --- drained nodes --------------------------------------------------------------------------------------------------


def test_a_drained_node_gets_no_new_pods_and_keeps_its_old_ones() -> None:
    scene = begun("n0", "n1")
    scene.add_pod(make_pod("old").on("n0").pod())
    scene.run()
    tell(scene, ControlSeen(drained=drained("n0")))
    for number in range(6):
        scene.add_pod(make_pod(f"p{number}").pod())
    scene.run(until_s=5)
    assert {node for _, node in scene.bindings} == {"n1"}
    assert len(scene.bindings) == 6
    assert scene.core.state.cache.pods_on("n0") == {"uid-old"}


def test_a_drain_reaches_decisions_that_were_asked_for_before_it() -> None:
    scene = begun("n0")
    scene.add_pod(make_pod("p").pod())
    scene.step()
    assert scene.core.cycle.open
    tell(scene, ControlSeen(drained=drained("n0")))
    scene.run(until_s=5)
    assert not scene.bindings


def test_a_resumed_node_takes_the_pods_that_waited_for_it() -> None:
    scene = begun("n0", control=ControlSeen(drained=drained("n0")))
    scene.add_pod(make_pod("p").pod())
    scene.run(until_s=20)
    assert scene.core.place_of("uid-p") == ["unschedulable"]
    tell(scene, ControlSeen())
    scene.run(until_s=1)
    assert scene.bindings == [("uid-p", "n0")]


def test_a_drained_node_that_is_deleted_and_made_again_is_still_drained() -> None:
    scene = begun("n0", control=ControlSeen(drained=drained("n0")))
    scene.deliver(NodeDeleted("n0"))
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("p").pod())
    scene.run(until_s=5)
    assert not scene.bindings
    row = scene.core.state.cache.table.row_of["n0"]
    assert scene.core.state.cache.table.unschedulable[row]


def test_listing_a_drained_node_again_and_hearing_the_same_control_changes_nothing() -> None:
    scene = begun("n0", control=ControlSeen(drained=drained("n0")))
    clock = scene.core.state.cache.table.clock
    scene.add_node(scene.nodes["n0"])
    scene.run()
    tell(scene, ControlSeen(drained=drained("n0")))
    assert scene.core.state.cache.table.clock == clock


def test_a_node_that_is_cordoned_and_drained_stays_cordoned_when_it_is_resumed() -> None:
    scene = begun("n0", control=ControlSeen(drained=drained("n0")))
    scene.add_node(make_node("n0").cordon().node())
    scene.run()
    tell(scene, ControlSeen())
    scene.add_pod(make_pod("p").pod())
    scene.run(until_s=5)
    assert not scene.bindings


def test_explain_names_who_drained_the_nodes_and_why() -> None:
    scene = begun("n0", "n1", control=ControlSeen(drained=drained("n1")))
    scene.add_node(make_node("n0").cordon().node())
    scene.add_pod(make_pod("p").pod())
    scene.run(until_s=5)
    answer = explain(scene.core, scene.pods["uid-p"], {}, scene.now)
    groups = {group["reasons"][0]: group for group in answer["nodes"]["groups"]}
    told = groups["drained from scheduling by operator:anna: disk"]
    assert [node["name"] for node in told["nodes"]] == ["n1"]
    assert told["change"] == "resume scheduling on one of them"
    assert [node["name"] for node in groups["node(s) were unschedulable"]["nodes"]] == ["n0"]


def alone_on_its_host(name: str) -> PodBuilder:
    """A pod with a rule that spans nodes: the coordinator itself judges it."""
    pod = make_pod(name).set(labels={"app": name})
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    pod.json["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod


@pytest.mark.parametrize("pod_of", [make_pod, alone_on_its_host], ids=["judged by agents", "judged by the coordinator"])
def test_a_pods_condition_tells_drained_nodes_from_cordoned_ones(pod_of: Callable[[str], PodBuilder]) -> None:
    """The same words whoever judges, and nobody's name or reason in them."""
    scene = begun("n0", "n1", "n2", control=ControlSeen(drained=drained("n1", "n2")))
    scene.add_node(make_node("n0").cordon().node())
    scene.add_node(make_node("n2").cordon().node())
    scene.run()
    scene.add_pod(pod_of("p").pod())
    scene.run(until_s=5)
    assert scene.of(PatchCondition)[-1].message.startswith(
        "0/3 nodes are available: 1 node(s) were drained from scheduling by Conclave, 2 node(s) were unschedulable."
    )
    tell(scene, ControlSeen(drained=drained("n2")))
    scene.run(until_s=60)
    assert scene.bindings == [("uid-p", "n1")]


# --- settings -------------------------------------------------------------------------------------------------------


def test_settings_that_change_hold_from_the_next_round_on() -> None:
    scene = begun("n0")
    started = scene.core.state.settings
    tell(scene, ControlSeen(PAUSED, settings=replace(started, batch_units=2), settings_number=1))
    for number in range(6):
        scene.add_pod(make_pod(f"p{number}").cpu("100m").pod())
    scene.run()
    tell(scene, ControlSeen(settings=replace(started, batch_units=2), settings_number=1))
    assert scene.core.cycle.open
    assert len(scene.core.cycle.open[0].class_of) == 2
    assert scene.core.control.number == 1
    scene.run()
    assert len(scene.bindings) == 6


def test_settings_taken_back_are_those_that_the_process_was_started_with() -> None:
    scene = begun("n0", settings=CoreSettings(batch_units=7))
    started = scene.core.state.settings
    tell(scene, ControlSeen(settings=replace(started, batch_units=2)))
    tell(scene, ControlSeen())
    assert scene.core.state.settings == started


def test_a_rollout_goes_by_the_settings_that_hold_now() -> None:
    scene = begun("n0")
    strict = RolloutSettings(window_s=5.0, min_samples=50, good_windows=9)
    tell(scene, ControlSeen(settings=replace(scene.core.state.settings, rollout=strict)))
    assert scene.core.evaluation.settings == strict


def test_a_leader_waits_for_what_operators_said() -> None:
    scene = Scene()
    scene.deliver(IntentsListed(()), Listed("pods"), Listed("nodes"), Listed("agents"))
    assert scene.core.takeover.missing == ["control"]
    scene.deliver(ControlSeen())
    assert scene.core.state.started
