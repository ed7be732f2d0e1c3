"""Cycles that are open beside each other: which may begin, what each answer belongs to, whom a silent agent costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.dispatch import Dispatch
from services.coordinator.cycle.placing import OpenCycle
from shared.model.pod import Pod
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

AGENTS = {f"agent-{number}" for number in range(3)}


def scene_of(*, open_cycles: int = 3, dispatch: str = Dispatch.AUTO) -> Scene:
    """Three agents with four nodes each; all are silent."""
    settings = CoreSettings(validate=True, batch_units=2, dispatch=dispatch, sole_nodes=1, open_cycles=open_cycles)
    scene = Scene(agents=3, settings=settings)
    for number in range(12):
        scene.add_node(make_node(f"n{number}").label(zone="xy"[number % 2]).node())
    scene.begin()
    scene.run()
    scene.trace.clear()
    scene.lost_answers = set(AGENTS)
    return scene


def pods_of(count: int, *, start: int = 0, cpu: str = "100m") -> list[Pod]:
    return [make_pod(f"p{start + number}").cpu(cpu).pod() for number in range(count)]


def keeper(name: str) -> Pod:
    """A pod about which more than its nodes decides."""
    builder = make_pod(name).cpu("100m").set(labels={"app": "web"})
    builder.json["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]  # fmt: skip
    return builder.pod()


def put(scene: Scene, pods: list[Pod]) -> None:
    """Into the queue all at once; no time passes."""
    for pod in pods:
        scene.add_pod(pod)
    while scene.step(len(pods)):
        pass


def cycles(scene: Scene) -> list[OpenCycle]:
    return scene.core.cycle.open


def answer(scene: Scene, agent: str) -> None:
    """One of those asked speaks."""
    scene.lost_answers = AGENTS - {agent}
    asked, scene.unanswered = scene.unanswered, []
    for one, message in asked:
        if one == agent:
            scene._ask(one, message)
        else:
            scene.unanswered.append((one, message))
    scene.lost_answers = set(AGENTS)
    scene.step()


def all_bound(scene: Scene) -> bool:
    assert check_bound_once(scene) == []
    assert check_overcommit(scene) == []
    assert check_places(scene) == []
    return all(pod.node_name for pod in scene.pods.values())


def finish(scene: Scene) -> None:
    scene.answer_late()
    scene.lost_answers = set()
    scene.run(until_s=10)
    assert all_bound(scene)


@pytest.mark.parametrize("open_cycles", [1, 2, 3])
def test_so_many_cycles_are_open_as_the_setting_says_and_each_asks_an_agent_of_its_own(open_cycles: int) -> None:
    scene = scene_of(open_cycles=open_cycles)
    put(scene, pods_of(20))
    assert len(cycles(scene)) == open_cycles
    assert len({agent for one in cycles(scene) for agent in one.asked}) == open_cycles
    assert len(scene.of(SendOffer)) == open_cycles
    finish(scene)


def test_units_go_to_one_cycle_each_in_the_order_of_the_queue() -> None:
    scene = scene_of()
    put(scene, pods_of(20))
    assert [one.uids for one in cycles(scene)] == [[f"uid-p{n}", f"uid-p{n + 1}"] for n in (0, 2, 4)]
    finish(scene)


def test_what_fits_into_one_cycle_is_asked_of_all_and_nothing_begins_beside_it() -> None:
    scene = scene_of()
    put(scene, pods_of(2))
    put(scene, pods_of(8, start=2))
    assert [one.asked for one in cycles(scene)] == [AGENTS]
    finish(scene)


def test_an_answer_belongs_to_the_cycle_whose_request_it_follows_and_its_agent_goes_on_with_another() -> None:
    scene = scene_of()
    put(scene, pods_of(20))
    first, second, third = cycles(scene)
    (agent,) = second.asked
    answer(scene, agent)
    assert cycles(scene)[:2] == [first, third]
    assert cycles(scene)[2].asked == {agent}
    assert [placement.uid for plan in scene.plans for placement in plan.placements] == second.uids
    finish(scene)


def test_an_answer_to_an_earlier_request_changes_no_cycle() -> None:
    scene = scene_of()
    put(scene, pods_of(20))
    (agent,) = cycles(scene)[0].asked
    late = [message for one, message in scene.unanswered if one == agent]
    answer(scene, agent)
    before = list(cycles(scene))
    scene._ask(agent, late[0])
    scene.lost_answers.discard(agent)
    scene._ask(agent, late[0])
    scene.step()
    assert cycles(scene) == before
    finish(scene)


def test_a_silent_agent_costs_its_own_cycle_and_no_other() -> None:
    scene = scene_of()
    put(scene, pods_of(60))
    began, (silent,) = scene.now, cycles(scene)[0].asked
    held = set(cycles(scene)[0].uids)
    scene.lost_answers = {silent}
    asked, scene.unanswered = scene.unanswered, []
    for agent, message in asked:
        scene._ask(agent, message)
    scene.run()
    assert scene.now == began
    assert {uid for uid, pod in scene.pods.items() if not pod.node_name} >= held
    assert len(scene.bindings) > len(scene.pods) / 2
    finish(scene)


def test_a_unit_that_must_be_asked_of_all_waits_for_the_open_cycles_and_none_begins_after_it() -> None:
    scene = scene_of(dispatch=Dispatch.PARTITION)
    put(scene, [*pods_of(2), keeper("keeper"), *pods_of(20, start=2)])
    assert [one.uids for one in cycles(scene)] == [["uid-p0", "uid-p1"]]
    (agent,) = cycles(scene)[0].asked
    answer(scene, agent)
    assert [one.asked for one in cycles(scene)] == [AGENTS]
    assert cycles(scene)[0].uids[0] == "uid-keeper"
    finish(scene)


def test_fewer_cycles_by_the_setting_holds_for_those_that_begin_from_then_on() -> None:
    scene = scene_of()
    put(scene, pods_of(20))
    scene.core.state.settings = replace(scene.core.state.settings, open_cycles=1)
    (agent,) = cycles(scene)[0].asked
    answer(scene, agent)
    assert len(cycles(scene)) == 2
    finish(scene)


def test_while_scheduling_is_broadcast_cycles_never_overlap() -> None:
    scene = scene_of(dispatch=Dispatch.BROADCAST)
    put(scene, pods_of(20))
    assert len(cycles(scene)) == 1
    finish(scene)


def test_same_seed_and_events_give_the_same_instructions_with_cycles_open_beside_each_other() -> None:
    def trace() -> list[object]:
        scene = scene_of()
        put(scene, pods_of(30))
        finish(scene)
        return list(scene.trace)

    assert trace() == trace()


@pytest.mark.parametrize(
    ("harm", "seen"),
    [
        (lambda one, other: other.classes.update(one.classes), "is offered 2 times"),
        (lambda one, other: setattr(other, "asked", one.asked | other.asked), "is asked by 2 that are open"),
        (lambda one, other: other.waiting.update(one.waiting), "waits for an agent that it did not ask"),
        (lambda one, other: [setattr(c, "sole", "") for c in one.classes.values()], "is asked of all"),
    ],
)
def test_validate_names_what_two_open_cycles_may_not_share(harm, seen: str) -> None:  # type: ignore[no-untyped-def]
    scene = scene_of()
    put(scene, pods_of(20))
    harm(*cycles(scene)[:2])
    assert any(seen in problem for problem in scene.core.validate())
