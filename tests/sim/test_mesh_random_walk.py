"""The whole mesh under random faults by seed: nothing bound twice, nothing over, nothing forgotten.

Every step is followed by the checkers of I1, I2 and I4; when the faults end, everything comes to rest within a bounded
time: each pod is bound, or no node takes it (I3), and coordinator, binder, API server and etcd agree (I7).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.binder.core.state import BinderCoreSettings
from services.coordinator.core.events import ConditionFailed
from services.coordinator.core.state import CoreSettings as CoordinatorSettings
from services.coordinator.status.reporter import StatusReporter
from shared.errors import KubeRejected
from shared.kube.pods.convert import pod_from_api
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.places import Place
from shared.turns import Tick
from tests.builders import make_node, make_pod
from tests.sim.mesh_world import MeshWorld
from tests.unit.services.binder.ablations import without_compares
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import random_fault

NODES, NODE_CPU = 3, 4
REACHED = ("bound", "conflicts", "gone", "unknown_bindings", "intents_inherited", "plans_repeated", "unresolved")
REST_S = 300.0
"""Virtual seconds in which everything must have come to rest: above the longest backoff and both sweeps."""


class Walk:
    """One seed's walk."""

    def __init__(
        self, seed: int, settings: BinderCoreSettings | None = None, *, check_tests: bool = True,
        shards: tuple[str, ...] = (), nodes: int = NODES, agents: int = 2,
        coordinator: CoordinatorSettings | None = None,
    ) -> None:  # fmt: skip
        self.world = MeshWorld(seed, agents=agents, settings=settings, shards=shards, coordinator=coordinator)
        self.world.kube.check_tests = check_tests
        self.rng = self.world.rng
        self.names: list[str] = []
        for number in range(nodes):
            self.world.kube.add_node(make_node(f"n{number}").allocatable(cpu=str(NODE_CPU)))

    def step(self) -> None:
        actions = self.actions()
        [(_, act)] = self.rng.choices(actions, weights=[weight for weight, _ in actions])
        act()
        self.world.route_answers()

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen next, and how likely each is."""
        return [
            (8, self.coordinate), (8, self.bind), (4, self.look), (4, self.watch), (2, self.create), (0.7, self.remove),
            (0.5, self.touch), (2, self.time), (0.3, self.cordon), (0.5, self.late), (0.12, self.kill_coordinator),
            (0.12, self.kill_binder), (0.15, self.restart_agent), (0.1, self.lose_agent), (0.2, self.throttle),
        ]  # fmt: skip

    def coordinate(self) -> None:
        if self.world.coordinator.stopped:
            self.world.elect()
        elif self.world.coordinator.effects:
            self.world.do(self.world.coordinator, fault=random_fault(self.rng, 0.15))

    def bind(self) -> None:
        if self.world.binder.effects:
            self.world.run(self.world.binder, fault=random_fault(self.rng, 0.15))

    def look(self) -> None:
        self.world.look(self.world.coordinator, self.rng.randint(1, 6))

    def watch(self) -> None:
        self.world.watch(self.world.binder, self.rng.randint(1, 6))

    def create(self) -> None:
        name = f"p{len(self.names)}"
        self.names.append(name)
        self.world.kube.add_pod(make_pod(name).cpu(self.rng.choice(["500m", "1", "2"])))

    def remove(self) -> None:
        if name := self._any():
            self.world.kube.remove_pod(name)

    def touch(self) -> None:
        if name := self._any():
            self.world.kube.touch_pod(name)

    def cordon(self) -> None:
        node = self.rng.choice(list(self.world.kube.nodes))
        self.world.kube.change_node(node, unschedulable=self.rng.random() < 0.3)

    def time(self) -> None:
        self.advance(self.world.now + self.rng.choice([0.02, 0.3, 1.5]))

    def late(self) -> None:
        if self.world.late:
            self.world.carry_out(self.world.late.pop(self.rng.randrange(len(self.world.late))))
        self.world.deliver_late_plan()
        self.world.deliver_late_write()

    def throttle(self) -> None:
        """The API server has too much to do for the next patches."""
        wait_s = self.rng.choice([None, 1.0, 5.0])
        self.world.kube.patch_answers += [
            KubeRejected("busy", status=429, reason="TooManyRequests", retry_after_s=wait_s)
            for _ in range(self.rng.randint(1, 4))
        ]

    def kill_coordinator(self) -> None:
        self.world.replace_coordinator()

    def kill_binder(self) -> None:
        self.world.replace_binder()

    def restart_agent(self) -> None:
        name = self.rng.choice(["a0", "a1"])
        self.world.start_agent(name)
        self.world.agents_changed()

    def lose_agent(self) -> None:
        self.world.stop_agent(self.rng.choice(["a0", "a1"]))
        self.world.agents_changed()

    def advance(self, until: float) -> None:
        """Let time pass up to ``until``, waking whoever wants to be woken."""
        world = self.world
        while True:
            wakes = {shard: binder.core.wake_at for shard, binder in world.binders.items() if not binder.stopped}
            due = min(world.coordinator.timer, *wakes.values(), until)
            world.now = max(world.now, due)
            if due >= until:
                return
            if world.coordinator.timer <= world.now:
                world.coordinator.timer = until
                world.inform(world.coordinator, Tick())
            for shard, at in wakes.items():
                if at <= world.now:
                    world.tell(world.binders[shard], Tick())
                    if world.binders[shard].core.wake_at == at:
                        return

    def rest(self) -> None:
        """No more faults; returns when everything is at rest, fails when that takes too long."""
        world = self.world
        for name in ("a0", "a1"):
            if name not in world.agents:
                world.start_agent(name)
        world.agents_changed()
        world.kube.patch_answers.clear()
        for node in world.kube.nodes:
            world.kube.change_node(node, unschedulable=False)
        while world.late:
            world.carry_out(world.late.pop())
        while world.late_plans:
            world.deliver_late_plan()
        while world.late_writes:
            world.deliver_late_write()
        end = world.now + REST_S
        for _ in range(2000):
            if world.now >= end:
                break
            self.drain()
            if self.at_rest():
                return
            self.advance(world.now + 0.5)
        raise AssertionError(f"not at rest: {self.unsettled()}")

    def drain(self) -> None:
        """Everything that can be done at this instant."""
        world = self.world
        while True:
            if world.coordinator.stopped:
                world.elect()
            world.look(world.coordinator)
            for binder in world.binders.values():
                world.watch(binder)
            world.route_answers()
            busy = next((binder for binder in world.binders.values() if binder.effects), None)
            if world.coordinator.effects:
                world.do(world.coordinator)
            elif busy is not None:
                world.run(busy)
            else:
                return

    def at_rest(self) -> bool:
        """An intent that a late transaction left is found by the sweep, so it may take two of them."""
        world = self.world
        busy = any(binder.core.busy or len(binder.core.loans) for binder in world.binders.values())
        return not (busy or world.waiting or world.intents() or self.unsettled())

    def unsettled(self) -> dict[str, list[str]]:
        """Pending pods that some node would take, that are not parked, or that nobody has told why they wait: name to
        where the coordinator has them and what they say."""
        state = self.world.binder.core.state
        left = {}
        for key in self.world.kube.pods:
            found = self.world.kube.get_pod(*key.split("/"))
            assert found is not None
            pod = pod_from_api(found)
            if pod.node_name:
                continue
            places = self.world.coordinator.core.place_of(pod.uid)
            fits = any(check_placement(state.feasibility, pod.pod_class, n) is None for n in self.world.kube.nodes)
            if fits or places != [Place.UNSCHEDULABLE.value] or pod.condition[0] != "False" or not pod.condition[2]:
                left[pod.name] = [*places, *pod.condition]
        return left

    def _any(self) -> str:
        there = [name for name in self.names if f"default/{name}" in self.world.kube.pods]
        return self.rng.choice(there) if there else ""


class Violation(Exception):
    """A checker found something; the text begins with the invariant's number."""


def violation(world: MeshWorld, found: list[str]) -> Violation:
    """What was found, and what both leaders tell of the pods that it names."""
    told = [*world.binder.core.state.story.told(found), *world.coordinator.core.state.queue.story.told(found)]
    return Violation("\n".join(dict.fromkeys(told)))


def walk(seed: int, steps: int = 400, *, settings: BinderCoreSettings | None = None, check_tests: bool = True) -> Walk:
    """A whole walk and its rest. Raises ``Violation``."""
    walked = Walk(seed, settings, check_tests=check_tests)
    for _ in range(steps):
        walked.step()
        violations = check_all(walked.world)
        if violations:
            raise violation(walked.world, violations)
    walked.rest()
    if violations := check_all(walked.world):
        raise violation(walked.world, violations)
    return walked


@pytest.mark.parametrize("seed", range(40))
def test_the_mesh_keeps_its_promises_under_random_faults(seed: int, walk_once: Callable[[int], Walk]) -> None:
    walked = walk_once(seed)
    world = walked.world
    assert check_all(world, world.binder) == []
    shown = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in world.kube.pods.values() if p["spec"].get("nodeName")}
    counted = {uid: a.node_name for uid, a in world.coordinator.core.state.cache.accounts.items()}
    assert counted == shown


def test_the_walk_reaches_what_it_is_for(walk_once: Callable[[int], Walk]) -> None:
    """Faults that never happen prove nothing."""
    totals: dict[str, int] = {}
    for seed in range(10):
        world = walk_once(seed).world
        for name in (
            "bound",
            "conflicts",
            "gone",
            "unknown_bindings",
            "intents_inherited",
            "plans_repeated",
            "unresolved",
        ):
            totals[name] = totals.get(name, 0) + getattr(world.binder.core.stats, name)
    assert all(totals.values()), totals


def test_ablation_without_the_compares_a_deposed_process_still_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compares(monkeypatch)

    def found() -> str:
        for seed in range(40):
            try:
                walk(seed, settings=BinderCoreSettings())
            except Violation as violation:
                return str(violation)
        return ""

    assert found().startswith(("I1", "I4"))


def test_ablation_without_the_test_in_the_patch_a_bound_pod_is_told_that_it_is_not() -> None:
    def found() -> str:
        for seed in range(40):
            try:
                walk(seed, check_tests=False)
            except Violation as violation:
                return str(violation)
        return ""

    assert found().startswith("told")


def test_ablation_without_another_try_a_pod_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(notices: StatusReporter, event: ConditionFailed) -> bool:
        notices.written(event.uid)
        return True

    monkeypatch.setattr(StatusReporter, "failed", failed)

    def found() -> str:
        for seed in range(40):
            try:
                walk(seed)
            except AssertionError as error:
                return str(error)
        return ""

    assert "not at rest" in found()


def test_the_same_seed_gives_the_same_history() -> None:
    assert walk(3).world.kube.bound == walk(3).world.kube.bound
