"""The shipped marl-dqn on validation seeds: it does what its card says, and never an infeasible thing."""

from __future__ import annotations

import pytest

from lab.suites.suites import SuiteInput
from lab.suites.thesis import CONDITIONS, run_suite
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import NAME, MarlDqn
from shared.policy.weights import shipped

VALIDATION = (500, 501, 502)


def test_the_card_names_inputs_seeds_and_command() -> None:
    card = shipped(NAME).card
    assert card.features == list(FEATURES)
    assert min(card.trained["seeds"]["training"]) >= 1000
    assert not set(card.trained["seeds"]["training"]) & set(range(42, 52))
    assert card.trained["command"].startswith("python -m services.learner train marl-dqn")
    assert MarlDqn(shipped(NAME)).version == card.version


def test_it_balances_far_better_than_kube_default_and_about_as_the_greedy_that_sees_true_use() -> None:
    result = run_suite(SuiteInput(VALIDATION, "", (NAME, "kube-default", "greedy")), conditions=CONDITIONS[:1])
    for workload in ("uniform", "random"):
        ours, kube, greedy = (
            result.policies[name][f"{workload}/imbalance"].mean for name in (NAME, "kube-default", "greedy")
        )
        assert ours <= 0.8 * kube
        assert ours <= 1.1 * greedy
        assert result.policies[NAME][f"{workload}/completed work"].mean == pytest.approx(1.0)
    assert sum(result.policies[NAME]["infeasible or unusable"].values) == 0
