"""Step times: exact where measured, linear between, nothing beyond."""

from __future__ import annotations

from random import Random

import pytest

from lab.worlds.training.step_times import Curve, StepTimes, ring

ONE = Curve.of([(16.0, 2.0, 0.0), (8.0, 1.0, 0.0)])


def flat(step_s: float, largest: float = 16.0) -> Curve:
    return Curve.of([(8.0, step_s, step_s / 2), (largest, step_s, step_s / 2)])


TIMES = StepTimes.of(
    {(1,): ONE, (2,): flat(3.0), (1, 1): flat(4.0), (1, 2): flat(5.0), (2, 2): flat(6.0)},
    {(4, 4): flat(10.0), (4, 8): flat(20.0)},
)


def test_a_measured_point_is_exact_and_between_two_it_is_linear():
    assert TIMES.at((1,), 8) == (1.0, 0.0)
    assert TIMES.at((1,), 12) == (1.5, 0.0)


@pytest.mark.parametrize("local", [7, 17])
def test_nothing_is_extrapolated_beyond_the_measured_batches(local):
    assert TIMES.at((1,), local) is None


def test_rotations_of_a_ring_are_one_placement():
    assert ring((2, 1)) == ring((1, 2)) == (1, 2)
    assert ring((3, 0, 1, 2)) == (1, 2, 3)
    assert TIMES.at((2, 1), 8) == TIMES.at((1, 2), 8) == (5.0, 2.5)


def test_a_ring_is_the_least_of_all_its_rotations():
    rng = Random(1)
    for _ in range(500):
        placement = [rng.randint(0, 3) for _ in range(rng.randint(0, 7))]
        used = tuple(count for count in placement if count)
        assert ring(placement) == min((used[at:] + used[:at] for at in range(len(used))), default=())


def test_more_nodes_than_measured_one_by_one_are_read_along_equal_workers_per_node():
    """3 nodes lie halfway between 2 and 4; with one worker each, between (2 nodes, 2) and (4 nodes, 4)."""
    assert TIMES.at((1, 1, 1), 8) == (pytest.approx((4.0 + 10.0) / 2), pytest.approx((2.0 + 5.0) / 2))
    assert TIMES.at((2, 2, 2), 8) == (pytest.approx((6.0 + 20.0) / 2), pytest.approx(6.5))
    # one and a half workers per node: (2 nodes, 3) is measured, 6 of 4 nodes is halfway between 4 and 8
    assert TIMES.at((1, 1, 2, 2), 8)[0] == pytest.approx(15.0)


def test_more_nodes_than_were_ever_measured_are_unknown_where_workers_are_too_many():
    assert TIMES.at((2,) * 5, 8) is None


def test_a_node_with_more_workers_than_measured_counts_as_several_full_ones():
    assert TIMES.at((4,), 8) == TIMES.at((2, 2), 8)
    assert TIMES.at((3,), 8) == TIMES.at((2, 1), 8)


def test_where_one_corner_was_not_measured_with_so_large_a_batch_the_other_serves():
    times = StepTimes.of({(1,): ONE, (1, 1): flat(4.0, largest=32.0)}, {(4, 4): flat(10.0)})
    assert times.at((1, 1, 1), 32) == (4.0, 2.0)
    assert times.at((1, 1, 1), 33) is None
