"""Training karma: a tiny run, the same for its seed, resumed exactly; what torch learned numpy plays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import services.learner.autoscaling.training as training
from services.learner.__main__ import BAD_INPUT, run
from services.learner.autoscaling.rollout import Prices, play
from services.learner.autoscaling.training import KarmaRun, KarmaSettings, _advantages
from shared.autoscaling.networks.features import FEATURES
from shared.autoscaling.networks.karma import NAME, KarmaPolicy
from shared.autoscaling.roles.organisation import karma_roles
from shared.errors import ConfigError
from shared.experiments.autoscaling.analysis.analysis import alarms
from shared.experiments.autoscaling.analysis.trajectories import trajectory
from shared.experiments.autoscaling.episode import Setup
from shared.policy.weights import Card, WeightsFile, decode, encode
from shared.twin.services.topology import default_topology

TINY = KarmaSettings(
    seed=1000, rounds=2, episodes_per_round=2, taught_episodes=2, taught_epochs=3, epochs=2, batch_size=256,
    hidden=(16,), validate_every=1,
)  # fmt: skip
SHORT = Setup(default_topology(), "mixed", 1.0, seconds=200)


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch):
    torch.set_num_threads(1)  # as the trainer's process does
    monkeypatch.setattr(training, "VALIDATION_SEEDS", (100,))
    monkeypatch.setattr(training, "Setup", lambda *given: replace(Setup(*given), seconds=200))


def run_of(settings):
    one = KarmaRun(settings)
    reports = list(one.run())
    return one, reports


def test_a_run_is_a_function_of_its_settings():
    first, reports = run_of(TINY)
    second, _ = run_of(TINY)
    assert len(reports) == 2
    assert all(np.isfinite(list(report.scalars.values())).all() for report in reports)
    for name, array in first.actor.arrays().items():
        assert (array == second.actor.arrays()[name]).all()


def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped():
    whole, _ = run_of(TINY)
    half = KarmaRun(TINY)
    next(half.run())
    rest = KarmaRun(TINY)
    rest.set_state(half.get_state())
    list(rest.run())
    for name, array in whole.actor.arrays().items():
        assert (array == rest.actor.arrays()[name]).all()


def test_imitation_alone_already_follows_the_rule_mostly():
    one = KarmaRun(replace(TINY, taught_episodes=6, taught_epochs=40, learning_rate=3e-3))
    one._imitate()
    played = play(SHORT, 4242, one.actor.arrays(), karma_roles(), Prices())
    assert (played.taken == played.taught).mean() > 0.6


def test_weights_are_written_read_and_played_by_numpy():
    one, _ = run_of(TINY)
    file = decode(encode(one.weights(version=1)), policy=NAME)
    policy = KarmaPolicy(weights=file)
    policy.reset(1)
    world = SHORT.world(5)
    while not world.over:
        world.apply(policy.decide(world.observe()))
        world.run(10)
    assert set(policy.roles) == set(default_topology().order)


def test_every_step_taken_in_training_is_one_that_roles_and_bounds_allow():
    one = KarmaRun(TINY)
    played = play(SHORT, 4242, one.actor.arrays(), karma_roles(), Prices())
    assert np.take_along_axis(played.masks, played.taken[..., None], axis=2).all()
    assert (played.log_p <= 0).all()


def test_advantages_are_those_of_the_definition():
    rewards, values = np.array([[1.0], [2.0]]), np.array([[0.5], [1.0]])
    found, _ = _advantages(rewards, values, 0.9, 0.8)
    last = 2.0 + 0.9 * 1.0 - 1.0  # cut, not over: the last state stands for what follows
    assert found[:, 0] == pytest.approx([1.0 + 0.9 * 1.0 - 0.5 + 0.9 * 0.8 * last, last])


def test_seeds_that_are_reported_on_are_refused():
    with pytest.raises(ConfigError, match="--seeds: 42 is kept"):
        KarmaSettings(seed=42)


def test_weights_of_another_shape_are_refused_by_name():
    arrays = {"l0.w": np.zeros((3, 5), np.float32), "l0.b": np.zeros(5, np.float32)}
    with pytest.raises(ConfigError, match="3 inputs and 5 steps are not"):
        KarmaPolicy(weights=WeightsFile(arrays, Card(policy=NAME, version=1)))


GRAPH = """
nodes: [{name: n, cpu: 8, memory: 32Gi}]
entries: {front: 1}
services:
  front: {throughput: 90, replicas: {minimum: 1, maximum: 9}, requests: {cpu: 500m}, calls: {cart: 2}}
  cart: {throughput: 120, replicas: {minimum: 1, maximum: 9}, requests: {cpu: 500m}}
"""


def test_a_run_trains_on_the_graph_and_the_load_that_it_is_given():
    load = "\n".join(str(50 + at % 40) for at in range(300))
    one = KarmaRun(replace(TINY, topology=GRAPH, load=load))
    assert one.setup(0).topology.order == ("front", "cart")
    assert one.setup(0).trace is not None
    told = one.settings.as_json()
    assert told["topology"].startswith("sha256:")
    assert told["topology"] != told["load"]
    assert "topology" not in TINY.as_json()  # an older checkpoint's digest is as it was
    next(one.run())
    assert one.best_score > float("-inf")


def test_the_envelope_holds_all_that_the_policy_sees_on_the_episodes_of_its_training(monkeypatch):
    monkeypatch.setattr(training, "ENVELOPE_EPISODES", 3)
    one = KarmaRun(TINY)
    policy = KarmaPolicy()
    found = training.with_envelope(one, policy.weights)
    assert found == training.with_envelope(one, policy.weights)
    seen = [trajectory(one.setup(at), policy, TINY.seed * training.EPISODES_OF_A_SEED + at) for at in range(3)]
    assert alarms(seen, found) == 0.0
    assert all(low <= high for low, high in found.values())
    assert set(found) == set(FEATURES)


def test_a_policy_that_scales_no_services_takes_no_graph(tmp_path, capsys):
    graph = tmp_path / "graph.yaml"
    graph.write_text(GRAPH)
    with pytest.raises(SystemExit) as ended:
        run(["train", "lb", "--out", str(tmp_path / "out"), "--topology", str(graph)])
    assert ended.value.code == BAD_INPUT
    assert "lb scales no services" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
