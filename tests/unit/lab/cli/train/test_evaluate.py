"""``conclave evaluate`` with a small suite of its own: what is written, what is printed, which exit code."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from types import ModuleType

import pytest

import lab.suites.suites as suites
from lab.evaluation.results import Goal, Paired, ResultMetric, SuiteResult, from_json
from services.cli.__main__ import run
from services.cli.terminal.progress import line_of
from shared.errors import ConfigError

HIGH, LOW = "high", "low"


def coin_suite(given, progress):
    """``high`` is seed + 1, ``low`` is seed: their figures are known."""
    for done, seed in enumerate(given.seeds):
        progress(done, len(given.seeds), f"seed {seed}")
    policies = {
        HIGH: {"value": ResultMetric.of([seed + 1.0 + seed % 2 for seed in given.seeds])},
        LOW: {"value": ResultMetric.of([float(seed) for seed in given.seeds])},
    }
    return SuiteResult(
        "coin",
        given.command,
        tuple(given.seeds),
        policies,
        paired=(Paired.of("value", policies, a=HIGH, b=LOW),),
        goals=(Goal.at_least("value of high", policies[HIGH]["value"].mean, 1_000.0),),
    )


@pytest.fixture
def coin(monkeypatch):
    module = ModuleType("coin_suite_of_this_test")
    module.run_suite = coin_suite
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(suites.SUITES, "thesis", suites.SuiteEntry(module.__name__))


def test_result_is_written_whole_and_printed(coin, tmp_path, capsys):
    file = tmp_path / "out.json"
    assert run(["evaluate", "--suite", "thesis", "--seeds", "2-4", "--json", str(file)]) == 0
    result = from_json(json.loads(file.read_text()))
    assert result.policies[LOW]["value"].values == (2.0, 3.0, 4.0)
    assert result.paired[0].mean_difference == pytest.approx(4 / 3)
    said = capsys.readouterr()
    assert "NOT met value of high" in said.out
    assert "p = " in said.out
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_an_unmet_goal_fails_only_when_goals_are_required(coin):
    assert run(["evaluate", "--suite", "thesis", "--quiet"]) == 0
    assert run(["evaluate", "--suite", "thesis", "--quiet", "--require-goals"]) == 1
    assert run(["evaluate", "--suite", "thesis", "--quiet", "--seeds", "5000-5001", "--require-goals"]) == 0


def test_an_interrupted_evaluation_writes_nothing(coin, tmp_path, monkeypatch):
    def interrupted(given, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["coin_suite_of_this_test"], "run_suite", interrupted)
    assert run(["evaluate", "--suite", "thesis", "--json", str(tmp_path / "out.json")]) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_suite_that_is_not_there_is_named():
    names = "autoscaling, autoscaling-calibrated, deepsets, jobs, jobs-twin-a, learned-twin, openb, thesis"
    with pytest.raises(ConfigError, match=f"'gold' is not known; choose one of {names}"):
        suites.find_suite("gold")


def test_progress_tells_how_long_the_rest_may_take():
    assert line_of(1, 4, "seed 43", elapsed_s=10) == "[#####...............] 1/4 after 10 s, about 30 s left  seed 43"
    assert line_of(4, 4, "", elapsed_s=7300).startswith("[####################] 4/4 after 2 h 01 min")
    assert line_of(0, 4, "seed 42", elapsed_s=0).endswith("after 0 s  seed 42")


def test_a_missing_extra_is_named_before_anything_runs(coin, monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else found(name))
    assert run(["evaluate", "--suite", "thesis"]) == 2
    assert capsys.readouterr().err == (
        "conclave: evaluate: scipy missing; install the extra: pip install 'conclave-scheduler[evaluate]'\n"
    )


def test_who_only_places_pods_or_trains_loads_no_library_of_reports():
    code = (
        "import sys; import lab.serve.gate, lab.learner.deepsets.warm_up, lab.cli.twin.replay;"
        "print([name for name in ('scipy.stats', 'matplotlib', 'jinja2') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
