"""States and levels: units and back, classes that were drawn fit each other, and a level stands for its mean."""

from __future__ import annotations

import numpy as np
import pytest

from lab.worlds.learned import encoding as code
from tests.learned_twins import lesson, recorded


def test_signals_are_measures_in_the_services_own_units_and_back():
    units = code.UsualUnits(np.array([100.0, 50.0]), 0.5, np.array([0.5, 1.0]))
    measures = np.array([[[200.0, 90.0, 10.0, 30.0, 0.25, 0.4], [50.0, 25.0, 25.0, 0.0, 1.0, 0.5]]])
    signals = units.signals(measures)
    assert signals[0, 0].tolist() == pytest.approx([2.0, 1.0, 0.9, 0.3, 0.5, 0.8])
    np.testing.assert_allclose(units.measures(signals), measures)


def test_a_service_that_finished_nothing_did_well_and_a_missing_one_stays_missing():
    units = code.UsualUnits(np.array([100.0]), 0.5, np.array([1.0]))
    assert units.signals(np.array([[[0.0, 0.0, 0.0, 0.0, 0.1, 0.1]]]))[0, 0, code.WELL] == 1.0
    assert np.isnan(units.signals(np.full((1, 1, 6), np.nan))).all()


def test_levels_keep_the_mean_of_what_was_recorded():
    rng = np.random.default_rng(1)
    values = np.minimum(rng.exponential(0.3, (5000, 1, len(code.SIGNALS))), 2.0)
    values[:4000, 0, code.WELL] = 1.0
    levels = code.SignalLevels.of(values)
    found = np.take_along_axis(levels.values[None], levels.of_signals(values)[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(found.mean(axis=0), values.mean(axis=0), rtol=1e-9)
    assert np.abs(found - values).mean() < 0.05


def test_a_missing_reading_has_no_level():
    levels = code.SignalLevels.of(np.ones((3, 1, len(code.SIGNALS))))
    assert (levels.of_signals(np.full((1, 1, len(code.SIGNALS)), np.nan)) == -1).all()


def test_counts_that_were_drawn_one_by_one_add_up_to_what_is_asked_for():
    found = lesson()
    rng = np.random.default_rng(2)
    replicas = found.recorded.replicas
    for _ in range(20):
        change = rng.integers(0, code.CHANGES, replicas.shape)
        pending = rng.integers(0, code.PENDINGS, replicas.shape)
        counts = code.counted(found.recorded.state, replicas, change, pending)
        assert (counts >= 0).all()
        assert (counts[..., 1:].sum(axis=-1) == replicas).all()


def test_the_classes_of_a_step_lead_to_the_counts_that_were_recorded():
    found = lesson().recorded
    levels = code.SignalLevels.of(found.signals)
    classes = code.targets(found.state, found.replicas, found.counts, found.signals, levels)
    counts = code.counted(found.state, found.replicas, classes[..., 0], classes[..., 1])
    np.testing.assert_array_equal(counts, found.counts)


def test_memory_goes_on_within_a_stretch_and_begins_anew_in_the_next():
    found = lesson().recorded
    begins = np.flatnonzero(np.diff(found.stretch, prepend=-1))
    assert len(begins) == len(recorded().episodes)
    assert (found.state.young[begins] == 0).all()
    after = begins + 1
    before = found.state.counts[begins]
    np.testing.assert_array_equal(found.state.before[after], before[..., [code.READY, code.PENDING]])


def test_how_long_replicas_are_not_ready_is_told_for_each_the_longest_first():
    def counts(starting: int) -> code.Ints:
        return np.array([[[5, 5 - starting, starting, 0]]])

    signals = np.ones((1, 1, len(code.SIGNALS)))
    state = code.first(counts(1), signals)
    assert state.waited.tolist() == [[[1.0, 0.0, 0.0, 0.0]]]
    seen = []
    for starting in (1, 3, 3, 1, 0, 1):
        state = code.follow(state, counts(starting), signals)
        seen.append(state.waited[0, 0].tolist())
    assert seen == [
        [2.0, 0.0, 0.0, 0.0],
        [3.0, 1.0, 1.0, 0.0],
        [4.0, 2.0, 2.0, 0.0],
        [5.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0],
    ]


def test_inputs_are_finite_whatever_was_missing():
    assert np.isfinite(lesson().inputs).all()
