"""Whatever happens in whatever order: I1, I2, I3, I9 and I11 hold, and a quiet mesh forgets nobody.

One machine drives the scene: pods and nodes come, change and go; agents join, leave, fall silent; plans are held back,
answered late, twice or not at all; conditions patch pods under the coordinator's feet.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.coordinator.core.events import AgentsChanged, BinderChanged, PlanFailed
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle import assign as assigning
from services.coordinator.cycle.requeueing import Requeuer
from shared.model.cluster_events import NodeDeleted, NodeUpserted, PodUpserted
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.state.room.counted import Counted
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

CPUS = ("100m", "500m", "1", "2500m", "5")


class CoordinatorMachine(RuleBasedStateMachine):
    """Everything a coordinator lives through, at a few nodes' size."""

    core_settings = CoreSettings(batch_units=4, units_per_turn=3)

    @initialize(seed=st.integers(0, 3), agents=st.integers(0, 3), nodes=st.integers(0, 3))
    def begin(self, seed: int, agents: int, nodes: int) -> None:
        self.scene = Scene(agents=agents, seed=seed, settings=self.core_settings)
        self.named = 0
        self.agents_made = agents
        for number in range(nodes):
            self.scene.add_node(make_node(f"n{number}").node())
        self.scene.begin()

    # --- the world ---

    @rule(cpu=st.sampled_from(CPUS), count=st.integers(1, 5), port=st.booleans())
    def pods_arrive(self, cpu: str, count: int, port: bool) -> None:
        for _ in range(count):
            self.named += 1
            pod = make_pod(f"p{self.named}").cpu(cpu).memory("64Mi")
            self.scene.add_pod((pod.port(8080) if port else pod).pod())

    @rule(cpu=st.sampled_from(CPUS), node=st.integers(0, 4))
    def others_bind_a_pod(self, cpu: str, node: int) -> None:
        if f"n{node}" not in self.scene.nodes:
            return
        self.named += 1
        self.scene.add_pod(make_pod(f"f{self.named}").cpu(cpu).memory("64Mi").on(f"n{node}").pod())

    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        if self.scene.pods:
            self.scene.delete_pod(data.draw(st.sampled_from(sorted(self.scene.pods))))

    @rule(data=st.data())
    def pod_finishes(self, data: st.DataObject) -> None:
        running = sorted(uid for uid, pod in self.scene.pods.items() if pod.node_name)
        if running:
            self.scene.change_pod(data.draw(st.sampled_from(running)), phase="Succeeded")

    @rule(data=st.data())
    def pod_terminates(self, data: st.DataObject) -> None:
        if self.scene.pods:
            self.scene.change_pod(data.draw(st.sampled_from(sorted(self.scene.pods))), terminating=True)

    @rule(number=st.integers(0, 4), cordoned=st.booleans())
    def node_comes_or_changes(self, number: int, cordoned: bool) -> None:
        node = make_node(f"n{number}")
        self.scene.add_node((node.cordon() if cordoned else node).node())

    @rule(number=st.integers(0, 4))
    def node_goes(self, number: int) -> None:
        if self.scene.nodes.pop(f"n{number}", None) is not None:
            self.scene.binder.remove_node(f"n{number}")
            self.scene.inbox.append(NodeDeleted(f"n{number}"))

    @rule()
    def agent_joins(self) -> None:
        if len(self.scene.agents) < 4:
            self.agents_made += 1
            self.scene.join(f"agent-{self.agents_made}")

    @rule(data=st.data())
    def agent_leaves(self, data: st.DataObject) -> None:
        if self.scene.agents:
            agent = data.draw(st.sampled_from(sorted(self.scene.agents)))
            self.scene.lost_answers.discard(agent)
            self.scene.leave(agent)

    @rule(data=st.data())
    def agent_restarts(self, data: st.DataObject) -> None:
        if self.scene.agents:
            self.scene.join(data.draw(st.sampled_from(sorted(self.scene.agents))))

    @rule(data=st.data())
    def agent_falls_silent_or_speaks(self, data: st.DataObject) -> None:
        if self.scene.agents:
            self.scene.lost_answers ^= {data.draw(st.sampled_from(sorted(self.scene.agents)))}

    @rule(hold=st.booleans())
    def binder_is_slow_or_not(self, hold: bool) -> None:
        self.scene.hold_plans = hold

    @precondition(lambda self: self.scene.held_plans)
    @rule(fails=st.booleans(), twice=st.booleans())
    def plan_ends(self, fails: bool, twice: bool) -> None:
        plan = self.scene.held_plans.pop(0)
        if fails:
            self.scene.inbox.append(PlanFailed(plan.plan_id, "peer_unknown", refused=False))
            return
        answer = self.scene.bind(plan)
        self.scene.inbox.append(answer)
        if twice:
            self.scene.inbox.append(answer)

    @rule(term=st.integers(1, 9), there=st.booleans())
    def binder_changes(self, term: int, there: bool) -> None:
        self.scene.inbox.append(BinderChanged(f"http://binder-{term}" if there else "", term if there else 0))

    @rule(committed=st.sets(st.integers(0, 3)))
    def another_coordinator_is_elected(self, committed: set[int]) -> None:
        self.scene.replace_leader(committed)

    @precondition(lambda self: self.scene.intents)
    @rule(bind=st.booleans(), data=st.data())
    def intent_ends(self, bind: bool, data: st.DataObject) -> None:
        self.scene.end_intent(data.draw(st.sampled_from(sorted(self.scene.intents))), bind=bind)

    # --- the coordinator ---

    @rule(batch=st.integers(1, 6), steps=st.integers(1, 12))
    def deliver(self, batch: int, steps: int) -> None:
        for _ in range(steps):
            if not self.scene.step(batch):
                break

    @rule(seconds=st.sampled_from((0.01, 0.35, 1.5, 20.0)))
    def time_passes(self, seconds: float) -> None:
        self.scene.run(until_s=seconds)

    @rule()
    def everything_is_told_again(self) -> None:
        scene = self.scene
        scene.run()
        before = (scene.core.state.queue.count(), dict(scene.core.state.cache.accounts), len(scene.trace))
        scene.deliver(
            AgentsChanged(tuple(scene.records.values())),
            *[NodeUpserted(node) for node in scene.nodes.values()],
            *[PodUpserted(pod) for pod in scene.pods.values()],
        )
        after = (scene.core.state.queue.count(), dict(scene.core.state.cache.accounts), len(scene.trace))
        assert before == after, "I9"

    # --- what must hold ---

    @invariant()
    def bound_once(self) -> None:
        assert not check_bound_once(self.scene), "I1"

    @invariant()
    def nothing_above_allocatable(self) -> None:
        assert not check_overcommit(self.scene), "I2"

    @invariant()
    def every_pending_pod_is_in_one_place(self) -> None:
        assert not check_places(self.scene), "I3"

    def teardown(self) -> None:
        """The trouble ends: everything comes to rest, and nobody who fits anywhere is still waiting."""
        if not hasattr(self, "scene"):
            return
        scene = self.scene
        scene.lost_answers.clear()
        scene.hold_plans = False
        while scene.held_plans:
            scene.inbox.append(scene.bind(scene.held_plans.pop(0)))
        for uid in sorted(scene.intents):
            scene.end_intent(uid, bind=True)
        if not scene.agents:
            scene.join("agent-last")
        for number in range(2):
            scene.add_node(make_node(f"n{number}").node())
        scene.inbox.append(BinderChanged("http://binder-last", 10))
        scene.run(until_s=400)
        check_rest(scene)


def check_rest(scene: Scene) -> None:
    """At rest: nothing under way, cache equal to the truth, and whoever still waits fits nowhere."""
    core = scene.core
    counts = core.state.queue.count()
    assert not core.ledger.plans
    assert not core.ledger.placed
    assert not counts[Place.ACTIVE], counts
    assert not counts[Place.IN_FLIGHT], counts
    truth = {uid: pod.node_name for uid, pod in scene.pods.items() if pod.node_name and not pod.finished}
    assert {uid: account.node_name for uid, account in core.state.cache.accounts.items()} == truth, "I7"
    for uid, entry in core.state.queue.entries.items():
        fitting = [n for n in scene.nodes if check_placement(scene.binder_checks, entry.pod.pod_class, n) is None]
        assert not fitting, f"{uid} is {entry.place} though {fitting} would take it"


PROFILE = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestCoordinator = CoordinatorMachine.TestCase
TestCoordinator.settings = PROFILE


def full_three_times(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Three classes for a node with room for one, and an agent that counts nothing of one while it judges the next."""
    monkeypatch.setattr(Counted, "add", lambda *_: None)
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.run()
    scene.hold_plans = True
    for number in range(3):
        scene.add_pod(make_pod(f"p{number}").cpu("3").memory(f"{number + 1}Mi").pod())
    scene.run(batch=10)
    return scene


def test_without_the_conflict_check_the_checker_sees_overcommitment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of the check of each choice: I2 must be seen to fail."""
    monkeypatch.setattr(assigning, "fits", lambda table, pod_class, row: True)
    assert check_overcommit(full_three_times(monkeypatch))


def test_with_the_conflict_check_the_same_story_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not check_overcommit(full_three_times(monkeypatch))


class DeafRequeuer(Requeuer):
    """The requeuer without its marks: what may help parked pods is not noted."""

    def node_changed(self, node_name: str, event: ClusterEvent) -> None:
        """Nothing."""


def lost_wake_up(*, deaf: bool = False) -> Scene:
    """The room that the only pod waits for is given up while it is parked."""
    scene = Scene(agents=1)
    if deaf:
        scene.core.requeuer.__class__ = DeafRequeuer
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("holder").cpu("3").on("n0").pod())
    scene.begin()
    scene.run()
    scene.add_pod(make_pod("waiting").cpu("3").pod())
    scene.run()
    scene.delete_pod("uid-holder")
    scene.run(until_s=60)
    return scene


def test_room_that_appears_wakes_who_waits_for_it() -> None:
    scene = lost_wake_up()
    assert ("uid-waiting", "n0") in scene.bindings
    check_rest(scene)


def test_without_the_marks_the_checker_sees_a_forgotten_pod() -> None:
    """Ablation: nothing is noted of what may help."""
    with pytest.raises(AssertionError, match="would take it"):
        check_rest(lost_wake_up(deaf=True))


def test_same_seed_and_events_give_the_same_instructions() -> None:
    """I11."""

    def play(seed: int) -> list:
        scene = Scene(agents=3, seed=seed)
        for number in range(6):
            scene.add_node(make_node(f"n{number}").node())
        scene.begin()
        for number in range(30):
            scene.add_pod(make_pod(f"p{number}").cpu("900m").pod())
        scene.run(batch=4, until_s=10)
        return [repr(instruction) for instruction in scene.trace]

    assert play(1) == play(1)
    assert play(1) != play(2)


if __name__ == "__main__":
    run_state_machine_as_test(CoordinatorMachine, settings=settings(PROFILE, max_examples=2000, derandomize=False))
