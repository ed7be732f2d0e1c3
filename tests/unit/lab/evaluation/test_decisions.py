"""Decisions to imitate: what the teacher holds equally good, and what history shows."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lab.evaluation.decisions import collect, from_history, shared_best
from lab.worlds.placement.replaying import jobs_of
from shared.errors import ConfigError
from shared.policy.deepsets.features import FEATURE_COUNT, node_features
from shared.policy.observation import Verdicts
from tests.captures import make_capture


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_teachers_choice_is_even_over_its_best_accepted_candidates() -> None:
    score = np.array([5.0, 5.0, 9.0, 1.0])
    assert shared_best(Verdicts(score)).tolist() == [0, 0, 1, 0]
    assert shared_best(Verdicts(score, np.array([True, True, False, True]))).tolist() == [0.5, 0.5, 0, 0]
    assert shared_best(Verdicts(score, np.zeros(4, np.bool_))).tolist() == [0, 0, 1, 0]


def test_history_shows_the_nodes_that_were_chosen() -> None:
    capture = make_capture()
    decided = [job for job in jobs_of(capture)[0] if not job.node]
    found = collect(from_history(capture, node_features), members=4, rng=rng(), source="f")
    assert len(found) == len(decided)
    assert found.features.shape == (len(decided), 4, FEATURE_COUNT)
    assert found.check_valid() == (True, "")
    order = sorted(decided, key=lambda job: (job.at_s, job.uid))
    assert [int(row.argmax()) for row in found.target] == [("n1", "n2").index(job.was_on) for job in order]


def test_a_set_that_is_too_large_is_thinned_and_keeps_a_best_candidate() -> None:
    features = np.arange(100, dtype=np.float32)[:, None]
    target = np.zeros(100, np.float32)
    target[[7, 70]] = 0.5
    found = collect([(features, target)] * 20, members=5, rng=rng(), source="f")
    assert found.present.all()
    assert found.check_valid()[0]
    assert all({7.0, 70.0} & set(row[:, 0].tolist()) for row in found.features)


@pytest.mark.parametrize(
    ("example", "why"),
    [
        ((np.full((2, 1), np.nan, np.float32), np.array([1, 0], np.float32)), "NaN"),
        ((np.zeros((2, 1), np.float32), np.array([1, 1], np.float32)), "sum to 1"),
    ],
)
def test_decisions_that_cannot_be_learned_from_are_refused_by_source(example, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"--warm-up: f: .*{why}"):
        collect([example], members=4, rng=rng(), source="f")


def test_a_history_without_a_choice_is_refused() -> None:
    capture = make_capture(pods=0)
    with pytest.raises(ConfigError, match="no decision between two nodes"):
        collect(from_history(capture, node_features), members=4, rng=rng(), source="f")
    alone = msgspec.structs.replace(make_capture(), nodes=make_capture().nodes[:1], series={})
    assert list(from_history(alone, node_features)) == []
