"""A played day in figures, and what they are held to: each goal is missed by a day that misses it."""

from __future__ import annotations

import pytest

from lab.evaluation.results import ResultMetric
from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.tidal.played import DaySeries, PlayedDay
from lab.mesh.tidal.suite import goals_of, told

LEVELS = TidalLevels(step_s=600.0)
KEPT = {"cpu_peak": 60.0, "cpu_day": 45.0, "gpus": 95.0, "lost": 3.0, "gave_way": 5.0, "violations": 0.1, "later": 5.0}
WORSE = {name: value + (-0.1 if value > 40 else 0.1) for name, value in KEPT.items()}


def day() -> PlayedDay:
    """Two hours: in the second more is demanded, and less is used."""
    first, second = [0.5] * 6, [0.25] * 6
    series = DaySeries(
        hours=[step / 6 for step in range(12)], online=first + second, offline=second + second, gpus=[1.0] * 12,
        demanded=[100.0] * 6 + [200.0] * 6, violated=[0.0] * 6 + [2.0] * 6,
    )  # fmt: skip
    return PlayedDay(series, done=7200.0, lost=720.0, evictions=3, waits={("a", 0.0, 0): 4.0, ("a", 0.0, 1): 31.0})


def test_a_day_is_told_by_means_and_its_peak_by_the_hour_of_the_highest_demand():
    figures = told(day(), LEVELS).figures
    assert figures["cpu_day"] == pytest.approx(62.5)
    assert figures["cpu_peak"] == pytest.approx(50.0)
    assert figures["online_cpu_day"] == pytest.approx(37.5)
    assert figures["violations"] == pytest.approx(100 * 12 / 1800)
    assert (figures["lost"], figures["work"]) == (pytest.approx(10.0), pytest.approx(1.8))


def test_no_wait_is_shortened_because_it_is_as_long_as_a_grace():
    assert told(day(), LEVELS).figures["wait"] == 31.0


def test_a_day_without_work_lost_none():
    assert told(PlayedDay(day().series), LEVELS).figures["lost"] == 0.0


@pytest.mark.parametrize("missed", [None, *KEPT])
def test_each_goal_is_missed_by_itself(missed):
    ours = {name: ResultMetric.of([WORSE[name] if name == missed else value]) for name, value in KEPT.items()}
    alone = {"violations": ResultMetric.of([0.0])}
    goals = goals_of({"lending": ours, "online-alone": alone})
    assert len(goals) == len(KEPT)
    assert sum(not goal.met for goal in goals) == (missed is not None)


def test_the_longest_counts_of_what_must_never_be_late():
    ours = {name: ResultMetric.of([value, value]) for name, value in KEPT.items()}
    ours["later"] = ResultMetric.of([0.0, 9.0])
    goals = goals_of({"lending": ours, "online-alone": {"violations": ResultMetric.of([0.0, 0.0])}})
    assert [goal.met for goal in goals].count(False) == 1


def test_beside_no_services_alone_nothing_is_said_of_them():
    ours = {name: ResultMetric.of([value]) for name, value in KEPT.items() if name != "later"}
    assert len(goals_of({"lending": ours})) == len(KEPT) - 2
    assert goals_of({"two-pools": ours}) == []
