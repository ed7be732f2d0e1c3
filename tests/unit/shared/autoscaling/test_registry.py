"""Policies by name, and settings that are refused by theirs."""

from __future__ import annotations

from typing import Any

import pytest

from shared.autoscaling.observation import needs_of
from shared.autoscaling.registry import POLICIES, make_policy
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
        ("hpa2", {}, "policy: 'hpa2' is not known for autoscaling; choose one of aware, demand, dqn, hpa, "),
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


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_each_policy_declares_the_signals_that_it_needs(name: str) -> None:
    """What it does not declare would be missing in silence: the service would be held for ever."""
    policy = make_policy(name)
    assert callable(getattr(policy, "needs", None))
    assert needs_of(policy, "web") <= {"cpu", "memory", "arrivals", "served", "failed", "latency_s", "queue"}


def test_a_trigger_is_needed_only_of_the_services_that_it_is_set_for() -> None:
    keda = make_policy("keda", {"queue": {"web": 5.0}, "arrivals": {"db": 9.0}})
    assert needs_of(keda, "web") == {"queue"}
    assert needs_of(keda, "db") == {"arrivals"}
    assert needs_of(keda, "cart") == frozenset()
