"""Cycles that overlap, under all that goes wrong between coordinator, agents and binder: the promises are the same.

Each step checks the mesh's promises (``binder_checks``) and, in the coordinator itself, every invariant between two
turns (``validate``), those of cycles that are open beside each other among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from services.binder.core.state import BinderCoreSettings
from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.agents.views import AgentView
from services.coordinator.core.state import CoreSettings as CoordinatorSettings
from services.coordinator.cycle.cycle import Cycle
from services.coordinator.cycle.dispatch import Dispatch
from shared.errors import InvalidState
from shared.model.constraints import PodClass
from tests.sim.mesh_world import MeshWorld
from tests.sim.test_mesh_gang_walk import GangWalk
from tests.sim.test_mesh_random_walk import Violation, Walk, violation
from tests.unit.services.binder.binder_checks import check_all

OVERLAPPING = CoordinatorSettings(open_cycles=3, batch_units=2, sole_nodes=1, dispatch=Dispatch.LEAST_LOADED)
AGENTS, NODES = 4, 6


class OverlapWalk(Walk):
    """Pods come in bursts, so that more wait than a cycle takes."""

    most = 0

    def create(self) -> None:
        for _ in range(self.rng.choice([1, 1, 6])):
            super().create()

    def step(self) -> None:
        super().step()
        self.most = max(self.most, len(self.world.coordinator.core.cycle.open))


class OverlapGangWalk(OverlapWalk, GangWalk):
    """Gangs, which are asked of all, among them."""

    def __init__(self, seed: int, settings: BinderCoreSettings) -> None:
        Walk.__init__(self, seed, settings, nodes=NODES, agents=AGENTS, coordinator=OVERLAPPING)
        self.wanted = []


def overlap_walk(seed: int, steps: int = 400, *, gangs: bool = False) -> OverlapWalk:
    settings = BinderCoreSettings(validate=True, units_per_turn=2 if seed % 3 == 0 else 500)
    walked = (
        OverlapGangWalk(seed, settings)
        if gangs
        else OverlapWalk(seed, settings, nodes=NODES, agents=AGENTS, coordinator=OVERLAPPING)
    )
    for number in range(steps + 1):
        if number < steps:
            walked.step()
        else:
            walked.rest()
        if problems := check_all(walked.world, broken=gangs):
            raise violation(walked.world, problems)
    return walked


@pytest.mark.parametrize("seed", range(24))
def test_the_mesh_keeps_its_promises_while_cycles_overlap(seed: int) -> None:
    overlap_walk(seed)


@pytest.mark.parametrize("seed", range(20))
def test_gangs_are_bound_to_their_minimum_or_not_at_all_while_cycles_overlap(seed: int) -> None:
    overlap_walk(seed, gangs=True)


def test_the_walks_reach_what_they_are_for() -> None:
    assert any(overlap_walk(seed).most == 3 for seed in range(6))
    assert any(overlap_walk(seed, gangs=True).most > 1 for seed in range(6))


def nodes_of(world: MeshWorld) -> dict[str, str]:
    return {key: pod["spec"].get("nodeName", "") for key, pod in world.kube.pods.items()}


def test_same_seed_same_walk() -> None:
    first, second = (overlap_walk(31).world for _ in range(2))
    assert nodes_of(first) == nodes_of(second)
    assert first.coordinator.core.state.stats == second.coordinator.core.state.stats


def problem(seeds: Iterable[int]) -> str:
    for seed in seeds:
        try:
            overlap_walk(seed)
        except (InvalidState, Violation) as found:
            return str(found)
    return ""


def ask_those_that_an_open_cycle_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    before = AgentRegistry.askable

    def askable(registry: AgentRegistry, _: object = ()) -> tuple[list[AgentView], list[AgentView], int]:
        return before(registry)

    monkeypatch.setattr(AgentRegistry, "askable", askable)


def take_what_must_be_asked_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(*_: object) -> Callable[[PodClass], bool]:
        return lambda pod_class: True

    monkeypatch.setattr(Cycle, "_alone", anyone)


def open_as_many_as_there_are_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cycle, "has_room", True)


@pytest.mark.parametrize(
    ("switch_off", "seen", "first"),
    [
        (ask_those_that_an_open_cycle_asked, "is asked by 2 that are open", 3),
        (take_what_must_be_asked_of_all, "is asked of all, and another cycle is open", 0),
        (open_as_many_as_there_are_agents, "are open, and 3 may be", 12),
    ],
)
def test_ablation_without_a_rule_of_overlapping_the_checker_sees_it(
    switch_off: Callable[[pytest.MonkeyPatch], None], seen: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``first``: of the seeds that are tried, so near to one that shows it as is known."""
    switch_off(monkeypatch)
    assert seen in problem(range(first, first + 20))
