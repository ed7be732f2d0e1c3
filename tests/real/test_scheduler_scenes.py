"""What Kubernetes' own scheduler tests ask of preemption, nomination, groups, events and bindings, as scenes of ours.

Each has nodes of its own; the same scenes hold for kube-scheduler, which runs them too, so that none asks for more than
Kubernetes gives.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.real.conftest import RunningPlane, mesh_of
from tests.real.scene import GROUPS, NEVER, PATIENCE_S, SLOT, Scene

KUBE = "kube-scheduler"


@pytest.fixture(scope="module", params=["0", "1", "4", KUBE])
def scheduler(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A mesh with so many agents, or the plane's kube-scheduler: the name for pods."""
    if request.param == KUBE:
        yield "default-scheduler"
        return
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", request.param):
        yield "conclave"


@pytest.fixture
async def scene(plane: RunningPlane, scheduler: str, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    title = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_"))[:40].strip("-")
    kind = str(request.node.callspec.params["scheduler"])[0]
    async with Scene(plane, f"{title}-{kind}", scheduler=scheduler) as found:
        yield found


# --- preemption ---------------------------------------------------------------------------------------------------


async def test_the_least_important_pod_makes_room_and_the_node_is_nominated(scene: Scene) -> None:
    node = await scene.node("a", slots=2)
    await scene.pod("low", priority=100, held=True)
    await scene.pod("middle", priority=200)
    await scene.until_bound("low", "middle")
    await scene.pod("high", priority=300)
    await scene.until(lambda: scene.nominated_of("high") == node)
    await scene.end("low")
    await scene.until_bound("high")
    assert scene.stopped == ["low"]
    assert scene.nominated == [("high", node)]
    assert scene.node_of("high") == node


async def test_a_victim_says_that_it_was_preempted(scene: Scene) -> None:
    await scene.node("a", slots=1)
    await scene.pod("low", held=True)
    await scene.until_bound("low")
    await scene.pod("high", priority=300)
    await scene.until(lambda: scene.condition("low", "DisruptionTarget").get("status") == "True")
    assert scene.condition("low", "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    await scene.end("low")
    await scene.until_bound("high")


async def test_a_class_that_never_preempts_waits_for_room(scene: Scene) -> None:
    await scene.node("a", slots=1)
    await scene.pod("low")
    await scene.until_bound("low")
    await scene.pod("patient", priority=NEVER)
    await scene.until_refused("patient")
    await scene.rounds_go_by()
    assert scene.stopped == []
    await scene.delete("low")
    await scene.until_bound("patient")


async def test_preemption_makes_a_rule_against_neighbours_hold(scene: Scene) -> None:
    node = await scene.node("a", slots=9)
    await scene.node("b", slots=0)
    await scene.pod("other", priority=100)
    await scene.pod("rival", priority=100, labels={"side": "red"})
    await scene.until_bound("other", "rival")
    await scene.pod("high", priority=300, affinity=away_from("red"))
    await scene.until_bound("high")
    assert scene.stopped == ["rival"]
    assert scene.node_of("high") == node


async def test_nobody_is_preempted_for_a_rule_that_stays_broken(scene: Scene) -> None:
    await scene.node("a", slots=9)
    await scene.pod("low", priority=100, labels={"side": "red"})
    await scene.pod("peer", priority=300, labels={"side": "red"})
    await scene.until_bound("low", "peer")
    await scene.pod("high", priority=300, affinity=away_from("red"))
    await scene.until_refused("high")
    await scene.rounds_go_by()
    assert scene.stopped == []


async def test_a_pod_that_no_budget_protects_goes_first_though_more_important(scene: Scene) -> None:
    await scene.node("a", slots=2)
    await budget(scene, "kept", {"app": "kept"})
    await scene.pod("kept", priority=100, labels={"app": "kept"})
    await scene.pod("free", priority=200)
    await scene.until_bound("kept", "free")
    await scene.pod("high", priority=300)
    await scene.until_bound("high")
    assert scene.stopped == ["free"]


async def test_a_node_where_no_budget_is_broken_is_preferred(scene: Scene) -> None:
    await scene.node("a", slots=1)
    await budget(scene, "kept", {"app": "kept"})
    await scene.pod("kept", priority=100, labels={"app": "kept"})
    await scene.until_bound("kept")
    second = await scene.node("b", slots=1)
    await scene.pod("free", priority=200)
    await scene.until_bound("free")
    await scene.pod("high", priority=300)
    await scene.until_bound("high")
    assert scene.stopped == ["free"]
    assert scene.node_of("high") == second


async def test_the_preemptor_comes_before_all_less_important_ones_that_wait(scene: Scene) -> None:
    """Room that victims leave one by one is not taken meanwhile by pods that need less of it."""
    await scene.node("a", slots=5)
    for number in range(5):
        await scene.pod(f"low-{number}", priority=100, held=True)
    await scene.until_bound(*(f"low-{number}" for number in range(5)))
    for number in range(20):
        await scene.pod(f"waiting-{number}", priority=100)
    await scene.until_refused(*(f"waiting-{number}" for number in range(20)))
    await scene.pod("high", slots=5, priority=300)
    await scene.until(lambda: len(scene.stopped) == 5)
    for number in range(5):
        await scene.end(f"low-{number}")
        await scene.rounds_go_by(1)
    await scene.until_bound("high")
    assert [name for name in scene.bound if name.startswith("waiting")] == []


async def test_a_victim_that_takes_its_time_is_the_only_one(scene: Scene) -> None:
    await scene.node("a", slots=1)
    await scene.node("b", slots=1)
    await scene.pod("first", priority=100, held=True)
    await scene.pod("second", priority=200)
    await scene.until_bound("first", "second")
    await scene.pod("high", priority=300)
    await scene.until(lambda: scene.stopped == ["first"])
    await scene.rounds_go_by(5)
    assert scene.stopped == ["first"]
    await scene.end("first")
    await scene.until_bound("high")
    assert scene.stopped == ["first"]


# --- nomination ---------------------------------------------------------------------------------------------------


async def test_a_more_important_preemptor_takes_the_nomination_over(scene: Scene) -> None:
    node = await scene.node("a", slots=5)
    for number in range(4):
        await scene.pod(f"low-{number}", priority=100, held=True)
    await scene.until_bound(*(f"low-{number}" for number in range(4)))
    await scene.pod("middle", slots=3, priority=200)
    await scene.until(lambda: scene.nominated_of("middle") == node)
    await scene.pod("high", slots=4, priority=300)
    await scene.until(lambda: scene.nominated_of("high") == node)
    for number in range(4):
        await scene.end(f"low-{number}")
    await scene.until_bound("high")
    await scene.until(lambda: not scene.nominated_of("middle"))
    assert not scene.node_of("middle")


async def test_a_more_important_pod_that_fits_at_once_is_not_held_up_by_a_nomination(scene: Scene) -> None:
    await scene.node("a", slots=2)
    await scene.pod("low", priority=100, held=True)
    await scene.until_bound("low")
    await scene.pod("middle", slots=2, priority=200)
    await scene.until(lambda: scene.nominated_of("middle"))
    await scene.pod("high", priority=300)
    await scene.until_bound("high")
    assert "low" in scene.pods
    await scene.end("low")
    await scene.until(lambda: not scene.nominated_of("middle"))
    assert not scene.node_of("middle")


async def test_a_less_important_pod_uses_what_a_nomination_leaves(scene: Scene) -> None:
    await scene.node("a", slots=3)
    await scene.pod("low", slots=2, priority=100, held=True)
    await scene.until_bound("low")
    await scene.pod("high", slots=2, priority=300)
    await scene.until(lambda: scene.nominated_of("high"))
    await scene.pod("small", priority=100)
    await scene.end("low")
    await scene.until_bound("high", "small")
    assert scene.stopped == ["low"]


async def test_a_nomination_ends_with_its_node(scene: Scene) -> None:
    node = await scene.node("a", slots=1)
    await scene.pod("low", priority=100, held=True)
    await scene.until_bound("low")
    await scene.pod("high", priority=300)
    await scene.until(lambda: scene.nominated_of("high") == node)
    await scene.call("DELETE", f"/api/v1/nodes/{node}")
    await scene.until(lambda: not scene.nominated_of("high"))
    other = await scene.node("b", slots=1)
    await scene.until(lambda: scene.node_of("high") == other)


async def test_room_of_a_preemptor_that_is_gone_is_free(scene: Scene) -> None:
    await scene.node("a", slots=32)
    await scene.pod("low", slots=20, priority=100, held=True)
    await scene.until_bound("low")
    await scene.pod("middle", slots=25, priority=200)
    await scene.until(lambda: scene.nominated_of("middle"))
    await scene.pod("later", slots=12, priority=100)
    await scene.until_refused("later")
    await scene.delete("middle")
    await scene.until_bound("later")
    assert "low" in scene.pods


async def test_a_node_that_somebody_nominated_is_preferred_where_it_fits(scene: Scene) -> None:
    nodes = [await scene.node(letter, slots=4) for letter in "abc"]
    for number, node in enumerate(nodes):
        name = f"wanting-{number}"
        await scene.pod(name, priority=200, schedulingGates=[{"name": "example.com/wait"}])
        await nominate(scene, name, node)
        await open_gates(scene, name)
        await scene.until_bound(name)
        assert scene.node_of(name) == node


async def test_a_nomination_that_cannot_be_is_no_obstacle(scene: Scene) -> None:
    small = await scene.node("a", slots=1)
    large = await scene.node("b", slots=4)
    await scene.pod("wanting", slots=3, schedulingGates=[{"name": "example.com/wait"}])
    await nominate(scene, "wanting", small)
    await open_gates(scene, "wanting")
    await scene.until_bound("wanting")
    assert scene.node_of("wanting") == large
    await scene.pod("impossible", slots=9, schedulingGates=[{"name": "example.com/wait"}])
    await nominate(scene, "impossible", small)
    await open_gates(scene, "impossible")
    await scene.pod("fits", slots=1)
    await scene.until_bound("fits")


# --- groups -------------------------------------------------------------------------------------------------------


async def test_a_gang_waits_for_its_group_its_members_and_room(scene: Scene) -> None:
    await scene.node("a", slots=3)
    await scene.pod("blocker", slots=2, priority=200)
    await scene.until_bound("blocker")
    for number in range(2):
        await scene.pod(f"m-{number}", group="g")
    await scene.rounds_go_by()
    assert scene.bound == ["blocker", *(name for name in scene.bound if name.startswith("witness"))]
    await scene.group("g", 3)
    await scene.rounds_go_by()
    await scene.pod("m-2", group="g")
    await until_group(scene, "g", "False", "Unschedulable")
    assert not any(scene.node_of(f"m-{number}") for number in range(3))
    await scene.delete("blocker")
    await scene.until_bound("m-0", "m-1", "m-2")
    await until_group(scene, "g", "True", "Scheduled")


async def test_more_than_the_minimum_come_as_room_allows(scene: Scene) -> None:
    await scene.node("a", slots=4)
    await scene.pod("blocker", slots=2, priority=200)
    await scene.until_bound("blocker")
    await scene.group("g", 2)
    for number in range(3):
        await scene.pod(f"m-{number}", group="g")
    await scene.until(lambda: sum(bool(scene.node_of(f"m-{number}")) for number in range(3)) == 2)
    await scene.rounds_go_by()
    assert sum(bool(scene.node_of(f"m-{number}")) for number in range(3)) == 2
    await scene.delete("blocker")
    await scene.until_bound("m-0", "m-1", "m-2")


async def test_of_two_gangs_that_need_the_same_room_one_runs(scene: Scene) -> None:
    await scene.node("a", slots=5)
    for gang in ("g", "h"):
        await scene.group(gang, 3)
    for number in range(3):
        for gang in ("g", "h"):
            await scene.pod(f"{gang}-{number}", group=gang)

    def count(gang: str) -> int:
        return sum(bool(scene.node_of(f"{gang}-{number}")) for number in range(3))

    await scene.until(lambda: sorted((count("g"), count("h"))) == [0, 3])
    await scene.rounds_go_by()
    assert sorted((count("g"), count("h"))) == [0, 3]


async def test_a_group_without_a_minimum_goes_pod_by_pod(scene: Scene) -> None:
    await scene.node("a", slots=2)
    await scene.group("g", 0)
    for number in range(3):
        await scene.pod(f"m-{number}", group="g")
    await scene.until(lambda: sum(bool(scene.node_of(f"m-{number}")) for number in range(3)) == 2)
    await scene.node("b", slots=1)
    await scene.until_bound("m-0", "m-1", "m-2")


async def test_a_gang_preempts_what_it_needs(scene: Scene) -> None:
    for letter in "ab":
        await scene.node(letter, slots=2)
    for number in range(4):
        await scene.pod(f"low-{number}", priority=100)
    await scene.until_bound(*(f"low-{number}" for number in range(4)))
    await scene.group("g", 3, priority=300)
    for number in range(3):
        await scene.pod(f"m-{number}", priority=300, group="g")
    await scene.until_bound("m-0", "m-1", "m-2")
    assert len(scene.stopped) == 3


async def test_a_gang_that_cannot_be_helped_preempts_nobody(scene: Scene) -> None:
    if scene.scheduler != "conclave":
        pytest.skip("kube-scheduler preempts for each of its members alone, without the gate WorkloadAwarePreemption")
    await scene.node("a", slots=2)
    for number in range(2):
        await scene.pod(f"low-{number}", priority=100)
    await scene.until_bound("low-0", "low-1")
    await scene.group("g", 3, priority=300)
    for number in range(3):
        await scene.pod(f"m-{number}", priority=300, group="g")
    await until_group(scene, "g", "False", "Unschedulable")
    await scene.rounds_go_by()
    assert scene.stopped == []


# --- what makes a pod that waits be tried again ----------------------------------------------------------------


async def test_whatever_makes_room_wakes_a_pod_that_waits(scene: Scene) -> None:
    """A label, a taint that goes, a node that is opened, more capacity, a new node, a pod that goes: each wakes it."""
    only = await scene.node("a", slots=0, labels={"kind": "other"}, unschedulable=True)
    taint = {"key": "example.com/kept", "effect": "NoSchedule"}
    tainted = await scene.node("b", slots=1, taints=[taint])
    path = f"/api/v1/nodes/{only}"

    await scene.pod("tolerant", nodeSelector={"scene": scene.name, "kind": "wanted"})
    await scene.until_refused("tolerant")
    await scene.call("PATCH", path, {"metadata": {"labels": {"kind": "wanted"}}})
    await scene.call("PATCH", path, {"spec": {"unschedulable": None, "taints": None}})
    room = {"capacity": {SLOT: "1"}, "allocatable": {SLOT: "1"}}
    await scene.rounds_go_by(1)
    assert not scene.node_of("tolerant")
    await scene.call("PATCH", f"{path}/status", {"status": room})
    await scene.until_bound("tolerant")

    await scene.pod("second")
    await scene.until_refused("second")
    await scene.call("PATCH", f"/api/v1/nodes/{tainted}", {"spec": {"taints": None}})
    await scene.until_bound("second")

    await scene.pod("third")
    await scene.until_refused("third")
    await scene.delete("second")
    await scene.until_bound("third")

    await scene.pod("fourth")
    await scene.until_refused("fourth")
    new = await scene.node("c", slots=1)
    await scene.until(lambda: scene.node_of("fourth") == new)


async def test_a_gated_pod_is_left_alone_until_its_last_gate_is_gone(scene: Scene) -> None:
    await scene.node("a", slots=1)
    gates = [{"name": "example.com/one"}, {"name": "example.com/two"}]
    await scene.pod("gated", schedulingGates=gates)
    await scene.rounds_go_by()
    await scene.call("PATCH", f"{scene.path}/pods/gated", {"spec": {"schedulingGates": gates[:1]}})
    await scene.rounds_go_by()
    assert not scene.node_of("gated")
    await open_gates(scene, "gated")
    await scene.until_bound("gated")


# --- bindings -----------------------------------------------------------------------------------------------------


async def test_a_pod_made_again_under_its_name_is_bound_as_itself(scene: Scene) -> None:
    """A decision for the pod that was there before binds nothing: no node is given to two."""
    await scene.node("a", slots=1)
    for _ in range(15):
        await scene.pod("again")
        await scene.delete("again", grace_s=0)
    await scene.pod("again")
    await scene.until(lambda: scene.condition("again", "PodScheduled").get("status") == "True")
    await scene.until_bound("again")
    await scene.delete("again", grace_s=0)
    await scene.pod("other")
    await scene.until_bound("other")


async def test_pods_of_another_scheduler_are_counted_and_left_alone(scene: Scene) -> None:
    await scene.node("a", slots=2)
    await scene.pod("foreign", schedulerName="somebody-else")
    await scene.rounds_go_by()
    assert not scene.node_of("foreign")
    assert not scene.condition("foreign", "PodScheduled")
    target = {"apiVersion": "v1", "kind": "Node", "name": f"{scene.name}-a"}
    await scene.call("POST", f"{scene.path}/pods/foreign/binding", {"metadata": {"name": "foreign"}, "target": target})
    await scene.until_bound("foreign")
    for number in range(2):
        await scene.pod(f"ours-{number}")
    await scene.until(lambda: sum(bool(scene.node_of(f"ours-{number}")) for number in range(2)) == 1)
    await scene.rounds_go_by()
    assert sum(bool(scene.node_of(f"ours-{number}")) for number in range(2)) == 1


# --- helpers ------------------------------------------------------------------------------------------------------


def away_from(side: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"side": side}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def budget(scene: Scene, name: str, labels: dict[str, str]) -> None:
    """One that allows no disruption, as its controller has found."""
    path = f"/apis/policy/v1/namespaces/{scene.name}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    await scene.call("POST", path, {"metadata": {"name": name}, "spec": spec})


async def nominate(scene: Scene, name: str, node: str) -> None:
    await scene.call("PATCH", f"{scene.path}/pods/{name}/status", {"status": {"nominatedNodeName": node}})


async def open_gates(scene: Scene, name: str) -> None:
    await scene.call("PATCH", f"{scene.path}/pods/{name}", {"spec": {"schedulingGates": None}})


async def until_group(scene: Scene, name: str, status: str, reason: str) -> None:
    """Until the group's condition PodGroupScheduled is so."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in scene.objects(
            f"{GROUPS}/namespaces/{scene.name}/podgroups?fieldSelector=metadata.name%3D{name}"
        ):
            conditions = event["object"].get("status", {}).get("conditions", ())
            found = [(one["status"], one["reason"]) for one in conditions if one["type"] == "PodGroupScheduled"]
            if found == [(status, reason)]:
                return
