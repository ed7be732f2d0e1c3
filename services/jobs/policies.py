"""Which policy divides the GPUs, by its name in the settings."""

from __future__ import annotations

from shared.errors import ConfigError
from shared.jobs.observation import Policy
from shared.jobs.registry import make


def policy_named(name: str, seed: int) -> Policy:
    """``ConfigError``: there is none of this name, or what it needs is not installed."""
    try:
        policy = make(name)
    except ImportError as error:
        raise ConfigError(f"policy: {name} needs {error.name}, which is not installed here; choose another") from None
    policy.reset(seed)
    return policy
