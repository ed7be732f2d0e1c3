"""Attribution on networks whose right answer is known by construction."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.attribution import Lens, attribute, lens_of
from shared.policy.heuristics import KubeDefault
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import MarlDqn
from shared.policy.observation import Observation
from shared.policy.weights import Card, WeightsFile
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod

NAMES = ("free", "warm", "unused")
ROWS = np.array([[0.9, 0.0, 7.0], [0.2, 1.0, 7.0], [0.4, 0.0, 1.0]], np.float32)
POD = make_pod().cpu("1").pod().pod_class


def linear(free: float, warm: float) -> Lens:
    """Q(accept) = free * x0 + warm * x1, Q(reject) = 0.1."""
    weights = np.array([free, warm, 0.0], np.float32)

    def q_values(features):
        return np.stack([np.full(len(features), 0.1, np.float32), features @ weights], axis=1)

    return Lens(NAMES, lambda seen: ROWS[: len(seen.rows)], q_values)


def seen(count: int = 3) -> Observation:
    cache = ClusterCache()
    for index in range(count):
        cache.upsert_node(make_node(f"n{index}").node())
    return Observation(cache.table, POD, np.arange(count))


def test_the_feature_that_decided_is_named_first_with_its_effect():
    told = attribute(linear(1.0, 0.1), seen())
    assert told.chosen.row == 0
    assert told.chosen.score == pytest.approx(0.8)
    assert (told.chosen.q_accept, told.chosen.q_reject) == pytest.approx((0.9, 0.1))
    assert told.moved[0].feature == "free"
    assert told.moved[0].effect == pytest.approx(0.9 - 0.3)
    assert told.moved[0].reference == pytest.approx(0.3)


def test_features_without_effect_are_left_out():
    assert [moved.feature for moved in attribute(linear(1.0, 0.1), seen()).moved] == ["free", "warm"]


def test_the_best_alternative_and_why_it_lost():
    told = attribute(linear(1.0, 0.1), seen())
    assert told.runner_up is not None
    assert told.runner_up.row == 2
    assert told.lost_by == pytest.approx(0.5)
    assert [(moved.feature, round(moved.effect, 4)) for moved in told.decisive] == [("free", 0.5)]


def test_what_rounding_makes_of_equal_features_is_told_as_nothing():
    told = attribute(_rounded(np.array([[0.6, 0.3, 7.0], [0.6, 0.3, 7.0]], np.float32)), seen(2))
    assert (told.moved, told.decisive, told.lost_by) == ((), (), 0.0)
    near = attribute(_rounded(np.array([[0.6, 0.3, 7.0], [0.6, 0.2998, 7.0]], np.float32)), seen(2))
    assert [moved.feature for moved in near.decisive] == ["warm"], "what is small and no rounding is told"


def _rounded(rows: np.ndarray) -> Lens:
    """Each row of a batch comes out a little higher than the one before, as from a matrix product of another shape."""
    exact = linear(1.0, 0.5)

    def q_values(features):
        return exact.q_values(features) + np.arange(len(features), dtype=np.float32)[:, None] * [[0.0, 2.4e-7]]

    return Lens(NAMES, lambda seen: rows, q_values)


def test_of_a_linear_score_the_decisive_effects_add_up_to_what_it_lost_by():
    told = attribute(linear(0.3, 0.9), seen())
    assert told.chosen.row == 1
    assert sum(moved.effect for moved in told.decisive) == pytest.approx(told.lost_by)


def test_a_choice_that_was_not_the_best_can_be_explained_too():
    told = attribute(linear(1.0, 0.1), seen(), row=1)
    assert told.chosen.row == 1
    assert told.lost_by == pytest.approx(0.3 - 0.9)


def test_one_candidate_alone_has_no_runner_up():
    told = attribute(linear(1.0, 0.1), seen(1))
    assert (told.runner_up, told.lost_by, told.decisive) == (None, 0.0, ())


@pytest.mark.parametrize(("count", "row", "message"), [(3, 9, "was no candidate"), (0, None, "no choice")])
def test_what_was_no_choice_is_refused(count, row, message):
    with pytest.raises(ValueError, match=message):
        attribute(linear(1.0, 0.1), seen(count), row=row)


def test_marl_dqn_is_explained_by_its_named_features():
    weights = np.zeros((len(FEATURES), 2), np.float32)
    weights[FEATURES.index("requested_above_mean"), 1] = -1.0
    card = Card(policy="marl-dqn", version=1, features=list(FEATURES))
    file = WeightsFile({"l0.w": weights, "l0.b": np.zeros(2, np.float32)}, card)
    cache = ClusterCache()
    for index, load in enumerate((0, 3, 1)):
        cache.upsert_node(make_node(f"n{index}").node())
        for number in range(load):
            cache.assume(f"u{index}-{number}", f"n{index}", POD, now=0.0)
    lens = lens_of(MarlDqn(file))
    assert lens is not None
    told = attribute(lens, Observation(cache.table, POD, np.arange(3)))
    assert told.chosen.row == 0
    assert [moved.feature for moved in told.moved] == ["requested_above_mean"]
    assert told.moved[0].effect > 0


def test_a_heuristic_has_nothing_to_look_into():
    assert lens_of(KubeDefault()) is None
