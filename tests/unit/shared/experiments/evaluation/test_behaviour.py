"""Groups of decisions and what they say about a policy."""

from __future__ import annotations

import numpy as np
import pytest

from shared.experiments.evaluation.behaviour.behaviour import Choice, behaviour_of
from shared.experiments.evaluation.behaviour.clusters import k_means
from shared.experiments.evaluation.report.behaviour import behaviour_section


def blobs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 900.0]])
    labels = np.repeat(np.arange(3), 40)
    return centres[labels] + rng.normal(0, [0.2, 20.0], (120, 2)), labels


def test_groups_that_lie_apart_are_found_whatever_their_units() -> None:
    points, labels = blobs(1)
    found = k_means(points, 3, seed=7)
    assert np.array_equal(found, labels)


def test_same_seed_gives_the_same_groups() -> None:
    points, _ = blobs(2)
    assert np.array_equal(k_means(points, 4, seed=3), k_means(points, 4, seed=3))


def test_equal_rows_are_one_group() -> None:
    assert k_means(np.ones((5, 2)), 4, seed=1).tolist() == [0] * 5


@pytest.mark.parametrize("points", [np.zeros((0, 2)), np.array([[np.nan, 1.0]])])
def test_rows_without_a_meaning_are_refused(points: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        k_means(points, 2, seed=1)


def test_the_group_that_agrees_least_comes_first_and_is_told_in_words() -> None:
    early = [Choice((0.1, 0.1, 1.0, 0.1, 0.0, 0.0), 0.0, True, 0.0)] * 6
    late = [Choice((0.1, 0.1, 1.0, 0.9, 0.4, 1.0), 0.0, False, 3.0)] * 3
    found = behaviour_of(early + late, policy="p", baseline="kube-default", costs={}, seed=1)
    assert (found.decisions, found.agreement, found.regret) == (9, pytest.approx(6 / 9), pytest.approx(1.0))
    assert [(group.count, group.agreement) for group in found.groups] == [(3, 0.0), (6, 1.0)]
    page = behaviour_section(found)
    assert "takes fuller nodes, kube-default takes emptier nodes" in page
    assert "takes emptier nodes, as kube-default does" in page


def test_no_decision_has_no_behaviour() -> None:
    with pytest.raises(ValueError, match="no decision"):
        behaviour_of([], policy="p", baseline="b", costs={}, seed=1)
