"""Binders of two and three shards that lend to each other, under random faults by seed.

Nobody thinks about what is asked of them: any binder is asked for room for any pod, and what was lent is used at any
later time, by any binder for a lone pod, by the home for members of a gang; requests are lost, late or repeated,
leaders die or go on as zombies, coordinators change, and the nodes are divided anew. At every step no node is above
allocatable (I2), nothing is bound or named twice (I1), and of a gang nothing is committed, or its minimum (I5); at the
end nothing is lent and no intent is left (I7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from services.binder.core.events import ShardsSeen
from services.binder.core.state import BinderCoreSettings
from shared.wire.messages import Gang, Loan, Placement
from tests.builders import make_node, make_pod
from tests.unit.services.binder.ablations import (
    without_ending_loans_by_lists,
    without_the_lenders_fence,
    without_the_lenders_term,
)
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import SHARDS, Binder, World, random_fault

LAYOUTS = (("0", "1"), ("0", "1", "2"), ("0", "2"))
NODES = ("n0", "n2", "n5", "n6", "n1")
"""Two stay shard 0's, two become shard 1's where there is one, and one shard 2's."""


class LendingWalk:
    """One seed's walk."""

    def __init__(self, seed: int, settings: BinderCoreSettings) -> None:
        self.rng = Random(seed)
        self.world = World(settings=settings)
        self.world.divide(*LAYOUTS[seed % 2])
        for name in NODES:
            self.world.kube.add_node(make_node(name).allocatable(cpu="2"))
        self.binders = {shard: self.world.start_binder(shard) for shard in self.world.shards().names}
        self.zombies: list[Binder] = []
        self.lone: list[str] = []
        self.gangs: list[list[str]] = []
        self.asked: list[tuple[Binder, int, Placement]] = []
        self.loans: dict[str, list[Loan]] = {}
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        actions: list[tuple[float, Callable[[], None]]] = [
            (20, self.effect), (6, self.watch), (1.5, self.create), (4, self.lend), (4, self.use), (2, self.plan),
            (3, self.gang), (0.2, self.touch), (1.5, self.remove), (1, self.late), (1, self.zombie), (0.7, self.time),
            (0.15, self.kill), (0.15, self.depose), (0.1, self.coordinate), (0.03, self.divide), (3, self.restart),
            (0.2, self.hear), (0.1, self.cordon),
        ]  # fmt: skip
        [(_, act)] = self.rng.choices(actions, weights=[weight for weight, _ in actions])
        act()
        for one in list(self.asked):
            binder, request, placement = one
            if request in binder.answers:
                self.asked.remove(one)
                for loan in binder.answers[request].loans:
                    self.counts["lent"] += 1
                    self.loans.setdefault(placement.name, []).append(loan)

    # --- what is asked of binders -------------------------------------------------------------------------------

    def lend(self) -> None:
        binder, name = self.one(), self._pending([*self.lone, *(name for gang in self.gangs for name in gang)])
        nodes = [node for node in NODES if binder.core.state.owns(node)]
        if name and nodes and not binder.stopped:
            plan = self.world.plan((name, self.rng.choice(nodes)))
            self.asked.append((binder, self.world.send(binder, replace(plan, lend=True)), plan.placements[0]))

    def use(self) -> None:
        """A lone pod's Binding, by any binder, on anything that was lent for it once."""
        name, binder = self._pending([name for name in self.lone if name in self.loans]), self.one()
        if name and not binder.stopped:
            loan = self._lent(name)
            self.world.send(binder, replace(self.world.plan((name, loan.node)), loans=[loan]))

    def gang(self) -> None:
        """Some of a gang go to its home: each on a node of the home, or on one that was lent."""
        if not self.gangs:
            return
        number = self.rng.randrange(len(self.gangs))
        binder = self.binders.get(self.world.shards().of(f"gang-{number}"))
        names = [name for name in self.gangs[number] if self._pending([name])]
        if binder is None or binder.stopped or len(names) < 2:
            return
        own = [node for node in NODES if binder.core.state.owns(node)]
        placements: list[tuple[str, str]] = []
        kept: list[Loan] = []
        for name in names:
            if name in self.loans and self.rng.random() < 0.8:
                kept.append(self._lent(name))
                placements.append((name, kept[-1].node))
            elif own:
                placements.append((name, self.rng.choice(own)))
        if not placements:
            return
        plan = self.world.gang(*placements, at_least=self.rng.randint(1, len(placements)))
        group = f"podgroup:default/g{number}"
        gangs = [Gang(gang.unit, group, gang.members, gang.min_count) for gang in plan.gangs]
        for _ in range(1 + (self.rng.random() < 0.2)):
            self.world.send(binder, replace(plan, gangs=gangs, loans=kept))
        self.counts["spanning"] += bool(kept) and len(kept) < len(placements)

    def plan(self) -> None:
        binder, name = self.one(), self._pending(self.lone)
        nodes = [node for node in NODES if binder.core.state.owns(node)]
        if name and nodes and not binder.stopped:
            self.world.send(binder, self.world.plan((name, self.rng.choice(nodes))))

    # --- the world ----------------------------------------------------------------------------------------------

    def create(self) -> None:
        if self.rng.random() < 0.5:
            self.lone.append(f"p{len(self.lone)}")
            self.world.kube.add_pod(make_pod(self.lone[-1]).cpu(self.rng.choice(["1", "2"])))
            return
        number = len(self.gangs)
        self.gangs.append([f"g{number}-{member}" for member in range(self.rng.randint(2, 4))])
        for name in self.gangs[-1]:
            self.world.kube.add_pod(make_pod(name).cpu("1"))

    def effect(self) -> None:
        if (binder := self.one()).effects:
            self.world.run(binder, fault=random_fault(self.rng, 0.2))

    def watch(self) -> None:
        self.world.watch(self.one(), self.rng.randint(1, 6))

    def touch(self) -> None:
        if name := self._pending([*self.lone, *(name for gang in self.gangs for name in gang)]):
            self.world.kube.touch_pod(name)

    def remove(self) -> None:
        if self.world.kube.pods:
            self.world.kube.remove_pod(self.rng.choice(list(self.world.kube.pods)).partition("/")[2])

    def cordon(self) -> None:
        self.world.kube.change_node(self.rng.choice(NODES), unschedulable=self.rng.random() < 0.3)

    def late(self) -> None:
        if self.world.late:
            self.world.carry_out(self.world.late.pop(self.rng.randrange(len(self.world.late))))

    def zombie(self) -> None:
        for binder in self.zombies:
            if binder.effects and not binder.stopped:
                self.world.run(binder)

    def time(self) -> None:
        self.world.pass_time(self.one(), self.rng.choice([0.05, 0.3, 2.5]))

    def kill(self) -> None:
        self.world.crash(self.one())

    def depose(self) -> None:
        """The leader is paused: it keeps what it wanted to do, and does it later."""
        self.zombies.append(binder := self.one())
        self._start(binder.shard)

    def coordinate(self) -> None:
        self.world.lead_coordinator()

    def divide(self) -> None:
        self.world.divide(*self.rng.choice(LAYOUTS))

    def hear(self) -> None:
        self.world.tell(self.one(), ShardsSeen(self.world.shards().revision))

    def restart(self) -> None:
        for shard in SHARDS:
            binder = self.binders.get(shard)
            if shard in self.world.shards().names and (binder is None or binder.stopped):
                self._start(shard)
                return

    def rest(self) -> None:
        """No more faults; the last of what was sent arrives, and everything settles."""
        world = self.world
        for binder in self.zombies:
            while binder.effects and not binder.stopped:
                world.run(binder)
        for _ in range(6):
            while world.late:
                world.carry_out(world.late.pop())
            for binder in self.binders.values():
                world.tell(binder, ShardsSeen(world.shards().revision))
            self.binders = {shard: one for shard, one in self.binders.items() if shard in world.shards().names}
            for shard in world.shards().names:
                if shard not in self.binders or self.binders[shard].stopped:
                    self._start(shard)
            for binder in self.binders.values():
                world.watch(binder)
                world.settle(binder)
                world.pass_time(binder, 31)
                world.settle(binder)

    def one(self) -> Binder:
        return self.rng.choice(list(self.binders.values()))

    def _start(self, shard: str) -> None:
        self.binders[shard] = self.world.start_binder(shard, ready=False)
        self.world.sync(self.binders[shard])

    def _pending(self, names: list[str]) -> str:
        pods = self.world.kube.pods
        there = [name for name in names if f"default/{name}" in pods and not self.world.node_of(name)]
        return self.rng.choice(there) if there else ""

    def _lent(self, name: str) -> Loan:
        """Mostly the newest."""
        found = self.loans[name]
        return found[-1] if self.rng.random() < 0.7 else self.rng.choice(found)


class Violation(Exception):
    """A checker found something; the text begins with the invariant's number."""


def walk(seed: int, *, validate: bool = True, steps: int = 500) -> LendingWalk:
    """A whole walk and its rest. Raises ``Violation``."""
    settings = BinderCoreSettings(validate=validate, max_value_pods=2 + seed % 2 * 30, units_per_turn=1 + seed % 3)
    walked = LendingWalk(seed, settings)
    for _ in range(steps):
        walked.step()
        look(walked)
    walked.rest()
    look(walked)
    for binder in walked.binders.values():
        if left := [*check_all(walked.world, binder, broken=True), *(["I7: loans are left"] * len(binder.core.loans))]:
            raise Violation("\n".join(binder.core.state.story.told(left)))
    return walked


def look(walked: LendingWalk) -> None:
    if violations := check_all(walked.world, broken=True):
        told = [line for one in walked.binders.values() for line in one.core.state.story.told(violations)]
        raise Violation("\n".join(dict.fromkeys(told)))


@pytest.mark.parametrize("seed", range(60))
def test_no_room_is_given_twice_while_binders_lend_under_random_faults(
    seed: int, walk_once: Callable[[int], LendingWalk]
) -> None:
    walk_once(seed)


def test_the_walk_reaches_what_it_is_for(walk_once: Callable[[int], LendingWalk]) -> None:
    """Faults that never happen prove nothing."""
    totals: Counter[str] = Counter()
    for seed in range(12):
        walked = walk_once(seed)
        totals += walked.counts
        totals["committed"] += len(on_loans(walked, gangs=False))
        totals["gangs"] += len(on_loans(walked, gangs=True))
    assert {"lent", "spanning", "committed", "gangs"} == {name for name, count in totals.items() if count}, totals


def on_loans(walked: LendingWalk, *, gangs: bool) -> list[int]:
    """Revisions at which lone pods, or gangs, were committed to nodes of other shards than their committer's."""
    shards, entries = walked.world.shards(), walked.world.commitments
    of_kind = [entry for entry in entries if bool(entry.intent.group) is gangs]
    return [one.revision for one in of_kind if {shards.of(pod.node) for pod in one.intent.pods} - {one.intent.shard}]


ABLATIONS = (
    without_the_lenders_term,
    without_the_lenders_fence,
    without_ending_loans_by_lists,
)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_ablation_a_node_is_overcommitted(
    ablation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ablation(monkeypatch)

    def found() -> str:
        for seed in range(200):
            try:
                walk(seed, validate=False)
            except Violation as violation:
                if str(violation).startswith("I2"):
                    return str(violation)
        return ""

    assert found().startswith("I2")
