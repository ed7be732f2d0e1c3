"""Policies by name: each can be made, says its name, and an unknown one is named with those there are."""

from __future__ import annotations

import pytest

from shared.decide.registry import PolicyEntry, PolicyRegistry
from shared.errors import ConfigError
from shared.jobs import registry
from shared.jobs.registry import make
from shared.policy.weights import WeightsFile, shipped_beside
from tests.training_jobs import observation, seen_job


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
def test_every_policy_can_be_made_and_divides_gpus(name):
    policy = make(name)
    policy.reset(0)
    assert name.startswith(policy.name)
    assert set(policy.decide(observation(seen_job("a", submitted=500.0)))) <= {"a"}


def test_an_unknown_policy_is_named_with_those_there_are():
    with pytest.raises(ConfigError, match="'gold' is not known for training jobs; choose one of drf, "):
        make("gold")


def unshipped() -> WeightsFile:
    """A policy of which only the code was installed."""
    return shipped_beside("/nowhere/unshipped.py", "unshipped")


def test_a_policy_whose_weights_are_missing_is_named_with_the_file(monkeypatch: pytest.MonkeyPatch):
    policies = PolicyRegistry("training jobs", {"unshipped": PolicyEntry(f"{__name__}:unshipped")})
    monkeypatch.setattr(registry, "POLICIES", policies)
    with pytest.raises(ConfigError, match=r"weights of unshipped: /nowhere/unshipped\.npz is not there; install it"):
        make("unshipped")
