"""``hpa``: the rule over what a policy sees."""

from __future__ import annotations

import math

import pytest

from shared.autoscaling.hpa.values import milli_units
from shared.autoscaling.observation import Bounds
from shared.autoscaling.policies.scaled import Beat, usable
from shared.autoscaling.registry import make_policy
from tests.autoscaling_builders import asked, moment, web

FREE_DOWN = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def hpa(**settings: object):
    return make_policy("hpa", {"target": 50, **settings})


def test_replicas_follow_utilisation_against_the_target() -> None:
    assert asked(hpa(), 0.0, web(4, cpu=0.8)) == 7
    assert asked(hpa(behavior=FREE_DOWN), 0.0, web(4, cpu=0.2)) == 2
    assert asked(hpa(tolerance=0.7), 0.0, web(4, cpu=0.8)) == 4
    assert asked(hpa(resource="memory"), 0.0, web(2, requests={"memory": 2e9}, usage={"memory": 2e9})) == 4


def test_it_looks_once_in_a_sync_period_and_its_answer_holds_between() -> None:
    policy = hpa()
    assert [asked(policy, now, web(4, cpu=cpu)) for now, cpu in ((0.0, 0.5), (10.0, 0.9), (20.0, 0.9))] == [4, 4, 8]


def test_a_fall_waits_for_its_window_after_the_last_higher_recommendation() -> None:
    policy = hpa()
    assert asked(policy, 0.0, web(8, cpu=0.5)) == 8
    assert asked(policy, 300.0, web(8, cpu=0.1)) == 8
    assert asked(policy, 315.0, web(8, cpu=0.1)) == 2
    assert asked(hpa(down_window_s=0), 0.0, web(8, cpu=0.1)) == 8  # what was found at this instant still counts


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(web(6, cpu=None), id="no-reading"),
        pytest.param(web(6, cpu=math.nan), id="not-a-number"),
        pytest.param(web(6, cpu=-1.0), id="negative"),
        pytest.param(web(6, cpu=None, ready=0, starting=6), id="no-pod-ready"),
        pytest.param(web(6, cpu=0.0, ready=0, pending=6), id="nothing-of-no-pod"),
        pytest.param(web(6, cpu=0.1, requests={}), id="no-request"),
    ],
)
def test_what_is_not_measured_is_no_load_that_is_gone(service) -> None:
    policy = hpa(behavior=FREE_DOWN)
    assert [asked(policy, now, service) for now in (0.0, 15.0, 600.0)] == [6, 6, 6]


def test_pods_that_start_hold_back_a_rise_and_are_no_room_for_a_fall() -> None:
    assert asked(hpa(), 0.0, web(6, cpu=0.9, ready=4, starting=2)) == 8  # 3.6 of 6: 60 %, 1.2 of 6
    assert asked(hpa(), 0.0, web(6, cpu=0.9, ready=4, pending=2)) == 8
    assert asked(hpa(behavior=FREE_DOWN), 0.0, web(6, cpu=0.2, ready=4, starting=2)) == 2


def test_bounds_and_zero_are_the_hpas() -> None:
    assert asked(hpa(), 0.0, web(9, cpu=0.5, bounds=Bounds(1, 6))) == 6
    assert asked(hpa(), 0.0, web(2, cpu=0.5, bounds=Bounds(3, 6))) == 3
    assert asked(hpa(behavior=FREE_DOWN), 0.0, web(2, cpu=0.0, bounds=Bounds(0, 6))) == 1
    assert asked(hpa(), 0.0, web(0, bounds=Bounds(0, 6))) == 0


def test_services_are_told_apart_and_a_new_one_is_met_as_it_comes() -> None:
    policy = hpa()
    assert policy.decide(moment(0.0, a=web(4, cpu=0.8), b=web(4, cpu=0.5))) == {"a": 7, "b": 4}
    assert policy.decide(moment(15.0, b=web(4, cpu=0.5), c=web(2, cpu=1.0))) == {"b": 4, "c": 4}


def test_after_reset_nothing_is_remembered() -> None:
    policy = hpa(behavior={"scaleDown": {"stabilizationWindowSeconds": 300}})
    assert asked(policy, 0.0, web(8, cpu=0.5)) == 8
    policy.reset(1)
    assert asked(policy, 1.0, web(8, cpu=0.5)) == 8
    policy.reset(1)
    assert policy.decide(moment(2.0)) == {}


def test_what_was_said_and_not_done_is_no_scale_event() -> None:
    """Asked for advice that nobody takes, it goes on asking for the same, and not for less each time."""
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    idle, busy = hpa(behavior=slow), hpa(behavior=slow)
    assert [asked(idle, now, web(4, cpu=1.0)) for now in (0.0, 15.0, 30.0)] == [6, 6, 6]
    assert asked(busy, 0.0, web(4, cpu=1.0)) == 6
    assert asked(busy, 15.0, web(6, cpu=1.0)) == 6  # it was done: two in this minute are all


def test_a_beat_counts_periods_and_not_calls() -> None:
    beat = Beat(15.0)
    assert [beat.due(now) for now in (3.0, 10.0, 14.9, 15.0, 29.0, 61.0)] == [True, False, False, True, False, True]


def test_amounts_are_rounded_up_but_for_the_floats_last_bits() -> None:
    assert [milli_units(amount) for amount in (0.07, 0.0701, 1e30)] == [70, 71, 2**63 - 1]
    assert [usable(reading) for reading in (None, math.inf, -0.1, 0.0)] == [None, None, None, 0.0]
