"""PPO on the placement experiments: a function of its seed, as long as it was told, and its weights can be used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from services.learner.deepsets import training
from services.learner.deepsets.ppo import PpoRun
from services.learner.deepsets.settings import settings_for
from services.learner.training.ppo import PpoSettings
from shared.policy.deepsets.policy import DeepSetsPolicy


@pytest.fixture(autouse=True)
def _quick_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "VALIDATION_SEEDS", range(501, 502))
    training._validation.cache_clear()
    yield
    training._validation.cache_clear()


def trained(seed: int) -> PpoRun:
    settings = replace(settings_for("lb", seed, 200), learning_starts=1, validate_every=100)
    run = PpoRun(settings, PpoSettings(horizon=64, epochs=1))
    reports = list(run.run())
    assert reports[-1].validated.startswith("validation regret")
    assert run.decisions >= 200
    return run


def test_a_run_is_a_function_of_its_seed_and_its_weights_make_a_policy():
    once, again, other = trained(1000), trained(1000), trained(1001)
    assert all(np.array_equal(once.best[name], again.best[name]) for name in once.best)
    assert any(not np.array_equal(once.best[name], other.best[name]) for name in once.best)
    assert DeepSetsPolicy(once.weights(version=1)).name == "lb"
