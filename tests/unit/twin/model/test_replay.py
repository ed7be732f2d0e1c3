"""Replay in the cluster model, and the estimate of what pods use."""

from __future__ import annotations

import numpy as np
import pytest

from twin.model.replay import ReplayedPod, replay_error, usage_over_time
from twin.model.usage import UsageLimits, UsageNow, UsageProfile
from twin.model.usage_fit import fit, non_negative

LIMITS = {"a": UsageLimits(1000, 1000), "b": UsageLimits(1000, 1000)}


def use(cpu: int) -> UsageProfile:
    return UsageProfile(((0.0, UsageNow(cpu)),))


def test_a_pod_counts_from_its_start_to_its_end() -> None:
    pods = [
        ReplayedPod("p", "a", 10, 20, use(100)),
        ReplayedPod("q", "a", 15, None, use(7)),
        ReplayedPod("r", "b", -5, 12, use(1)),
    ]
    found = usage_over_time(LIMITS, pods, [0, 9.9, 10, 15, 20, 30])
    assert found[0, :, 0].tolist() == [0, 0, 100, 107, 7, 7]
    assert found[1, :, 0].tolist() == [1, 1, 1, 0, 0, 0]


def test_a_profile_goes_through_its_steps_and_its_own_end_does_not_count() -> None:
    profile = UsageProfile(((0.0, UsageNow(10)), (5.0, UsageNow(20))), duration_s=6.0)
    found = usage_over_time(LIMITS, [ReplayedPod("p", "a", 10, 30, profile)], [10, 14, 15, 25, 30])
    assert found[0, :, 0].tolist() == [10, 10, 20, 20, 0]


def test_pods_on_nodes_that_are_not_there_are_left_out() -> None:
    assert not usage_over_time(LIMITS, [ReplayedPod("p", "gone", 0, None, use(5))], [1.0]).any()


def test_error_is_the_mean_absolute_difference_in_percent_of_the_whole() -> None:
    expected, seen = np.zeros((1, 4, 4)), np.full((1, 4, 4), np.nan)
    seen[0, :, 0] = [999, 10, -30, np.nan]
    found = replay_error(["a"], expected, seen, np.full((1, 4), 200.0), 1)
    assert found.by_node == {"a": {"cpu": pytest.approx(10.0)}}
    assert found.by_part == {"cpu": pytest.approx(10.0)}


def test_usage_of_groups_and_of_the_nodes_themselves_is_found_from_sums() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 5, (3, 2, 60)).astype(float)
    true_use, true_base = np.array([[300.0], [50.0], [0.0]]), np.array([[100.0], [40.0]])
    seen = true_base[:, None, :] + np.einsum("gnt,gp->ntp", counts, true_use)
    base, found = fit(counts, seen, np.full((3, 1), 100.0))
    assert found == pytest.approx(true_use, abs=1.0)
    assert base == pytest.approx(true_base, abs=3.0)


def test_groups_that_cannot_be_told_apart_keep_the_proportion_of_their_requests() -> None:
    counts = np.repeat(np.array([[[0, 1, 2, 3, 0, 1, 2, 3.0]]]), 2, axis=0)
    seen = counts.sum(axis=0)[:, :, None] * 150.0
    _, found = fit(counts, seen, np.array([[200.0], [100.0]]))
    assert found.sum() == pytest.approx(300.0, rel=0.01)
    assert found[0, 0] - found[1, 0] == pytest.approx(100.0, rel=0.05)


def test_estimates_are_never_negative() -> None:
    found = non_negative(np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([1.0, 3.0]), np.zeros(2))
    assert (found >= 0).all()
    assert found == pytest.approx([2.0, 0.0], abs=0.01)


def test_a_part_that_was_not_measured_keeps_the_requests() -> None:
    counts, seen = np.ones((1, 1, 4)), np.full((1, 4, 2), np.nan)
    seen[0, :, 0] = 5.0
    base, found = fit(counts, seen, np.array([[1.0, 70.0]]))
    assert found[0, 1] == 70.0
    assert base[0, 1] == 0.0
