"""Why pods wait, in groups: reasons, what would help, how many that lets in, and what a picture costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from msgspec.structs import asdict

from services.coordinator.core.events import ControlSeen
from services.coordinator.inspect.explain import explain
from services.coordinator.inspect.group_facts import find_group
from services.coordinator.inspect.overview import overview, queue_counts, queue_page
from services.coordinator.inspect.pending import GROUPED, Judge, PendingPicture, by_class, judge_of, painted
from services.coordinator.inspect.queue_facts import queue_facts, queue_totals
from services.coordinator.inspect.throughput import Throughput
from services.coordinator.inspect.units import why
from shared.model.pod import Pod
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.reasons import REASONS
from shared.wire.records import Paused
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.inspect.test_group_facts import add_members, scene_with, tell_group
from tests.unit.services.coordinator.scene import Scene

T = TypeVar("T")


def result(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What a generator returns, and in how many steps."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value, count
        count += 1


def picture(scene: Scene, judge: Judge | None = None) -> PendingPicture:
    return result(painted(scene.core, scene.now, judge))[0]


def begun(*nodes: object) -> Scene:
    scene = Scene()
    for node in nodes:
        scene.add_node(node)  # type: ignore[arg-type]
    scene.begin()
    scene.run()
    return scene


def test_members_of_a_gang_are_told_apart_from_lone_pods_and_promised_nothing_alone() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.add_pod(make_pod("lone").cpu("16").pod())
    scene.run(batch=100)
    found = picture(scene)
    groups = {group.reason: group for group in found.groups}
    assert set(groups) == {"Unschedulable", "NodeResourcesFit"}
    assert (groups["Unschedulable"].pods, groups["Unschedulable"].helps) == (3, [])
    assert "minCount (3) cannot be satisfied" in groups["Unschedulable"].message
    assert groups["NodeResourcesFit"].pods == 1
    assert found.gated == 0


def test_pods_are_grouped_by_reason_namespace_priority_and_class() -> None:
    scene = begun(make_node("n0").node())
    for number in range(3):
        scene.add_pod(make_pod(f"a{number}").set(namespace="team-a").cpu("500").pod())
    scene.add_pod(make_pod("high").set(namespace="team-a").cpu("500").priority(9).pod())
    scene.add_pod(make_pod("other").set(namespace="team-b").cpu("500").pod())
    scene.add_pod(make_pod("picky").set(namespace="team-a").cpu("1").select(disk="ssd").pod())
    scene.run()
    scene.now += 10
    found = picture(scene)
    groups = {(g.reason, g.namespace, g.priority): g for g in found.groups}
    assert set(groups) == {
        ("NodeResourcesFit", "team-a", 0), ("NodeResourcesFit", "team-a", 9), ("NodeResourcesFit", "team-b", 0),
        ("NodeAffinity", "team-a", 0),
    }  # fmt: skip
    group = groups["NodeResourcesFit", "team-a", 0]
    assert (group.pods, group.places, group.oldest_pod) == (3, {"unschedulable": 3}, "team-a/a0")
    assert group.oldest_s == pytest.approx(10)
    assert group.requests == {"cpu_millis": 500_000}
    assert group.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert group.reasons == {"Insufficient cpu": 1}
    assert (found.pods, found.classes) == (6, 2)
    assert [(one.reason, one.pods) for one in found.by_reason] == [("NodeResourcesFit", 5), ("NodeAffinity", 1)]
    assert [(one.namespace, one.pods) for one in found.by_namespace] == [("team-a", 5), ("team-b", 1)]
    assert {one.priority: one.pods for one in found.by_priority} == {0: 5, 9: 1}


def test_the_message_is_the_one_that_the_pod_was_told() -> None:
    scene = begun(
        make_node("full").node(),
        make_node("tainted").taint("gpu", "NoSchedule").node(),
        make_node("cordoned").cordon().node(),
    )
    scene.add_pod(make_pod("there").on("full").cpu("4").pod())
    scene.add_pod(make_pod("waits").cpu("1").pod())
    scene.run()
    ((group,)) = picture(scene).groups
    told = scene.pods["uid-waits"].condition[2]
    assert told.startswith(group.message)
    assert sum(group.reasons.values()) == 3


def helps(scene: Scene) -> dict[str, tuple[str, int | None]]:
    ((group,)) = picture(scene).groups
    return {one.kind: (one.text, one.lets_in) for one in group.helps}


def test_a_taint_taken_from_nodes_lets_in_as_many_as_fit_there() -> None:
    scene = begun(*[make_node(f"g{number}").taint("gpu", "NoSchedule", "yes").node() for number in range(2)])
    for number in range(20):
        scene.add_pod(make_pod(f"p{number}").cpu("1500m").pod())
    scene.run()
    found = helps(scene)
    assert found["remove_taint"] == ("tolerate gpu=yes:NoSchedule, or take it from g0, g1", 4)


def test_nodes_that_are_kept_for_a_resource_are_no_advice_to_pods_that_do_not_ask_for_it() -> None:
    gpus = make_node("g0").allocatable(**{"nvidia.com/gpu": "8"}).taint("nvidia.com/gpu", "NoSchedule").node()
    scene = begun(gpus, make_node("n0").node())
    for name, requests in (("plain", {"cpu": "5"}), ("gpu", {"cpu": "1", "nvidia.com/gpu": "1"})):
        scene.add_pod(make_pod(name).request(**requests).pod())
    scene.run()
    advised = {group.oldest_pod: {one.kind for one in group.helps} for group in picture(scene).groups}
    assert "tolerate" not in advised["default/plain"]
    assert "tolerate" in advised["default/gpu"]
    changes = [
        group["change"].partition(";")[0]
        for pod in ("uid-plain", "uid-gpu")
        for group in explain(scene.core, scene.pods[pod], {}, scene.now)["nodes"]["groups"]
        if group["plugin"] == "TaintToleration"
    ]
    assert changes == ["", "tolerate nvidia.com/gpu:NoSchedule"]


def test_a_pod_whose_claim_is_not_there_is_not_helped_by_a_node() -> None:
    scene = begun(make_node("n0").node())
    pod = make_pod("p").cpu("1")
    pod.json["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]
    scene.add_pod(pod.pod())
    scene.run()
    ((group,)) = picture(scene).groups
    assert [(one.kind, one.text) for one in group.helps] == [
        ("other", "create the claim that it names, or name one that can be used")
    ]


def test_two_amounts_to_ask_for_are_two_changes() -> None:
    scene = begun(make_node("n0").node(), make_node("n1").label(arch="arm").allocatable(cpu="2").node())
    scene.add_pod(make_pod("big").cpu("16").pod())
    scene.add_pod(make_pod("arm").cpu("16").select(arch="arm").pod())
    scene.run()
    told = {one.text: (one.lets_in, one.of) for one in picture(scene).helps if one.kind == "fewer_requests"}
    assert told == {"ask for at most 4 cpu": (1, 1), "ask for at most 2 cpu": (1, 1)}


def test_a_cordoned_node_that_other_rules_refuse_too_is_not_to_be_uncordoned() -> None:
    scene = begun(make_node("n0").cordon().node(), make_node("n1").node())
    scene.add_pod(make_pod("picky").cpu("1").select(disk="ssd").pod())
    scene.run()
    found = helps(scene)
    assert "uncordon" not in found
    assert found["label_nodes"] == ("label nodes so that they match disk=ssd: n1", 1)


def test_nodes_are_never_to_be_labelled_with_marks_that_state_facts() -> None:
    scene = begun(make_node("n0").node(), make_node("n1").label(disk="ssd").node())
    scene.add_pod(make_pod("arm").cpu("1").select(**{"kubernetes.io/arch": "arm64"}).pod())
    scene.run()
    ((group,)) = picture(scene).groups
    assert [(one.kind, one.text, one.lets_in) for one in group.helps] == [
        ("other", "add nodes that have kubernetes.io/arch=arm64: none here has it", None)
    ]


def test_a_node_that_is_not_ready_is_to_be_repaired_and_its_taint_left_alone() -> None:
    scene = begun(make_node("n0").taint("node.kubernetes.io/not-ready", "NoSchedule").node())
    scene.add_pod(make_pod("waits").cpu("1").pod())
    scene.run()
    found = helps(scene)
    assert found["repair_node"] == ("repair n0, or wait for it: node.kubernetes.io/not-ready:NoSchedule", 1)
    assert "remove_taint" not in found


def test_a_change_that_others_rules_would_undo_is_not_advised() -> None:
    """Its constraint refuses n0, but so does its selector: another maxSkew alone would let nobody in."""
    scene = begun(make_node("n0").cordon().node())
    pod = make_pod("both").cpu("1")
    pod.json["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "none"}}}
    ]}}  # fmt: skip
    scene.add_pod(pod.pod())
    scene.run()
    assert helps(scene) == {}


def test_room_is_named_where_it_is_nearest_and_a_new_node_counts_its_copies() -> None:
    scene = begun(make_node("n0").node(), make_node("n1").node())
    scene.add_pod(make_pod("a").on("n0").cpu("4").pod())
    scene.add_pod(make_pod("b").on("n1").cpu("3").pod())
    for number in range(5):
        scene.add_pod(make_pod(f"p{number}").cpu("2").pod())
    scene.run()
    ((group,)) = picture(scene).groups
    found = {one.kind: one for one in group.helps}
    assert (found["free"].target, found["free"].text, found["free"].lets_in) == (
        "n1", "free 1 more cpu on n1: pods that run there would have to go", 1
    )  # fmt: skip
    assert (found["add_node"].lets_in, found["add_node"].of) == (2, 5)
    assert found["fewer_requests"].text == "ask for at most 1 cpu"


def test_what_no_node_has_is_not_asked_to_be_freed_or_lowered_to_nothing() -> None:
    scene = begun(make_node("n0").node())
    scene.add_pod(make_pod("p").request(**{"nvidia.com/gpu": "1"}).pod())
    scene.run()
    ((group,)) = picture(scene).groups
    assert {one.kind for one in group.helps}.isdisjoint({"free", "fewer_requests", "add_node"})


def test_one_change_for_all_is_counted_on_the_room_there_is_and_by_priority() -> None:
    """Each class alone would fit four times; together they have the room of four."""
    scene = begun(make_node("g0").taint("gpu", "NoSchedule").node())
    for shape in range(3):
        for number in range(4):
            scene.add_pod(make_pod(f"p{shape}-{number}").cpu("1").memory(f"{shape + 1}Mi").priority(shape).pod())
    scene.run()
    found = picture(scene)
    best = next(one for one in found.helps if one.kind == "remove_taint")
    assert (best.lets_in, best.of) == (4, 12)
    assert sum(one.lets_in or 0 for g in found.groups for one in g.helps if one.kind == "remove_taint") == 12


def test_while_paused_resuming_comes_first() -> None:
    scene = begun(make_node("n0").node())
    scene.deliver(ControlSeen(paused=Paused(by="operator:anna", reason="", since="")))
    scene.add_pod(make_pod("p").pod())
    scene.run()
    ((group,)) = picture(scene).groups
    assert (group.reason, group.helps[0].kind) == ("Paused", "resume_scheduling")


def test_while_paused_what_fits_nowhere_is_not_helped_by_resuming() -> None:
    scene = begun(make_node("n0").node())
    for name, cpu in (("huge", "500"), ("late", "1")):
        scene.add_pod(make_pod(name).cpu(cpu).pod())
        scene.run()
        scene.deliver(ControlSeen(paused=Paused(by="operator:anna", reason="", since="")))
    scene.add_pod(make_pod("new").cpu("700").pod())
    scene.run()
    found = picture(scene)
    groups = {group.oldest_pod: group for group in found.groups}
    assert [group.reason for group in groups.values()] == ["NodeResourcesFit", "Paused", "Paused"]
    helped = {pod for pod, group in groups.items() if any(one.kind == "resume_scheduling" for one in group.helps)}
    assert helped == {"default/late"}
    assert "Insufficient cpu" in groups["default/new"].message
    assert [(one.kind, one.of) for one in found.helps if one.kind == "resume_scheduling"] == [("resume_scheduling", 1)]


def test_pods_that_are_not_supported_or_cannot_be_read_are_counted_with_their_reason() -> None:
    scene = begun(make_node("n0").node())
    for name in ("claims", "more-claims"):
        scene.add_pod(make_pod(name).set(annotations={"gpu-fraction": "0.5"}).pod())
    broken = make_pod("broken").cpu("much")
    scene.add_pod(broken.pod())
    scene.run()
    scene.now += 7
    found = picture(scene)
    assert found.pods == 3
    assert {one.reason: one.pods for one in found.by_reason} == {"NotSupported": 2, "SchedulerError": 1}
    group = next(group for group in found.groups if group.reason == "NotSupported")
    assert (group.pods, group.places, group.oldest_s >= 7, group.helps) == (2, {"unsupported": 2}, True, [])
    assert group.message.startswith("Conclave does not support the annotation gpu-fraction")
    assert queue_counts(scene.core)["unsupported"] == 3
    scene.add_pod(make_pod("claims").cpu("1").set(resourceVersion="2").pod())
    scene.run()
    assert picture(scene).pods == 2


def test_pods_behind_other_gates_are_another_group() -> None:
    scene = begun(make_node("n0").node())
    for name, gate in (("a", "x"), ("b", "x"), ("c", "y")):
        pod = make_pod(name)
        pod.json["spec"]["schedulingGates"] = [{"name": f"example.com/{gate}"}]
        scene.add_pod(pod.pod())
    scene.run()
    told = {group.message: group.pods for group in picture(scene).groups}
    assert told == {f"waiting for scheduling gates: [example.com/{gate}]": pods for gate, pods in (("x", 2), ("y", 1))}


def test_like_pods_that_other_limits_hold_are_groups_with_a_remedy_each_whoever_came_last() -> None:
    scene = scene_with(2)
    for name, most in (("tiny", 100), ("full", 1000)):
        scene.core.queues.change(name, Queue(name, maximum={"cpu": most}))
    for name, queue in (("runs", "full"), ("never", "tiny"), ("waits", "full"), ("never-too", "tiny")):
        scene.add_pod(make_pod(name).set(labels={QUEUE_LABEL: queue}).cpu("1").pod())
        scene.run(until_s=scene.now + 2.0)
    told = {group.oldest_pod: (group.pods, group.remedy) for group in picture(scene).groups}
    assert told == {
        "default/never": (2, "ask for less, or raise the limit"),
        "default/waits": (1, REASONS["QueueQuota"].helps),
    }


def test_a_pod_waits_since_it_was_created_also_where_this_leader_saw_it_later() -> None:
    scene = begun(make_node("n0").node())
    state = scene.core.state
    state.epoch = 1_700_000_000.0
    for name, ago_s in (("old", 1500.0), ("ahead", -30.0)):
        created = datetime.fromtimestamp(state.epoch + scene.now - ago_s, UTC).isoformat()
        scene.add_pod(make_pod(name).cpu("64").set(creationTimestamp=created).pod())
    scene.add_pod(make_pod("unreadable").cpu("64").set(creationTimestamp="yesterday").pod())
    gated = make_pod("gated").set(
        creationTimestamp=datetime.fromtimestamp(state.epoch + scene.now - 60, UTC).isoformat()
    )
    gated.json["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    scene.add_pod(gated.pod())
    scene.run(until_s=5.0)
    found = picture(scene)
    waited = {pod.name: pod.waiting_s for pod in queue_page(scene.core, scene.now)[0]}
    assert (waited["old"], waited["gated"]) == pytest.approx((1505.0, 65.0), abs=1.0)
    assert waited["ahead"] == waited["unreadable"] == pytest.approx(5.0, abs=1.0)
    oldest = {group.reason: group.oldest_s for group in found.groups}
    assert oldest == {"NodeResourcesFit": waited["old"], "SchedulingGated": waited["gated"]}
    told = explain(scene.core, scene.pods["uid-old"], {}, scene.now)["queue"]["waiting_s"]
    assert told == pytest.approx(waited["old"])
    assert state.queue.entries["uid-old"].first_seen > scene.now - 10, "latencies count from what this leader saw"


def test_pods_with_scheduling_gates_are_a_group_beside_those_that_wait_for_us() -> None:
    scene = begun(make_node("n0").node())
    pod = make_pod("g")
    pod.json["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    scene.add_pod(pod.pod())
    scene.add_pod(make_pod("big").cpu("64").pod())
    scene.run()
    found = picture(scene)
    assert (found.pods, found.gated, found.classes) == (1, 1, 1)
    told = {group.reason: (group.pods, group.message, group.helps) for group in found.groups}
    assert told["SchedulingGated"] == (1, "waiting for scheduling gates: [example.com/wait]", [])
    assert {one.reason: one.pods for one in found.by_reason} == {"SchedulingGated": 1, "NodeResourcesFit": 1}


def test_pods_of_one_class_and_reason_are_one_group_whatever_their_namespace_and_priority() -> None:
    scene = begun(make_node("n0").allocatable(cpu="4").node())
    for number in range(20):
        pod = make_pod(f"p{number}").cpu("8").priority(number % 2).set(namespace=f"team-{number % 5}")
        scene.add_pod(pod.pod())
        scene.now += 1
    scene.add_pod(make_pod("other").cpu("9").pod())
    scene.run()
    found = picture(scene)
    assert len(found.groups) == 11
    several, alone = sorted(by_class(found, lambda _: True), key=lambda group: -group.pods)
    assert (several.pods, several.places, alone.pods) == (20, {"unschedulable": 20}, 1)
    assert (several.namespaces, several.priorities) == ([f"team-{number}" for number in range(5)], [0, 1])
    assert (several.namespace, several.oldest_pod) == ("", "team-0/p0")
    assert several.oldest_s == max(group.oldest_s for group in found.groups)
    assert all(one.of == 20 for one in several.helps)
    (chosen,) = by_class(found, lambda group: group.namespace == "team-2")
    assert (chosen.pods, chosen.namespace, chosen.priorities) == (4, "team-2", [0, 1])
    assert sum(group.pods for group in found.groups) == 21  # merging leaves the picture as it is


def test_the_overview_the_queue_and_the_reasons_count_the_same_pods_that_wait() -> None:
    scene = scene_with(2)
    add_members(scene, 3)  # of a group that is not there
    scene.add_pod(make_pod("big").cpu("64").pod())
    scene.add_pod(make_pod("broken").cpu("much").pod())
    gated = make_pod("gated").cpu("1")
    gated.json["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    scene.add_pod(gated.pod())
    scene.run(batch=100)
    found, counts = picture(scene), queue_counts(scene.core)
    assert (counts["gated"], counts["unschedulable"], counts["unsupported"]) == (4, 1, 1)
    assert sum(counts.values()) == found.pods + found.gated == 6
    assert asdict(overview(scene.core, Throughput(), scene.now).queue) == counts


def test_without_nodes_and_without_agents_the_reason_says_so() -> None:
    nobody = Scene(agents=0)
    nobody.add_node(make_node("n0").node())
    for scene, reason in ((begun(), "NoNodes"), (nobody, "NoAgents")):
        if scene is nobody:
            scene.begin()
        scene.add_pod(make_pod("p").pod())
        scene.run(until_s=6)
        ((group,)) = picture(scene).groups
        assert group.reason == reason


def test_ten_thousand_pods_of_five_hundred_classes_are_judged_once_per_class_in_small_steps() -> None:
    scene = begun(make_node("n0").node())
    for number in range(10_000):
        scene.add_pod(make_pod(f"p{number}").cpu("100").memory(f"{number % 500 + 1}Mi").pod())
    scene.run(batch=10_000)
    asked: list[str] = []
    judge = judge_of(scene.core)

    def counting(pod: Pod, wanted: int) -> object:
        asked.append(pod.uid)
        return judge(pod, wanted)

    found, steps = result(painted(scene.core, scene.now, counting))  # type: ignore[arg-type]
    assert found.pods == 10_000
    assert found.classes == len(found.groups) == 500
    assert len(asked) == 500
    # a class, or some hundred entries, a step: nobody does two of them without giving the loop back
    assert steps >= 500 + 10_000 // GROUPED


def test_pods_that_come_and_go_while_the_picture_is_painted_do_no_harm() -> None:
    scene = begun(make_node("n0").node(), make_node("n1").taint("x", "NoSchedule").node())
    for number in range(40):
        scene.add_pod(make_pod(f"p{number}").cpu("100").memory(f"{number + 1}Mi").pod())
    scene.run()
    steps = painted(scene.core, scene.now)
    for number in range(20):
        next(steps)
        scene.delete_pod(f"uid-p{number}")
        scene.add_node(make_node(f"more{number}").node())
        scene.run()
    assert result(steps)[0].pods == 40


def test_a_queued_pod_names_the_group_that_it_is_counted_in() -> None:
    scene = begun(make_node("n0").node())
    for name, cpu, priority in (("a", "500", 0), ("b", "500", 0), ("c", "400", 0), ("d", "500", 7)):
        scene.add_pod(make_pod(name).cpu(cpu).priority(priority).pod())
    scene.add_pod(make_pod("picky").cpu("1").select(disk="ssd").pod())
    scene.run()
    counted = {(g.reason, g.namespace, g.priority, g.class_): g.pods for g in picture(scene).groups}
    listed = Counter((p.reason, p.namespace, p.priority, p.class_) for p in queue_page(scene.core, scene.now)[0])
    assert dict(listed) == counted
    assert len(counted) == 4


def test_one_gang_has_one_reason_in_units_pending_and_its_condition() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    (group,) = picture(scene).groups
    facts = find_group(scene.core, "default", "train")
    assert facts is not None
    assert [group.reason, why(facts)[0], scene.pods["uid-m0"].condition[1]] == ["Unschedulable"] * 3
    assert (group.means, group.page) == (REASONS["Unschedulable"].words, "/ui/reasons.html#unschedulable")


def test_a_gang_that_lacks_members_has_one_reason_too() -> None:
    scene = scene_with(1)
    tell_group(scene, 3)
    add_members(scene, 2)
    scene.run(batch=100)
    scene.run(batch=100, until_s=scene.now + 30.0)
    (group,) = picture(scene).groups
    facts = find_group(scene.core, "default", "train")
    assert facts is not None
    assert (group.reason, why(facts)[0]) == ("Incomplete", "Incomplete")
    assert scene.pods["uid-m0"].condition[1] == REASONS["Incomplete"].condition


def test_a_pod_with_an_unknown_queue_has_one_reason_and_one_with_a_full_one_another() -> None:
    scene = scene_with(1)
    scene.core.queues.change("small", Queue("small", maximum={"cpu": 100}, namespaces=("tight",)))
    scene.add_pod(make_pod("lost").set(labels={QUEUE_LABEL: "nowhere"}).cpu("1").pod())
    scene.add_pod(make_pod("held").set(namespace="tight").cpu("1").pod())
    scene.run(until_s=6.0)
    found = {group.oldest_pod.rpartition("/")[2]: group for group in picture(scene).groups}
    assert {name: group.reason for name, group in found.items()} == {"lost": "QueueUnusable", "held": "QueueQuota"}
    for name, group in found.items():
        pod = scene.pods[f"uid-{name}"]
        assert pod.condition[1] == REASONS[group.reason].condition
        answer = explain(scene.core, pod, {}, scene.now)
        assert (answer["queue"]["reason"], answer["queue"]["page"]) == (group.reason, group.page)
    for queue, reason in (("nowhere", "QueueUnusable"), ("small", "QueueQuota")):
        facts = queue_facts(scene.core, queue, scene.now, units=True)
        assert facts is not None
        assert [unit.reason for unit in facts.pending] == [reason]
    assert (queue_totals(scene.core).total, queue_totals(scene.core).problems) == (1, 1), "a name is no Queue"


def test_pending_and_explain_say_one_figure_of_how_much_to_ask_for() -> None:
    scene = begun(make_node("n0").allocatable(cpu="4").node())
    scene.add_pod(make_pod("there").on("n0").cpu("1").pod())
    scene.add_pod(make_pod("large").cpu("5").pod())
    scene.run()
    (group,) = picture(scene).groups
    assert "ask for at most 3 cpu" in [one.text for one in group.helps]
    (node,) = explain(scene.core, scene.pods["uid-large"], {}, scene.now)["nodes"]["groups"]
    assert "ask for at most 3 cpu" in node["change"]
    assert "at most 4" not in node["change"]
