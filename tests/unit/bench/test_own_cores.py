"""``bench.own_cores``: an agent answers when it has done what came before; what overlap could add is never below 1."""

from __future__ import annotations

from bench.in_process.switches import settings_of
from bench.own_cores import HOP_S, OwnCores, alike, drained
from services.coordinator.core.events import DecisionsReceived

SETTINGS, _ = settings_of([])


def test_a_small_drain_places_all_and_nothing_is_faster_than_its_busiest_part() -> None:
    found = drained(alike(20, 2), 40, 2, "kube-default", SETTINGS)
    assert found.pods_per_s > 0
    assert found.at_most >= 1.0


def test_an_answer_waits_for_what_its_agent_does_before_it() -> None:
    nodes, pod = alike(4, 1)
    world = OwnCores(agents=1, seed=1, policy="kube-default", settings=SETTINGS)
    for body in nodes:
        world.add_node(body)
    world.begin()
    world.rest(30)
    world.phase = "load"
    world._idle_at["agent-0"] = busy_until = world.now + 5.0
    asked: list[float] = []
    post = world.post
    world.post = lambda event, after_s=0.0: (  # type: ignore[method-assign]
        asked.append(world.now + after_s) if isinstance(event, DecisionsReceived) else None,
        post(event, after_s),
    )[1]
    body = pod(0)
    body["metadata"]["name"] = "p"
    world.add_pod(body)
    world.run(world.now + 1.0)
    assert asked
    assert min(asked) >= busy_until + HOP_S
