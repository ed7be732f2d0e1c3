"""Twin A: what is drawn, that its two published baselines stand to each other as DL2 reports, and recorded
schedules."""

from __future__ import annotations

from statistics import fmean

import pytest

from lab.jobs.recorded import parse_schedule
from lab.jobs.schedules import HEADER, SERVERS, schedule_rows
from lab.jobs.twin_a import KINDS, SLOT_S, UNSEEN, TwinOrder, draw, play_twin
from shared.errors import ConfigError


def hours(**order):
    return play_twin(TwinOrder(**order)).figures()["avg_jct_h"]


def test_a_seed_is_a_workload():
    one, other = draw(7), draw(7)
    assert [(job.name, job.submitted, job.requested) for job in one] == [
        (job.name, job.submitted, job.requested) for job in other
    ]
    assert [job.name for job in draw(8)] != [job.name for job in one]


def test_jobs_come_at_the_beginning_of_a_slot():
    assert all(job.submitted % SLOT_S == 0.0 for job in draw(7))


def test_models_that_nobody_trained_on_come_only_where_they_are_asked_for():
    assert {job.model.name for job in draw(7)} <= set(KINDS)
    assert {job.model.name for job in draw(7, unseen=True)} & set(UNSEEN)


def test_optimus_is_below_drf_by_about_what_dl2_reports():
    below = fmean(1 - hours(policy="optimus", seed=seed) / hours(policy="drf", seed=seed) for seed in (100, 101, 102))
    assert below == pytest.approx(0.32, abs=0.05)


def test_no_rule_asks_for_what_there_is_not():
    for policy in ("fifo", "srtf", "drf", "tetris", "tiresias", "optimus", "marginal", "elastic"):
        played = play_twin(TwinOrder(policy=policy, seed=3, jobs=20))
        assert played.refused == (), policy
        assert played.unfinished == (), policy


def recorded(policy, seed):
    changes = play_twin(TwinOrder(policy=policy, seed=seed)).changes
    return "\n".join([f"{HEADER},{SERVERS}", *schedule_rows(seed, changes, servers=True)])


@pytest.mark.parametrize("policy", ["drf", "optimus"])
def test_a_recorded_schedule_played_again_ends_every_job_at_the_same_time(policy):
    again = parse_schedule(recorded(policy, 5), "s.csv")[5]
    assert hours(policy=again, seed=5) == pytest.approx(hours(policy=policy, seed=5), rel=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed,time_s\n1,0\n", "line 1: column job is missing"),
        (f"{HEADER}\n", "no row follows the header"),
        (f"{HEADER}\n1,0,a,start,n:x,1,1\n", "line 2: "),
        (f"{HEADER}\n1,9,a,start,n:1,1,1\n1,3,a,stop,,0,1\n", "line 3: time runs back"),
    ],
)
def test_what_is_no_schedule_is_named_by_its_line(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_schedule(text, "s.csv")
