"""Who is in a canary: the same in every domain, more as the share grows, others for another candidate."""

from __future__ import annotations

import itertools

import pytest

from shared.decide.canary import first_of, in_canary

UIDS = [f"uid-{number}" for number in range(4000)]


def members(candidate: str, percent: int) -> set[str]:
    return {uid for uid in UIDS if in_canary(uid, candidate, percent)}


def test_nobody_is_in_it_at_none_and_everybody_at_100_percent():
    assert members("a" * 64, 0) == set()
    assert members("a" * 64, 100) == set(UIDS)


@pytest.mark.parametrize("percent", [1, 7, 10, 50, 93])
def test_its_share_is_the_percentage(percent: int):
    assert abs(len(members("marginal", percent)) / len(UIDS) - percent / 100) < 0.02


def test_who_is_in_it_stays_as_it_grows():
    shares = [members("marginal", percent) for percent in range(0, 101, 5)]
    assert all(few <= many for few, many in itertools.pairwise(shares))


def test_another_candidate_is_tried_on_others():
    one, other = members("marginal", 10), members("sia", 10)
    assert len(one & other) < 2 * len(UIDS) * 0.1 * 0.1


@pytest.mark.parametrize(
    ("subject", "candidate", "percent"),
    [("6f1c", "a" * 64, 37), ("default/gang", "kube-default@1", 27), ("", "", 58)],
)
def test_membership_is_the_one_of_earlier_releases(subject: str, candidate: str, percent: int):
    """Agents and leaders of two releases, and a roll-out that runs over an upgrade, must agree."""
    assert in_canary(subject, candidate, percent)
    assert not in_canary(subject, candidate, percent - 1)


def test_of_a_few_there_are_as_many_rounded_up():
    assert [len(first_of("abc", "uid", percent)) for percent in (0, 1, 33, 34, 67, 100)] == [0, 1, 1, 2, 3, 3]
    assert first_of("abc", "uid", 34) == first_of("cba", "uid", 34) < first_of("abc", "uid", 100)


def test_which_of_a_few_is_as_in_earlier_releases():
    """A service that an autoscaler acted upon before an upgrade is the one that it acts upon after it."""
    assert first_of("abcdef", "uid", 34) == {"a", "b", "f"}
    assert first_of(["front", "cart", "db", "mail", "ads"], "8f1c-22", 40) == {"cart", "mail"}
