"""What comes by the clock is foreseen from the second hour on: who would have to leave has left as it comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.coordinator.lending.foresight import BIN_S, FADE, HOUR_S, Foresight
from tests.unit.services.coordinator.lending.scene import GB, RULE, LendingScene

LEAD_S = 60.0


def hour(foresight: Foresight, number: int, *, rise: float, every_s: float = BIN_S) -> list[float]:
    """An hour of one core, in whose middle more is taken for five minutes; of each moment what was foreseen of CPU."""
    found = []
    for step in range(round(HOUR_S / every_s)):
        at_s = number * HOUR_S + step * every_s
        found.append(foresight.ahead(at_s)[0])
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
    assert max(hour(fading, 30, rise=0)) < 4000 * FADE**28, "hours in which nobody looked count too"


def test_a_gap_in_metrics_is_no_rise() -> None:
    foresight = Foresight(LEAD_S)
    foresight.add(0.0, (1000.0, 0.0))
    foresight.add(100.0, (9000.0, 0.0))
    for step in range(20):
        foresight.add(115.0 + step * BIN_S, (9000.0, 0.0))
    assert not any(foresight.ahead(HOUR_S + step * BIN_S)[0] for step in range(20))


def day(foresee_s: float) -> list[int]:
    """Cores that a node lends at the moment that 3 more are taken, in three hours; what it lent is written at once."""
    rule = replace(RULE, foresee_s=foresee_s, window_s=60.0, change_percent=1.0)
    scene, found = LendingScene(rule), []
    for _ in range(3):
        scene.play(1800, every_s=15.0)
        found.append(scene.lent[0])
        scene.play(300, cpu=5000, every_s=15.0)
        scene.play(1500, every_s=15.0)
    return found


def test_a_node_has_taken_back_what_the_clock_brings_before_it_comes() -> None:
    assert day(LEAD_S) == [4000, 1000, 1000]
    assert day(0.0) == [4000, 4000, 4000], "switched off, it learns of it as it comes"


def test_a_node_says_that_it_goes_by_what_is_foreseen() -> None:
    scene = LendingScene(replace(RULE, foresee_s=LEAD_S, window_s=60.0))
    scene.play(1800, every_s=15.0)
    scene.play(300, cpu=5000, memory=40 * GB, every_s=15.0)
    scene.play(3600 - 300 - 15, every_s=15.0)
    assert scene.shown.why == (
        "cpu: 60 % of 10 less 5 that is foreseen; memory: 65 % of 93.13Gi less 37.25Gi that is foreseen"
    )
