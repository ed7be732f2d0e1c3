"""What a leader shows of itself: pages, units, nodes, rates and decisions, read off a scene."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.coordinator.core.decisions import PastDecision, Recent
from services.coordinator.core.events import ControlSeen, IntentRecord, NodeSample, NodesMeasured, PointerSeen
from services.coordinator.inspect import overview as inspecting
from services.coordinator.inspect.nodes import (
    DRAINED,
    UNOWNED,
    UNSCHEDULABLE,
    node_map,
    node_page,
    node_shown,
    pods_on,
)
from services.coordinator.inspect.overview import decisions, overview, queue_counts, queue_page, units
from services.coordinator.inspect.throughput import LATENCY_WINDOW_S, Quantiles, Throughput
from shared.kube.label_selectors import parse_label_selector
from shared.model.cluster_events import NodeDeleted, ObjectChanged, PodDeleted
from shared.scheduling.places import Place
from shared.wire.records import Drained, PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.devices.builders import DRIVER, allocated, device, local

DRAIN = Drained(node="n1", by="operator:anna", reason="disk", since="2026-11-22T02:00:00.000Z")


def wall_of(at: float) -> str:
    return f"t{at:g}"


def begun(*nodes: str, agents: int = 2, intents: tuple[IntentRecord, ...] = ()) -> Scene:
    scene = Scene(agents=agents)
    for name in nodes:
        scene.add_node(make_node(name).node())
    scene.begin(intents)
    scene.run()
    return scene


# --- queue ----------------------------------------------------------------------------------------------------------


def test_pods_with_scheduling_gates_are_listed_and_counted_as_status_counts_them() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    for number in range(5):
        pod = make_pod(f"g{number}")
        pod.json["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        scene.add_pod(pod.pod())
    scene.add_pod(make_pod("big").cpu("64").pod())
    scene.run()
    counts, found, after = queue_counts(scene.core), list[str](), 0
    while True:
        page, more = queue_page(scene.core, scene.now, after=after, limit=2)
        found += [f"{pod.name} {pod.place} {pod.reason}" for pod in page]
        if more is None:
            break
        after = more
    gated = [f"g{number} gated SchedulingGated" for number in range(5)]
    assert found == ["big unschedulable NodeResourcesFit", *gated]
    assert counts["gated"] == overview(scene.core, Throughput(), scene.now).queue.gated == 5
    assert [pod.name for pod in queue_page(scene.core, scene.now, place=Place.GATED)[0]] == [g[:2] for g in gated]
    assert queue_page(scene.core, scene.now, place=Place.BACKOFF)[0] == []
    scene.deliver(PodDeleted("uid-g0"))
    assert queue_counts(scene.core)["gated"] == 4


def test_the_queue_is_paged_in_order_of_arrival_and_by_place() -> None:
    scene = begun("n0")
    for number in range(5):
        scene.add_pod(make_pod(f"big{number}").cpu("500").priority(number).pod())
    scene.run()
    first, after = queue_page(scene.core, scene.now + 2, limit=3)
    assert after is not None
    rest, end = queue_page(scene.core, scene.now + 2, after=after, limit=3)
    assert [pod.name for pod in first + rest] == [f"big{number}" for number in range(5)]
    assert end is None
    assert {pod.place for pod in first} == {"unschedulable"}
    assert first[1].plugins == ["NodeResourcesFit"]
    assert (first[1].priority, first[1].attempts, first[1].waiting_s) == (1, 1, 2.0)
    assert first[1].retry_in_s == pytest.approx(298.0)
    assert queue_page(scene.core, scene.now, place=Place.ACTIVE) == ([], None)
    counts = {"active": 0, "backoff": 0, "unschedulable": 5, "in_flight": 0, "gated": 0, "unsupported": 0}
    assert queue_counts(scene.core) == counts


def test_the_queue_is_chosen_from_by_namespace_and_labels_in_bounded_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun("n0")
    for number in range(6):
        pod = (
            make_pod(f"big{number}")
            .cpu("500")
            .set(labels={"app": "web" if number % 2 else "db"}, namespace="team" if number < 2 else "default")
        )
        scene.add_pod(pod.pod())
    scene.run()

    def names(**chosen: Any) -> list[str]:
        found, after = [], 0
        while after is not None:
            page, after = queue_page(scene.core, scene.now, after=after, **chosen)
            found += [pod.name for pod in page]
        return found

    web = parse_label_selector("app=web")
    whole = names(), names(namespace="team"), names(selector=web), names(selector=web, namespace="team")
    assert whole[1:] == (["big0", "big1"], ["big1", "big3", "big5"], ["big1"])
    monkeypatch.setattr(inspecting, "MOST_JUDGED", 2)
    assert len(queue_page(scene.core, scene.now, selector=parse_label_selector("app=none"))[0]) == 0
    assert queue_page(scene.core, scene.now, selector=parse_label_selector("app=none"))[1] is not None
    assert (names(), names(namespace="team"), names(selector=web), names(selector=web, namespace="team")) == whole


def test_a_page_that_ends_with_the_list_has_no_next_one() -> None:
    scene = begun("n0")
    scene.add_pod(make_pod("big").cpu("500").pod())
    scene.run()
    assert queue_page(scene.core, scene.now, limit=1)[1] is None


# --- units ----------------------------------------------------------------------------------------------------------


def test_a_unit_is_shown_in_each_state_on_its_way() -> None:
    scene = begun("n0", intents=(IntentRecord("/intents/uid-old", (("uid-old", "n0"),)),))
    scene.hold_plans = True
    scene.add_pod(make_pod("p").pod())
    scene.step()
    (unit,) = units(scene.core, wall_of)
    assert (unit.state, unit.pods[0].node, unit.since) == ("offered", "", f"t{scene.now:g}")
    scene.run()
    (unit,) = units(scene.core, wall_of)
    assert (unit.key, unit.state, unit.pods[0].node, unit.min_member) == ("uid-p", "planned", "n0", 1)
    scene.deliver(scene.bind(scene.held_plans[0]))
    (unit,) = units(scene.core, wall_of)
    assert unit.state == "placed"
    scene.run()
    assert not list(units(scene.core, wall_of))


def test_an_inherited_intent_is_shown_with_its_node() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("promised").pod())
    scene.begin((IntentRecord("/intents/uid-promised", (("uid-promised", "n0"),)),))
    scene.run()
    (unit,) = units(scene.core, wall_of)
    assert (unit.state, unit.pods[0].name, unit.pods[0].node) == ("intent", "promised", "n0")


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_a_node_is_shown_with_what_is_requested_and_who_stands_there() -> None:
    scene = begun("n0", "n1")
    scene.add_node(make_node("n2").taint("gpu", "NoSchedule", "yes").node())
    scene.add_pod(make_pod("theirs").on("n0").cpu("500m").priority(5).pod())
    scene.run()
    scene.deliver(ControlSeen(drained=(DRAIN,)))
    node = node_shown(scene.core, "n0", scene.now)
    assert node is not None
    assert (node.schedulable, node.drained, node.pods, node.used) == (True, None, 1, None)
    assert node.requested["cpu_millis"] == 500
    assert node.allocatable["cpu_millis"] == 4000
    assert node.agent in scene.agents
    drained = node_shown(scene.core, "n1", scene.now)
    assert drained is not None
    assert drained.drained is not None
    assert (drained.schedulable, drained.drained.by, drained.drained.reason) == (False, "operator:anna", "disk")
    tainted = node_shown(scene.core, "n2", scene.now)
    assert tainted is not None
    assert tainted.taints == ["gpu=yes:NoSchedule"]
    assert node_shown(scene.core, "n9", scene.now) is None
    (pod,) = pods_on(scene.core, "n0")
    assert (pod.name, pod.priority, pod.ours) == ("theirs", 5, True)


def test_nodes_are_paged_by_name_and_by_agent() -> None:
    scene = begun(*(f"n{number}" for number in range(7)))
    first, after = node_page(scene.core, scene.now, limit=4)
    rest, end = node_page(scene.core, scene.now, limit=4, after=after or "")
    assert [node.name for node in first + rest] == [f"n{number}" for number in range(7)]
    assert end is None
    mine, _ = node_page(scene.core, scene.now, agent="agent-0")
    owner = scene.core.registry.ownership.owner
    assert [node.name for node in mine] == sorted(name for name in owner if owner[name] == "agent-0")
    assert {node.agent for node in mine} == {"agent-0"}


def test_a_node_that_comes_or_goes_has_its_place_in_the_order() -> None:
    scene = begun("n1", "n3")

    def shown() -> list[str]:
        scene.run()
        names = [node.name for node in node_page(scene.core, scene.now)[0]]
        assert node_map(scene.core).names == names
        return names

    assert shown() == ["n1", "n3"]
    scene.add_node(make_node("n2").node())
    assert shown() == ["n1", "n2", "n3"]
    scene.deliver(NodeDeleted("n1"))
    assert shown() == ["n2", "n3"]
    scene.add_node(make_node("n0").cordon().node())
    assert shown() == ["n0", "n2", "n3"]
    assert [flag & UNSCHEDULABLE for flag in node_map(scene.core).flags] == [UNSCHEDULABLE, 0, 0]


def test_the_map_has_one_column_entry_per_node_and_its_flags() -> None:
    scene = begun("n1", "n0", agents=0)
    scene.add_node(make_node("n2").cordon().node())
    scene.add_pod(make_pod("p").on("n0").cpu("1").pod())
    scene.run()
    scene.deliver(ControlSeen(drained=(DRAIN,)))
    found = node_map(scene.core)
    assert found.names == ["n0", "n1", "n2"]
    assert found.cpu == [0.25, 0.0, 0.0]
    assert found.flags == [UNOWNED, DRAINED | UNOWNED, UNSCHEDULABLE | UNOWNED]
    msgspec.json.encode(found)


def test_what_a_node_used_is_shown_with_its_age() -> None:
    scene = begun("n0")
    scene.deliver(PointerSeen(PolicyPointer(active=PolicyRef("kube-default", 1))))
    scene.deliver(NodesMeasured((NodeSample("n0", 3.0, 1500, 2**30),)))
    node = node_shown(scene.core, "n0", scene.now + 2)
    assert node is not None
    assert node.used is not None
    assert (node.used.cpu_millis, node.used.memory_bytes, node.used.age_s) == (1500, 2**30, 5.0)


# --- overview -------------------------------------------------------------------------------------------------------


def test_rates_are_of_the_last_ten_seconds_also_after_a_silence() -> None:
    found = Throughput()
    for second in range(30):
        found.mark(float(second), bound=second * 5, answers=second * 50)
    assert found.rates(29.0, 145, 1450).pods_per_s_10s == 5.0
    assert found.rates(29.0, 145, 1450).decisions_per_s_10s == 50.0
    assert found.rates(60.0, 145, 1450).pods_per_s_10s == 0.0


def test_a_burst_after_a_silence_counts_and_one_before_it_does_not() -> None:
    found = Throughput()
    for at, bound in ((0.0, 0), (0.1, 0), (0.5, 70), (100.0, 170)):
        found.mark(at, bound, 0)
    assert found.rates(100.0, 170, 0).pods_per_s_10s == 10.0
    assert found.rates(200.0, 170, 0).pods_per_s_10s == 0.0


def test_rates_of_a_leader_that_has_just_begun_count_since_it_began() -> None:
    found = Throughput()
    assert found.rates(5.0, 0, 0).pods_per_s_10s == 0.0
    found.mark(0.0, 0, 0)
    assert found.rates(4.0, 20, 0).pods_per_s_10s == 5.0


def test_the_quantiles_are_nearest_rank_in_milliseconds() -> None:
    found = Throughput()
    found.took(0.0, [number / 1000 for number in range(1, 101)], [0.25])
    assert found.latency_ms(1.0) == Quantiles(50.0, 99.0)
    assert found.round_ms(1.0) == Quantiles(250.0, 250.0)


def test_a_slow_pod_is_told_of_for_minutes_and_not_for_ever() -> None:
    found = Throughput()
    assert found.latency_ms(0.0) is None
    found.took(0.0, [278.0], [])
    assert found.latency_ms(LATENCY_WINDOW_S - 1) == Quantiles(278_000.0, 278_000.0)
    found.took(LATENCY_WINDOW_S - 1, [0.01], [])
    assert found.latency_ms(LATENCY_WINDOW_S + 1) == Quantiles(10.0, 10.0)
    assert found.latency_ms(3 * LATENCY_WINDOW_S) is None


def test_the_overview_counts_what_there_is() -> None:
    scene = begun("n0", "n1")
    scene.add_pod(make_pod("p").pod())
    scene.add_pod(make_pod("big").cpu("500").pod())
    scene.run()
    scene.deliver(ControlSeen(drained=(DRAIN, msgspec.structs.replace(DRAIN, node="gone"))))
    found = overview(scene.core, Throughput(), scene.now)
    assert (found.bound, found.queue.unschedulable, found.queue.active) == (1, 1, 0)
    assert (found.nodes.total, found.nodes.drained, found.nodes.unowned) == (2, 1, 0)


# --- decisions ------------------------------------------------------------------------------------------------------


def test_decisions_are_shown_newest_first_with_who_was_placed_and_what_was_considered() -> None:
    scene = begun("n0", "n1")
    for name in ("a", "b"):
        scene.add_pod(make_pod(name).pod())
        scene.run()
    newest, older = decisions(scene.core, wall_of, 10)
    assert (newest.name, older.name, newest.namespace) == ("b", "a", "default")
    assert newest.uid == "uid-b"
    assert newest.policy == "kube-default@1"
    assert newest.attempt == 1
    assert newest.considered[0].node == newest.node
    assert [decision.name for decision in decisions(scene.core, wall_of, 1)] == ["b"]


def past(uid: str) -> PastDecision:
    return PastDecision(1.0, 1, "n0", "kube-default", 1, (), uid)


def test_a_feed_gives_every_decision_since_it_began_once() -> None:
    recent, woken = Recent(), list[int]()
    recent.remember("before", past("before"))
    feed = recent.subscribe(lambda: woken.append(1))
    recent.remember("a", past("a"))
    recent.remember("b", past("b"))
    taken, dropped = feed.take()
    assert [decision.uid for decision in taken] == ["a", "b"]
    assert (dropped, len(woken)) == (0, 2)
    assert feed.take() == ([], 0)
    recent.unsubscribe(feed)
    recent.unsubscribe(feed)
    recent.remember("c", past("c"))
    assert feed.take() == ([], 0)


def test_a_slow_reader_loses_the_oldest_decisions_and_is_told_how_many() -> None:
    recent = Recent()
    feed = recent.subscribe(lambda: None, limit=3)
    for number in range(10):
        recent.remember(f"p{number}", past(f"p{number}"))
    taken, dropped = feed.take()
    assert [decision.uid for decision in taken] == ["p7", "p8", "p9"]
    assert dropped == 7


# --- devices that claims are given ----------------------------------------------------------------------------------


def test_a_node_its_pods_the_map_and_the_totals_tell_of_devices_by_driver() -> None:
    scene = begun("n0", "n1", "n2")
    for node, names in (("n0", ("d0", "d1")), ("n1", ("d0",))):
        scene.inbox.append(ObjectChanged("resourceslices", node, local(*map(device, names), node=node)))
    given = replace(allocated("d1", name="c"), reserved_for=("uid-p",))
    scene.inbox.append(ObjectChanged("resourceclaims", given.key, given))
    pod = make_pod("p").on("n0")
    pod.json["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "c"}]
    scene.add_pod(pod.pod())
    scene.run()
    node = node_shown(scene.core, "n0", scene.now)
    assert node is not None
    [pool] = node.devices
    assert (pool.driver, pool.pool, pool.devices, pool.free, pool.allocated, pool.share) == (DRIVER, "n0", 2, 1, 1, 0.5)
    [on_it] = pods_on(scene.core, "n0")
    assert on_it.devices == [f"{DRIVER}/n0/d1"]
    assert node_map(scene.core).shares[DRIVER] == [0.5, 0.0, None]
    total = overview(scene.core, Throughput(), scene.now).resources[-1]
    assert (total.name, total.allocatable, total.requested, total.nodes) == (DRIVER, 3, 1, 2)
    assert total.share == pytest.approx(1 / 3, abs=1e-4)
    bare = node_shown(scene.core, "n2", scene.now)
    assert bare is not None
    assert bare.devices == []
