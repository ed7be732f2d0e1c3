"""FIFO, SRTF, DRF, Tetris, Tiresias and Optimus on examples that are worked out by hand; two nodes of 4 GPUs each."""

from __future__ import annotations

import pytest

from shared.jobs.policies.drf import Drf
from shared.jobs.policies.optimus import Optimus
from shared.jobs.policies.orders import Fifo, Srtf
from shared.jobs.policies.tetris import Tetris
from shared.jobs.policies.tiresias import Tiresias
from tests.training_jobs import ConstantSpeed, observation, seen_job, workers_of


def test_fifo_lets_nobody_overtake_the_first_that_does_not_fit():
    jobs = [seen_job("runs", requested=4, placement={"n0": 4}), seen_job("big", requested=5), seen_job("small")]
    assert Fifo().decide(observation(*jobs)) == {}
    assert workers_of(Fifo().decide(observation(*jobs[1:]))) == {"big": 5, "small": 1}


def test_srtf_preempts_for_who_has_least_time_left():
    """1000 samples by 8 workers take 125 s, 300 by 4 take 75 s, 90 by 1 take 90 s; a job of 3 fills what is left."""
    jobs = [
        seen_job("long", requested=8, remaining_samples=1000.0, placement={"n0": 4, "n1": 4}),
        seen_job("short", requested=4, remaining_samples=300.0),
        seen_job("middle", requested=1, remaining_samples=90.0),
        seen_job("filler", requested=3, remaining_samples=9000.0),
    ]
    decided = Srtf().decide(observation(*jobs))
    assert workers_of(decided) == {"short": 4, "middle": 1, "filler": 3}
    assert decided["long"].workers == 0


def test_srtf_puts_who_tells_nothing_last():
    jobs = [seen_job("silent", requested=8, remaining_samples=None), seen_job("known", requested=8)]
    assert workers_of(Srtf().decide(observation(*jobs))) == {"known": 8}


def test_drf_fills_shares_evenly_between_minimum_and_maximum():
    """8 GPUs: one job takes 1 at most, the others share 7 as 4 and 3, who came first has the odd one."""
    jobs = [seen_job("first"), seen_job("second"), seen_job("bounded", maximum=1)]
    assert workers_of(Drf().decide(observation(*jobs))) == {"first": 4, "second": 3, "bounded": 1}


def test_drf_gives_a_job_its_minimum_at_once_or_nothing():
    jobs = [seen_job("gang", minimum=6), seen_job("other", minimum=3)]
    assert workers_of(Drf().decide(observation(*jobs))) == {"gang": 8}


@pytest.mark.parametrize(
    ("first_left", "wanted"),
    [
        pytest.param(100.0, {"wide": 8}, id="equally short: the better aligned"),
        pytest.param(8000.0, {"narrow": 2}, id="much longer: the shorter"),
    ],
)
def test_tetris_weighs_alignment_and_remaining_work(first_left, wanted):
    """Of 8 free GPUs, 8 align by 1 and 2 by 1/4. Both with 12.5 s left are 0 short; beside 1000 s, 12.5 s are 0.99."""
    jobs = [
        seen_job("wide", requested=8, remaining_samples=first_left),
        seen_job("narrow", requested=2, remaining_samples=25.0),
    ]
    assert workers_of(Tetris().decide(observation(*jobs))) == wanted


def test_tetris_starts_all_that_fit_and_moves_nobody():
    jobs = [seen_job("runs", requested=4, placement={"n0": 4}), seen_job("a", requested=3), seen_job("b", requested=1)]
    assert workers_of(Tetris().decide(observation(*jobs))) == {"a": 3, "b": 1}


def test_tiresias_lets_who_had_little_go_before_who_had_much():
    policy = Tiresias(threshold_s=100.0)
    old, new = seen_job("old", requested=8, placement={"n0": 4, "n1": 4}, attained_s=99.0), seen_job("new", requested=4)
    assert policy.decide(observation(old, new)) == {}
    old = seen_job("old", requested=8, placement={"n0": 4, "n1": 4}, attained_s=100.0)
    decided = policy.decide(observation(old, new))
    assert workers_of(decided) == {"new": 4}
    assert decided["old"].workers == 0


def test_tiresias_fills_with_a_smaller_job_where_a_larger_one_before_it_does_not_fit():
    jobs = [seen_job("a", requested=6), seen_job("b", requested=4), seen_job("c", requested=2)]
    assert workers_of(Tiresias().decide(observation(*jobs))) == {"a": 6, "c": 2}


def test_tiresias_leaves_who_keeps_running_where_it_stands():
    jobs = [seen_job("a", requested=4, placement={"n1": 4}), seen_job("b", requested=4)]
    decided = Tiresias().decide(observation(*jobs))
    assert dict(decided["b"].placement) == {"n0": 4}
    assert "a" not in decided


def test_optimus_gives_the_next_worker_to_whom_it_saves_most_seconds():
    """At n workers 800 samples take 800 / n s: gains of 400, 133, 67, 40, 27, 19. Of 100 samples: 50, 17, 8. So of
    eight GPUs each gets one, then go 400, 133, 67, 50, 40, 27."""
    jobs = [seen_job("long", remaining_samples=800.0), seen_job("short", remaining_samples=100.0)]
    assert workers_of(Optimus().decide(observation(*jobs))) == {"long": 6, "short": 2}


def test_optimus_stops_where_one_worker_more_would_make_it_slower():
    jobs = [seen_job("a", speed=ConstantSpeed((1.0, 1.8, 1.7)))]
    assert workers_of(Optimus().decide(observation(*jobs))) == {"a": 2}


def test_optimus_begins_with_one_worker_each_in_the_order_of_their_coming():
    jobs = [seen_job(f"j{at}", remaining_samples=1.0) for at in range(9)]
    assert workers_of(Optimus().decide(observation(*jobs))) == {f"j{at}": 1 for at in range(8)}
