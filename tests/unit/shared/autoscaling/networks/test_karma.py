"""The shipped policy: its weights fit, it answers within bounds and roles, it is small and quick to ask, and better."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from lab.autoscaling.episode import Setup, play
from lab.worlds.services.scenarios import intensity_of
from lab.worlds.services.topology import default_topology, parse_topology
from shared.autoscaling.networks import karma
from shared.autoscaling.networks.features import FEATURES, STEPS
from shared.autoscaling.networks.karma import KarmaPolicy
from shared.autoscaling.registry import make_policy
from shared.autoscaling.safety.drift import Drift, after
from shared.errors import ConfigError
from shared.policy.weights import encode, shipped_beside


def test_the_shipped_weights_say_how_they_came_about():
    file = shipped_beside(karma.__file__, "karma")
    assert file.card.features == list(FEATURES)
    assert "train karma" in file.card.trained["command"]
    assert file.card.trained["seeds"]["validation"] == list(range(100, 110))
    assert min(file.card.trained["seeds"]["training"]) >= 1000
    assert len(encode(file)) < 100_000


def test_every_step_is_one_of_those_there_are_and_within_the_bounds():
    policy = make_policy("karma")
    world = Setup(default_topology(), "mixed", 1.0, seconds=300).world(7)
    policy.reset(7)
    while not world.over:
        seen = world.observe()
        for name, wanted in policy.decide(seen).items():
            one = seen.services[name]
            assert wanted - one.replicas in STEPS
            assert one.bounds.clamp(wanted) == wanted
        world.run(10)


def test_it_takes_nothing_away_while_metrics_are_gone():
    policy = make_policy("karma")
    world = Setup(default_topology(), "calm", seconds=200).world(7)
    policy.reset(7)
    world.sensors.blind = True
    while not world.over:
        seen = world.observe()
        assert all(wanted >= seen.services[name].replicas for name, wanted in policy.decide(seen).items())
        world.run(10)


def test_the_same_weights_scale_a_graph_of_another_size():
    services = "\n".join(
        f"  s{at}: {{throughput: 50, replicas: {{minimum: 1, maximum: 8, start: 2}}, requests: {{cpu: 250m}},"
        f" calls: {{{f's{at + 1}: 1' if at < 6 else ''}}}}}"
        for at in range(7)
    )
    graph = parse_topology(f"nodes: [{{name: n, cpu: 16, memory: 64Gi}}]\nentries: {{s0: 1}}\nservices:\n{services}")
    found = play(Setup(graph, "calm", seconds=600), make_policy("karma"), 100).figures
    assert found["success"] > 80


def test_it_answers_more_than_hpa_where_replicas_fail():
    setup = Setup(default_topology(), "mixed", intensity_of("mixed"), seconds=900)
    own, other = (
        np.mean([play(setup, make_policy(name), seed).figures["success"] for seed in (100, 101)])
        for name in ("karma", "hpa")
    )
    assert own > other + 10


def test_a_binding_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="binding"):
        make_policy("karma", {"binding": "loose"})
    assert isinstance(make_policy("karma", {"binding": "soft"}), KarmaPolicy)


def test_the_shipped_weights_know_what_they_were_trained_on_and_what_they_see_is_told_by_name():
    assert set(make_policy("karma-single").envelope) == set(FEATURES)
    policy = KarmaPolicy()
    assert set(policy.envelope) == set(FEATURES)
    policy.reset(7)
    assert policy.inputs == {}
    world = Setup(default_topology(), "calm", seconds=200).world(7)
    policy.decide(world.observe())
    assert set(policy.inputs) == set(default_topology().order)
    assert set(policy.inputs["a"]) == set(FEATURES)
    assert policy.inputs["a"]["cores"] == pytest.approx(policy.eyes.inputs[0, FEATURES.index("cores")])


@pytest.mark.parametrize("times", [10.0, 1000.0])
def test_a_cpu_in_another_unit_is_drift_within_five_decisions(times):
    """The guard on the shipped weights: what a wrong unit does to one input of one service."""
    policy, world = KarmaPolicy(), Setup(default_topology(), "mixed", intensity_of("mixed"), seconds=600).world(42)
    policy.reset(42)
    drift, since = Drift(), None
    while not world.over and not drift.drifting:
        seen = world.observe()
        front = seen.services["a"]
        wrong = replace(front, usage={**front.usage, "cpu": (front.usage["cpu"] or 0.0) * times})
        if seen.now >= 100:
            since = since or seen.now
            seen = replace(seen, services={**seen.services, "a": wrong})
        world.apply(policy.decide(seen))
        drift = after(drift, policy.inputs, policy.envelope)
        world.run(10)
    assert drift.drifting
    assert seen.now - since <= 50
    assert "a utilisation" in drift.why
