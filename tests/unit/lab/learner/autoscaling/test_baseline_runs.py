"""Training dqn and aware: the same for a seed, resumed exactly; what torch learned numpy plays; graphs that differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.autoscaling.episode import Setup
from lab.learner.autoscaling import episodes
from lab.learner.autoscaling.aware_run import AwareRun, AwareRunSettings, Recurrent, play_told
from lab.learner.autoscaling.dqn_run import ScalerDqnRun, ScalerDqnSettings, explore
from lab.learner.autoscaling.episodes import Best, Prices, default_world, validation_setup
from lab.learner.autoscaling.graphs import drawn_graph
from lab.workers import Workers
from lab.worlds.services.topology import default_topology
from shared.autoscaling.networks.aware import MEMORY, TOLD, AwarePolicy, gru
from shared.autoscaling.networks.features import STEPS
from shared.errors import ConfigError
from shared.policy.networks import mlp
from shared.policy.weights import Card, WeightsFile, decode, encode

SHORT = Setup(default_topology(), "mixed", 1.0, seconds=200)
DQN = ScalerDqnSettings(
    "dqn", 1000, rounds=2, episodes_per_round=2, hidden=(8,), validate_every=1, capacity=500, seconds=200
)
AWARE = AwareRunSettings(
    1000, rounds=2, episodes_per_round=2, taught_episodes=2, taught_epochs=1, epochs=1, batch_episodes=2, hidden=8,
    validate_every=1, seconds=200,
)  # fmt: skip
STARTS = [lambda: ScalerDqnRun(DQN), lambda: AwareRun(AWARE)]


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch):
    torch.set_num_threads(1)  # as the trainer's process does
    monkeypatch.setattr(episodes, "VALIDATION_SEEDS", (100,))
    monkeypatch.setattr(episodes, "Setup", lambda *given, **more: Setup(*given, seconds=200))


def arrays_of(run):
    return run.network.arrays() if isinstance(run, AwareRun) else run._network.stack.arrays()


@pytest.mark.parametrize("start", STARTS, ids=["dqn", "aware"])
def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped(start):
    whole = start()
    reports = list(whole.run())
    assert len(reports) == 2
    assert all(np.isfinite(list(report.scalars.values())).all() for report in reports)
    half = start()
    next(half.run())
    rest = start()
    rest.set_state(half.get_state())
    list(rest.run())
    for name, array in arrays_of(whole).items():
        assert (array == arrays_of(rest)[name]).all()
    assert rest.best.score == whole.best.score


@pytest.mark.parametrize("start", STARTS, ids=["dqn", "aware"])
def test_what_was_learned_is_written_read_and_judged_alike(start):
    run = start()
    list(run.run())
    file = decode(encode(run.weights(version=1)), policy=run.weights(version=1).card.policy)
    again = Best()
    again.judge(file, validation_setup(run.settings.strength, default_world()), Workers())
    assert again.score == run.best.score


def test_torch_and_numpy_give_the_same_logits_over_an_episode():
    network = Recurrent(8, seed=3)
    arrays = network.arrays()
    AwarePolicy(weights=WeightsFile(arrays, Card(policy="aware", version=1)))
    rows = np.random.default_rng(1).normal(size=(6, 1, 4, len(TOLD))).astype(np.float32)
    with torch.no_grad():
        told = network(torch.from_numpy(rows))[0].numpy()[:, 0]
    memory = np.zeros((4, MEMORY), np.float32)
    for step in range(6):
        memory = gru(arrays, rows[step, 0], memory)
        logits = mlp(arrays, np.concatenate((rows[step, 0], memory), axis=1), 2)
        assert logits == pytest.approx(told[step], abs=1e-5)


def test_who_explores_takes_allowed_actions_alone():
    run = ScalerDqnRun(DQN)
    played = explore(SHORT, 4242, run._network.stack.arrays(), 1.0, Prices())
    assert played.masks[np.arange(len(played.taken)), played.taken].all()
    assert len(played.rows) == len(played.taken) + 1
    run._keep(played)
    assert run.replay.check_valid() == (True, "")


def test_bootstrapping_follows_hpa_as_far_as_steps_and_bounds_let_it():
    played = play_told(SHORT, 4242, None, Prices())
    assert np.take_along_axis(played.masks, played.taken[..., None], axis=2).all()
    assert set(np.unique(played.taken)) <= set(range(len(STEPS)))
    assert played.rows.shape[1:] == (4, len(TOLD))


def test_graphs_to_learn_from_differ_and_follow_their_seed():
    first, again, other = drawn_graph(1000, 0), drawn_graph(1000, 0), drawn_graph(1000, 1)
    assert first == again != other
    default = default_topology()
    assert first.calls == default.calls
    for name, one in first.services.items():
        assert 0.5 <= one.throughput / default.services[name].throughput <= 2


@pytest.mark.parametrize("settings", [lambda: replace(DQN, seed=42), lambda: replace(AWARE, seed=42)])
def test_seeds_that_are_reported_on_are_refused(settings):
    with pytest.raises(ConfigError, match="--seeds: 42 is kept"):
        settings()
