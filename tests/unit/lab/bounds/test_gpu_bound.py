"""The bound is right where it is known by hand, and no scheduler that places what it can ever exceeds it."""

from __future__ import annotations

import numpy as np
import pytest

from lab.bounds import gpu_bound as module
from lab.bounds.gpu_bound import (
    TOLERANCE,
    GpuProgramme,
    dominates,
    gpu_bound,
    greatest,
    maximal_patterns,
)
from lab.worlds.placement.trace_run import play
from shared.model.gpu import ANY_MODEL, GpuRequest
from shared.policy.rehearsal.gpu_cluster import GpuCluster
from shared.policy.rehearsal.submission import GpuNodes, GpuPods, empty_states, pods_of, submission
from tests.small_trace import small_trace

SHARE, WHOLE = GpuRequest(1, 1, 1, 810), GpuRequest(1, 1, 1, 1000)


def nodes(count: int, *, cpu: int = 100, devices: int = 1) -> GpuNodes:
    table = np.array([(cpu, 100, devices, 0)] * count, np.int64)
    return GpuNodes(tuple(f"n{index}" for index in range(count)), empty_states(table), {"T4": 0})


def bound(where: GpuNodes, pods: GpuPods, seed: int = 42, *, patterned: bool = True) -> module.GpuBound:
    return gpu_bound(GpuProgramme(where, pods.classes, patterned=patterned), pods, seed)


def test_devices_that_hold_one_share_of_81_percent_each_are_bounded_by_81_percent():
    found = bound(nodes(10), pods_of([SHARE] * 17))
    assert (found.may_refuse, found.places_all) == pytest.approx((81, 81))


def test_without_the_patterns_the_same_shares_would_seem_to_fill_the_devices():
    found = bound(nodes(10), pods_of([SHARE] * 17), patterned=False)
    assert found.may_refuse == pytest.approx(100)


def test_cpu_that_lasts_for_half_of_the_devices_bounds_by_half():
    pods = pods_of([GpuRequest(60, 1, 1, 1000)] * 30)
    assert bound(nodes(10, cpu=60, devices=2), pods).may_refuse == pytest.approx(50)


def test_a_model_that_no_node_has_allocates_nothing():
    pods = pods_of([WHOLE, GpuRequest(1, 1, 1, 1000, models=0b10)])
    assert GpuProgramme(nodes(10), pods.classes).solve(np.array([0, 20])) == pytest.approx(0)


@pytest.mark.parametrize("seed", [42, 43, 44])
def test_where_a_device_holds_one_pod_the_first_pods_are_all_that_can_be_placed_without_refusing(seed):
    where, pods = nodes(10), pods_of([SHARE, WHOLE] * 12)
    gpu = pods.gpu[submission(pods, where.capacity, seed)]
    found = bound(where, pods, seed)
    assert found.may_refuse == pytest.approx(np.sort(gpu)[-10:].sum() / 100)
    assert found.places_all == pytest.approx(gpu[:10].sum() / 100, abs=TOLERANCE)


def test_without_a_probe_a_scheduler_that_may_not_refuse_would_be_bounded_no_better_than_one_that_may(monkeypatch):
    pods = pods_of([SHARE, WHOLE] * 12)
    kept = bound(nodes(10), pods)
    monkeypatch.setattr(module, "probe_of", lambda classes, submitted: None)
    without = bound(nodes(10), pods)
    assert kept.places_all < without.places_all == without.may_refuse == kept.may_refuse


@pytest.mark.parametrize("policy", ["random", "best-fit", "fgd", "kube-default"])
def test_no_scheduler_exceeds_the_bound(policy):
    trace = small_trace(nodes=24)
    for seed in (42, 43):
        reached = play(trace, policy, seed).allocation()
        found = bound(trace.nodes, trace.pods, seed)
        assert reached <= found.places_all + 1e-6 <= found.may_refuse + 2e-6 <= 100 + 3e-6


def test_the_bound_of_all_moments_is_that_of_the_worst_one():
    heights = np.random.default_rng(1).normal(0, 1, 200)
    found = greatest(lambda first, last: float(heights[first : last + 1].max()), 199)
    assert heights.max() <= found <= heights.max() + TOLERANCE


def test_a_bound_that_is_cut_short_is_too_high_never_too_low(monkeypatch):
    monkeypatch.setattr(module, "MOST_SPLITS", 1)
    heights = np.arange(100.0)[::-1]
    assert greatest(lambda first, last: float(heights[first] + last - first), 99) >= 99


def test_who_dominates_finds_room_only_where_the_other_does():
    rng = np.random.default_rng(5)
    cluster = GpuCluster(nodes(200, devices=4))
    cluster.states.cpu[:] = rng.integers(0, 4, 200)
    cluster.states.free[:] = rng.choice([0, 300, 500, 1000], (200, 4))
    cluster.widest, cluster.whole = cluster.states.free.max(1), (cluster.states.free == 1000).sum(1)
    requests = [
        GpuRequest(cpu, 0, devices, milli, models)
        for cpu in (0, 2)
        for devices, milli in ((0, 0), (1, 300), (1, 500), (1, 1000), (2, 1000))
        for models in (ANY_MODEL, 0b1, 0b10, 0b11)
    ]
    pairs = [(more, less) for more in requests for less in requests if dominates(more, less)]
    assert len(pairs) > 2 * len(requests)
    assert not any((cluster.feasible(more) & ~cluster.feasible(less)).any() for more, less in pairs)


def test_patterns_are_full_and_none_is_missing():
    assert sorted(maximal_patterns((300, 500), 1000)) == [(0, 2), (1, 1), (3, 0)]


def test_too_many_patterns_are_rounded_into_fewer_which_still_bound(monkeypatch):
    exact = bound(nodes(10), pods_of([GpuRequest(1, 1, 1, 333), GpuRequest(1, 1, 1, 512)] * 20)).may_refuse
    monkeypatch.setattr(module, "MOST_PATTERNS", 1)
    rounded = bound(nodes(10), pods_of([GpuRequest(1, 1, 1, 333), GpuRequest(1, 1, 1, 512)] * 20)).may_refuse
    assert exact <= rounded <= 100
