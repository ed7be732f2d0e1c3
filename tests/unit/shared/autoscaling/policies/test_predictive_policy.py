"""``predictive``: what is forecast, and that it only ever adds to the HPA."""

from __future__ import annotations

import math

import pytest

from shared.autoscaling.policies.holt_winters import HoltWinters, Smoothing
from shared.autoscaling.registry import make_policy
from shared.errors import ConfigError
from tests.autoscaling_builders import asked, web


def test_a_constant_series_is_forecast_as_it_is() -> None:
    series = HoltWinters(0)
    for _ in range(20):
        series.observe(7.0)
    assert series.forecast(1) == series.forecast(9) == pytest.approx(7.0)
    with pytest.raises(ValueError, match="nothing has been observed"):
        HoltWinters(0).forecast(1)


def test_a_line_is_forecast_to_go_on_for_a_while() -> None:
    series = HoltWinters(0, Smoothing(level=0.8, trend=0.8, damping=1.0))
    for step in range(60):
        series.observe(10.0 + 2.0 * step)
    assert series.forecast(5) == pytest.approx(138.0, rel=0.01)
    damped = HoltWinters(0, Smoothing(level=0.8, trend=0.8, damping=0.5))
    for step in range(60):
        damped.observe(10.0 + 2.0 * step)
    assert 128.0 < damped.forecast(50) == pytest.approx(damped.forecast(80), rel=1e-6)  # a damped trend ends


def test_one_step_by_hand() -> None:
    """Level 0.5, trend 0.1, damping 0.9 over 10, 20: 15 and a trend of 0.5; in two steps 15 + (0.9 + 0.81) * 0.5."""
    series = HoltWinters(0)
    series.observe(10.0)
    series.observe(20.0)
    assert series.forecast(2) == pytest.approx(15.0 + 1.71 * 0.5)


def test_a_season_is_known_after_one_and_forecast_at_its_place() -> None:
    season = [10.0 + 8.0 * math.sin(2 * math.pi * place / 12) for place in range(12)]
    series = HoltWinters(12)
    for step in range(12 * 6):
        series.observe(season[step % 12])
    assert [series.forecast(step) for step in range(1, 13)] == pytest.approx(season, abs=0.2)
    assert series.forecast(12 + 4) == pytest.approx(season[3], abs=0.2)


def predictive(**settings: object):
    return make_policy("predictive", {"target": 50, "step_s": 30.0, "season_s": 600.0, **settings})


def daily(now: float) -> float:
    """Requests per second with a season of 600 s, from 20 to 180."""
    return 100.0 - 80.0 * math.cos(2 * math.pi * now / 600.0)


def test_by_the_second_season_it_rises_before_the_load_does() -> None:
    """A request costs 0.02 cores. At the bottom of the load the HPA wants one replica; the forecast wants more."""
    policy, alone = predictive(), make_policy("hpa", {"target": 50})
    replicas, wanted = 4, (0, 0)
    for step in range(0, 1860, 10):
        rate = daily(step)
        seen = web(replicas, cpu=rate * 0.02 / replicas, arrivals=rate, served=rate)
        wanted = asked(policy, step, seen) or 0, asked(alone, step, seen) or 0
        replicas = wanted[0]
    now = 1860.0
    assert now % 600 == 60  # two minutes from here the load is four times as high
    ahead = daily(now + 120) * 0.02 / 0.5
    assert wanted[0] >= math.floor(ahead)


@pytest.mark.parametrize("arrivals", [None, 100.0])
def test_a_forecast_never_takes_away_what_the_hpa_would_give(arrivals: float | None) -> None:
    for cpu in (0.3, 0.5, 0.9, 2.0):
        policy, alone = predictive(), make_policy("hpa", {"target": 50})
        for now in range(0, 300, 10):
            seen = web(5, cpu=cpu, arrivals=arrivals, served=arrivals)
            assert (asked(policy, now, seen) or 0) >= (asked(alone, now, seen) or 0)


def test_arrivals_grow_where_the_cores_of_an_overloaded_service_cannot() -> None:
    policy, by_cores = predictive(), predictive()
    for now in range(0, 200, 10):
        served = 100.0
        arrivals = 100.0 if now < 60 else 400.0
        seen = {"cpu": 1.0, "served": served}
        with_arrivals = asked(policy, now, web(2, arrivals=arrivals, **seen)) or 0
        without = asked(by_cores, now, web(2, arrivals=None, **seen)) or 0
    assert (with_arrivals, without) == (4, 4)  # the HPA's doubling is the limit of one step
    told = [
        one.replicas
        for one in policy._hpas["web"]._memory.recommendations or ()  # the proposals themselves
    ]
    assert max(told) >= 12 > max(one.replicas for one in by_cores._hpas["web"]._memory.recommendations or ())


def test_without_readings_it_keeps_what_there_is() -> None:
    policy = predictive()
    for now in range(0, 300, 10):
        asked(policy, now, web(5, cpu=0.5, arrivals=100.0, served=100.0))
    assert [asked(policy, now, web(5, cpu=None, arrivals=None)) for now in (300.0, 630.0, 930.0)] == [5, 5, 5]


def test_a_horizon_of_too_many_steps_is_refused() -> None:
    """It would hold up the decisions of every other object."""
    with pytest.raises(ConfigError, match="horizon_s is more than 240 times step_s"):
        make_policy("predictive", {"horizon_s": 1e9, "step_s": 0.001})
