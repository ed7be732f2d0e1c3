"""Usage profiles, limits and imbalance."""

from __future__ import annotations

import pytest

from shared.errors import ObjectError
from twin.model.usage import (
    NO_USAGE,
    UsageLimits,
    UsageNow,
    UsageProfile,
    Utilisation,
    imbalance,
    limits_from_json,
    profile_from_json,
)


def test_a_profile_survives_its_annotation():
    profile = UsageProfile(((0, UsageNow(300, 1, 2, 3)), (10.5, UsageNow(50))), duration_s=270, exit_code=1)
    assert profile_from_json(profile.to_json()) == profile


def test_use_follows_the_steps_and_ends_with_the_run():
    profile = UsageProfile(((0, UsageNow(300)), (10, UsageNow(50))), duration_s=20)
    assert [profile.at(t).cpu_millis for t in (-1, 0, 9.9, 10, 19.9, 20)] == [0, 300, 300, 50, 50, 0]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"u":[[0,1]]}', '{"u":[[5,1,1,1,1],[0,1,1,1,1]]}', '{"u":[[0,-1,0,0,0]]}', '{"s":-1}', '{"z":1}'],
)
def test_a_profile_that_cannot_be_read_names_the_annotation(text):
    with pytest.raises(ObjectError, match=r"conclave\.io/usage"):
        profile_from_json(text)


def test_a_profile_has_a_bounded_number_of_steps():
    steps = ",".join(f"[{i},0,0,0,0]" for i in range(257))
    with pytest.raises(ObjectError, match="at most 256"):
        profile_from_json(f'{{"u":[{steps}]}}')


def test_utilisation_is_a_share_of_each_limit_and_may_exceed_one():
    limits = UsageLimits(4000, 8 * 10**9, 10**7, 10**7)
    found = limits.utilisation(UsageNow(1000, 4 * 10**9, 0, 2 * 10**7))
    assert found == Utilisation(0.25, 0.5, 0.0, 2.0)
    assert found.highest == 2.0


def test_an_unknown_limit_is_not_measured():
    assert UsageLimits(1000).utilisation(UsageNow(500, 10**9, 1, 1)) == Utilisation(cpu=0.5)


def test_limits_come_from_status_and_annotation():
    assert limits_from_json('{"disk":5,"net":6}', cpu_millis=1, memory_bytes=2) == UsageLimits(1, 2, 5, 6)
    assert limits_from_json("", cpu_millis=1, memory_bytes=2) == UsageLimits(1, 2, 0, 0)
    with pytest.raises(ObjectError, match="twin-limits"):
        limits_from_json("{", cpu_millis=1, memory_bytes=2)


def test_imbalance_is_the_deviation_of_the_highest_part():
    assert imbalance([]) == 0.0
    assert imbalance([Utilisation(cpu=0.2), Utilisation(disk=0.4)]) == pytest.approx(0.1)


def test_adding_and_subtracting_use_is_exact():
    assert UsageNow(1, 2, 3, 4).plus(UsageNow(1, 1, 1, 1)).minus(UsageNow(2, 3, 4, 5)) == NO_USAGE
