"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.errors import ConfigError
from shared.policy.heuristics import KubeDefault, LeastAllocated, MostAllocated, Random
from shared.policy.observation import Policy

POLICIES: Mapping[str, Callable[[], Policy]] = {
    "kube-default": KubeDefault,
    "least-allocated": LeastAllocated,
    "most-allocated": MostAllocated,
    "random": Random,
}


def make_policy(name: str) -> Policy:
    """The policy called ``name``. Raises ``ConfigError`` naming those there are."""
    factory = POLICIES.get(name)
    if factory is None:
        raise ConfigError(f"policy: {name!r} is not known; choose one of {', '.join(sorted(POLICIES))}")
    return factory()
