"""Efficiency of batches: the formula by hand, and that steps and progress are two names of one thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.worlds.training.convergence import Convergence, MeasuredRun

TWO = Convergence.of(
    [
        (40, MeasuredRun((100.0, 200.0, 300.0), (1.0, 1.0, 1.0), (0.0, 3.0, 1e12))),
        (10, MeasuredRun((100.0, 210.0, 300.0), (1.0, 1.0, 1.0), (0.0, 3.0, 1e12))),
    ]
)


def test_gain_is_that_of_the_formula_by_hand():
    """Twice the initial batch, variance three times the squared norm: (3 + 1) / (3 / 2 + 1) = 1.6."""
    assert TWO.gain(20, 1) == pytest.approx(1.6)
    assert TWO.efficiency(20, 150.0) == pytest.approx(0.8)


def test_without_noise_a_larger_batch_gains_nothing_and_with_nothing_else_it_gains_all():
    assert TWO.gain(40, 0) == pytest.approx(1.0)
    assert TWO.gain(40, 2) == pytest.approx(4.0)


def test_the_initial_batch_gains_exactly_one():
    assert [TWO.gain(10, epoch) for epoch in range(3)] == [1.0, 1.0, 1.0]


def test_an_epoch_ends_where_the_first_run_ends_it():
    assert TWO.ends == (0.0, 100.0, 200.0, 300.0)
    assert [TWO.epoch(progress) for progress in (0.0, 99.9, 100.0, 250.0, 300.0)] == [0, 0, 1, 2, 2]


def test_steps_of_a_whole_training_add_up_over_epochs():
    """100 steps without gain, 100 / 1.6 and 100 / 2 of the noisy last epoch."""
    assert TWO.steps_left(0.0, 20) == pytest.approx(100 + 62.5 + 50)
    assert TWO.advance(0.0, 20, 100 + 62.5) == pytest.approx(200.0)


@given(st.floats(0, 300), st.sampled_from([10, 17, 20, 40]), st.floats(0, 400))
def test_advancing_uses_up_exactly_the_steps_it_was_given(progress, batch, steps):
    after = TWO.advance(progress, batch, steps)
    assert after >= progress - 1e-9
    left = TWO.steps_left(progress, batch)
    assert TWO.steps_left(after, batch) == pytest.approx(max(left - steps, 0.0), abs=1e-6)


@pytest.mark.parametrize(
    ("runs", "words"),
    [([], "no run"), ([(10, MeasuredRun((5.0, 5.0), (1.0, 1.0), (1.0, 1.0)))], "does not rise")],
    ids=["none", "standing still"],
)
def test_runs_that_tell_nothing_are_refused(runs, words):
    with pytest.raises(ValueError, match=words):
        Convergence.of(runs)
