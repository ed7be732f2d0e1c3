"""What comes by the clock is foreseen from the second hour on."""

from __future__ import annotations

import pytest

from bench.parts.foresight import BIN_S, FADE, HOUR_S, LEAST, Foresight

LEAD_S = 60.0
CAPACITY = 10_000.0, 1e11


def hour(foresight: Foresight, number: int, *, rise: float, every_s: float = BIN_S) -> list[float]:
    """An hour of one core, in whose middle more is taken for five minutes; of each moment what was foreseen of CPU."""
    found = []
    for step in range(round(HOUR_S / every_s)):
        at_s = number * HOUR_S + step * every_s
        found.append(foresight.ahead(at_s, CAPACITY)[0])
        foresight.add(at_s, (1000.0 + rise * (1800 <= step * every_s < 2100), 0.0))
    return found


@pytest.mark.parametrize("every_s", [5.0, BIN_S, 30.0, 60.0])
def test_a_rise_is_foreseen_for_its_lead_an_hour_later_and_at_no_other_time(every_s: float) -> None:
    foresight = Foresight(LEAD_S)
    assert not any(hour(foresight, 0, rise=3000, every_s=every_s))
    second = hour(foresight, 1, rise=3000, every_s=every_s)
    steps = [step * every_s for step, ahead in enumerate(second) if ahead]
    assert {second[round(at_s / every_s)] for at_s in steps} == {3000.0}
    assert 1800 - LEAD_S <= steps[0] <= 1800 - LEAD_S + max(BIN_S, every_s)
    assert steps[-1] < 1800


def test_what_does_not_come_again_fades_and_what_is_higher_counts_whole() -> None:
    foresight = Foresight(LEAD_S)
    for number, rise in enumerate((4000, 0, 0, 1000, 8000)):
        hour(foresight, number, rise=rise)
    assert max(hour(foresight, 5, rise=0)) == 8000
    fading = Foresight(LEAD_S)
    for number, rise in enumerate((4000, 0, 0)):
        hour(fading, number, rise=rise)
    assert max(hour(fading, 3, rise=0)) == pytest.approx(4000 * FADE**2)
    assert max(hour(fading, 30, rise=0)) == 0, "hours in which nobody looked count too"


@pytest.mark.parametrize(("share", "foreseen"), [(LEAST - 0.01, False), (LEAST + 0.01, True)])
def test_a_rise_that_is_small_beside_the_node_sends_nobody_away(share: float, foreseen: bool) -> None:
    foresight = Foresight(LEAD_S)
    hour(foresight, 0, rise=share * CAPACITY[0])
    assert any(hour(foresight, 1, rise=0)) is foreseen


def test_a_gap_in_metrics_is_no_rise() -> None:
    foresight = Foresight(LEAD_S)
    foresight.add(0.0, (1000.0, 0.0))
    foresight.add(100.0, (9000.0, 0.0))
    for step in range(20):
        foresight.add(115.0 + step * BIN_S, (9000.0, 0.0))
    assert not any(foresight.ahead(HOUR_S + step * BIN_S, CAPACITY)[0] for step in range(20))
