"""The spread over training seeds: every seed counts, a missed goal is told, what is there is not done again."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite

import pytest

from bench.training_seeds import __main__ as training_seeds
from bench.training_seeds.__main__ import SEEDS, Length, result_of
from bench.training_seeds.frag import flattened, goals_of
from bench.training_seeds.tables import SHIPPED, TABLES, FigureRow, lines_of, promised
from lab.evaluation.results import Goal, ResultMetric, SuiteResult
from lab.evaluation.seeds import parse_seeds
from lab.learner.__main__ import TRAINERS
from lab.learner.frag.fit import arrays_of
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES as DEEP_SETS
from shared.policy.weights import shipped


def figures(allocated: float, *, met: bool = True, digest: str = "") -> SuiteResult:
    metrics = {
        "default/allocated_130": ResultMetric((allocated, allocated)),
        "default/allocated_100": ResultMetric((95.0, 96.0)),
        "default/gain_130": ResultMetric((0.5, 0.7)),
        "cpu200/gain_130": ResultMetric((0.2, 0.2)),
    }
    goals = (
        Goal("frag on default", ">= 95.8", allocated, met),
        Goal("uniform: stretch, told and not promised", "<= 0.3", 0.5, met=False),
    )
    return SuiteResult("openb", "", (42, 43), {"frag": metrics}, goals=goals, card_digests={"frag": digest})


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def table(*allocated: float) -> dict[str, SuiteResult]:
    found = {str(1001 + place): figures(value, met=value >= 95.8) for place, value in enumerate(allocated)}
    return {SHIPPED: figures(96.5), **found}


def test_mean_and_deviation_are_over_the_other_seeds_and_not_the_shipped_one() -> None:
    row = next(line for line in lines_of("frag", table(96.0, 96.2)) if "130 %" in line)
    assert cells(row)[2:] == ["96.50", "96.00", "96.20", "96.10 ± 0.14", "96.00 to 96.20", "2 of 2"]


def test_a_seed_that_misses_a_goal_is_counted_and_named() -> None:
    lines = lines_of("frag", table(96.0, 95.7))
    assert "1 of 2" in next(line for line in lines if "130 %" in line)
    assert "- 1002 misses frag on default: 95.7, wanted >= 95.8" in lines
    assert "goals of the suite: shipped 1 of 1, 1001 1 of 1, 1002 0 of 1" in lines


def test_the_worst_trace_and_the_mean_of_all_are_told() -> None:
    worst, average = (cells(line) for line in lines_of("frag", table(96.0)) if "over FGD" in line)
    assert (worst[1], worst[2]) == ("≥ -0.1", "0.20")
    assert average[2] == "0.40"


def test_a_trace_below_fgd_is_a_goal_missed() -> None:
    found = {
        "default/gain_130": ResultMetric((0.5,)),
        "cpu200/gain_130": ResultMetric((-0.2,)),
        "default/failed": ResultMetric((9.0,)),
    }
    assert [(goal.goal, goal.met) for goal in goals_of(found)] == [
        ("frag less fgd on default, points, compiled", True),
        ("frag less fgd on cpu200, points, compiled", False),
    ]


def test_weights_are_laid_in_a_row_as_training_holds_them() -> None:
    own = shipped("frag")
    for name, array in arrays_of(flattened(own)).items():
        assert (array == own.arrays[name]).all()


def test_a_stretch_is_no_goal() -> None:
    assert [goal.goal for goal in promised(figures(96.0))] == ["frag on default"]


def test_a_goal_is_judged_by_the_figure_itself_not_by_what_is_told_of_it() -> None:
    row = FigureRow("", lambda found: 0.0, at_most=1.05)
    assert row.told(1.0504) == "1.050"
    assert not row.met(1.0504)
    assert row.met(1.05)
    assert row.told(-0.0001) == "0.000"


def test_every_policy_of_the_tables_is_one_that_can_be_trained_and_is_shipped() -> None:
    for policy in TABLES:
        assert policy in TRAINERS
        tried = shipped(policy).card.trained["seeds"]["training"]
        assert tried == ([1000, 1001, 1002] if policy in DEEP_SETS else [1000])
        assert not {*tried} & {*parse_seeds(SEEDS)}


def test_every_figure_of_the_tables_is_one_that_the_suites_tell(monkeypatch) -> None:
    monkeypatch.setattr(training_seeds, "TEST_SEEDS", (500,))
    for policy in (*DEEP_SETS, "marl-dqn", "single-dqn"):
        found = training_seeds.measure(policy, shipped(policy), "", Length((3, 100), 0.002))
        assert all(isfinite(row.value(found)) for row in TABLES[policy])
        assert found.card_digests[policy] == shipped(policy).sha256


def test_figures_that_lie_there_are_taken_if_they_are_of_these_weights(tmp_path, monkeypatch) -> None:
    weights = shipped("frag")
    measured: list[str] = []

    def measure(policy, weights, command, length):
        measured.append(policy)
        return replace(figures(96.0, digest=weights.sha256), command=command)

    monkeypatch.setattr(training_seeds, "measure", measure)
    file = tmp_path / "1001.json"
    first = result_of("frag", "1001", file, weights, Length())
    assert result_of("frag", "1001", file, weights, Length()) == first
    assert json.loads(file.read_text())["card_digests"] == {"frag": weights.sha256}
    assert measured == ["frag"]
    result_of("frag", "1001", file, replace(weights, sha256="other"), Length())
    assert measured == ["frag"] * 2


def test_figures_of_a_shorter_measurement_do_not_stand_for_the_whole(tmp_path, monkeypatch) -> None:
    commands: list[str] = []

    def measure(policy, weights, command, length):
        commands.append(command)
        return SuiteResult("deepsets", command, (42,), {}, card_digests={policy: weights.sha256})

    monkeypatch.setattr(training_seeds, "measure", measure)
    for length in (Length((3, 10), 0.1), Length(), Length()):
        result_of("lb", "1001", tmp_path / "1001.json", shipped("lb"), length)
    asked = "python -m bench.training_seeds --policies lb --seeds 1001 --nodes "
    assert commands == [f"{asked}3,10 --share 0.1", f"{asked}3,10,100,1000 --share 1"]


def test_a_run_whose_weights_are_there_is_not_trained_again(tmp_path, monkeypatch) -> None:
    def run(*given, **named):
        pytest.fail("trained again")

    monkeypatch.setattr(training_seeds.subprocess, "run", run)
    (tmp_path / "lb.npz").write_bytes(b"")
    assert training_seeds.train("lb", 1001, tmp_path) == tmp_path / "lb.npz"


def test_a_run_that_was_interrupted_is_resumed_with_the_same_seed(tmp_path, monkeypatch) -> None:
    orders: list[list[str]] = []
    monkeypatch.setattr(training_seeds.subprocess, "run", lambda order, **named: orders.append(order[3:]))
    training_seeds.train("lb", 1001, tmp_path)
    (tmp_path / "seed-1001.ckpt").touch()
    training_seeds.train("lb", 1001, tmp_path)
    plain = ["train", "lb", "--seeds", "1001", "--out", str(tmp_path)]
    assert orders == [plain, [*plain, "--resume"]]
