"""The page's table of waiting pods, row by row: what one shows, and what autoscalers make of it by their own rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import Event
from services.coordinator.core.instructions import HoldNode, Instruction, PatchCondition
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import NodeDeleted, ObjectChanged
from shared.model.cluster_objects import PersistentVolume, VolumeClaim
from shared.model.constraints import Requirement, SelectorTerm
from shared.model.devices import AllocatedDevice, Allocation, ClaimRef, DeviceClass, DevicePod
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import Queue
from shared.scheduling.preemption.delays import parse_delays
from tests.autoscalers import cluster_autoscaler_acts, condition, karpenter_acts
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import add, cpus
from tests.unit.services.coordinator.queues.queue_scenes import scene_with as queues_with
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.devices.builders import DRIVER, ask, claim, device, local

PAGE = Path(__file__).parents[5] / "docs" / "operations" / "autoscalers.md"
ROW = re.compile(r'^\| <a id="([a-z-]+)"></a>.* \| (.*) \| (yes|no) \| (yes|no) \|$', re.MULTILINE)
KEY = group_key(GroupSource.NATIVE, "default", "train")


@dataclass(frozen=True)
class Row:
    """``reasons``: of PodScheduled; none: there is no condition."""

    reasons: frozenset[str]
    nominated: bool
    nodes_added: bool


ROWS = {
    name: Row(frozenset(re.findall(r"`(\w+)`", reasons)), nominated == "yes", added == "yes")
    for name, reasons, nominated, added in ROW.findall(PAGE.read_text())
}

# --- the kinds of waiting pod: each gives the scene once it is at rest, and who waits ---------------------------------

Waiting = tuple[Scene, list[str]]


def cluster(*, nodes: int = 1, agents: int = 2, **settings: Any) -> Scene:
    scene = Scene(agents=agents, settings=CoreSettings(validate=True, **settings))
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    scene.run()
    return scene


def waits(scene: Scene, *pods: PodBuilder | Pod, until_s: float = 40.0) -> Waiting:
    made = [pod.pod() if isinstance(pod, PodBuilder) else pod for pod in pods]
    for pod in made:
        scene.add_pod(pod)
    scene.run(batch=100, until_s=until_s)
    return scene, [pod.uid for pod in made]


def full(*, low: int = 0, **settings: Any) -> Scene:
    """One node of 4 CPU that holds a pod of 3."""
    scene = cluster(**settings)
    scene.add_pod(make_pod("low").cpu("3").priority(low).on("n0").pod())
    scene.run()
    return scene


def gang(scene: Scene, count: int, *, group: PodGroup | None = None, **changes: Any) -> Waiting:
    made = group or PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", replace(made, **changes)))
    return waits(scene, *(member(number) for number in range(count)))


def member(number: int, *volumes: str) -> Pod:
    return replace(using(f"m{number}", *volumes), group=KEY)


def using(name: str, *claims: str) -> Pod:
    built = make_pod(name).cpu("1")
    built.json["spec"]["volumes"] = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return built.pod()


def large(name: str, *claims: str) -> Pod:
    """Larger than any node."""
    return replace(using(name, *claims), pod_class=make_pod(name).cpu("5").pod().pod_class)


def put_claim(scene: Scene, *modes: str) -> None:
    volume = PersistentVolume("pv", claim=("default/data", ""))
    claim = VolumeClaim("default/data", volume_name="pv", bind_completed=True, access_modes=frozenset(modes))
    scene.inbox.append(ObjectChanged("persistentvolumes", "pv", volume))
    scene.inbox.append(ObjectChanged("persistentvolumeclaims", "default/data", claim))
    scene.run()


def delayed() -> Waiting:
    return waits(full(preemption_delays=parse_delays("0=60")), make_pod("p").cpu("3").priority(100))


def nominated() -> Waiting:
    scene = full()
    scene.keep_victims = True
    return waits(scene, make_pod("p").cpu("3").priority(100))


def no_agents() -> Waiting:
    return waits(cluster(agents=0), make_pod("p").cpu("1"))


def silent_agents() -> Waiting:
    scene = cluster(agents=1)
    scene.lost_answers = {"agent-0"}
    return waits(scene, make_pod("p").cpu("1"))


def races_lost() -> Waiting:
    scene = cluster()
    scene.binder.observe(make_pod("hidden").cpu("4").on("n0").pod())  # the binder knows of a pod that we do not
    return waits(scene, make_pod("p").cpu("1"))


def quota() -> Waiting:
    scene = queues_with(Queue("a", maximum=cpus(1)), nodes=4)
    add(scene, "a", "p0", "p1")
    scene.run(batch=100, until_s=40)
    bound = {uid for uid, _ in scene.bindings}
    return scene, [uid for uid in ("uid-p0", "uid-p1") if uid not in bound]


def claim_in_use() -> Waiting:
    scene = cluster(nodes=2)
    put_claim(scene, "ReadWriteOncePod")
    scene.add_pod(replace(using("first", "data"), node_name="n0"))
    scene.run()
    return waits(scene, using("p", "data"))


def devices_given() -> Waiting:
    scene = cluster(nodes=2)
    on_n0 = (SelectorTerm(fields=(Requirement("metadata.name", "In", ("n0",)),)),)
    given = Allocation((AllocatedDevice("r", DRIVER, "n0", "d"),), on_n0)
    scene.inbox.append(ObjectChanged("deviceclasses", "any", DeviceClass("any")))
    scene.inbox.append(ObjectChanged("resourceslices", "n0", local(device("d"))))
    shared = replace(claim(ask()), allocation=given, reserved_for=("uid-first",))
    scene.inbox.append(ObjectChanged("resourceclaims", "default/c", shared))
    scene.add_pod(make_pod("first").cpu("3").on("n0").pod())
    scene.run()
    asks = DevicePod("default", "p", "uid-p", (ClaimRef("c", "c"),))
    return waits(scene, replace(make_pod("p").cpu("3").pod(), asks=asks))


def gated() -> Waiting:
    shown = ("False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    return waits(cluster(), replace(make_pod("p").pod(), gates=("a.io/b",), condition=shown))


def in_turn() -> Waiting:
    scene = cluster()
    scene.hold_plans = True
    return waits(scene, make_pod("p").cpu("1"), until_s=0.0)


KINDS: dict[str, Callable[[], Waiting]] = {
    "no-room": lambda: waits(cluster(), make_pod("p").cpu("5")),
    "no-nodes": lambda: waits(cluster(nodes=0), make_pod("p")),
    "gang-without-room": lambda: gang(cluster(), 6, min_count=6),
    "gang-above-the-cluster": lambda: gang(cluster(), 3, min_resources=(("cpu", 6000),)),
    "delayed": delayed,
    "no-victims": lambda: waits(full(low=100), make_pod("p").cpu("3").priority(100)),
    "nominated": nominated,
    "gang-incomplete": lambda: gang(cluster(), 2),
    "gang-missing": lambda: waits(cluster(), *map(member, range(3))),
    "gang-invalid": lambda: gang(cluster(), 3, problem="spec.x: bad; correct it"),
    "quota": quota,
    "silent-agents": silent_agents,
    "races-lost": races_lost,
    "claim-missing": lambda: waits(cluster(), using("p", "none")),
    "claim-in-use": claim_in_use,
    "devices-given": devices_given,
    "gated": gated,
    "not-supported": lambda: waits(cluster(), replace(make_pod("p").pod(), unsupported="spec.x")),
    "unreadable": lambda: waits(cluster(), replace(make_pod("p").pod(), invalid="spec.x: bad")),
    "no-agents": no_agents,
    "in-turn": in_turn,
}


def shown(pod: Pod) -> dict[str, Any]:
    """The pod as the API server shows it, as far as autoscalers look."""
    status, reason, message = pod.condition
    told = {"type": "PodScheduled", "status": status, "reason": reason, "message": message}
    return {
        "metadata": {"name": pod.name},
        "spec": {"nodeName": pod.node_name, "schedulerName": pod.scheduler_name, "priority": pod.priority},
        "status": {"conditions": [told] if status else [], "nominatedNodeName": pod.nominated_node},
    }


def acts(scene: Scene, uid: str) -> set[bool]:
    """What each autoscaler does about the pod."""
    pod = shown(scene.pods[uid])
    return {cluster_autoscaler_acts(pod, nodes=scene.nodes), karpenter_acts(pod)}


# --- the table ------------------------------------------------------------------------------------------------------


def test_the_table_has_every_kind_of_waiting_pod() -> None:
    assert KINDS.keys() == ROWS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiting_pod_shows_what_the_table_says_and_buys_nodes_only_where_it_says_so(kind: str) -> None:
    row, (scene, waiting) = ROWS[kind], KINDS[kind]()
    assert waiting
    for uid in waiting:
        pod = scene.pods[uid]
        reason = condition(shown(pod)).get("reason")
        assert not pod.node_name
        assert reason in row.reasons if row.reasons else reason is None
        assert bool(pod.nominated_node) is row.nominated
        assert acts(scene, uid) == {row.nodes_added}


@pytest.mark.parametrize("kind", [kind for kind, row in ROWS.items() if not row.nodes_added])
def test_at_no_moment_has_a_pod_bought_a_node_that_helps_nobody(kind: str) -> None:
    scene, waiting = KINDS[kind]()
    for patch in scene.of(PatchCondition):
        if patch.uid in waiting:
            assert patch.reason != "Unschedulable" or patch.nominated


@pytest.mark.parametrize("kind", ["claim-missing", "claim-in-use", "devices-given"])
def test_without_the_rule_what_no_node_helps_would_buy_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.scheduling.cycle.prefilter.reason_of", lambda *_: "Unschedulable")
    scene, [uid] = KINDS[kind]()
    assert acts(scene, uid) == {True}


# --- gangs ----------------------------------------------------------------------------------------------------------


def test_all_members_of_a_gang_without_room_are_told_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, turns = cluster(nodes=2), list[set[tuple[str, str]]]()
    deliver = scene.deliver

    def recorded(*events: Event) -> list[Instruction]:
        out = deliver(*events)
        turns.append({(one.uid, one.reason) for one in out if isinstance(one, PatchCondition)})
        return out

    monkeypatch.setattr(scene, "deliver", recorded)
    _, members = gang(scene, 20, min_count=20)
    assert [turn for turn in turns if turn] == [{(uid, "Unschedulable") for uid in members}]


@pytest.mark.parametrize(("least", "reason"), [(5, "Unschedulable"), (6, "NotReadyForScheduling")])
def test_a_gang_buys_nodes_only_where_enough_members_would_go_to_them(least: int, reason: str) -> None:
    scene = cluster()
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=least)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    members = [member(number) for number in range(5)]
    scene, waiting = waits(scene, *members, member(5, "none"))
    assert {scene.pods[uid].condition[1] for uid in waiting} == {reason}


# --- when it is told ------------------------------------------------------------------------------------------------


def test_a_reason_that_no_node_helps_is_told_after_five_seconds() -> None:
    scene, [uid] = waits(cluster(), using("p", "none"), until_s=4.9)
    assert scene.pods[uid].condition[0] == ""
    scene.run(until_s=0.2)
    assert scene.pods[uid].condition[1] == "NotReadyForScheduling"


def test_a_pod_that_goes_on_within_five_seconds_is_told_nothing() -> None:
    scene, [uid] = waits(cluster(), using("p", "data"), until_s=3.0)
    put_claim(scene)
    scene.run(until_s=30.0)
    assert scene.pods[uid].node_name
    assert not scene.of(PatchCondition)


def test_a_pod_that_needs_a_node_after_all_is_told_so_at_once() -> None:
    scene, [uid] = waits(cluster(), large("p", "data"), until_s=1.0)
    put_claim(scene)
    scene.run(until_s=1.5)
    assert scene.pods[uid].condition[1] == "Unschedulable"


def test_a_pod_that_no_node_helps_any_longer_says_so_at_once() -> None:
    scene = cluster()
    put_claim(scene)
    scene, [uid] = waits(scene, large("p", "data"), until_s=2.0)
    assert acts(scene, uid) == {True}
    scene.inbox.append(ObjectChanged("persistentvolumeclaims", "default/data", None))
    scene.run()
    assert acts(scene, uid) == {False}


def test_a_gang_that_a_claim_kept_back_buys_nodes_once_the_claim_is_there_and_none_when_it_is_gone() -> None:
    scene = cluster()
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=5)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    scene, waiting = waits(scene, *(member(number) for number in range(4)), member(4, "data"))
    assert {scene.pods[uid].condition[1] for uid in waiting} == {"NotReadyForScheduling"}
    put_claim(scene)
    scene.run(until_s=12.0)
    assert {scene.pods[uid].condition[1] for uid in waiting} == {"Unschedulable"}
    scene.inbox.append(ObjectChanged("persistentvolumeclaims", "default/data", None))
    scene.run(until_s=12.0)
    assert {scene.pods[uid].condition[1] for uid in waiting} == {"NotReadyForScheduling"}


def test_pods_whose_claim_is_free_again_and_that_find_no_room_say_so() -> None:
    scene = cluster()
    put_claim(scene, "ReadWriteOncePod")
    scene.add_pod(replace(using("first", "data"), node_name="n0"))
    scene.run()
    scene, waiting = waits(scene, *(large(f"p{number}", "data") for number in range(3)))
    assert {scene.pods[uid].condition[1] for uid in waiting} <= {"NotReadyForScheduling", "Unschedulable"}
    scene.delete_pod("uid-first")
    scene.run(until_s=1.0)
    assert {scene.pods[uid].condition[1] for uid in waiting} == {"Unschedulable"}


# --- nominations ----------------------------------------------------------------------------------------------------


def test_a_nomination_ends_with_its_node() -> None:
    scene, [uid] = nominated()
    del scene.nodes["n0"]
    scene.inbox.append(NodeDeleted("n0"))
    scene.delete_pod("uid-low")
    scene.add_node(make_node("small").allocatable(cpu="1").node())
    scene.run(until_s=30.0)
    assert scene.pods[uid].nominated_node == ""
    assert acts(scene, uid) == {True}


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_nobody_is_evicted_on_a_node_that_an_autoscaler_removes(key: str) -> None:
    scene = full()
    scene.add_node(make_node("n0").taint(key, "NoSchedule").node())
    scene, [uid] = waits(scene, make_pod("p").cpu("3").priority(100))
    assert not scene.evicted
    assert acts(scene, uid) == {True}


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_a_pod_that_is_nominated_to_a_node_which_an_autoscaler_removes_looks_elsewhere(key: str) -> None:
    scene, [uid] = nominated()
    scene.add_node(make_node("n0").taint(key, "NoSchedule").node())
    scene.delete_pod("uid-low")
    scene.run(until_s=30.0)
    assert scene.bindings == []
    assert scene.pods[uid].nominated_node == ""
    assert acts(scene, uid) == {True}


def test_a_node_that_an_autoscaler_may_remove_takes_a_pod_where_no_other_does() -> None:
    candidate = make_node("n0").taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule").node()
    scene = cluster(nodes=0)
    scene.add_node(candidate)
    scene.add_node(make_node("n1").node())
    scene.run()
    for name in ("first", "second"):
        scene.add_pod(make_pod(name).cpu("3").pod())
        scene.run()
    assert scene.bindings == [("uid-first", "n1"), ("uid-second", "n0")]


# --- the preemption delay -------------------------------------------------------------------------------------------

DELAYS = parse_delays("0=60, 1000=10")


@pytest.mark.parametrize(("priority", "delay_s"), [(-5, 0.0), (7, 60.0), (999, 60.0), (1000, 10.0), (70_000, 10.0)])
def test_nobody_is_evicted_before_the_preemptors_delay_is_over(priority: int, delay_s: float) -> None:
    scene = full(low=-100, preemption_delays=DELAYS)
    scene, [uid] = waits(scene, make_pod("p").cpu("3").priority(priority), until_s=max(0.0, delay_s - 0.5))
    assert bool(scene.evicted) is (delay_s == 0.0)
    if delay_s:
        assert acts(scene, uid) == {True}
        assert f"nobody is evicted before it has waited {delay_s:g}s" in scene.pods[uid].condition[2]
    scene.run(until_s=15.0)
    assert scene.evicted == ["uid-low"]
    assert scene.bindings == [(uid, "n0")]


def test_a_node_that_comes_within_the_delay_spares_the_victim() -> None:
    scene, [uid] = waits(full(preemption_delays=DELAYS), make_pod("p").cpu("3").priority(7), until_s=30.0)
    scene.add_node(make_node("new").node())
    scene.run(until_s=60.0)
    assert scene.bindings == [(uid, "new")]
    assert not scene.evicted


def test_a_gang_waits_for_its_delay_too() -> None:
    scene = full(preemption_delays=DELAYS)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    scene, waiting = waits(scene, *(replace(member(number), priority=7) for number in range(3)), until_s=55.0)
    assert not scene.evicted
    assert all(acts(scene, uid) == {True} for uid in waiting)
    scene.run(batch=100, until_s=30.0)
    assert scene.evicted == ["uid-low"]
    assert {uid for uid, _ in scene.bindings} == set(waiting)


def test_a_gang_waits_for_its_delay_though_whom_it_may_evict_comes_after_it() -> None:
    scene = full(low=7, preemption_delays=DELAYS)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    scene, _ = waits(scene, *(replace(member(number), priority=7) for number in range(3)), until_s=3.0)
    scene.add_pod(make_pod("lower").cpu("3").priority(0).on("n0").pod())
    scene.run(until_s=1.0)
    scene.delete_pod("uid-low")
    scene.run(batch=100, until_s=50.0)
    assert not scene.evicted
    scene.run(batch=100, until_s=30.0)
    assert scene.evicted == ["uid-lower"]


def test_who_never_preempts_waits_for_no_delay() -> None:
    scene = full(preemption_delays=DELAYS)
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=3)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", group))
    gangs = [replace(member(number), priority=7, never_preempts=True) for number in range(3)]
    alone = replace(make_pod("p").cpu("3").pod(), priority=7, never_preempts=True)
    scene, waiting = waits(scene, *gangs, alone, until_s=5.0)
    assert all(scene.pods[uid].condition[2].endswith("preemptionPolicy=Never.") for uid in waiting)


def test_while_a_pod_waits_for_its_delay_another_one_of_its_kind_that_has_waited_preempts() -> None:
    scene = full(preemption_delays=DELAYS)
    scene, [first] = waits(scene, make_pod("first").cpu("3").priority(7), until_s=50.0)
    scene, [second] = waits(scene, make_pod("second").cpu("3").priority(7), until_s=25.0)
    assert scene.bindings == [(first, "n0")]
    assert acts(scene, second) == {True}


def test_a_new_leader_goes_on_with_a_nomination_and_delays_nothing_that_has_begun() -> None:
    scene = full(preemption_delays=DELAYS)
    scene.keep_victims = True
    scene, [uid] = waits(scene, make_pod("p").cpu("3").priority(1000), until_s=15.0)
    assert scene.pods[uid].nominated_node == "n0"
    scene.replace_leader(set())
    scene.run(until_s=1.0)
    assert scene.pods[uid].nominated_node == "n0"
    scene.delete_pod("uid-low")
    scene.run(until_s=5.0)
    assert scene.bindings == [(uid, "n0")]


# --- nodes where room is made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("always", [True, False])
def test_where_autoscalers_are_at_work_a_node_may_be_held_while_room_is_made_there(always: bool) -> None:
    scene = full(hold_always=always)
    scene, [uid] = waits(scene, make_pod("p").cpu("3").priority(100))
    assert scene.bindings == [(uid, "n0")]
    assert [(one.node, one.hold) for one in scene.of(HoldNode)] == ([("n0", True), ("n0", False)] if always else [])


@pytest.mark.parametrize("always", [True, False])
def test_so_may_nodes_be_that_are_kept_for_a_gang(always: bool) -> None:
    scene = cluster(gang_patience_s=20.0, hold_always=always)
    scene.add_pod(make_pod("ends").cpu("3").on("n0").pod())
    scene, _ = gang(scene, 3)
    assert {one.node for one in scene.of(HoldNode) if one.hold} == ({"n0"} if always else set())
    assert not scene.evicted
