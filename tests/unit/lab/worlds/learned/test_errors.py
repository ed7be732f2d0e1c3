"""Errors of a twin: 0 for one that knows what follows, and no better than the mean for one that says the mean."""

from __future__ import annotations

import numpy as np
import pytest

from lab.worlds.learned.errors import one_step, rolled_out, spread_tells
from lab.worlds.learned.model import LearnedTwin, TwinMode
from tests.learned_twins import lesson, twin_that_says

SAID = (12, 12, 12, 12, 12, 12)


@pytest.fixture(scope="module")
def found():
    return lesson()


@pytest.fixture(scope="module")
def twin(found):
    return twin_that_says(found, change=0, levels=SAID)


def test_a_twin_that_looks_everything_up_is_exact_one_step_ahead(found, twin):
    errors = one_step(twin, found.recorded)
    assert errors.looked_up == 1.0
    assert max(errors.twin.values()) < 1e-3
    assert errors.unchanged["arrivals"] > 0.01


def test_a_twin_that_says_the_same_always_is_no_better_than_the_mean(found, twin):
    stranger = found.twin({name: twin.arrays[name] for name in ("l0.w", "l0.b")}, trained={})
    arrays = {**stranger.arrays, "keys": np.zeros_like(stranger.arrays["keys"])}
    errors = one_step(LearnedTwin(stranger.header, arrays), found.recorded)
    assert errors.looked_up == 0.0
    assert min(errors.twin[name] for name in ("arrivals", "cpu", "finished")) >= 0.99


def test_a_roll_out_begins_with_every_twentieth_moment_and_drifts_where_one_step_does_not(found, twin):
    networks = LearnedTwin(twin.header, twin.arrays, mode=TwinMode.NETWORKS)
    ahead = rolled_out(networks, found.recorded, 1)
    assert ahead.looked_up == 0.0
    assert all(np.isfinite(list(ahead.twin.values())))
    assert ahead.twin["cpu"] > one_step(twin, found.recorded).twin["cpu"]


def test_whether_spread_tells_is_a_ratio_of_errors(found, twin):
    assert spread_tells(twin, found.recorded) > 0
