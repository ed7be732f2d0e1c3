"""A policy that sees what it was not trained on has no say, and its object says that its design is to be run again."""

from __future__ import annotations

import pytest

from shared.autoscaling.observation import Decision, ScalingObservation
from tests.unit.services.autoscaler.scaler_world import Wants, World, spec_of


class Trained(Wants):
    """A policy with an envelope. ``latency``: what it sees; ``envelope`` None: it does not know its training."""

    def __init__(self) -> None:
        super().__init__()
        self.latency = 1.0
        self.inputs: dict[str, dict[str, float]] = {}
        self.envelope: dict[str, tuple[float, float]] | None = {"latency": (0.0, 2.0)}

    def decide(self, seen: ScalingObservation) -> Decision:
        self.inputs = {"front": {"latency": self.latency}}
        return super().decide(seen)


class Scene(World):
    """One service at 4 replicas with a go; HPA's rule wants what there is."""

    trained: Trained

    def drift(self) -> None:
        """Far from its training, for long enough."""
        self.trained.latency = 50.0
        self.run(4)


@pytest.fixture
def world() -> Scene:
    made = Scene(spec=spec_of("front", policy={"name": "test"}))
    made.policy = made.trained = Trained()
    made.serve("front", 4)
    made.trained.wanted, made.rule.wanted = {"front": 4}, {"front": 4}
    made.elect()
    made.run()
    made.approve()
    made.run()
    return made


def test_while_it_sees_what_it_was_trained_on_it_decides(world: Scene):
    world.run(10)
    world.trained.wanted = {"front": 9}
    world.run()
    assert world.deployments["front"].replicas == 9
    assert world.condition("DesignDue")[:2] == ("False", "None")


def test_drift_gives_the_decision_to_hpas_rule_and_says_that_the_design_is_due(world: Scene):
    world.drift()
    world.trained.wanted = {"front": 9}
    world.run(3)
    assert world.accepted == []
    assert world.status["decidedBy"] == "hpa"
    assert world.condition("PolicySound")[:2] == ("False", "Drift")
    status, reason, message = world.condition("DesignDue")
    assert (status, reason) == ("True", "Drift")
    assert "front latency 50, trained on 0 to 2" in message
    assert "conclave autoscale design shop/graph" in message


def test_without_its_envelope_a_policy_acts_on_what_it_never_saw(world: Scene):
    """The guard switched off: what the test above forbids happens."""
    world.trained.envelope = None
    world.drift()
    world.trained.wanted = {"front": 9}
    world.run(3)
    assert world.deployments["front"].replicas == 9
    assert world.condition("DesignDue")[0] == "False"


def test_the_design_stays_due_after_the_drift_until_a_new_go(world: Scene):
    world.drift()
    world.trained.latency = 1.0
    world.run(10)
    assert world.condition("PolicySound")[0] == "True"
    assert world.condition("DesignDue")[0] == "True"
    world.approve("tuesday")
    world.run(2)
    assert world.condition("DesignDue")[0] == "False"


def test_a_new_go_amid_the_drift_ends_nothing(world: Scene):
    world.drift()
    world.approve("tuesday")
    world.run(2)
    assert world.condition("DesignDue")[0] == "True"
    assert world.status["decidedBy"] == "hpa"


def test_the_next_leader_knows_that_the_design_is_due(world: Scene):
    world.drift()
    world.trained.latency = 1.0
    told = world.condition("DesignDue")
    world.elect()
    world.run(3)
    assert world.condition("DesignDue") == told


def test_other_settings_of_the_policy_begin_without_drift(world: Scene):
    world.drift()
    world.trained.latency = 1.0
    world.apply({**world.spec, "policy": {"name": "test", "settings": {"b": 1}}})
    world.run()
    assert world.condition("PolicySound")[0] == "True"
    assert world.condition("DesignDue")[0] == "False"


def test_a_policy_that_fails_adds_nothing_to_the_drift(world: Scene):
    world.trained.raises = True
    world.drift()
    assert world.condition("PolicySound")[:2] == ("False", "PolicyFailed")
    assert world.condition("DesignDue")[0] == "False"
