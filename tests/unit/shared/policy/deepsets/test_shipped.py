"""The weights that come with the package keep their promises in small, and stand for what their cards say.

The promises in full are `conclave evaluate --suite deepsets`; here every objective meets a few waves on a few nodes.
"""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.placement import PlacementEnv
from lab.environments.placement_scenarios import moving_latency
from lab.suites.deepsets import experiments, run_suite
from lab.suites.suites import SuiteInput
from shared.policy.deepsets.features import FEATURES
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES, DeepSetsPolicy
from shared.policy.observation import Observation
from shared.policy.weights import Card, WeightsFile, shipped


@pytest.mark.parametrize("name", DEEP_SETS_POLICIES)
def test_the_card_names_data_seeds_figures_and_limits(name):
    card = shipped(name).card
    assert card.features == list(FEATURES)
    assert min(card.trained["seeds"]["training"]) >= 1000
    assert card.trained["seeds"]["validation"] == list(range(500, 510))
    assert card.trained["command"].startswith(f"python -m lab.learner train {name} ")
    assert card.figures
    assert card.limits


@pytest.mark.parametrize("name", DEEP_SETS_POLICIES)
def test_every_promise_is_kept_in_small(name):
    planned = experiments((3, 10), share=0.02, objectives=[name])
    result = run_suite(SuiteInput((42,), "", (name,)), planned=planned)
    assert not result.unmet, result.unmet


def test_weights_that_were_made_worse_break_a_promise():
    """The check above can fail: the same network with its last layer turned round."""
    file = shipped("lb")
    arrays = {key: -array if key.startswith("l2") else array for key, array in file.arrays.items()}
    worse = WeightsFile(arrays, Card(policy="lb", version=1, features=list(FEATURES)))
    planned = experiments((3,), share=0.02, objectives=["lb"])
    assert run_suite(SuiteInput((42,), "", ("lb",), weights={"lb": worse}), planned=planned).unmet


@pytest.mark.parametrize("name", DEEP_SETS_POLICIES)
def test_any_order_of_a_hundred_nodes_gives_the_same_choice(name):
    policy = DeepSetsPolicy(shipped(name))
    env = PlacementEnv(moving_latency(100, 800), 42)
    rng = np.random.default_rng(1)
    for _ in range(400):
        env.place(int(rng.choice(env.rows())))
    rows = env.rows()
    for _ in range(50):
        order = rng.permutation(len(rows))
        first, again = (policy.decide(Observation(env.table, env.pod_class, r), rng) for r in (rows, rows[order]))
        best = {int(rows[i]) for i in np.flatnonzero(first.score == first.score.max())}
        assert {int(rows[order[i]]) for i in np.flatnonzero(again.score == again.score.max())} == best
