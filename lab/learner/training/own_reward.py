"""The reward of the user's own that a training order names, with its signals, for as long as training lasts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial

import click
import msgspec

from lab.environments.own_reward import OwnReward
from lab.environments.placement_rewards import Reward
from lab.learner.training.runner import TrainRequest
from lab.rewards.loading import load_reward
from lab.rewards.polling import signals_of
from shared.policy.rollout.expression_goal import PREFIX


@contextmanager
def own_reward(request: TrainRequest, features: Collection[str], shipped: Reward) -> Iterator[OwnReward | None]:
    """None where the order names none. ``ConfigError``: the reward or a signal cannot be used."""
    report = partial(click.echo, err=True)
    source = request.signals
    with signals_of(source.signals, source.prometheus, source.token_file, taken=features, report=report) as signals:
        if not request.reward:
            yield None
            return
        loaded = load_reward(request.reward, {*features, *signals.names})
        yield OwnReward(loaded.judge, shipped, signals.values, report)


def goal_by(reward: str) -> str | msgspec.UnsetType:
    """What a card says that weights trained by ``reward`` are for: by that a roll-out compares them. Of a plug-in, and
    of an expression that reads signals or the hour, whoever activates them must name a goal."""
    return f"{PREFIX} {reward}" if reward else msgspec.UNSET
