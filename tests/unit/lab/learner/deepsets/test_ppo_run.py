"""PPO on the placement experiments: a function of its seed, as long as it was told, and its weights can be used."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from lab.algorithms.imitation import ImitationSettings
from lab.algorithms.ppo import PpoSettings
from lab.learner.deepsets import training
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.settings import DeepSetsSettings
from lab.learner.deepsets.warm_up import warm_up
from shared.policy.deepsets.policy import DeepSetsPolicy
from shared.policy.weights import encode


@pytest.fixture(autouse=True)
def _quick_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "VALIDATION_SEEDS", range(501, 502))
    training._validation.cache_clear()
    yield
    training._validation.cache_clear()


SMALL = DeepSetsSettings(
    "lb", decisions=200, learning_starts=1, validate_every=100, hidden=(8,), ppo=PpoSettings(horizon=64, epochs=1)
)


def trained(seed: int) -> PpoRun:
    run = PpoRun(replace(SMALL, seed=seed))
    reports = list(run.run())
    assert reports[-1].validated.startswith("validation regret")
    assert run.decisions >= 200
    return run


def test_a_run_is_a_function_of_its_seed_and_its_weights_make_a_policy():
    once, again, other = trained(1000), trained(1000), trained(1001)
    assert all(np.array_equal(once.best[name], again.best[name]) for name in once.best)
    assert any(not np.array_equal(once.best[name], other.best[name]) for name in once.best)
    assert DeepSetsPolicy(once.weights(version=1)).name == "lb"


def test_a_resumed_run_equals_the_uninterrupted_one():
    whole, first, resumed = PpoRun(SMALL), PpoRun(SMALL), PpoRun(SMALL)
    list(whole.run())
    assert len(list(islice(first.run(), 1))) == 1
    resumed.set_state(first.get_state())
    list(resumed.run())
    assert encode(resumed.weights(version=1)) == encode(whole.weights(version=1))
    assert resumed.best_regret == whole.best_regret


def test_it_can_begin_with_what_kube_default_would_do():
    run = PpoRun(SMALL)
    before = run.actor.export()
    reports = list(warm_up(run, "kube-default", ImitationSettings(epochs=2)))
    assert reports[-1].agreement > 0.3
    assert any((run.actor.export()[name] != before[name]).any() for name in before)
