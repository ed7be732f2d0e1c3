"""What ``--reward`` names: a plug-in (entry point ``conclave.rewards``), or an expression over features and signals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shared.errors import ConfigError
from shared.plugins import reward_of
from shared.policy.rewards.expression import RewardExpression

GROUP = "conclave.rewards"


@dataclass(frozen=True, slots=True)
class LoadedReward:
    """``text``: as it was given; ``release``: of the plug-in's package, "" for an expression."""

    text: str
    judge: Callable[[Mapping[str, float]], float]
    release: str = ""


def load_reward(text: str, features: Collection[str]) -> LoadedReward:
    """The reward. ``ConfigError``: neither a plug-in that can be made nor an expression over ``features``."""
    from importlib.metadata import entry_points

    found = [entry for entry in entry_points(group=GROUP) if entry.name == text.strip()]
    if not found:
        return LoadedReward(text, RewardExpression(text, features))
    if len(found) > 1:
        raise ConfigError(f"reward {text}: is brought {len(found)} times; uninstall all packages but one")
    entry = found[0]
    try:
        made = entry.load()
    except Exception as error:
        raise ConfigError(f"reward {text}: cannot be imported ({type(error).__name__}: {error})") from error
    return LoadedReward(text, reward_of(text, made), entry.dist.version if entry.dist is not None else "?")
