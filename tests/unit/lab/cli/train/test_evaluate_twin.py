"""``evaluate --suite learned-twin``, ``--suite autoscaling --twin``, ``twin series`` and ``twin lost``, in process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.worlds.learned.model import FILE, encode
from services.cli.__main__ import run
from tests.learned_twins import lesson, recorded_bytes, twin_that_says


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``conclave train services-twin`` leaves it."""
    found = tmp_path_factory.mktemp("twin")
    twin = twin_that_says(lesson(), change=6, levels=(12, 12, 23, 0, 0, 12))
    (found / FILE).write_bytes(encode(twin))
    return found


def test_the_gap_of_a_twin_is_written_and_printed(folder, tmp_path, capsys):
    out = tmp_path / "gap.json"
    flags = ["--twin", str(folder), "--scenario", "calm", "--policies", "demand", "--seeds", "42", "--json", str(out)]
    assert run(["evaluate", "--suite", "learned-twin", *flags]) == 0
    found = json.loads(out.read_text())
    assert "calm/reward_truth" in found["policies"]["demand"]["metrics"]
    assert "accuracy, mean over scenarios and policies" in capsys.readouterr().out


def test_an_evaluation_in_a_twin_says_that_it_was_in_one(folder, capsys):
    flags = ["--twin", str(folder), "--scenario", "calm", "--policies", "demand", "--seeds", "42"]
    assert run(["evaluate", "--suite", "autoscaling", *flags]) == 0
    assert "played in a learned twin of chained" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--suite", "learned-twin"), "--twin: the suite measures a learned twin"),
        (("--suite", "thesis", "--twin", "{folder}"), "--twin: only --suite autoscaling uses it"),
        (("--suite", "learned-twin", "--twin", "{folder}/none"), "give the folder of 'conclave train services-twin'"),
        (("--suite", "learned-twin", "--twin", "{folder}", "--steps", "x.csv"), "--steps: --suite learned-twin plays"),
        (("--suite", "learned-twin", "--twin", "{folder}", "--scenario", "ddos"), "no series of 'ddos' were recorded"),
        (
            ("--suite", "autoscaling", "--twin", "{folder}", "--scenario", "mixed", "--decide-every", "7"),
            "7 s is no multiple of the twin's steps",
        ),
        (("--suite", "autoscaling", "--twin", "{folder}", "--scenario", "attacker"), "no series of 'attacker'"),
    ],
)
def test_what_a_twin_cannot_be_asked_is_one_line(folder, flags, words, capsys):
    asked = [flag.format(folder=folder) for flag in flags]
    assert run(["evaluate", *asked, "--seeds", "42", "--quiet"]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert len(told.splitlines()) == 1


def test_series_are_recorded_whole_and_what_was_lost_in_them_is_told(tmp_path, capsys):
    out, figures = tmp_path / "series.csv", tmp_path / "lost.json"
    assert run(["twin", "series", "--out", str(out), "--scenario", "mixed", "--seeds", "1000", "--quiet"]) == 0
    assert "6 episodes of 1 scenarios" in capsys.readouterr().out
    assert run(["twin", "lost", str(out), "--json", str(figures)]) == 0
    assert "what helps" in capsys.readouterr().out
    assert {one["service"] for one in json.loads(figures.read_text())} <= {"a", "b", "c", "d"}


def test_a_refused_recording_leaves_no_file(tmp_path, capsys):
    out = tmp_path / "series.csv"
    assert run(["twin", "series", "--out", str(out), "--seeds", "42", "--quiet"]) == 2
    assert "--seeds: 42 is kept" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_is_lost_is_never_written_over_the_series(tmp_path, capsys):
    file = tmp_path / "s.csv"
    file.write_bytes(recorded_bytes())
    assert run(["twin", "lost", str(file), "--json", str(file)]) == 2
    assert "is FILE's file too" in capsys.readouterr().err
    assert file.read_bytes() == recorded_bytes()
