"""Random faults by seed: lost requests, lost replies, late arrivals, kills, new coordinators, users at work.

Whatever the order, the invariants hold at every step, and once the faults end everything comes to rest. A failing seed
is in the test's name. The ablations switch one safeguard off each and must be found by the same walk.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from services.binder.core.state import BinderCoreSettings
from tests.builders import make_pod
from tests.unit.services.binder.ablations import without_compares, without_the_check
from tests.unit.services.binder.binder_checks import check_all, named
from tests.unit.services.binder.binder_world import Binder, make_world, random_fault


class Walk:
    """One seed's walk."""

    def __init__(
        self, seed: int, *, settings: BinderCoreSettings | None = None, check_preconditions: bool = True,
        check_tests: bool = True,
    ) -> None:  # fmt: skip
        self.rng = Random(seed)
        self.world = make_world(
            nodes=3, pods=0, node_cpu="3", settings=settings, check_preconditions=check_preconditions
        )
        self.world.kube.check_tests = check_tests
        self.binder = self.world.start_binder()
        self.zombies: list[Binder] = []
        self.names: list[str] = []
        self.requests: list[tuple[Binder, int]] = []

    def step(self) -> None:
        actions = [
            (6, self.effect), (3, self.watch), (2, self.plan), (1, self.gang), (2, self.create), (1, self.touch),
            (1, self.remove), (1, self.late), (1, self.zombie), (1, self.time), (0.15, self.kill), (0.15, self.depose),
            (0.2, self.coordinate), (0.3, self.cordon), (0.2, self.other_scheduler), (0.15, self.refuse),
        ]  # fmt: skip
        [(_, act)] = self.rng.choices(actions, weights=[weight for weight, _ in actions])
        act()

    def effect(self) -> None:
        if self.binder.effects:
            self.world.run(self.binder, fault=random_fault(self.rng, 0.25))

    def zombie(self) -> None:
        for binder in self.zombies:
            if binder.effects and not binder.stopped:
                self.world.run(binder)

    def watch(self) -> None:
        self.world.watch(self.binder, self.rng.randint(1, 5))

    def create(self) -> None:
        name = f"p{len(self.names)}"
        self.names.append(name)
        self.world.kube.add_pod(make_pod(name).cpu("1"))

    def plan(self) -> None:
        pending = [n for n in self.names if f"default/{n}" in self.world.kube.pods and not self.world.node_of(n)]
        if pending:
            chosen = self.rng.sample(pending, min(len(pending), self.rng.randint(1, 3)))
            nodes = list(self.world.kube.nodes)
            plan = self.world.plan(*((name, self.rng.choice(nodes), [self.rng.choice(nodes)]) for name in chosen))
            for _ in range(1 + (self.rng.random() < 0.2)):
                self.requests.append((self.binder, self.world.send(self.binder, plan)))

    def gang(self) -> None:
        """A gang of pods that nobody knows to be on their way, or of any: coordinators are not trusted."""
        pending = [n for n in self.names if f"default/{n}" in self.world.kube.pods and not self.world.node_of(n)]
        if len(pending) < 2:
            return
        chosen = self.rng.sample(pending, min(len(pending), self.rng.randint(2, 5)))
        nodes = list(self.world.kube.nodes)
        placements = [(name, self.rng.choice(nodes), [self.rng.choice(nodes)]) for name in chosen]
        plan = self.world.gang(*placements, at_least=self.rng.randint(1, len(chosen)), lone=self.rng.random() < 0.2)
        for _ in range(1 + (self.rng.random() < 0.2)):
            self.requests.append((self.binder, self.world.send(self.binder, plan)))

    def refuse(self) -> None:
        """A webhook refuses every Binding for a while."""
        if self.world.kube.refuse_with.pop("bind", None) is None:
            self.world.kube.refuse_with["bind"] = self.rng.choice([403, 429])

    def touch(self) -> None:
        name = self._any()
        if name:
            self.world.kube.touch_pod(name)

    def remove(self) -> None:
        name = self._any()
        if name and self.rng.random() < 0.3:
            self.world.kube.remove_pod(name)

    def other_scheduler(self) -> None:
        name = self._any()
        if name and not self.world.node_of(name) and self._room("n0") and not self.world.kube.refuse_with:
            self.world.kube.bind_elsewhere(name, "n0")
            # While our watch lags, another scheduler's excess cannot be known; it would be labelled external.
            self.world.watch(self.binder)

    def cordon(self) -> None:
        node = self.rng.choice(list(self.world.kube.nodes))
        self.world.kube.change_node(node, unschedulable=self.rng.random() < 0.3)

    def late(self) -> None:
        if self.world.late:
            self.world.carry_out(self.world.late.pop(self.rng.randrange(len(self.world.late))))

    def time(self) -> None:
        self.world.pass_time(self.binder, self.rng.choice([0.05, 0.3, 2.5]))

    def kill(self) -> None:
        self.world.crash(self.binder)
        self._succeed()

    def depose(self) -> None:
        """The leader is paused: it keeps what it wanted to do, and does it later."""
        self.zombies.append(self.binder)
        self._succeed()

    def coordinate(self) -> None:
        self.world.lead_coordinator()

    def rest(self) -> None:
        """No more faults: zombies and late requests have their say, then everything settles."""
        self.world.kube.refuse_with.clear()
        for binder in self.zombies:
            while binder.effects and not binder.stopped:
                self.world.run(binder)
        for _ in range(3):
            while self.world.late:
                self.world.carry_out(self.world.late.pop())
            self.world.watch(self.binder)
            self.world.settle(self.binder)
            self.world.pass_time(self.binder, 31)
            self.world.settle(self.binder)

    def _any(self) -> str:
        there = [name for name in self.names if f"default/{name}" in self.world.kube.pods]
        return self.rng.choice(there) if there else ""

    def _room(self, node: str) -> bool:
        """Others keep to what is free, as the kubelet would; what they overfill is not ours to answer for."""
        held = sum(1 for pod in self.world.kube.pods.values() if pod["spec"].get("nodeName") == node)
        held += sum(1 for pods in named(self.world.intents()).values() if pods[0].node == node)
        held += sum(1 for a in self.binder.core.state.cache.accounts.values() if a.node_name == node)
        return held < 3

    def _succeed(self) -> None:
        self.binder = self.world.start_binder(ready=False)
        self.world.sync(self.binder)


class Violation(Exception):
    """A checker found something; the text begins with the invariant's number."""


def walk(
    seed: int, steps: int = 250, *, settings: BinderCoreSettings | None = None, check_preconditions: bool = True,
    check_tests: bool = True,
) -> Walk:  # fmt: skip
    """A whole walk and its rest. Raises ``Violation``."""
    settings = settings or BinderCoreSettings(
        validate=True, max_value_pods=2 + seed % 2 * 30, units_per_turn=1 + seed % 3
    )
    walked = Walk(seed, settings=settings, check_preconditions=check_preconditions, check_tests=check_tests)
    for _ in range(steps):
        walked.step()
        look(walked, at_rest=False)
    walked.rest()
    look(walked, at_rest=True)
    return walked


def look(walked: Walk, *, at_rest: bool) -> None:
    violations = check_all(walked.world, walked.binder if at_rest else None, broken=True)
    if violations:
        raise Violation("\n".join(walked.binder.core.state.story.told(violations)))


@pytest.mark.parametrize("seed", range(60))
def test_invariants_hold_under_random_faults(seed: int, walk_once: Callable[[int], Walk]) -> None:
    walked = walk_once(seed)
    for binder, request in walked.requests:
        answered = request in binder.answers or request in binder.refusals
        assert answered or binder is not walked.binder, f"request {request} was never answered"


def test_the_walk_reaches_what_it_is_for(walk_once: Callable[[int], Walk]) -> None:
    """Faults that never happen prove nothing."""
    totals: dict[str, int] = {}
    for seed in range(12):
        walked = walk_once(seed)
        for binder in (walked.binder, *walked.zombies):
            stats = binder.core.stats
            for name in (
                "bound", "conflicts", "gone", "unknown_bindings", "conflicting_bindings", "transactions_unknown",
                "transactions_refused", "intents_inherited", "pods_awaited", "gangs_committed", "gangs_refused",
                "gangs_withdrawn",
            ):  # fmt: skip
                totals[name] = totals.get(name, 0) + getattr(stats, name)
    assert all(totals.values()), totals


def found_by_the_walk(**ablation: Any) -> str:
    """The first violation that some seed ends in, with a safeguard switched off; "" where none does."""
    for seed in range(60):
        try:
            walk(seed, **ablation)
        except Violation as violation:
            return str(violation)
    return ""


def test_ablation_without_the_term_compare_the_checkers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compares(monkeypatch)
    assert found_by_the_walk(settings=BinderCoreSettings()).startswith(("I1", "I4"))


def test_ablation_without_the_placement_check_a_node_is_overcommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_check(monkeypatch)
    assert found_by_the_walk().startswith("I2")


def test_ablation_without_uid_and_version_preconditions_a_pod_is_bound_twice() -> None:
    assert found_by_the_walk(check_preconditions=False).startswith("I1")


def test_ablation_without_the_test_in_the_patch_a_bound_pod_is_marked_unscheduled() -> None:
    assert found_by_the_walk(check_tests=False).startswith("told")


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = walk(5), walk(5)
    assert first.world.kube.bound == second.world.kube.bound
    assert [c.intent for c in first.world.commitments] == [c.intent for c in second.world.commitments]
