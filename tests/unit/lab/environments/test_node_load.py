"""Loads over time: exact means, spread, and what contention costs."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments import node_load
from lab.environments.node_load import NodeLoad, pattern_of
from twin.model.usage import Utilisation, imbalance

CPU_ONLY = np.array([0.6, 0.0, 0.0, 0.0])
CPU_AND_DISK = np.array([0.3, 0.1, 0.5, 0.0])


def test_spread_is_the_imbalance_of_the_usage_model() -> None:
    rng = np.random.default_rng(5)
    load = NodeLoad(4)
    for step in range(40):
        load.change(float(step), int(rng.integers(4)), rng.uniform(0, 0.2, 4))
    wanted = imbalance(Utilisation(*row) for row in load.demand)
    assert load.spread == pytest.approx(wanted, rel=1e-9)


def test_time_mean_counts_each_state_for_as_long_as_it_lasts() -> None:
    load = NodeLoad(2)
    load.change(0.0, 0, CPU_ONLY)  # spread 0.3
    load.change(10.0, 1, CPU_ONLY)  # spread 0
    load.advance(40.0)
    assert load.imbalance_area == pytest.approx(3.0)
    assert load.used_area[0] == pytest.approx(0.6 * 10 + 1.2 * 30)


def test_use_above_the_limit_counts_as_the_limit() -> None:
    load = NodeLoad(1)
    for _ in range(3):
        load.change(0.0, 0, CPU_ONLY)
    load.advance(10.0)
    assert load.highest[0] == pytest.approx(1.8)
    assert load.used_area[0] == pytest.approx(10.0)


def test_contention_costs_exactly_the_share_that_was_not_given() -> None:
    load = NodeLoad(1)
    load.change(0.0, 0, CPU_ONLY)
    load.change(0.0, 0, CPU_ONLY)  # cpu 1.2: a pace of 1/1.2
    load.advance(60.0)
    load.settle(0)
    assert load.lost[0, pattern_of(CPU_ONLY)] == pytest.approx(60.0 * (1 - 1 / 1.2))


def test_a_pod_goes_at_the_pace_of_its_scarcest_part() -> None:
    load = NodeLoad(1)
    for _ in range(4):
        load.change(0.0, 0, CPU_AND_DISK)  # cpu 1.2, disk 2.0
    load.advance(10.0)
    load.settle(0)
    assert load.lost[0, pattern_of(CPU_AND_DISK)] == pytest.approx(5.0)
    assert load.lost[0, pattern_of(CPU_ONLY)] == pytest.approx(10.0 * (1 - 1 / 1.2))


def test_a_dead_node_is_no_part_of_the_spread() -> None:
    load = NodeLoad(3)
    load.change(0.0, 0, CPU_ONLY)
    load.change(0.0, 1, CPU_ONLY)
    assert load.spread > 0
    load.count(0.0, 2, counted=False)
    assert load.spread == pytest.approx(0.0, abs=1e-12)


def test_without_recounting_rounding_piles_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def drift(every: int) -> float:
        monkeypatch.setattr(node_load, "RECOUNT_EVERY", every)
        rng = np.random.default_rng(1)
        load = NodeLoad(3)
        for step in range(3001):
            load.change(float(step), step % 3, rng.uniform(-1e5, 1e5, 4))
        return abs(load._squares - float((load.highest**2).sum())) / load._squares

    assert drift(100) < drift(10**9)
