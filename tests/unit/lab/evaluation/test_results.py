"""The form in which evaluations are kept."""

from __future__ import annotations

import json
from math import isnan, nan

import pytest

from lab.evaluation.results import Goal, Paired, ResultMetric, SuiteResult, from_json
from shared.errors import ConfigError


def make_result() -> SuiteResult:
    policies = {"new": {"loss": ResultMetric.of([1.0, 2.0, 4.0])}, "old": {"loss": ResultMetric.of([2.0, 4.0, 5.0])}}
    return SuiteResult(
        suite="thesis",
        command="conclave evaluate --suite thesis",
        seeds=(42, 43, 44),
        policies=policies,
        paired=(Paired.of("loss", policies, a="new", b="old"),),
        goals=(Goal.at_most("loss of new", 2.3, 2.5), Goal.at_least("share", 0.8, 0.9)),
        card_digests={"new": "ab" * 32},
        notes=("one trace was missing",),
        over_day={"load": {"new": (1.0, 2.0), "old": (2.0, 3.0)}},
    )


def test_result_survives_json() -> None:
    result = make_result()
    assert from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_value_that_is_not_finite_is_null_in_json() -> None:
    result = SuiteResult(
        "s", "c", (1, 2), {"a": {"steps": ResultMetric.of([1.0, nan])}}, goals=(Goal.at_most("g", nan, 1),)
    )
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["policies"]["a"]["metrics"]["steps"] == {"mean": None, "sd": None, "values": [1.0, None]}
    assert isnan(from_json(document).goals[0].value)


def test_means_are_those_of_the_values() -> None:
    metric = make_result().to_json()["policies"]["new"]["metrics"]["loss"]
    assert metric == {"mean": pytest.approx(7 / 3), "sd": pytest.approx(1.5275252), "values": [1.0, 2.0, 4.0]}


def test_paired_difference_is_a_less_b() -> None:
    assert make_result().paired[0].mean_difference == pytest.approx(-4 / 3)


def test_unmet_goals_are_told_apart() -> None:
    assert [goal.goal for goal in make_result().unmet] == ["share"]


def test_nan_meets_no_goal() -> None:
    assert not Goal.at_least("x", nan, 1.0).met
    assert not Goal.at_most("x", nan, 1.0).met
    assert not Goal.exactly("x", nan, 0.0).met


def test_a_metric_without_a_value_for_each_seed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policies\.new\.metrics\.loss: 1 values for 2 seeds"):
        SuiteResult("s", "c", (1, 2), {"new": {"loss": ResultMetric.of([1.0])}})


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("schema",), 2, r"schema is 2, this version reads 1"),
        (("seeds",), "42", "seeds"),
        (("policies", "new", "metrics", "loss", "values"), ["much"], r"policies\[.*\.metrics\[.*\.values"),
        (("goals", 0, "met"), "yes", r"goals\[0\]\.met"),
        (("paired", 0, "p"), "small", r"paired\[0\]\.p"),
        (("suite",), 7, "suite"),
    ],
)
def test_unreadable_result_is_refused_by_field(path: tuple[str | int, ...], value: object, named: str) -> None:
    document = json.loads(json.dumps(make_result().to_json()))
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ConfigError, match=named):
        from_json(document)
