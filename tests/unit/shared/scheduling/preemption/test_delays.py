"""The setting ``preemption_delay``: which delay is whose, and one line for what cannot be used."""

from __future__ import annotations

import pytest

from shared.errors import ConfigError
from shared.scheduling.preemption.delays import Delays, parse_delays


def test_a_delay_holds_for_its_priority_and_those_above_up_to_the_next() -> None:
    delays = parse_delays(" 1000=10,0=60.5 , -7=0.25")
    found = {priority: delays.of(priority) for priority in (-8, -7, -1, 0, 999, 1000, 2**31 - 1)}
    assert found == {-8: 0.0, -7: 0.25, -1: 0.25, 0: 60.5, 999: 60.5, 1000: 10.0, 2**31 - 1: 10.0}


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_nothing_delays_nobody(text: str) -> None:
    assert parse_delays(text) == Delays()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("60", "'60' is not PRIORITY=SECONDS"),
        ("0=60s", "'0=60s' is not PRIORITY=SECONDS"),
        ("high=60", "is not PRIORITY=SECONDS"),
        ("0=-1", "is not PRIORITY=SECONDS"),
        ("0=nan", "is not PRIORITY=SECONDS"),
        ("0=1e3", "is not PRIORITY=SECONDS"),
        ("\u0660=60", "is not PRIORITY=SECONDS"),
        ("0=60 1000=10", "is not PRIORITY=SECONDS"),
        ("2147483648=1", "no pod has that priority"),
        ("-2147483649=1", "no pod has that priority"),
        ("0=86401", "more than a day"),
        ("0=1,5=2,0=3", "0 is there twice"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_delays(text)
    assert says in str(told.value)
    assert str(told.value).startswith("preemption_delay: ")
    assert "\n" not in str(told.value)
