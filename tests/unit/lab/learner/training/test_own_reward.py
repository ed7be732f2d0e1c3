"""What a card says of weights that were trained by a user's own reward."""

from __future__ import annotations

import msgspec
import pytest

from lab.learner.training.own_reward import goal_by
from shared.policy.registry import goal_of
from shared.policy.rollout.outcome import GoalUnknown
from shared.policy.weights import WeightsFile, decode, encode, shipped


def trained_by(reward: str) -> WeightsFile:
    file = shipped("lb")
    card = msgspec.structs.replace(file.card, goal=goal_by(reward))
    return decode(encode(WeightsFile(file.arrays, card)), policy="lb")


def test_weights_are_compared_by_the_reward_that_they_were_trained_by() -> None:
    assert goal_of("lb", trained_by("1 - nodes_used / nodes").card) == "reward: 1 - nodes_used / nodes"
    assert goal_of("lb", trained_by("").card) == "balance"


@pytest.mark.parametrize("reward", ["-price * nodes_used", "hour / 24", "my_plugin"])
def test_a_reward_that_no_roll_out_can_work_out_takes_a_goal_of_the_operators(reward: str) -> None:
    with pytest.raises(GoalUnknown, match="or compare by another one with --goal"):
        goal_of("lb", trained_by(reward).card)
