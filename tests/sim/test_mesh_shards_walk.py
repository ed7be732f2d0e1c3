"""The mesh with one, two and three shards of nodes under random faults, the shards changing amid all of it.

Each binder's process may die, hear late of a change, or list its pods long after its intents; what it sent before may
still arrive. Beside what holds of one shard: no two owners of a node, however the nodes are divided (I2), and nothing
is forgotten that a shard had committed before (I3).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.binder.core.events import ShardsSeen as BinderShardsSeen
from services.binder.core.state import BinderCoreSettings
from services.coordinator.core.events import ShardsSeen
from tests.builders import make_node
from tests.sim.test_mesh_gang_walk import GangWalk
from tests.sim.test_mesh_random_walk import Walk, violation
from tests.unit.services.binder.ablations import without_loans, without_the_layout
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import SHARDS, Binder, random_fault

LAYOUTS = (("0",), ("0", "1"), ("0", "2"), ("0", "1", "2"))
NODES = ("n0", "n2", "n5", "n6", "n1")
"""Two stay shard 0's, two become shard 1's where there is one, and one shard 2's."""


class ShardsWalk(Walk):
    """One seed's walk; it begins with ``shards``."""

    def __init__(
        self, seed: int, settings: BinderCoreSettings | None = None, shards: tuple[str, ...] = ("0", "1")
    ) -> None:
        super().__init__(seed, settings, shards=shards, nodes=0)
        self.changes = 0
        self.world._units = self.world._plans = 1_000_000  # far from the coordinator's own
        for name in NODES:
            self.world.kube.add_node(make_node(name).allocatable(cpu="2"))

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        """As with one shard; and the shards change, and somebody hears of it."""
        return [
            *super().actions(),
            (0.12, self.divide),
            (0.4, self.hear),
            (1, self.restart),
            (8, self.bind),
            (2, self.careless),
        ]

    def bind(self) -> None:
        if (binder := self.one()).effects:
            self.world.run(binder, fault=random_fault(self.rng, 0.15))

    def watch(self) -> None:
        self.world.watch(self.one(), self.rng.randint(1, 6))

    def kill_binder(self) -> None:
        self.world.replace_binder(self.one().shard)

    def divide(self) -> None:
        """An operator divides the nodes anew; nobody is told."""
        self.world.divide(*self.rng.choice(LAYOUTS))
        self.changes += 1

    def careless(self) -> None:
        """A plan that no coordinator has thought about: the nodes' owners are all that keeps it right."""
        binder = self.one()
        nodes = [node for node in NODES if binder.core.state.owns(node)]
        name = self._any()
        if not binder.stopped and nodes and name.startswith("p"):
            plan = self.world.plan((name, self.rng.choice(nodes)), term=self.world.coordinator.core.state.term)
            self.world.send(binder, plan)

    def hear(self) -> None:
        """Somebody's watch shows the record."""
        world, revision = self.world, self.world.shards().revision
        if self.rng.random() < 0.3:
            world.inform(world.coordinator, ShardsSeen(revision))
        else:
            world.tell(self.one(), BinderShardsSeen(revision))

    def restart(self) -> None:
        """Whoever has ended its term, or is wanted by now, begins anew."""
        names = [name for name in SHARDS if self._wanted(name)]
        if names:
            self.world.replace_binder(self.rng.choice(names))

    def drain(self) -> None:
        """Everybody has heard of the shards, and leads."""
        world, revision = self.world, self.world.shards().revision
        world.inform(world.coordinator, ShardsSeen(revision))
        for binder in world.binders.values():
            if not binder.stopped:
                world.tell(binder, BinderShardsSeen(revision))
        for name in SHARDS:
            if self._wanted(name):
                world.replace_binder(name)
        while True:
            if world.coordinator.stopped:
                world.elect()
            world.look(world.coordinator)
            for binder in world.binders.values():
                world.watch(binder)
            world.route_answers()
            busy = [binder for binder in world.binders.values() if binder.effects]
            if not busy and not world.coordinator.effects:
                return
            for binder in busy:  # in turns: a coordinator that tries again must not keep a binder from its Bindings
                world.run(binder)
            if world.coordinator.effects:
                world.do(world.coordinator)

    def one(self) -> Binder:
        """Any binder's process."""
        return self.rng.choice(list(self.world.binders.values()))

    def _wanted(self, shard: str) -> bool:
        binder = self.world.binders.get(shard)
        return bool(binder.stopped) if binder is not None else shard in self.world.shards().names


class GangsWalk(GangWalk, ShardsWalk):
    """With gangs among the pods."""

    def __init__(self, seed: int, settings: BinderCoreSettings | None = None) -> None:
        ShardsWalk.__init__(self, seed, settings)
        self.wanted = []


def walk(
    seed: int, shards: tuple[str, ...], steps: int = 400, *, settings: BinderCoreSettings | None = None
) -> ShardsWalk:
    """A whole walk and its rest. Raises ``Violation``."""
    walked = ShardsWalk(seed, settings, shards)
    for _ in range(steps):
        walked.step()
        if violations := check_all(walked.world):
            raise violation(walked.world, violations)
    walked.rest()
    if violations := check_all(walked.world):
        raise violation(walked.world, violations)
    return walked


@pytest.mark.parametrize("shards", LAYOUTS, ids="".join)
@pytest.mark.parametrize("seed", range(12))
def test_the_mesh_keeps_its_promises_while_its_shards_change(seed: int, shards: tuple[str, ...]) -> None:
    world = walk(seed, shards).world
    for binder in world.binders.values():
        assert check_all(world, binder) == []


@pytest.mark.parametrize("seed", [*range(15), 120])
def test_a_gang_is_bound_to_its_minimum_or_not_at_all_while_shards_change(seed: int) -> None:
    """Large gangs' intents of several values too, and turns that take up few. In 120 two pods are refused in turns."""
    settings = BinderCoreSettings(
        validate=True, max_value_pods=2 if seed % 2 else 512, units_per_turn=2 if seed % 3 else 500
    )
    walked = GangsWalk(seed, settings)
    for _ in range(400):
        walked.step()
        if problems := [*check_all(walked.world, broken=True), *walked.world.disobeyed]:
            raise violation(walked.world, problems)
    walked.rest()
    if problems := [*check_all(walked.world, broken=True), *walked.world.disobeyed]:
        raise violation(walked.world, problems)


def test_the_walk_reaches_what_it_is_for() -> None:
    """Faults that never happen prove nothing."""
    changes = lent = 0
    for seed in range(8):
        walked = ShardsWalk(seed)
        for _ in range(400):
            walked.step()
            lent += any(len(binder.core.loans) for binder in walked.world.binders.values())
        changes += walked.changes
    assert changes
    assert lent


@pytest.mark.parametrize("ablation", [without_the_layout, without_loans])
def test_ablation_a_node_has_two_owners(
    ablation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ablation(monkeypatch)

    def found() -> str:
        for seed in range(60):
            walked = ShardsWalk(seed, BinderCoreSettings())
            for _ in range(400):
                walked.step()
                if violations := check_all(walked.world):
                    return violations[0]
        return ""

    assert found().startswith(("I1", "I2"))
