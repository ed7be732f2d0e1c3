"""``conclave demo --workload services``: both sides, the picture, the figures, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.cli.__main__ import EXIT_BAD_INPUT, run

DEMO = ["demo", "--workload", "services", "--speed", "10000"]


def test_hpa_and_ours_are_shown_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = tmp_path / "demo.svg", tmp_path / "demo.json"
    assert run([*DEMO, "--out", str(out), "--json", str(figures), "--seed", "5"]) == 0
    told = json.loads(figures.read_text())
    assert (told["scenario"], told["seed"], list(told["policies"])) == ("mixed", 5, ["hpa", "karma"])
    assert {"success", "replica_hours", "reward"} <= told["policies"]["karma"].keys()
    assert out.read_text().startswith("<?xml")
    said = capsys.readouterr().out
    assert "conclave demo: mixed, 0 of 1800 s: hpa: answered" in said
    assert f"{told['policies']['karma']['success']:.1f} %" in said


def test_a_seed_gives_the_same_figures_again_and_quiet_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for number in range(2):
        file = tmp_path / f"{number}.json"
        arguments = ["--quiet", "--scenario", "calm", "--policy", "keda", "--json", str(file)]
        assert run([*DEMO, *arguments]) == 0
        told.append(json.loads(file.read_text())["policies"])
    assert told[0] == told[1]
    assert (tmp_path / "0.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*DEMO, "--scenario", "mixd"], "--scenario: 'mixd' is not known; choose one of"),
        ([*DEMO, "--policy", "nonesuch"], "--policy: 'nonesuch' is not compared here; choose from"),
        ([*DEMO, "--policy", "hpa"], "--policy: hpa is the one to compare with"),
        ([*DEMO, "--out", "demo.gif"], "--out: demo.gif is neither a .png nor a .svg file"),
        ([*DEMO, "--kill", "leader@5"], "--kill: the workload services has no mesh; leave it out"),
        ([*DEMO, "--json", "."], "--json: .: Is a directory; give a file"),
        ([*DEMO, "--json", "demo.png"], "--out: demo.png is --json's file too"),
        (["demo", "--workload", "latency", "--json", "demo.png"], "--picture: demo.png is --json's file too"),
        (["demo", "--scenario", "mixed"], "--scenario: it is of service graphs; give --workload services"),
        (["demo", "--workload", "services", "--speed", "0"], "--speed: 0 must be between"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
