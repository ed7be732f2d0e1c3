"""How long ``karma`` is trained: episodes by which it imitates the rule by demand, then rounds of as many episodes."""

from __future__ import annotations

from math import ceil

from shared.errors import ConfigError

TAUGHT_EPISODES, EPISODES_PER_ROUND = 32, 16
LEAST = TAUGHT_EPISODES + EPISODES_PER_ROUND


def rounds_of(episodes: int) -> int:
    """The rounds of so many episodes in all. ``ConfigError``: fewer than one round."""
    if episodes < LEAST:
        raise ConfigError(f"--episodes: {episodes} are too few; give {LEAST} or more")
    return ceil((episodes - TAUGHT_EPISODES) / EPISODES_PER_ROUND)
