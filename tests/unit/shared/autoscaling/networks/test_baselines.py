"""The learned baselines: plain readings, one step at a time or an embedding of the past; weights that do not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.autoscaling.episode import Setup
from lab.autoscaling.policies import LEARNED, make
from lab.worlds.services.topology import default_topology
from shared.autoscaling.networks.agents import KarmaAgents
from shared.autoscaling.networks.aware import MEMORY, TOLD, AwarePolicy, gru, shapes
from shared.autoscaling.networks.dqn import DqnPolicy
from shared.autoscaling.networks.features import STEPS
from shared.autoscaling.networks.raw import READINGS, RawEyes
from shared.autoscaling.observation import Bounds, ScalingObservation, ServiceObservation
from shared.errors import ConfigError
from shared.policy.weights import Card, WeightsFile, encode

SHORT = Setup(default_topology(), "mixed", 1.0, seconds=200)


def drawn(policy, wanted):
    rng = np.random.default_rng(7)
    arrays = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in wanted.items()}
    return WeightsFile(arrays, Card(policy=policy, version=1))


def dqn(services=4):
    wanted = {"l0.w": (services * len(READINGS), services * len(STEPS)), "l0.b": (services * len(STEPS),)}
    return DqnPolicy(weights=drawn("dqn", wanted))


def aware():
    return AwarePolicy(weights=drawn("aware", shapes(8)))


def one(**more):
    parts = {
        "replicas": 2, "ready": 2, "bounds": Bounds(1, 4), "requests": {"cpu": 0.5}, "usage": {"cpu": 0.25},
        "arrivals": 100.0, "served": 80.0, "latency_s": 0.25,
    }  # fmt: skip
    return ServiceObservation(**{**parts, **more})


def seen(now=0.0, **services):
    return ScalingObservation(now=now, services=services, latency_objective_s=0.5)


def test_a_row_has_the_readings_as_shares_ratios_and_logarithms():
    eyes = RawEyes()
    eyes.look(seen(a=one(arrivals=50.0)))
    rows, masks = eyes.look(seen(a=one()))
    row = dict(zip(READINGS, rows[0].tolist(), strict=True))
    assert row["replicas"] == row["ready"] == row["cpu"] == row["latency"] == 0.5
    assert row["served"] == pytest.approx(0.8)
    assert row["change"] == pytest.approx(math.log(101 / 51))
    assert row["missing"] == 0
    assert masks[0].tolist() == [False, True, True, True, True]  # 2 less would be none, 4 are the most


@pytest.mark.parametrize("reading", [None, float("nan"), -1.0, float("inf")])
def test_what_is_missing_or_nonsense_is_no_large_number(reading):
    rows, _ = RawEyes().look(seen(a=one(arrivals=reading, usage={"cpu": reading}, latency_s=reading)))
    assert np.isfinite(rows).all()
    assert (np.abs(rows) <= 3).all()


@pytest.mark.parametrize("policy", [dqn, aware])
def test_every_answer_is_within_the_bounds_and_of_steps_that_there_are(policy):
    decider, world = policy(), SHORT.world(7)
    decider.reset(7)
    while not world.over:
        now = world.observe()
        wanted = decider.decide(now)
        changed = {name: count - now.services[name].replicas for name, count in wanted.items()}
        assert all(step in STEPS for step in changed.values())
        assert all(now.services[name].bounds.clamp(count) == count for name, count in wanted.items())
        assert policy is aware or sum(step != 0 for step in changed.values()) <= 1
        world.apply(wanted)
        world.run(10)


@pytest.mark.parametrize("policy", [dqn, aware])
def test_nothing_is_taken_away_from_a_service_without_readings(policy):
    decider = policy()
    for now in range(12):
        blind = {name: one(replicas=3, arrivals=None, served=None) for name in "abcd"}
        assert all(count >= 3 for count in decider.decide(seen(10.0 * now, **blind)).values())


def test_the_embedding_remembers_the_episode_and_is_forgotten_with_it():
    decider = aware()
    graph = {"a": one(), "b": one()}
    decider.decide(seen(0.0, **graph))
    first = decider._memory.copy()
    decider.decide(seen(10.0, **graph))
    assert (decider._memory != first).any()
    decider.reset(7)
    decider.decide(seen(0.0, **graph))
    assert (decider._memory == first).all()


def test_an_embedding_is_bounded_whatever_it_reads():
    params = drawn("aware", shapes(8)).arrays
    memory = np.zeros((2, MEMORY), np.float32)
    for _ in range(50):
        memory = gru(params, np.full((2, len(TOLD)), 3.0, np.float32), memory)
    assert (np.abs(memory) <= 1).all()


def test_weights_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ConfigError, match="weights of dqn: 7 inputs and 5 actions are not 11 and 5 a service"):
        DqnPolicy(weights=drawn("dqn", {"l0.w": (7, 5), "l0.b": (5,)}))
    with pytest.raises(ConfigError, match=r"weights of aware: array 'gru.wh' is missing"):
        AwarePolicy(weights=drawn("aware", {name: shape for name, shape in shapes(8).items() if name != "gru.wh"}))
    with pytest.raises(ConfigError, match="policy dqn: its weights are for 4 services, the graph has 1"):
        dqn().decide(seen(a=one()))


@pytest.mark.parametrize("name", sorted(LEARNED))
def test_shipped_weights_say_how_they_came_about_and_are_small(name):
    file = make(name).weights
    assert "train" in file.card.trained["command"]
    assert file.card.trained["seeds"]["validation"] == list(range(100, 110))
    assert min(file.card.trained["seeds"]["training"]) >= 1000
    assert len(encode(file)) < 100_000
    assert make(name).name == name == file.card.policy


def test_one_agent_serves_a_graph_of_the_size_it_was_trained_on():
    assert make("karma").services == 0
    assert make("karma-single").services == make("dqn").services == 4
    assert make("karma-single").agents is KarmaAgents.SINGLE
