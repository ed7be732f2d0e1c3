"""The two formulas that everything shares: pauses after failures, and quantiles."""

from __future__ import annotations

from random import Random

import pytest

from shared.backoff import backoff_s
from shared.quantiles import nearest_rank


def test_pauses_double_up_to_the_longest():
    assert [backoff_s(n, first_s=0.5, most_s=3.0) for n in (0, 1, 2, 3, 4, 10**6)] == [0.5, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_processes_that_failed_together_are_spread_around_the_pause():
    pauses = [backoff_s(2, first_s=1.0, most_s=8.0, drawn=Random(seed).random()) for seed in range(200)]
    assert 1.0 <= min(pauses) < 1.1
    assert 2.9 < max(pauses) <= 3.0


def test_a_quantile_is_a_value_that_was_seen():
    assert nearest_rank(range(1, 101), 0.5, 0.99, 1.0) == [50, 99, 100]
    assert nearest_rank([3.0, 1.0], 0.5, 0.51) == [1.0, 3.0]
    assert nearest_rank([], 0.5, 0.9) == [0.0, 0.0]


@pytest.mark.parametrize("count", [1, 2, 7, 100, 101])
def test_at_least_the_share_is_not_above_it_and_less_is_below_it(count: int):
    rng = Random(count)
    values = [rng.random() for _ in range(count)]
    for share in (0.01, 0.5, 0.9, 0.99):
        [found] = nearest_rank(values, share)
        assert sum(value <= found for value in values) >= share * count
        assert sum(value < found for value in values) < share * count
