"""Fitting keeps nothing that is not better than the mixture as given, and stays on the simplex."""

from __future__ import annotations

import numpy as np
import pytest

from lab.hybrid import fitting
from lab.hybrid.fitting import FEATURES, OBJECTIVE, VALIDATION_SEEDS, Fit, labels_for, play
from shared.errors import ConfigError
from shared.policy.hybrid.mixture import ClassRule, MemberExpression, Selector
from shared.policy.registry import members_made, mixable, mixture_of, parse, read_definition
from shared.policy.rewards.expression import RewardExpression

MIXTURE = {
    "policies": {"kube-default": 1.0, "most-allocated": 1.0},
    "by_class": [
        {
            "name": "batch",
            "selector": {"matchLabels": {"policy.conclave.io/tier": "batch"}},
            "policies": {"kube-default": 1.0, "most-allocated": 1.0},
        }
    ],
}


def fit(monkeypatch, worth) -> Fit:
    """A search where ``worth(weights, seeds)`` is known."""
    mixture = mixture_of(read_definition(MIXTURE, "m"), mixable({}))
    found = Fit(mixture, members_made, RewardExpression(OBJECTIVE, FEATURES), 1000)
    monkeypatch.setattr(found, "worth", worth)
    return found


def test_the_search_finds_different_weights_for_each_class(monkeypatch) -> None:
    wanted = np.array([[0.9, 0.1], [0.2, 0.8]])
    seen: list[np.ndarray] = []

    def worth(weights, seeds):
        seen.append(weights)
        assert min(seeds) >= 1000 or tuple(seeds) == tuple(VALIDATION_SEEDS)
        return -float(np.abs(weights - wanted).sum())

    found = fit(monkeypatch, worth)
    assert list(found.search(80))[-1] == 80
    assert np.abs(found.validate().weights - wanted).max() < 0.12
    assert all((weights >= 0).all() and np.allclose(weights.sum(1), 1) for weights in seen)


def test_what_is_better_in_training_alone_is_not_kept(monkeypatch) -> None:
    def worth(weights, seeds):
        as_given = np.allclose(weights, 0.5)
        return float(as_given if tuple(seeds) == tuple(VALIDATION_SEEDS) else not as_given)

    found = fit(monkeypatch, worth)
    list(found.search(10))
    assert np.allclose(found.validate().weights, 0.5)


def test_a_run_tells_every_feature_and_packing_uses_fewer_nodes(monkeypatch) -> None:
    monkeypatch.setattr(fitting, "thesis_scene", shortened(fitting.thesis_scene))
    found = {}
    for name in ("kube-default=1", "most-allocated=1"):
        mixture = mixture_of(parse(name), mixable({}))
        found[name] = play(mixture, members_made(mixture), 1000)
        assert found[name].keys() == FEATURES.keys()
    assert found["most-allocated=1"]["nodes_used"] < found["kube-default=1"]["nodes_used"]


def shortened(scene):
    def made(seed):
        whole = scene(seed)
        return type(whole)(whole.nodes, whole.jobs[:40], whole.profiles)

    return made


def test_a_class_of_which_no_pod_can_be_made_is_refused() -> None:
    rule = ClassRule("x", Selector(match_expressions=(MemberExpression("policy.conclave.io/a", "DoesNotExist"),)))
    with pytest.raises(ConfigError, match="no pod of it can be made"):
        labels_for(rule)
