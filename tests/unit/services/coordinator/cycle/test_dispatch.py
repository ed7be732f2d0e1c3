"""Whom a cycle asks: everybody, or one agent alone where that loses nothing but a little quality."""

from __future__ import annotations

from collections import Counter

import pytest

from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.dispatch import Dispatch
from shared.model.pod import Pod
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

ALONE = [Dispatch.PARTITION, Dispatch.LEAST_LOADED]


def scene_of(dispatch: str, *, nodes: int = 6, batch: int = 4, sole_nodes: int = 1) -> Scene:
    settings = CoreSettings(validate=True, batch_units=batch, dispatch=dispatch, sole_nodes=sole_nodes)
    scene = Scene(settings=settings)
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").label(zone="xy"[number % 2]).node())
    scene.begin()
    scene.run()
    scene.trace.clear()
    return scene


def pods_of(count: int, *, start: int = 0, **requests: str) -> list[Pod]:
    return [make_pod(f"p{start + number}").request(**requests).pod() for number in range(count)]


def put(scene: Scene, pods: list[Pod]) -> None:
    """Into the queue all at once."""
    for pod in pods:
        scene.add_pod(pod)
    scene.run(batch=len(pods))


def asked(scene: Scene) -> list[dict[str, list[int]]]:
    """By cycle: the classes that each agent was asked about."""
    cycles: list[dict[str, list[int]]] = []
    first = -1
    for offer in scene.of(SendOffer):
        if offer.agent in (cycles[-1] if cycles else {}) or offer.offer.message_id != first + 1:
            cycles.append({})
        first = offer.offer.message_id
        cycles[-1][offer.agent] = [group.class_id for group in offer.offer.groups]
    return cycles


def all_bound(scene: Scene) -> bool:
    assert check_bound_once(scene) == []
    assert check_overcommit(scene) == []
    assert check_places(scene) == []
    return all(pod.node_name for pod in scene.pods.values())


@pytest.mark.parametrize("dispatch", ALONE)
def test_each_plain_class_is_asked_of_one_agent_and_both_agents_get_some(dispatch: Dispatch) -> None:
    scene = scene_of(dispatch)
    put(scene, [*pods_of(4, cpu="100m"), *pods_of(4, start=4, cpu="200m"), *pods_of(4, start=8, memory="1Mi")])
    assert all_bound(scene)
    for cycle in asked(scene):
        assert max(Counter(number for classes in cycle.values() for number in classes).values()) == 1
    assert {agent for cycle in asked(scene) for agent in cycle} == {"agent-0", "agent-1"}


def test_broadcast_asks_every_agent_about_every_class() -> None:
    scene = scene_of(Dispatch.BROADCAST)
    put(scene, pods_of(4, cpu="100m"))
    assert all_bound(scene)
    assert [len(cycle) for cycle in asked(scene)] == [2]


def test_auto_asks_one_while_more_waits_than_one_offer_takes_and_all_otherwise() -> None:
    scene = scene_of(Dispatch.AUTO, batch=4)
    put(scene, pods_of(10, cpu="100m"))
    assert all_bound(scene)
    assert [len(cycle) for cycle in asked(scene)] == [1, 1, 2]


def test_least_loaded_asks_the_agent_whose_nodes_are_used_least() -> None:
    scene = scene_of(Dispatch.LEAST_LOADED, nodes=8)
    owner = scene.core.registry.ownership.owner
    for name, agent in owner.items():
        if agent == "agent-0":
            scene.add_pod(make_pod(f"full-{name}").cpu("2").on(name).pod())
    scene.run()
    put(scene, pods_of(4, cpu="100m"))
    assert all_bound(scene)
    assert [set(cycle) for cycle in asked(scene)] == [{"agent-1"}]


@pytest.mark.parametrize("dispatch", ALONE)
def test_an_agent_none_of_whose_nodes_takes_the_class_is_not_asked_alone(dispatch: Dispatch) -> None:
    scene = scene_of(dispatch, nodes=8)
    owner = scene.core.registry.ownership.owner
    only = next(name for name, agent in owner.items() if agent == "agent-1")
    scene.add_node(make_node(only).label(disk="fast").node())
    scene.run()
    for number in range(4):
        put(scene, [make_pod(f"p{number}").cpu("100m").select(disk="fast").pod()])
    assert all_bound(scene)
    assert [set(cycle) for cycle in asked(scene)] == [{"agent-1"}] * 4


def test_an_agent_is_asked_alone_only_if_it_has_plenty_of_nodes_or_all_that_take_the_class() -> None:
    scene = scene_of(Dispatch.PARTITION, nodes=8, sole_nodes=5)
    scene.add_node(make_node("n0").label(disk="fast").node())
    scene.run()
    put(scene, pods_of(4, cpu="100m"))
    put(scene, [make_pod("chooses").cpu("100m").select(disk="fast").pod()])
    assert all_bound(scene)
    assert [len(cycle) for cycle in asked(scene)] == [2, 1]


@pytest.mark.parametrize("dispatch", ALONE)
def test_what_one_agent_had_too_few_nodes_for_goes_to_all_and_nobody_is_parked_meanwhile(dispatch: Dispatch) -> None:
    scene = scene_of(dispatch, nodes=2, batch=8)
    put(scene, pods_of(8, cpu="1"))  # four on each node
    assert all_bound(scene)
    assert (scene.core.state.stats.parked, scene.core.state.stats.losses) == (0, 0)
    assert [len(cycle) for cycle in asked(scene)] == [1, 2]


def test_a_class_that_was_asked_of_all_and_wholly_placed_is_asked_of_one_again() -> None:
    scene = scene_of(Dispatch.PARTITION, nodes=2, batch=8)
    put(scene, pods_of(8, cpu="1"))
    for uid in [uid for uid in scene.pods if uid != "uid-p0"]:
        scene.delete_pod(uid)
    scene.run()
    scene.trace.clear()
    put(scene, pods_of(1, start=20, cpu="1"))
    assert all_bound(scene)
    assert [len(cycle) for cycle in asked(scene)] == [1]


def test_pods_that_more_than_their_nodes_decides_about_go_to_all() -> None:
    scene = scene_of(Dispatch.PARTITION, nodes=4)
    spread = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }  # fmt: skip
    pods = []
    for number in range(4):
        builder = make_pod(f"p{number}").cpu("100m").set(labels={"app": "web"})
        builder.json["spec"]["topologySpreadConstraints"] = [spread]
        pods.append(builder.pod())
    scene.lost_answers = {"agent-0", "agent-1"}
    put(scene, pods)
    assert [len(cycle) for cycle in asked(scene)] == [2]
    (current,) = scene.core.cycle.open
    assert [offered.sole for offered in current.classes.values()] == [""]


@pytest.mark.parametrize("dispatch", ALONE)
def test_units_of_an_agent_that_says_nothing_go_to_the_others_and_its_late_answer_changes_nothing(
    dispatch: Dispatch,
) -> None:
    scene = scene_of(dispatch)
    scene.lost_answers = {"agent-0"}
    began = scene.now
    for number in range(4):
        scene.add_pod(pods_of(1, start=number, cpu="100m")[0])
    scene.run(batch=4)
    while not all(pod.node_name for pod in scene.pods.values()):
        scene.run(until_s=0.1)
        assert scene.now < began + 5
    bound = list(scene.bindings)
    scene.answer_late()
    scene.run(until_s=5)
    assert all_bound(scene)
    assert scene.bindings == bound
