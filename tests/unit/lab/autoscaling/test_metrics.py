"""What an episode was worth: each figure by a worked example."""

from __future__ import annotations

import math

import pytest

from lab.autoscaling.metrics import METRICS, Scaling, figures
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.topology import default_topology
from lab.worlds.services.world import WorldSeconds


def seconds(answered, *, offered=100.0, **more):
    count = len(answered)
    parts = {
        "offered": [offered] * count,
        "answered": list(answered),
        "in_time": [value * 0.5 for value in answered],
        "waiting": [0.0] * count,
        "served": [offered * 5] * count,
        "latency_s": [0.1] * count,
        "entries_up": [1.0] * count,
        "pods": [10] * count,
        "failed_pods": [0.0] * count,
    }
    return WorldSeconds(**{**parts, **more})


def found(answered, events=(), scalings=(), **more):
    return figures(seconds(answered, **more), events, scalings, default_topology())


def test_success_and_compliance_are_shares_of_what_was_offered():
    one = found([100.0] * 30 + [50.0] * 30)
    assert one["success"] == pytest.approx(75.0)
    assert one["latency_compliance"] == pytest.approx(37.5)
    assert set(one) == set(METRICS)


def test_a_window_is_available_from_nine_in_ten_on():
    assert found([100.0] * 10 + [90.0] * 10 + [89.0] * 10 + [0.0] * 10)["availability"] == pytest.approx(50.0)


def test_pending_is_the_share_that_waits_of_what_waits_or_is_served():
    assert found([100.0] * 10, waiting=[500.0] * 10)["pending"] == pytest.approx(50.0)


def test_replica_hours_count_pods_on_nodes():
    assert found([100.0] * 3600)["replica_hours"] == pytest.approx(10.0)


def test_recovery_is_from_the_onset_to_the_end_of_the_bad_stretch():
    surge = Disturbance(DisturbanceKind.SURGE, 20, 60, 1.0, "a")
    one = found([100.0] * 25 + [10.0] * 20 + [100.0] * 55, [surge])
    # bad from second 26 on (the last ten seconds hold a tenth of failures), until nine of the last ten are good again
    assert one["recovery_s"] == pytest.approx(34.0, abs=1.0)


def test_a_surge_that_nobody_notices_takes_no_recovery_and_one_without_end_lasts_to_the_next():
    surges = [
        Disturbance(DisturbanceKind.SURGE, 20, 30, 1.0, "a"),
        Disturbance(DisturbanceKind.SURGE, 60, 70, 1.0, "a"),
    ]
    assert found([100.0] * 100, surges)["recovery_s"] == 0.0
    assert found([100.0] * 20 + [0.0] * 80, surges)["recovery_s"] == pytest.approx(40.0)
    assert math.isnan(found([100.0] * 100)["recovery_s"])


def test_only_a_change_of_direction_within_five_minutes_is_oscillation():
    scalings = [
        Scaling(0, "a", 1),
        Scaling(10, "a", 1),
        Scaling(20, "b", -1),
        Scaling(30, "a", -1),
        Scaling(400, "a", 1),
    ]
    one = found([100.0] * 1800, scalings=scalings)
    assert one["oscillation"] == pytest.approx(1 / 0.5 / 4)  # one, in half an hour, over four services


def test_the_reward_is_one_hundred_when_all_is_well_and_less_for_each_part():
    perfect = found([100.0] * 10, latency_s=[0.0] * 10)["reward"]
    assert perfect == pytest.approx(100.0)
    assert found([100.0] * 10, latency_s=[0.5] * 10)["reward"] == pytest.approx(90.0)  # half of what is borne
    assert found([100.0] * 10, latency_s=[0.0] * 10, entries_up=[0.0] * 10)["reward"] == pytest.approx(80.0)
    assert found([100.0] * 10, latency_s=[0.0] * 10, failed_pods=[5.0] * 10)["reward"] == pytest.approx(90.0)
