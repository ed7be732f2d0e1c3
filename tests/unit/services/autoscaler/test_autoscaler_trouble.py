"""What one object, one hiccup or one operator's step may do to the decisions: nothing beyond its own object."""

from __future__ import annotations

from collections.abc import Mapping

from shared.autoscaling.observation import Policy
from tests.unit.services.autoscaler.scaler_world import World, spec_of


class Unmakeable(World):
    """A world whose policies cannot be made of these settings, by a bug."""

    def policies(self, name: str, settings: Mapping[str, object]) -> Policy:
        if settings:
            raise ZeroDivisionError("a bug")
        return super().policies(name, settings)


def test_a_policy_that_cannot_be_made_is_told_on_its_object_and_ends_no_term():
    world = Unmakeable(spec=spec_of("front", policy={"name": "test", "settings": {"a": 0}}))
    world.serve("front", 4)
    process = world.elect()
    world.run()
    assert not process.stopped
    assert world.condition("Ready")[:2] == ("False", "PolicyUnusable")
    assert "ZeroDivisionError" in world.condition("Ready")[2]
