"""Whoever decides in a mesh gives a node the same score whatever else is asked about beside it, or is not known."""

from __future__ import annotations

import numpy as np
import pytest

from shared.errors import ConfigError
from shared.policy import registry
from shared.policy.agreement import disagreement
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.heuristics import LeastAllocated
from shared.policy.observation import Verdicts
from shared.policy.registry import POLICIES, bring, make_policy


@pytest.mark.parametrize("name", [*sorted(POLICIES), "ee=0.5,lb=0.5"])
def test_every_policy_that_is_shipped_agrees_with_itself_on_another_agent(name):
    assert disagreement(lambda: make_policy(name)) == ""


class Ranked(LeastAllocated):
    """By place among those at hand."""

    name = "ranked"

    def decide(self, observation, rng):
        score = super().decide(observation, rng).score
        return Verdicts(score.argsort().argsort().astype(np.float64))


class Silent(LeastAllocated):
    row_local = False


class AgreesUntold(Silent):
    agents_agree = True


class Failing(LeastAllocated):
    def decide(self, observation, rng):
        raise KeyError("a label that only some clusters have")


@pytest.mark.parametrize(
    ("policy", "told"),
    [(Ranked, "among 6 nodes and"), (Silent, "are not said to compare"), (AgreesUntold, ""), (Failing, "")],
)
def test_it_is_tried_out_and_told_in_one_line(policy, told):
    why = disagreement(policy)
    assert told in why
    assert bool(why) == bool(told)
    assert "\n" not in why


def test_one_that_ranks_by_what_is_at_hand_is_not_registered(monkeypatch):
    monkeypatch.setattr(registry, "HEURISTICS", dict(registry.HEURISTICS))
    with pytest.raises(ConfigError, match=r"plugin ranked: it gives a node .* set row_local = True"):
        bring("ranked", Ranked)
    assert "ranked" not in registry.HEURISTICS
    monkeypatch.setattr(registry, "disagreement", lambda make: "")  # the safeguard off
    bring("ranked", Ranked)
    assert "ranked" in registry.HEURISTICS


def test_a_learned_policy_that_pooled_its_own_nodes_would_be_found(monkeypatch):
    """What the coordinator tells is what makes ``ee``, ``lb`` and ``el`` agree."""
    monkeypatch.setattr(DeepSetsPolicy, "supply", lambda self, supplies: None)
    assert "among 6 nodes and" in disagreement(lambda: make_policy("lb"))
