"""Which policies there are for training jobs, by name; imported when asked for: some bring heavy libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from shared.errors import ConfigError
from shared.jobs.observation import Policy

PACKAGE = "shared.jobs.policies"


@dataclass(frozen=True)
class Entry:
    """A policy is ``maker(**settings)`` in ``module``."""

    module: str
    maker: str
    adapts_batch: bool = False
    """It is made for jobs whose batch it may choose; other policies leave the user's batch as it is."""
    draws: bool = False
    """Its decisions follow from its seed too."""
    settings: Mapping[str, Any] = field(default_factory=dict)


POLICIES: Mapping[str, Entry] = {
    "elastic": Entry(f"{PACKAGE}.elastic", "Elastic"),
    "fifo": Entry(f"{PACKAGE}.orders", "Fifo"),
    "srtf": Entry(f"{PACKAGE}.orders", "Srtf"),
    "drf": Entry(f"{PACKAGE}.drf", "Drf"),
    "tetris": Entry(f"{PACKAGE}.tetris", "Tetris"),
    "tiresias": Entry(f"{PACKAGE}.tiresias", "Tiresias"),
    "optimus": Entry(f"{PACKAGE}.optimus", "Optimus"),
    "pollux": Entry(f"{PACKAGE}.pollux", "Pollux", adapts_batch=True, draws=True),
    "marginal": Entry(f"{PACKAGE}.marginal", "Marginal", adapts_batch=True),
    "marginal-fixed": Entry(f"{PACKAGE}.marginal", "Marginal"),
    "jobs-sets": Entry(f"{PACKAGE}.learned.sets", "Sets", adapts_batch=True),
    "jobs-sets-fixed": Entry(f"{PACKAGE}.learned.sets", "Sets"),
    "sia": Entry(f"{PACKAGE}.sia", "Sia", adapts_batch=True),
}


def entry_of(name: str) -> Entry:
    """Raises ``ConfigError`` naming the policies there are."""
    if name not in POLICIES:
        raise ConfigError(
            f"policy: {name!r} is not known for training jobs; choose one of {', '.join(sorted(POLICIES))}"
        )
    return POLICIES[name]


def make(name: str) -> Policy:
    """A new policy of this name. ``ConfigError``: unknown, or its weights cannot be read."""
    entry = entry_of(name)
    maker = getattr(import_module(entry.module), entry.maker)
    try:
        policy: Policy = maker(**entry.settings)
    except OSError as error:
        told = f"its weights, {error.filename}, cannot be read ({error.strerror})"
        raise ConfigError(f"policy: {name}: {told}; install them, or choose another") from None
    return policy
