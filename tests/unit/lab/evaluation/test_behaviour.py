"""Groups of decisions and what they say about a policy."""

from __future__ import annotations

import numpy as np
import pytest

from lab.evaluation.behaviour import ComparedChoice, behaviour_of, group_alike
from lab.evaluation.report.html import render
from lab.evaluation.results import SuiteResult


def blobs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 900.0], [5.0, 900.0]])
    labels = np.repeat(np.arange(4), 40)
    return centres[labels] + rng.normal(0, [0.2, 20.0], (160, 2)), labels


def test_groups_that_lie_apart_are_found_whatever_their_units() -> None:
    points, labels = blobs(1)
    found = group_alike(points, seed=7)
    assert len(set(zip(found.tolist(), labels.tolist(), strict=True))) == len(set(labels.tolist()))


def test_same_seed_gives_the_same_groups() -> None:
    points, _ = blobs(2)
    assert np.array_equal(group_alike(points, seed=3), group_alike(points, seed=3))


@pytest.mark.parametrize("rows", [1, 5])
def test_equal_rows_are_one_group(rows: int) -> None:
    assert group_alike(np.ones((rows, 2)), seed=1).tolist() == [0] * rows


def test_the_group_that_agrees_least_comes_first_and_is_told_in_words() -> None:
    early = [ComparedChoice((0.1, 0.1, 1.0, 0.1, 0.0, 0.0), 0.0, True, 0.0)] * 6
    late = [ComparedChoice((0.1, 0.1, 1.0, 0.9, 0.4, 1.0), 0.0, False, 3.0)] * 3
    found = behaviour_of(early + late, policy="p", baseline="kube-default", costs={}, seed=1)
    assert (found.decisions, found.agreement, found.regret) == (9, pytest.approx(6 / 9), pytest.approx(1.0))
    assert [(group.count, group.agreement) for group in found.groups] == [(3, 0.0), (6, 1.0)]
    page = render(SuiteResult("s", "c", (1,), {}), behaviours=[found])
    assert "takes fuller nodes, kube-default takes emptier nodes" in page
    assert "takes emptier nodes, as kube-default does" in page


def test_no_decision_has_no_behaviour() -> None:
    with pytest.raises(ValueError, match="no decision"):
        behaviour_of([], policy="p", baseline="b", costs={}, seed=1)
