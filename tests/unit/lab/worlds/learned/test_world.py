"""A learned twin as a world: bounds and budget hold, traffic is given, outcomes follow from what was seen."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lab.autoscaling.episode import Setup, play
from lab.autoscaling.policies import make
from lab.worlds.learned.world import LearnedWorld
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.topology import default_topology
from shared.errors import ConfigError
from tests.learned_twins import lesson, twin_that_says

TOPOLOGY = default_topology()
BEST, WORST = 23, 0


@pytest.fixture(scope="module")
def found():
    return lesson()


def world(found, *, well: int = BEST, change: int = 6, seconds: int = 300, events=(), topology=TOPOLOGY):
    """All replicas get ready at once; ``well``: the level of the share that every service answers well."""
    twin = twin_that_says(found, change=change, levels=(BEST, BEST, well, WORST, WORST, 12))
    return LearnedWorld(twin, topology, np.full(seconds, 60.0), events, scenario="calm", seed=3)


def test_bounds_and_the_budget_hold(found):
    one = world(found)
    one.apply({"a": 99, "b": 0})
    assert (one.asked["a"], one.asked["b"]) == (5, 1)
    small = msgspec.structs.replace(TOPOLOGY, replica_budget=10)
    tight = world(found, topology=small)
    tight.apply({"a": 5, "d": 6})
    assert sum(tight.asked.values()) <= 10
    with pytest.raises(ConfigError, match="no such service"):
        one.apply({"nobody": 1})


def test_an_episode_has_a_value_for_each_second_and_ends_at_its_length(found):
    one = world(found, seconds=305)
    while not one.over:
        one.run(10)
    assert one.now_s == 300
    assert {len(series) for series in vars_of(one.seconds)} == {300}
    assert len(one.spreads) == 30


def vars_of(seconds):
    return [getattr(seconds, name) for name in seconds.__dataclass_fields__]


def test_success_is_the_product_of_what_each_service_answers_well_along_the_calls(found):
    bad, good = world(found, well=WORST), world(found)
    for one in (bad, good):
        one.run(20)
    assert sum(bad.seconds.answered[-10:]) < sum(good.seconds.answered[-10:])
    assert sum(good.seconds.answered[-10:]) <= sum(good.seconds.offered[-10:])


def test_an_entry_without_a_ready_replica_answers_nobody(found):
    one = world(found, change=-6)
    one.run(20)
    assert one.seconds.answered[-1] == 0.0
    assert one.seconds.entries_up[-1] == 0.0


def test_a_surge_comes_to_its_entry_and_is_nobodys_loss(found):
    calm = world(found)
    stormy = world(found, events=(Disturbance(DisturbanceKind.SURGE, 0.0, 20.0, 3.0, "a"),))
    for one in (calm, stormy):
        one.run(20)
    assert stormy.observe().services["a"].arrivals == pytest.approx(4 * calm.observe().services["a"].arrivals)
    assert stormy.seconds.offered == calm.seconds.offered


def test_steps_of_another_length_another_graph_and_an_attacker_are_refused(found):
    one = world(found)
    with pytest.raises(ConfigError, match="7 s is no multiple of the twin's steps; decide every 10 s"):
        one.run(7)
    other = msgspec.structs.replace(TOPOLOGY, services={**TOPOLOGY.services, "z": TOPOLOGY.services["d"]})
    with pytest.raises(ConfigError, match="it was learned of chained"):
        world(found, topology=other)
    with pytest.raises(ConfigError, match="no series of 'attacker' were recorded"):
        play(Setup(TOPOLOGY, "attacker", twin=one.twin, seconds=60), make("demand"), 3)


def test_the_same_seed_gives_the_same_episode(found):
    setup = Setup(TOPOLOGY, "mixed", 0.5, seconds=120, twin=world(found).twin)
    one, two = (play(setup, make("demand"), 42).figures for _ in range(2))
    assert one["reward"] == two["reward"]
    assert 0.0 < one["reward"] <= 100.0
