"""Means of a node's last samples: less noise, no lag behind pods, and nothing of what is no longer true."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.usage.node_use import NodeMeasurement
from shared.policy.usage.utilisation import UtilisationStore

MEAN_S = 30.0
POD = np.array([0.05, 0.02, 0.0, 0.1])


def store(*, mean_s: float = MEAN_S) -> UtilisationStore:
    """One whose pods of workload ``a`` are known to use ``POD``."""
    made = UtilisationStore(start_delay_s=0.0, mean_s=mean_s)
    made.slot("n0")
    made.usage.teach(made.column("a"), POD, 1.0)
    return made


def now(made: UtilisationStore, node: str = "n0") -> list[float]:
    return made.look(np.array([made.nodes[node]])).parts[0, 0].tolist()


def sample(*shares: float, at_s: float, newest_s: float | None = None, unmeasured: int = 0) -> NodeMeasurement:
    return NodeMeasurement("n0", shares, at_s, None, None, unmeasured, newest_s)


def test_noise_of_many_samples_is_less_than_that_of_the_last_one():
    rng, off = np.random.default_rng(7), {}
    for mean_s in (0.0, MEAN_S):
        made, found = store(mean_s=mean_s), []
        for at_s in range(0, 2000, 5):
            made.measure("n0", np.full(4, 0.4) * rng.normal(1.0, 0.1, 4), at_s=float(at_s))
            found.append(now(made))
        off[mean_s] = float(np.std(found[40:]))
    assert off[MEAN_S] < 0.5 * off[0.0]


@pytest.mark.parametrize("every_s", [1.0, 5.0, 15.0, 60.0])
@pytest.mark.parametrize("lag_s", [0.0, 15.0, 75.0])
def test_pods_that_come_and_go_are_counted_at_once_however_late_samples_are(every_s, lag_s):
    made, standing, told = store(), [], []
    for step in range(200):
        at_s = float(step)
        if step % 7 == 0:
            standing.append((f"p{step}", at_s))
            made.bound(f"p{step}", "n0", "a", now_s=at_s)
        if step % 20 == 13:
            made.ended(standing.pop(0)[0], now_s=at_s)
        told.append(0.3 + len(standing) * POD)
        if step >= lag_s and step % every_s == 0:
            made.measure("n0", told[step - int(lag_s)], at_s=at_s - lag_s)
            made.advance(at_s)
            assert now(made) == pytest.approx(told[-1])
            assert made.smoothed("n0", [0.0] * 4, 16.0) == pytest.approx(told[step - int(lag_s)])


def test_a_sample_that_tells_other_parts_begins_a_mean_anew():
    made = store()
    made.measure_some([sample(0.1, 0.1, 0.0, 0.0, at_s=0.0, unmeasured=0b1100)])
    made.measure_some([sample(0.5, 0.5, 0.5, 0.5, at_s=1.0)])
    assert now(made) == pytest.approx([0.5] * 4)


def test_a_part_that_is_measured_again_counts_though_another_is_as_old_as_before():
    made = store()
    made.measure_some([sample(0.2, 0.2, 0.2, 0.2, at_s=0.0)])
    made.measure_some([sample(0.8, 0.2, 0.2, 0.2, at_s=0.0, newest_s=30.0)])
    assert now(made)[0] == pytest.approx(0.8 - 0.6 / np.e)


def test_the_first_sample_of_another_machine_counts_alone():
    made = store()
    for at_s in (0.0, 1.0):
        made.measure("n0", np.full(4, 0.9), at_s=at_s)
    made.begin_anew("n0")
    made.begin_anew("never heard of")
    made.measure("n0", np.full(4, 0.1), at_s=2.0)
    assert now(made) == pytest.approx([0.1] * 4)


@pytest.mark.parametrize("mean_s", [0.0, MEAN_S])
def test_pods_told_before_another_machine_was_measured_leave_numbers(mean_s):
    made = store(mean_s=mean_s)
    made.measure("n0", np.full(4, 0.9), at_s=1.0)
    made.begin_anew("n0")
    made.bound("p", "n0", "a", now_s=-3000.0)
    assert np.isfinite(now(made)).all()
    for at_s in (2.0, 3.0):
        made.measure("n0", np.full(4, 0.1), at_s=at_s)
        assert now(made) == pytest.approx([0.1] * 4)
    assert made.smoothed("n0", [0.1] * 4, 16.0) == pytest.approx([0.1] * 4)


def test_workloads_that_come_one_by_one_are_given_room_in_steps():
    made, rooms = store(), [np.zeros(0)]
    for number in range(200):
        name = f"w{number}"
        made.bound(name, "n0", name, now_s=-3000.0 + number)
        made.measure("n0", np.full(4, 0.4), at_s=float(number))
        room = made.means.shown.base
        assert room is not None
        if room is not rooms[-1]:
            rooms.append(room)
        assert made.means.shown.shape == made._seen.shape
        made.slot(f"n{number % 20}")
    assert made.means.shown[made.nodes["n0"]].sum() == pytest.approx(200, abs=0.5)
    assert len(rooms) < 40


def test_pods_told_late_that_stood_all_along_count_once():
    made = store()
    for at_s in range(0, 600, 5):
        made.measure("n0", 0.3 + 4 * POD, at_s=float(at_s))
    for number in range(4):
        made.bound(f"p{number}", "n0", "a", now_s=-3000.0)
    assert now(made) == pytest.approx(0.3 + 4 * POD, abs=1e-6)
    made.forget_pods()
    assert now(made) == pytest.approx(0.3 + 4 * POD, abs=1e-6)


def test_a_node_that_left_leaves_nothing_to_the_next_of_its_place():
    made = store()
    made.bound("p", "n0", "a", now_s=0.0)
    for at_s in (1.0, 2.0):
        made.measure("n0", np.full(4, 0.9), at_s=at_s)
    made.forget(["n0"])
    made.slot("n1")
    made.measure_some([NodeMeasurement("n1", [0.1] * 4, 3.0, None)])
    assert now(made, "n1") == pytest.approx([0.1] * 4)


def test_what_is_told_to_others_has_no_part_that_was_not_measured_and_no_share_that_cannot_be():
    made = store()
    made.measure_some([sample(0.2, 0.2, 0.0, 0.0, at_s=0.0, unmeasured=0b1100)])
    for number in range(1000):
        made.bound(f"p{number}", "n0", "a", now_s=1.0)
    made.measure_some([sample(0.2, 0.2, 0.0, 0.0, at_s=2.0, unmeasured=0b1100)])
    told = made.smoothed("n0", [0.2, 0.2, 0.0, 0.0], 16.0, 0b1100)
    assert told == pytest.approx([16.0, 16.0, 0.0, 0.0])
    assert made.smoothed("never heard of", [0.2], 16.0) == [0.2]


@pytest.mark.parametrize("unmeasured", [0, 0b0100, 0b1000, 0b1111])
def test_of_a_sample_that_tells_other_parts_than_the_last_taken_others_are_told_what_it_shows(unmeasured):
    made, shown = store(), [0.3, 0.3, 0.7, 0.9]
    made.measure_some([sample(0.2, 0.2, 0.0, 0.0, at_s=0.0, unmeasured=0b1100)])
    assert made.smoothed("n0", shown, 16.0, unmeasured) == shown
