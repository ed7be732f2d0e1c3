"""A reward of the user's own judges placements; what it does wrong costs that placement alone, and is told once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.environments.own_reward import FEATURES, Beside, OwnReward, features_of
from lab.environments.placement_rewards import RewardedPlacement, lb_reward
from lab.learner.deepsets import training
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.deepsets.training import DeepSetsRun
from lab.rewards.loading import load_reward
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.rewards.expression import RewardExpression
from shared.policy.weights import encode, shipped

PLACEMENT = RewardedPlacement(np.array([0.1, 0.3]), 1, np.array([1, 2, 0]), latency_us=5_000, latency_soft_us=9_000)


def own(judge, **given) -> OwnReward:
    return OwnReward(judge, lb_reward, **given)


def test_a_reward_reads_every_feature_that_is_promised() -> None:
    found = features_of(PLACEMENT, 3_600.0 * 25)
    assert found.keys() == FEATURES.keys()
    assert (found["load"], found["nodes"], found["nodes_used"], found["pods"]) == (0.3, 3, 2, 3)
    assert (found["latency_ms"], found["latency_kept"], found["hour"]) == (5.0, 1.0, 1.0)


def test_its_number_counts_and_ends_no_episode() -> None:
    worth = own(RewardExpression("nodes - nodes_used", FEATURES))(PLACEMENT)
    assert (worth.reward, worth.terminated) == (1.0, False)
    assert lb_reward(PLACEMENT).terminated


def raises(features):
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("judge", "fault"),
    [
        (raises, "RuntimeError: no idea"),
        (lambda features: float("nan"), "is nan"),
        (lambda features: "much", "ValueError"),
        (RewardExpression("1 / (nodes - 3)", FEATURES), "RewardFailed: reward: float division by zero"),
        (RewardExpression("price * 2", [*FEATURES, "price"]), "RewardFailed: reward: price has no value now"),
    ],
)
def test_a_fault_is_told_once_and_the_shipped_reward_counts(judge, fault: str) -> None:
    told: list[str] = []
    reward = own(judge, report=told.append)
    assert [reward(PLACEMENT).reward for _ in range(3)] == [lb_reward(PLACEMENT).reward] * 3
    assert len(told) == 1
    assert fault in told[0]
    assert reward.faults.total() == 3


def test_signals_are_read_as_they_are_now() -> None:
    price = {"price": 2.0}
    reward = own(RewardExpression("price * load", [*FEATURES, "price"]), signals=lambda: price)
    first = reward(PLACEMENT).reward
    price["price"] = 4.0
    assert reward(PLACEMENT).reward == pytest.approx(2 * first)
    price.clear()
    assert reward(PLACEMENT).reward == lb_reward(PLACEMENT).reward


def test_faults_that_all_differ_are_bounded() -> None:
    number = [0]

    def fails(features):
        number[0] += 1
        raise RuntimeError(str(number[0]))

    told: list[str] = []
    reward = own(fails, report=told.append)
    for _ in range(50):
        reward(PLACEMENT)
    assert len(told) == 16
    assert len(reward.faults) == 17
    assert reward.faults.total() == 50


def test_the_shipped_reward_is_what_counts_where_the_own_is_only_measured() -> None:
    both = Beside(lb_reward, own(RewardExpression("nodes", FEATURES)))
    assert both(PLACEMENT) == lb_reward(PLACEMENT)
    assert both.mean == 3.0


def run(reward: OwnReward | None, text: str) -> DeepSetsRun:
    settings = DeepSetsSettings(
        "lb", decisions=160, learning_starts=40, hidden=(4,), validate_every=10**6, replay_capacity=100, reward=text
    )
    return DeepSetsRun(settings, reward)


def test_training_goes_by_it_and_survives_a_reward_that_always_fails(monkeypatch) -> None:
    monkeypatch.setattr("lab.learner.deepsets.training.validation_reward", lambda policy, own: 1.0)
    text = "1 - nodes_used / nodes"
    good = run(OwnReward(RewardExpression(text, FEATURES), lb_reward), text)
    reports = list(good.run())
    assert all(-1e-9 <= report.scalars["train/reward"] <= 1 for report in reports)
    assert reports[-1].scalars["validation/reward"] == 1.0
    bad = OwnReward(raises, lb_reward)
    list(run(bad, "x").run())
    assert bad.faults.total() > 100


@pytest.mark.parametrize(
    ("placements", "fails_at", "told"),
    [(2, range(0), 7.0), (2, range(1), 7.0), (2, range(2), -math.inf), (5, range(2), 7.0), (5, range(3), -math.inf)],
)
def test_a_validation_is_the_mean_of_what_the_own_reward_had_a_value_for(
    monkeypatch, placements, fails_at, told
) -> None:
    """The shipped one that stood in is of another measure: what it says tells nothing of the user's own. Nor does a
    mean over the fewer half: the others may be those that were bad."""
    tried = iter(range(placements))

    def judge(features) -> float:
        return raises(features) if next(tried) in fails_at else 7.0

    def played(scenario, seed, decider, reward) -> None:
        for _ in range(placements):
            reward(PLACEMENT)

    monkeypatch.setattr(training, "_validation", lambda name: ((None, 500, 1.0),))
    monkeypatch.setattr(training, "policy_decider", lambda policy, rng: None)
    monkeypatch.setattr(training, "roll_out", played)
    assert training.validation_reward(DeepSetsPolicy(shipped("lb")), OwnReward(judge, lb_reward)) == told


def test_what_was_shipped_is_trained_under_the_settings_it_had() -> None:
    assert "reward" not in DeepSetsSettings("lb").as_json()
    assert DeepSetsSettings("lb", reward="load").as_json()["reward"] == "load"
    assert encode(run(None, "").weights(version=1))


def test_what_is_no_plugin_is_an_expression() -> None:
    assert load_reward("load + 1", FEATURES).judge({"load": 1.0}) == 2.0
