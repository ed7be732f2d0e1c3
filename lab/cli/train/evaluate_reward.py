"""``conclave evaluate --reward``: a reward of the user's own, measured beside the shipped ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lab.environments.own_reward import OwnReward


@contextmanager
def own_reward(
    text: str | None, signals: Sequence[str], prometheus: str, token_file: Path | None
) -> Iterator[OwnReward | None]:
    """None where no reward was given. ``ConfigError``: it or a signal cannot be used. What stands in for a placement
    that it cannot judge is worth nothing: 0."""
    if text is None:
        yield None
        return
    from lab.environments.own_reward import FEATURES, OwnReward
    from lab.environments.placement_rewards import RewardWorth
    from lab.rewards.loading import load_reward
    from lab.rewards.polling import signals_of

    report = partial(click.echo, err=True)
    with signals_of(signals, prometheus, token_file, taken=FEATURES, report=report) as known:
        judge = load_reward(text, {*FEATURES, *known.names}).judge
        yield OwnReward(judge, lambda _: RewardWorth(0.0, terminated=False), known.values, report, instead="0 counts")
