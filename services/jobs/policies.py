"""Which policy divides the GPUs, by its name in the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.errors import ConfigError
from shared.jobs.observation import Policy
from shared.jobs.policies.elastic import Elastic

POLICIES: Mapping[str, Callable[[], Policy]] = {Elastic.name: Elastic}


def policy_named(name: str, seed: int) -> Policy:
    """``ConfigError``: there is none of this name."""
    make = POLICIES.get(name)
    if make is None:
        raise ConfigError(f"policy: there is no {name!r}; one of {', '.join(sorted(POLICIES))}")
    policy = make()
    policy.reset(seed)
    return policy
