"""Policies by name, and settings that are refused by theirs."""

from __future__ import annotations

from typing import Any

import pytest

from shared.autoscaling.registry import make_policy
from shared.errors import ConfigError
from tests.autoscaling_builders import asked, moment, web

BASELINES = ("hpa", "keda", "predictive")


@pytest.mark.parametrize("name", BASELINES)
def test_each_baseline_is_made_by_name_and_answers(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name
    policy.reset(42)
    assert policy.decide(moment(0.0)) == {}
    assert asked(policy, 1.0, web(4, cpu=0.8, queue=40.0)) == 4  # met between two looks: at once


@pytest.mark.parametrize("name", BASELINES)
def test_two_of_a_name_share_nothing_and_equal_seeds_give_equal_answers(name: str) -> None:
    def answers(policy: Any) -> list[Any]:
        policy.reset(7)
        return [policy.decide(moment(10.0 * n, web=web(4, cpu=0.3 + 0.1 * n, queue=10.0 * n))) for n in range(12)]

    first = make_policy(name)
    told = answers(first)
    assert answers(make_policy(name)) == told
    assert answers(first) == told


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("hpa2", {}, "policy: 'hpa2' is not known; choose one of aware, demand, dqn, hpa, "),
        ("hpa", {"goal": 5}, "policy hpa: Object contains unknown field `goal`; its settings are resource, target,"),
        ("hpa", {"target": 0}, "policy hpa: Expected `int` >= 1 - at `$.target`"),
        ("hpa", {"sync_s": 0.0}, "policy hpa: Expected `float` > 0.0 - at `$.sync_s`"),
        ("hpa", {"down_window_s": 1e9}, "policy hpa: Expected `float` <= 3600.0 - at `$.down_window_s`"),
        ("keda", {"sync_s": 1e9}, "policy keda: Expected `float` <= 3600.0 - at `$.sync_s`"),
        ("hpa", {"tolerance": float("nan")}, "policy hpa: Expected `float` >= 0.0 - at `$.tolerance`"),
        ("predictive", {"season_s": float("inf")}, "policy predictive: season_s: inf is no number to go by"),
        ("hpa", {"behavior": {"scaleUp": {"selectPolicy": "Any"}}}, "policy hpa: spec.behavior.scaleUp.selectPolicy:"),
        ("keda", {"fallback": {"replicas": -1}}, "policy keda: Expected `int` >= 0 - at `$.fallback.replicas`"),
        ("predictive", {"horizon_s": "far"}, "policy predictive: Expected `float`, got `str` - at `$.horizon_s`"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(name: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_policy(name, settings)
    assert str(refused.value).startswith(told)
