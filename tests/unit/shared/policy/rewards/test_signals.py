"""Signals: the last good value stands until it is too old."""

from __future__ import annotations

import pytest

from shared.policy.rewards.expression import RewardInvalid
from shared.policy.rewards.signals import RewardSignal, RewardSignals, parse_signals


def test_the_last_good_value_stands_until_it_is_too_old() -> None:
    signals = RewardSignals(["price"], most_age_s=100)
    assert signals.ages(0) == {"price": None}
    assert signals.take("price", 30.0, 0)
    assert not signals.take("price", float("nan"), 50)
    assert not signals.take("price", None, 60)
    assert signals.values(90) == {"price": 30.0}
    assert signals.ages(90) == {"price": 90}
    assert signals.values(101) == {}
    assert signals.missed == 2


def test_signals_are_named_queries() -> None:
    assert parse_signals(['price = avg(x{a="b"})'], ["load"]) == (RewardSignal("price", 'avg(x{a="b"})'),)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["price"], "is no NAME=QUERY"),
        (["Price=x"], "is no NAME=QUERY"),
        (["price="], "is no NAME=QUERY"),
        (["load=x"], "signal load: the name is taken"),
        (["min=x"], "signal min: the name is taken"),
        (["price=x", "price=y"], "signal price: the name is taken"),
        ([f"s{number}=x" for number in range(17)], "17 are more than 16"),
    ],
)
def test_a_bad_signal_is_refused_by_name(given, words: str) -> None:
    with pytest.raises(RewardInvalid, match=words):
        parse_signals(given, ["load"])
