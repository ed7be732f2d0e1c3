"""The random walk with operators who pause, resume, drain and change settings while everything else goes wrong.

The coordinator hears late of what they say, and a new one is elected in the midst of it. What it has heard it obeys: no
offer while paused, no plan for a drained node; and when all is taken back, every pod that fits is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from services.coordinator.core.operator_control import OperatorControl
from tests.sim.test_mesh_random_walk import Violation, Walk
from tests.unit.services.binder.binder_checks import check_all


class ControlledWalk(Walk):
    """One seed's walk with operators."""

    paused = drained = heard_paused = 0

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        return [
            *super().actions(),
            (0.3, self.pause),
            (0.5, self.resume),
            (0.5, self.drain_nodes),
            (2, self.hear),
            (0.3, self.tune),
        ]

    def pause(self) -> None:
        self.paused += 1
        self.world.say(paused=True)

    def resume(self) -> None:
        self.world.say(paused=False)

    def drain_nodes(self) -> None:
        self.drained += 1
        self.world.say(drained={node for node in self.world.kube.nodes if self.rng.random() < 0.4})

    def tune(self) -> None:
        settings = replace(
            self.world.coordinator.core.state.settings,
            batch_units=self.rng.choice([1, 4, 64]),
            plans_in_flight=self.rng.choice([1, 3]),
        )
        self.world.control = structs.replace(self.world.control, settings=settings)

    def hear(self) -> None:
        self.world.inform(self.world.coordinator, self.world.control)
        self.heard_paused += self.world.coordinator.core.state.paused is not None

    def rest(self) -> None:
        self.world.say(paused=False, drained=set())
        self.hear()
        super().rest()


def walk(seed: int, steps: int = 400) -> ControlledWalk:
    """A whole walk and its rest. Raises ``Violation``."""
    walked = ControlledWalk(seed)
    for _ in range(steps):
        walked.step()
        violations = check_all(walked.world) + walked.world.disobeyed
        if violations:
            raise Violation("; ".join(violations))
    walked.rest()
    assert not walked.world.disobeyed
    return walked


@pytest.mark.parametrize("seed", range(12))
def test_what_operators_say_is_obeyed_under_random_faults(
    seed: int, walk_once: Callable[[int], ControlledWalk]
) -> None:
    world = walk_once(seed).world
    shown = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in world.kube.pods.values() if p["spec"].get("nodeName")}
    counted = {uid: a.node_name for uid, a in world.coordinator.core.state.cache.accounts.items()}
    assert counted == shown


def test_the_walk_pauses_drains_and_is_heard(walk_once: Callable[[int], ControlledWalk]) -> None:
    """Operators who say nothing prove nothing."""
    walks = [walk_once(seed) for seed in range(3)]
    assert all(sum(getattr(walked, name) for walked in walks) for name in ("paused", "drained", "heard_paused"))


def test_ablation_a_coordinator_that_does_not_heed_drained_nodes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_noted(self: OperatorControl, event: object) -> None:
        self._state.drained = {record.node: record for record in event.drained}  # type: ignore[attr-defined]

    monkeypatch.setattr(OperatorControl, "_drain", only_noted)
    with pytest.raises(Violation, match="a plan for drained"):
        [walk(seed) for seed in range(20)]
