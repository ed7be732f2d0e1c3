"""A pod that asks for more than its lender has checked is not bound on the loan, whenever it grew.

On the lender's node a pod is committed, and its Binding under way: only the lender knows of it. So the home cannot
judge there whether a grown pod still fits; it gives the pod up.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.binder.core.in_flight import InFlightBinding
from services.binder.core.instructions import Commit
from services.binder.core.loans import Loans
from services.binder.core.state import BinderState
from services.binder.cycle import binding_cycle
from services.binder.cycle.check import CheckVerdict, hold
from shared.model.pod import Pod
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import Binder, World, make_world
from tests.unit.services.binder.test_binder_lending import LENT_NODE, lend, on_loan

HOME_NODE = "n2"


class Crowded:
    """The lender's node has two cores: one for p2, which is on its way there, and one that is lent for p1."""

    def __init__(self) -> None:
        self.world: World = make_world(nodes=7, pods=3, node_cpu="2")
        self.world.divide("0", "1")
        self.home, self.lender = self.world.start_binder("0"), self.world.start_binder("1")
        self.world.send(self.lender, self.world.plan(("p2", LENT_NODE)))
        self.world.run(self.lender, Commit)
        self.loan = lend(self.world, self.lender)

    def plan(self) -> None:
        """The home gets its plan."""
        self.world.send(self.home, on_loan(self.world, ("p0", HOME_NODE), ("p1", LENT_NODE), loans=[self.loan]))

    def grow(self) -> None:
        self.world.kube.pods["default/p1"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
        self.world.kube.touch_pod("p1")

    def rest(self, home: Binder) -> list[str]:
        """What is wrong when the home is done, and then the lender."""
        self.world.settle(home)
        self.world.settle(self.lender)
        return check_all(self.world, broken=True)


def grown_before_the_commit() -> list[str]:
    crowded = Crowded()
    crowded.grow()
    crowded.world.watch(crowded.home)
    crowded.plan()
    return crowded.rest(crowded.home)


def grown_after_the_commit() -> list[str]:
    crowded = Crowded()
    crowded.plan()
    crowded.world.run(crowded.home, Commit)
    crowded.grow()
    return crowded.rest(crowded.home)


def grown_when_the_home_was_dead() -> list[str]:
    crowded = Crowded()
    crowded.plan()
    crowded.world.run(crowded.home, Commit)
    crowded.world.crash(crowded.home)
    crowded.grow()
    return crowded.rest(crowded.world.start_binder("0"))


SCENES = (grown_before_the_commit, grown_after_the_commit, grown_when_the_home_was_dead)


@pytest.mark.parametrize("scene", SCENES)
def test_a_pod_that_grew_is_not_bound_on_a_loan(scene: Callable[[], list[str]]) -> None:
    assert scene() == []


@pytest.mark.parametrize("scene", SCENES)
def test_ablation_a_home_that_judges_others_nodes_overcommits_them(
    scene: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BinderState, "owns", lambda *_: True)
    monkeypatch.setattr(Loans, "count", lambda _: None)  # what is committed after a takeover began it does not show

    def borrow(state: BinderState, binding: InFlightBinding, pod: Pod) -> CheckVerdict | None:
        hold(state, binding, pod)
        binding.rv = pod.resource_version
        return None

    monkeypatch.setattr(binding_cycle, "borrow", borrow)
    assert any(found.startswith(f"I2: {LENT_NODE}") for found in scene())
