"""Whoever decides in a mesh gives a node the same score whatever else is asked about beside it, or is not known."""

from __future__ import annotations

from threading import Lock

import numpy as np
import pytest

from shared.errors import ConfigError
from shared.model.constraints import gpu_milli_of
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


class Failing(LeastAllocated):
    def decide(self, observation, rng):
        raise KeyError("a label that only some clusters have")


class FailingTogether(Failing):
    row_local, agents_agree = False, True


class FailingAmongMany(LeastAllocated):
    """Says nothing where it sees the whole cluster."""

    def decide(self, observation, rng):
        if len(observation.rows) > 4:
            raise KeyError("too many")
        return super().decide(observation, rng)


class NotFinite(FailingAmongMany):
    def decide(self, observation, rng):
        score = LeastAllocated.decide(self, observation, rng).score
        return Verdicts(score * np.nan if len(score) > 4 else score)


class RankedForGpus(Ranked):
    """Honest until a pod asks for a GPU."""

    def decide(self, observation, rng):
        asks = gpu_milli_of(observation.pod_class)
        return super().decide(observation, rng) if asks else LeastAllocated.decide(self, observation, rng)


class RankedByLatency(RankedForGpus):
    """Honest until a pod bears a limit."""

    def decide(self, observation, rng):
        bears = observation.pod_class.latency_soft_us
        return Ranked.decide(self, observation, rng) if bears else LeastAllocated.decide(self, observation, rng)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Ranked, "among 6 nodes and"),
        (Silent, ""),
        (Failing, ""),  # a row's rank rests on that row: its guard answers for it
        (FailingTogether, "cannot be tried out: KeyError"),
        (FailingAmongMany, "ranks 3 nodes and not 6: KeyError"),
        (NotFinite, "ranks 3 nodes and not 6: its answer is of no use (nan)"),
        (RankedForGpus, "among 4 nodes and"),
        (RankedByLatency, "among 4 nodes and"),
    ],
)
def test_it_is_tried_out_and_told_in_one_line(policy, told):
    why = disagreement(policy)
    assert told in why
    assert bool(why) == bool(told)
    assert "\n" not in why


def test_one_that_declares_nothing_is_used_where_it_agrees_and_its_author_is_told(monkeypatch):
    monkeypatch.setattr(registry, "HEURISTICS", dict(registry.HEURISTICS))
    assert "set row_local = True" in bring("silent", Silent)
    assert bring("failing", Failing) == ""
    assert {"silent", "failing"} <= registry.HEURISTICS.keys()


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


class Loaded(LeastAllocated):
    """Takes long to make, and ranks otherwise with each answer."""

    made = 0

    def __init__(self):
        type(self).made += 1
        self.answers = 0

    def decide(self, observation, rng):
        found = super().decide(observation, rng)
        self.answers += 1
        return Verdicts(found.score + self.answers)


class Locked(Loaded):
    """Cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = Lock()


@pytest.mark.parametrize(("policy", "most"), [(Loaded, 1), (Locked, 20)])
def test_it_is_made_once_where_it_can_be_copied_and_each_trial_has_one_that_is_unused(policy, most, monkeypatch):
    monkeypatch.setattr(policy, "made", 0)
    assert disagreement(policy) == ""
    assert 1 <= policy.made <= most
