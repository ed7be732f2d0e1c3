"""What must hold in a coordinator between two turns: each invariant, broken by hand, is seen and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.coordinator.core.core import Core
from services.coordinator.core.state import NEVER, CoreSettings, GatedPod
from shared.errors import InvalidState
from shared.model.pod import Pod
from shared.scheduling.places import ClusterEvent, OwnEvent, Place
from shared.turns import Tick
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene


def busy() -> Scene:
    """``planned`` is at the binder, ``offered`` at an agent that is silent, ``parked`` fits nowhere."""
    scene = Scene(agents=1, settings=CoreSettings())
    for name in ("n0", "n1"):
        scene.add_node(make_node(name).allocatable(cpu="4").node())
    scene.begin()
    scene.run()
    scene.add_pod(make_pod("parked").cpu("8").pod())
    scene.run()
    scene.hold_plans = True
    scene.add_pod(make_pod("planned").cpu("1").pod())
    scene.run()
    scene.lost_answers.add("agent-0")
    scene.add_pod(make_pod("offered").cpu("2").pod())
    while scene.step(10):
        pass
    return scene


def forget_the_cycle(core: Core) -> None:
    core.cycle.open.clear()


def activate_what_is_planned(core: Core) -> None:
    queue = core.state.queue
    queue._activate(queue.entries["uid-planned"], 0.0, OwnEvent.RACE_LOST)


def hold_what_is_parked(core: Core) -> None:
    core.takeover.held["uid-parked"] = core.state.queue.entries["uid-parked"].pod


def gate_what_is_parked(core: Core) -> None:
    core.state.gated["uid-parked"] = GatedPod(core.state.queue.entries["uid-parked"].pod, 0.0, 1)


def assume_without_a_plan(core: Core) -> None:
    core.state.cluster.assume(make_pod("ghost").cpu("1").pod(), "n0", 0.0)


def uncount_what_is_planned(core: Core) -> None:
    core.state.cluster.forget("uid-planned")


def lose_the_plan(core: Core) -> None:
    core.ledger.plans.clear()


def confuse_the_plans(core: Core) -> None:
    for opened in core.ledger.plans.values():
        opened.plan.placements.clear()


def lose_a_node(core: Core) -> None:
    core.state.cluster.remove_node("n0")


def own_twice(core: Core) -> None:
    core.registry.ownership.unowned.add("n0")


def miscount_an_agent(core: Core) -> None:
    core.registry.ownership.sizes["agent-0"] += 1


def forget_what_was_sent(core: Core) -> None:
    core.registry.views["agent-0"].sent.clear()


def know_the_future(core: Core) -> None:
    core.registry.views["agent-0"].stamp = 10**9


def answer_for_nobody(core: Core) -> None:
    core.registry.views["agent-0"].request = None


def lose_sight_of_an_agent(core: Core) -> None:
    core.registry._restless.clear()


def ask_who_owns_nothing(core: Core) -> None:
    core.registry.askable()
    core.registry.ownership.sizes["agent-0"] = 0


def miscount_the_queue(core: Core) -> None:
    core.state.queue._count[Place.ACTIVE] = 5


def nominate_at_random(core: Core) -> None:
    core.state.cluster.nominated_to["uid-parked"] = "n0"


def count_a_ghost(core: Core) -> None:
    core.state.cluster.members["podgroup:d/g"] = {"uid-nobody"}


def put_off_the_plans(core: Core) -> None:
    core.state.agenda.ledger = NEVER


def put_off_an_agent(core: Core) -> None:
    core.registry.views["agent-0"].request = None
    core.registry.views["agent-0"].suspect = True
    core.state.agenda.views = NEVER


def put_off_a_change(core: Core) -> None:
    core.requeuer.node_changed("n0", ClusterEvent.NODE_LABELS)
    core.state.agenda.waking = NEVER


BROKEN: list[tuple[str, Callable[[Core], None]]] = [
    ("one-place", forget_the_cycle),
    ("one-place", activate_what_is_planned),
    ("one-place", hold_what_is_parked),
    ("one-place", gate_what_is_parked),
    ("assumed", hold_what_is_parked),
    ("assumed", assume_without_a_plan),
    ("assumed", uncount_what_is_planned),
    ("plan-open", lose_the_plan),
    ("plan-open", confuse_the_plans),
    ("owned", lose_a_node),
    ("owned", own_twice),
    ("owned", miscount_an_agent),
    ("view", forget_what_was_sent),
    ("view", know_the_future),
    ("cycle-waits", answer_for_nobody),
    ("agent-restless", lose_sight_of_an_agent),
    ("agent-owner", ask_who_owns_nothing),
    ("queue-count", miscount_the_queue),
    ("nominations", nominate_at_random),
    ("members", count_a_ghost),
    ("agenda", put_off_the_plans),
    ("agenda", put_off_an_agent),
    ("agenda", put_off_a_change),
]


def named(core: Core) -> set[str]:
    return {problem.partition(":")[0] for problem in core.validate()}


def test_a_busy_coordinator_is_sound() -> None:
    core = busy().core
    assert core.cycle.open
    assert "uid-planned" in core.ledger.placed
    assert core.state.queue.count()[Place.UNSCHEDULABLE] == 1
    assert named(core) == set()


@pytest.mark.parametrize(("name", "harm"), BROKEN, ids=[f"{name}-{harm.__name__}" for name, harm in BROKEN])
def test_what_is_broken_is_named(name: str, harm: Callable[[Core], None]) -> None:
    core = busy().core
    harm(core)
    assert name in named(core)


def test_with_the_setting_a_broken_core_ends_its_term_and_tells_whose_story_it_is() -> None:
    scene = busy()
    scene.core.state.settings = replace(scene.core.state.settings, validate=True)
    uncount_what_is_planned(scene.core)
    with pytest.raises(InvalidState, match="assumed: uid-planned") as caught:
        scene.core.handle([Tick()], scene.now)
    assert "uid-planned: 100.000 s  active -> in_flight (taken)" in str(caught.value)


def test_a_pod_tells_its_whole_story() -> None:
    scene = Scene(agents=1)
    scene.add_node(make_node("n0").allocatable(cpu="2").node())
    scene.begin()
    scene.run()
    scene.add_pod(make_pod("p").cpu("4").pod())
    scene.run()
    scene.change_pod("uid-p", pod_class=smaller().pod_class)
    scene.run(until_s=20)
    told = [line.partition(" s  ")[2] for line in scene.core.story("uid-p")]
    assert told[:3] == [
        "new -> active (seen)",
        "active -> in_flight (taken)",
        "in_flight -> unschedulable (attempt_failed)",
    ]
    assert told[3].startswith("told Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.")
    assert told[4:6] == ["unschedulable -> active (changed)", "active -> in_flight (taken)"]
    assert told[6].startswith("plan 1 sent: n0 by kube-default@")
    assert {"plan 1 answered: BOUND n0 ", "the watch shows it bound n0", "in_flight -> not pending any more"} <= {
        *told[7:]
    }


def smaller() -> Pod:
    return make_pod("p").cpu("1").pod()
