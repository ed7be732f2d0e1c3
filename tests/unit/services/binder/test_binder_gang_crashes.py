"""Kill the binder, or the coordinator, at every step of a gang's way: at every revision none or the minimum stands.

A run is the effects of one gang, one after another: links, head, Bindings, clear. It is made again for each of them
with a kill right before it (what was on its way comes after the takeover, or never) or right after it (nobody heard the
answer). After each effect the invariants are looked at; at the end the gang is bound, or nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from services.binder.core.instructions import Bind, Commit, Instruction, MarkPod, ReadPod
from services.binder.core.state import BinderCoreSettings
from shared.wire.records import gang_key
from tests.unit.services.binder.ablations import (
    with_the_head_first,
    without_gangs,
    without_the_fence,
    without_the_minimum,
    without_waiting_for_the_others,
)
from tests.unit.services.binder.binder_checks import check_all, check_i1, check_i5
from tests.unit.services.binder.binder_world import KnownGang, World, make_world

NODES = 8
TRACED = (Commit, Bind, MarkPod)

Trouble = Callable[[World], None]


def calm(world: World) -> None:
    """Nothing else happens."""


def webhook(world: World) -> None:
    """A webhook refuses every Binding."""
    world.kube.refuse_with["bind"] = 403


def half_the_nodes(world: World) -> None:
    """Half of the nodes are gone."""
    for number in range(NODES // 2):
        world.kube.remove_node(f"n{number}")


class Run:
    """One gang of ``size`` pods that needs them all, in values of ``value`` pods."""

    def __init__(
        self, size: int, *, value: int, trouble: Trouble = calm, late: bool = True, validate: bool = True
    ) -> None:
        self.world = world = make_world(
            nodes=NODES,
            pods=size,
            node_cpu=str(size),
            settings=BinderCoreSettings(validate=validate and size < 10, max_value_pods=value),
        )
        self.binder = world.start_binder()
        self.size, self.trouble, self.late = size, trouble, late
        self.plan = world.gang(*((f"p{n}", f"n{n % NODES}") for n in range(size)), at_least=size)
        [gang] = self.plan.gangs
        members = {placement.uid for placement in self.plan.placements}
        world.gangs[gang_key(self.plan.term, gang.unit)] = KnownGang(size, members, planned=True)
        self.steps = 0
        self.violations: list[str] = []
        self.committed = False

    def go(self, kill_at: int = -1, *, after: bool = False, coordinator: bool = False) -> None:
        """Make the run; at step ``kill_at`` somebody dies, before its effect or after it."""
        world = self.world
        world.send(self.binder, self.plan)
        while (effect := next((e for e in self.binder.effects if isinstance(e, TRACED)), None)) is not None:
            if not self.committed and isinstance(effect, Bind):
                self.committed = True
                self.trouble(world)
                if self.trouble is half_the_nodes:
                    world.watch(self.binder)
                    if effect not in self.binder.effects:
                        continue
            self.steps += 1
            if self.steps == kill_at:
                if after:
                    self.binder.effects.remove(effect)
                    world.carry_out(effect)
                    self.look()
                self.kill(coordinator=coordinator)
            else:
                world.run(self.binder, type(effect))
            self.look(effect)
        self.rest()

    def kill(self, *, coordinator: bool) -> None:
        world = self.world
        if coordinator:
            world.lead_coordinator()
            return
        world.crash(self.binder)
        if not self.late:
            world.late.clear()
        self.binder = world.start_binder(ready=False)
        world.sync(self.binder)
        self.finish()
        if world.coordinator_term == self.plan.term:
            world.send(self.binder, self.plan)

    def finish(self) -> None:
        """Everything that is to be done, one effect at a time; dead processes' requests come in between."""
        world = self.world
        while self.binder.effects or world.late:
            if world.late:
                world.carry_out(world.late.pop())
                self.look()
            if self.binder.effects:
                self.look(world.run(self.binder))

    def rest(self) -> None:
        self.finish()
        self.world.kube.refuse_with.clear()
        self.world.settle(self.binder)
        if self.world.coordinator_term == self.plan.term and self.trouble is not half_the_nodes:
            self.world.send(self.binder, self.plan)
            self.world.settle(self.binder)
        self.look()
        self.violations += check_all(self.world, self.binder)

    def look(self, effect: Instruction | None = None) -> None:
        """After every revision of etcd, and every Binding; of a large gang after some of those."""
        if self.size < 10:
            self.violations += check_all(self.world)
        elif self.size < 100 or not isinstance(effect, Bind) or self.bound < 3 or self.bound % 50 == 0:
            self.violations += check_i5(self.world)
            self.violations += check_i1((), (), self.world.intents())

    @property
    def bound(self) -> int:
        return len(self.world.kube.bound)


def kills(size: int, value: int) -> Iterator[tuple[int, Run]]:
    """A run for every step, to be killed there; of a large gang for every step of the commit and some Bindings."""
    whole = Run(size, value=value)
    whole.go()
    steps = range(1, whole.steps + 1)
    chosen = steps if size < 100 else [*steps[:7], whole.steps // 2, *steps[-2:]]
    for at in chosen:
        yield at, Run(size, value=value)


SIZES = [(2, 1), (2, 512), (64, 24), (500, 120)]


@pytest.mark.parametrize(("size", "value"), SIZES)
@pytest.mark.parametrize("after", [False, True])
def test_a_binder_killed_at_any_step_leaves_none_or_a_whole_gang(size: int, value: int, after: bool) -> None:
    for at, run in kills(size, value):
        run.go(at, after=after)
        assert run.violations == [], f"killed at step {at}"
        assert run.bound == size, f"killed at step {at}"


@pytest.mark.parametrize(("size", "value"), SIZES)
def test_a_coordinator_killed_at_any_step_leaves_none_or_a_whole_gang(size: int, value: int) -> None:
    for at, run in kills(size, value):
        run.go(at, coordinator=True)
        assert run.violations == [], f"killed at step {at}"
        assert run.bound in (0, size), f"killed at step {at}"


@pytest.mark.parametrize("trouble", [webhook, half_the_nodes])
@pytest.mark.parametrize(("size", "value"), [(2, 1), (2, 512), (4, 3)])
def test_a_gang_that_fails_after_its_commit_leaves_nobody_wherever_the_binder_dies(
    size: int, value: int, trouble: Trouble
) -> None:
    for at in range(1, 24):
        run = Run(size, value=value, trouble=trouble, late=False)
        run.go(at, after=at % 2 == 0)
        broken = [one for one in run.violations if not one.startswith("I5")]
        assert broken == [], f"killed at step {at}"
        if not run.bound or trouble is webhook:
            assert run.violations == [], f"killed at step {at}"


# --- what each safeguard is for ---------------------------------------------------------------------------------------


def test_ablation_members_committed_one_by_one_leave_a_part_of_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gangs(monkeypatch)
    run = Run(2, value=512)
    world, binder = run.world, run.binder
    world.kube.refuse_with["bind"] = 403
    world.send(binder, run.plan)
    world.run(binder, Commit)
    world.run(binder, Bind)
    world.kube.refuse_with.clear()
    world.settle(binder)
    assert check_i5(world)[0].startswith("I5: 1 of")


def refused_beside_an_unclear_one() -> list[str]:
    """Nobody knows of the first member whether it is bound, the second is refused for good; all three are needed."""
    run = Run(3, value=512)
    world, binder = run.world, run.binder
    world.send(binder, run.plan)
    world.run(binder, Commit)
    world.run(binder, Bind, fault="drop_request")
    world.run(binder, ReadPod)
    world.kube.refuse_with["bind"] = 403
    world.run(binder, Bind)
    while any(isinstance(effect, Commit) for effect in binder.effects):
        world.run(binder, Commit)
    found = check_i5(world)
    world.settle(binder)
    assert world.kube.bound == []
    return found


def test_a_refused_member_that_its_gang_needs_waits_until_all_is_clear() -> None:
    assert refused_beside_an_unclear_one() == []


def test_ablation_a_refused_member_that_ends_alone_leaves_a_part_of_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting_for_the_others(monkeypatch)
    assert refused_beside_an_unclear_one()[0].startswith("I5: 2 of")


def test_ablation_a_head_written_before_its_links_leaves_an_intent_nobody_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_the_head_first(monkeypatch)
    run = Run(2, value=1, validate=False)
    world, binder = run.world, run.binder
    world.send(binder, run.plan)
    world.run(binder, Commit)
    world.crash(binder)
    world.late.clear()
    world.lead_coordinator()
    assert any(violation.startswith("I7") for violation in check_all(world, world.start_binder()))


def test_ablation_without_the_minimum_a_successor_binds_a_part_of_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_minimum(monkeypatch)
    run = Run(2, value=512, validate=False)
    world, binder = run.world, run.binder
    world.send(binder, run.plan)
    world.run(binder, Commit)
    world.crash(binder)
    world.late.clear()
    world.kube.remove_node("n0")
    run.binder = world.start_binder()
    assert check_i5(world)[0].startswith("I5: 1 of")


def late_head() -> list[str]:
    """A head gets no answer and is put again, the gang is refused and cleared, a pod is planned alone; it comes."""
    run = Run(2, value=512)
    world, binder = run.world, run.binder
    world.send(binder, run.plan)
    world.kube.refuse_with["bind"] = 403
    world.run(binder, Commit, fault="late")
    world.settle(binder)
    world.kube.refuse_with.clear()
    world.gangs.clear()  # what follows is no gang's any more
    world.send(binder, world.plan(("p0", "n1")))
    world.run(binder, Commit)
    world.carry_out(world.late.pop(0))
    return check_all(world)


def test_a_head_that_comes_late_commits_nothing() -> None:
    assert late_head() == []


def test_ablation_without_the_fence_a_late_head_names_a_pod_that_has_another_intent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_the_fence(monkeypatch)
    assert late_head()[0].startswith("I1: two live intents name")
