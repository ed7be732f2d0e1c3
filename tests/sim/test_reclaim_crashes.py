"""A reclaim across a death of the coordinator after each thing that happens in it: nobody is evicted in vain, nothing
is lost, no quota and no node is exceeded, and whoever was owed room has it in the end.

Every history is run again with a new leader after its first, second, ... step; plans that were under way are lost, or
have reached the binder.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from services.coordinator.core.instructions import SendPlan
from services.coordinator.queues.leaving import Leaving
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

KEY = group_key(GroupSource.NATIVE, "default", "g")
SETTLED_S = 90.0
"""Longer than victims that do not leave are waited for."""


def cpus(amount: int) -> dict[str, int]:
    return {"cpu": amount * 1000}


class Story:
    """A lender whose gang of three, or lone pods, wait while a borrower has everything. ``limited``: by the limit of
    the queue above both, not by the nodes."""

    def __init__(self, *, limited: bool, gang: bool) -> None:
        above = [Queue("top", maximum=cpus(6), guaranteed=cpus(6))] if limited else []
        parent = "top" if limited else ""
        queues = [*above, Queue("a", parent, guaranteed=cpus(3), reclaim=True), Queue("b", parent)]
        group = PodGroup(KEY, GroupSource.NATIVE, "default", "g", gang=True, min_count=3, labels={QUEUE_LABEL: "a"})
        self.objects = [ObjectChanged("queues", queue.name, queue) for queue in queues]
        if gang:
            self.objects.append(ObjectChanged("podgroups", "default/g", group))
        self.scene = scene = Scene()
        for number in range(4 if limited else 2):
            scene.add_node(make_node(f"n{number}").allocatable(cpu="3").node())
        scene.inbox.extend(self.objects)
        scene.begin()
        for number in range(6):
            pod = make_pod(f"b{number}").cpu("1").pod()
            scene.add_pod(replace(pod, labels={QUEUE_LABEL: "b"}))
        scene.run(batch=100, until_s=5)
        assert len(scene.bindings) == 6
        for number in range(3):
            pod = make_pod(f"a{number}").cpu("1").pod()
            scene.add_pod(replace(pod, labels={QUEUE_LABEL: "a"}, group=KEY if gang else ""))

    def step(self) -> bool:
        """The next thing happens; False: nothing does any more."""
        scene = self.scene
        if scene.step():
            return True
        if self.over:
            return False
        scene.run(until_s=0.2)
        return True

    @property
    def over(self) -> bool:
        return len(self.bound) == 3

    @property
    def bound(self) -> list[str]:
        return [uid for uid, _ in self.scene.bindings if uid.startswith("uid-a")]

    def crash(self, *, arrived: bool) -> None:
        """A new leader; ``arrived``: evictions and Bindings under way have reached the binder."""
        scene = self.scene
        if arrived:
            for plan in [one.plan for one in scene.trace if isinstance(one, SendPlan) and one.plan in scene.held_plans]:
                scene.bind(plan)
        scene.hold_plans = False
        scene.replace_leader(set())
        scene.inbox.extendleft(reversed(self.objects))

    def problems(self) -> list[str]:
        """Of this moment."""
        scene, nodes = self.scene, [pod.node_name for pod in self.scene.pods.values() if pod.node_name]
        found = [*check_bound_once(scene), *check_overcommit(scene), *check_places(scene)]
        found += [f"{node} is too full" for node in set(nodes) if nodes.count(node) > 3]
        if len(scene.evicted) > 3:
            found.append(f"{len(scene.evicted)} were evicted for three")
        if len(set(scene.evicted)) < len(scene.evicted):
            found.append("somebody was evicted twice")
        if len(nodes) > 6 and "top" in scene.core.state.queues.queues:
            found.append(f"{len(nodes)} of 6 that the quota allows run")
        return found


KINDS = [(limited, gang) for limited in (True, False) for gang in (True, False)]
IDS = [f"{'limit' if limited else 'nodes'}-{'gang' if gang else 'pods'}" for limited, gang in KINDS]


def steps_of(limited: bool, gang: bool) -> int:
    story, count = Story(limited=limited, gang=gang), 0
    while story.step():
        count += 1
    assert story.problems() == []
    return count


def crashed(limited: bool, gang: bool, at: int, *, arrived: bool, check: Callable[[Story], list[str]]) -> list[str]:
    story = Story(limited=limited, gang=gang)
    for number in range(at):
        story.scene.hold_plans = number == at - 1  # what this step sends is under way when the leader dies
        story.step()
    story.crash(arrived=arrived)
    found = []
    for _ in range(60):
        story.scene.run(until_s=SETTLED_S / 60)
        found += check(story)
    if not story.over:
        found.append(f"only {story.bound} are bound")
    return found


@pytest.mark.parametrize(("limited", "gang"), KINDS, ids=IDS)
@pytest.mark.parametrize("arrived", [False, True], ids=["lost", "arrived"])
def test_a_reclaim_is_finished_after_a_death_at_any_step(limited: bool, gang: bool, arrived: bool) -> None:
    for at in range(1, steps_of(limited, gang) + 1):
        found = crashed(limited, gang, at, arrived=arrived, check=Story.problems)
        assert found == [], f"after step {at}"


def test_ablation_a_leader_that_forgets_who_leaves_evicts_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Victims that are leaving already do not count as gone: the next leader asks others too."""
    monkeypatch.setattr("shared.scheduling.queues.decided.QueueCommitments.goes", lambda _: iter(()))
    monkeypatch.setattr(Leaving, "_leaves", lambda *_: False)
    story = Story(limited=True, gang=False)
    story.scene.keep_victims = True
    story.scene.run(until_s=3)
    assert len(story.scene.evicted) == 3 or story.problems()
    story.crash(arrived=False)
    story.scene.run(until_s=30)
    assert story.problems()
