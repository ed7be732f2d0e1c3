"""The arithmetic of shares against the published worked examples."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shared.scheduling.queues.share import (
    ShareClaim,
    ShareScale,
    borrowed,
    borrowed_share,
    dominant_share,
    fair_shares,
)

CLUSTER = {"cpu": 9, "memory": 18}


def test_dominant_shares_of_the_drf_papers_first_example():
    # user A: 3 tasks of <1 CPU, 4 GB>, user B: 2 tasks of <3 CPUs, 1 GB>
    assert dominant_share({"cpu": 3, "memory": 12}, CLUSTER) == Fraction(2, 3)
    assert dominant_share({"cpu": 6, "memory": 2}, CLUSTER) == Fraction(2, 3)


def test_a_weight_of_two_halves_the_share():
    assert dominant_share({"cpu": 3}, CLUSTER, Fraction(2)) == Fraction(1, 6)


def test_a_resource_that_nobody_has_does_not_count():
    assert dominant_share({"gpu": 5, "cpu": 3}, CLUSTER) == Fraction(1, 3)


def test_what_is_borrowed_is_what_is_above_the_guarantee():
    assert borrowed({"cpu": 7, "memory": 3, "gpu": 1}, {"cpu": 5, "memory": 9}) == {"cpu": 2, "gpu": 1}


@pytest.mark.parametrize(
    ("used", "nominal", "lendable", "weight", "expected"),
    [
        # kueue pkg/cache, dominant resource share: no borrowing is a share of zero
        ({"cpu": 1, "gpu": 2}, {"cpu": 2, "gpu": 5}, {"cpu": 2, "gpu": 5}, 1, Fraction(0)),
        # the larger ratio of what is borrowed decides
        ({"cpu": 3, "gpu": 7}, {"cpu": 2, "gpu": 5}, {"cpu": 10, "gpu": 10}, 1, Fraction(2, 10)),
        # half the weight doubles it
        ({"cpu": 3, "gpu": 7}, {"cpu": 2, "gpu": 5}, {"cpu": 10, "gpu": 10}, Fraction(1, 2), Fraction(4, 10)),
        # nothing to be lent of it: it does not count
        ({"cpu": 3}, {"cpu": 2}, {"cpu": 0}, 1, Fraction(0)),
    ],
)
def test_the_share_of_the_borrowed_is_over_what_can_be_lent(used, nominal, lendable, weight, expected):
    assert borrowed_share(used, nominal, lendable, Fraction(weight)) == expected


@pytest.mark.parametrize(
    ("total", "claims", "expected"),
    [
        # deserved first, the rest by weight
        (8, {"a": (2, 1, 8), "b": (2, 3, 8)}, {"a": 3, "b": 5}),
        # equal deserving queues, equal share
        (8, {"a": (4, 1, 8), "b": (4, 1, 8)}, {"a": 4, "b": 4}),
        # who asks for less leaves the rest to the others
        (10, {"a": (0, 1, 2), "b": (0, 1, 9), "c": (0, 1, 9)}, {"a": 2, "b": 4, "c": 4}),
        # weight does not take what is guaranteed to others
        (6, {"a": (4, 1, 4), "b": (1, 100, 9)}, {"a": 4, "b": 2}),
        # thirds are exact
        (
            10,
            {"a": (0, 1, 10), "b": (0, 1, 10), "c": (0, 1, 10)},
            {"a": Fraction(10, 3), "b": Fraction(10, 3), "c": Fraction(10, 3)},
        ),
        # more is guaranteed than there is (nodes were lost): cut in proportion
        (6, {"a": (8, 1, 8), "b": (4, 1, 8)}, {"a": 4, "b": 2}),
        # nobody wants anything
        (6, {"a": (3, 1, 0)}, {"a": 0}),
    ],
)
def test_fair_shares_are_the_guarantee_and_rounds_by_weight(total, claims, expected):
    made = {
        name: ShareClaim(guaranteed, Fraction(weight), request)
        for name, (guaranteed, weight, request) in claims.items()
    }
    assert fair_shares(total, made) == expected


def test_a_maximum_caps_the_fair_share():
    claims = {"a": ShareClaim(0, Fraction(1), 9, maximum=3), "b": ShareClaim(0, Fraction(1), 9)}
    assert fair_shares(10, claims) == {"a": 3, "b": 7}


def test_scaled_shares_are_the_fractions_over_one_denominator():
    weights = [Fraction(1), Fraction(2), Fraction(5, 3), Fraction("0.25")]
    scale = ShareScale.of(CLUSTER, weights)
    for weight in weights:
        for used in ({"cpu": 3, "memory": 5}, {"memory": 1}):
            factors = scale.factors(weight)
            scaled = max(amount * factors[name] for name, amount in used.items())
            assert Fraction(scaled, scale.denominator) == dominant_share(used, CLUSTER, weight)


def test_a_scale_without_totals_has_no_factors():
    assert ShareScale.of({"gpu": 0}, []).factors(Fraction(1)) == {}
