"""Training while running: from weights to better weights, equal in numpy and torch; and the gate on the twin."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from lab.serve import gate
from lab.serve.gate import balance_gate, gate_of
from lab.serve.online import OnlineTrainer
from shared.errors import ConfigError
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import MarlDqn
from shared.policy.weights import decode, encode
from shared.wire.messages import Transition
from tests.marl_weights import weights


def trainer(**changes) -> OnlineTrainer:
    settings = {"features": len(FEATURES), "capacity": 1000, "learning_rate": 0.01, "discount": 0.0, "seed": 1000}
    return OnlineTrainer(**(settings | changes))


def lived(count: int, seed: int = 1) -> list[Transition]:
    """Accepting pays on nodes below the mean and costs above it."""
    rng = np.random.default_rng(seed)
    place = FEATURES.index("requested_above_mean")
    found = []
    for _ in range(count):
        state = np.zeros(len(FEATURES))
        state[place] = rng.uniform(-2, 2)
        action = int(rng.integers(2))
        found.append(Transition(state.tolist(), action, -state[place] * action, state.tolist()))
    return found


def test_from_weights_that_prefer_the_fullest_node_it_learns_to_prefer_the_emptiest():
    online = trainer()
    assert online.add(lived(500)) == 500
    base = weights("terrible", version=6)
    file, losses = online.train(base, updates=400, version=7, data="test")
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:20])
    policy = MarlDqn(decode(encode(file), policy="marl-dqn"))
    rows = np.zeros((2, len(FEATURES)), np.float32)
    rows[:, FEATURES.index("requested_above_mean")] = (-1, 1)
    q = policy.q_values(rows)
    assert q[0, 1] - q[0, 0] > q[1, 1] - q[1, 0]
    assert file.card.version == 7
    assert file.card.trained["online"]["from"] == base.sha256


def test_the_same_seed_and_transitions_give_the_same_weights():
    files = []
    for _ in range(2):
        online = trainer()
        online.add(lived(200))
        files.append(encode(online.train(weights(), updates=20, version=2, data="test")[0]))
    assert files[0] == files[1]


def test_transitions_that_come_while_it_samples_wait_for_the_sample(monkeypatch):
    online = trainer()
    online.add(lived(64))
    entered, seen = threading.Event(), []
    sample, add_many = online.replay.sample, online.replay.add_many

    def slow_sample(size):
        coming = threading.Thread(target=online.add, args=(lived(8, seed=2),))
        coming.start()
        seen.append(entered.wait(0.2))  # without the lock the other thread is in at once
        threads.append(coming)
        return sample(size)

    def noted_add(batch):
        entered.set()
        add_many(batch)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(online.replay, "sample", slow_sample)
    monkeypatch.setattr(online.replay, "add_many", noted_add)
    online.train(weights(), updates=0, version=2, data="test")
    for thread in threads:
        thread.join()
    assert seen == [False]
    assert online.replay.size == 72


def test_transitions_of_another_network_are_left_out():
    online = trainer()
    assert online.add([Transition([0.0] * 3, 1, 0.0, [0.0] * 3), *lived(2)]) == 2
    assert online.replay.size == 2


def test_weights_of_another_size_are_refused():
    online = trainer(features=7)
    with pytest.raises(ConfigError, match="no network of 7 features"):
        online.train(weights(), updates=1, version=2, data="test")


def test_the_gate_tells_a_terrible_candidate_from_a_good_one():
    assert balance_gate(weights("terrible", version=2), weights("good"), [500]) < -0.5
    assert balance_gate(weights("good", version=2), weights("good"), [500]) == 0.0


@pytest.mark.parametrize(
    ("active", "candidate", "gain"), [(0.0, 0.1, -np.inf), (0.0, 0.0, 0.0), (np.nan, 0.1, -np.inf), (0.2, 0.1, 0.5)]
)
def test_a_candidate_worse_than_perfect_is_no_draw(monkeypatch, active, candidate, gain):
    monkeypatch.setattr(gate, "imbalance", lambda file, *_: active if file.card.version == 1 else candidate)
    assert balance_gate(weights(version=2), weights(version=1), [500]) == gain


def test_the_gate_refuses_weights_that_give_nan():
    with pytest.raises(ConfigError, match="unusable verdicts"), np.errstate(all="ignore"):
        balance_gate(weights("broken", version=2), weights("good"), [500])


def test_a_policy_without_a_gate_is_refused_by_name():
    with pytest.raises(ConfigError, match="kube-default has no gate"):
        gate_of("kube-default")
