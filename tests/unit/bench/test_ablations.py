"""``bench.ablations``: each switch takes away what it says, and nothing is left switched off afterwards."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from bench import ablations
from bench.ablations import ABLATIONS, AS_IT_IS, Figures, played

OPTIONS = Namespace(nodes=100, pods=96)
BY_NAME = {one.name: one for one in ABLATIONS}


def both(name: str, scene: str) -> tuple[Figures, Figures]:
    """As it is, and with the ablation."""
    one = BY_NAME[name]
    return played(scene, one.agents, None, OPTIONS), played(scene, one.agents, one, OPTIONS)


def test_the_same_scene_gives_the_same_figures_also_after_an_ablation() -> None:
    before, _ = both("candidate-cache", "like")
    assert played("like", 2, None, OPTIONS) == before


def test_without_the_cache_more_rows_are_scored_for_the_same_quality() -> None:
    before, without = both("candidate-cache", "like")
    assert without["rows scored"] > before["rows scored"]
    assert without["regret"] == pytest.approx(before["regret"], abs=0.5)


def test_a_reduced_scan_scores_no_more_than_it_says_and_finds_worse_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablations, "REDUCED", 2)
    one = BY_NAME["reduced-scan"]
    before, reduced = (played("used", 1, ablation, OPTIONS) for ablation in (None, one))
    assert reduced["rows scored"] < before["rows scored"]
    assert reduced["regret"] > before["regret"]


def test_candidates_that_are_not_scored_again_cost_quality() -> None:
    before, without = both("rescoring", "used")
    assert without["regret"] > before["regret"]


def test_one_unit_a_cycle_costs_opcodes_and_virtual_time() -> None:
    before, alone = both("batch-1", "like")
    assert alone["opcodes"] > before["opcodes"]
    assert alone["virtual pods/s"] < before["virtual pods/s"]


@pytest.mark.parametrize("name", ["dry-runs", "openable"])
def test_without_pruning_there_are_more_dry_runs(name: str) -> None:
    before, without = both(name, "full-urgent")
    assert without["dry runs"] > before["dry runs"]


def test_the_command_writes_a_table_and_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    words = ["--only", "next-best,overlap", "--nodes", "12", "--pods", "24", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", ["ablations", *words])
    ablations.main()
    told = capsys.readouterr().out
    assert "| changed" in told
    found = json.loads(out.read_text())
    assert [one["ablation"] for one in found] == [AS_IT_IS, "next-best"] * 3 + [AS_IT_IS, "overlap"]


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--only", "cash"], "'cash' is no ablation; there are "), (["--pods", "0"], "'0': give a whole")],
)
def test_bad_input_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablations", *words])
    with pytest.raises(SystemExit):
        ablations.main()
    assert told in capsys.readouterr().err
