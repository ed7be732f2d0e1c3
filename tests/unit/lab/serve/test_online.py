"""Training while running: from weights to better weights, equal in numpy and torch; and the gate on the twin."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from msgspec.structs import replace

from lab.learner.marl.rollout import reward_of
from lab.serve import gate
from lab.serve.gate import balance_gate, gate_of
from lab.serve.online import OnlineTrainer
from shared.errors import ConfigError
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import MarlDqn
from shared.policy.marl.reward import band_now
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, node_view, sample_of, summary
from shared.policy.weights import WeightsFile, decode, encode
from shared.scheduling.state.node_table import NodeTable
from shared.wire.messages import Transition
from tests.builders import make_node
from tests.marl_weights import weights, with_networks


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


def test_from_weights_with_networks_of_classes_it_does_not_go_on_and_says_so():
    online = trainer()
    online.add(lived(200))
    base = with_networks(weights(), {"large": 1}, {1: weights()})
    with pytest.raises(ConfigError, match="nodes of each pool have a network of their own, which are learned by"):
        online.train(base, updates=1, version=7, data="test")


def test_from_weights_that_prefer_the_fullest_node_it_learns_to_prefer_the_emptiest():
    online = trainer()
    assert online.add(lived(500)) == 500
    base = weights("terrible", version=6)
    file, losses = online.train(base, updates=400, version=7, data="test")
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:20])
    policy = MarlDqn(decode(encode(file), policy="marl-dqn"))
    rows = np.zeros((2, len(policy.feature_names)), np.float32)
    rows[:, FEATURES.index("requested_above_mean")] = (-1, 1)
    q = policy.q_values(rows)
    assert q[0, 1] - q[0, 0] > q[1, 1] - q[1, 0]
    assert file.card.version == 7
    assert file.card.trained["online"]["from"] == base.sha256


def test_the_bands_pay_live_what_they_pay_on_the_twin():
    shares = np.array([[0.6, 0.85, 0.2, 0.9], [0.95, 0.5, 0.7, 0.1], [0.3, 0.6, 0.55, 0.0]])
    table, store = NodeTable(), UtilisationStore()
    for row, each in enumerate(shares.tolist()):
        table.upsert(make_node(f"n{row}").node())
        store.measure_some([sample for sample in [sample_of(table, row, each, 0.0)] if sample is not None])
    cluster = summary(node_view(table, table.live_rows(), np.arange(3), NO_POD, store))
    live = [band_now(table, row, store, cluster) for row in range(3)]
    assert live == pytest.approx(reward_of("band", shares, shares, 0.9).tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("told", "settings", "discount"),
    [
        (None, {"discount": 0.9}, 0.9),
        (0.5, {"discount": 0.9}, 0.5),
        (0.0, {"discount": 0.9}, 0.0),
        (None, {}, 0.97),
        (None, {"discount": 7}, 0.97),
        (None, {"discount": "x"}, 0.97),
        (None, "x", 0.97),
    ],
)
def test_the_next_state_is_worth_what_it_was_worth_to_the_weights_it_begins_with(told, settings, discount):
    made = weights()
    base = WeightsFile(made.arrays, replace(made.card, trained={"settings": settings}))
    assert trainer(discount=told).discount_of(base) == discount


def test_a_discount_of_zero_learns_the_reward_alone():
    files = {}
    for told in (0.0, None):
        online = trainer(discount=told)
        online.add(lived(200))
        files[told] = encode(online.train(weights(), updates=20, version=2, data="test")[0])
    assert files[0.0] != files[None]


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
