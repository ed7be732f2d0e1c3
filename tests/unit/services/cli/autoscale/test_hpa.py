"""``conclave autoscale hpa``: files in and out, and what is said about lines that cannot be used."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.cli.__main__ import EXIT_BAD_INPUT, run

GOOD = '{"id": "%s", "input": {"hpa": {"spec": {"maxReplicas": 9}}, "steps": []}}\n'
BAD = '{"id": "b", "input": {"hpa": {"spec": {"maxReplicas": 0}}, "steps": []}}\n'


def test_every_case_has_one_line_in_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text(GOOD % "a" + GOOD % "b")
    out = tmp_path / "out.jsonl"
    assert run(["autoscale", "hpa", "--batch", str(tmp_path / "in.jsonl"), "--output", str(out)]) == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"id": "a", "steps": []},
        {"id": "b", "steps": []},
    ]
    assert capsys.readouterr() == ("", "")


def test_a_bad_line_is_told_with_file_number_and_field_and_the_others_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    cases.write_text(GOOD % "a" + BAD + GOOD % "c")
    assert run(["autoscale", "hpa", "--batch", str(cases), "-o", str(out)]) == EXIT_BAD_INPUT
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["a", "c"]
    assert capsys.readouterr().err == (
        f"conclave: {cases}, line 2: case b: input.hpa.spec.maxReplicas: 0 is no number of replicas; give 1 or more\n"
    )


def test_standard_streams_serve_for_both(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO((GOOD % "a" + BAD).encode())))
    assert run(["autoscale", "hpa", "--batch", "-"]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert json.loads(said.out) == {"id": "a", "steps": []}
    assert said.err.startswith("conclave: stdin, line 2: case b: ")


@pytest.mark.parametrize(
    ("batch", "output", "told"),
    [
        ("gone.jsonl", "out.jsonl", "--batch: {batch}: No such file or directory; give a file with one case per line"),
        ("in.jsonl", "in.jsonl", "--output: {output} is --batch's file too; give another one"),
        ("in.jsonl", "no/folder/out.jsonl", "--output: {output}: No such file or directory; give a file that can be"),
    ],
)
def test_files_that_cannot_serve_are_told_before_any_work(
    batch: str, output: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text(GOOD % "a")
    paths = {"batch": str(tmp_path / batch), "output": str(tmp_path / output)}
    assert run(["autoscale", "hpa", "--batch", paths["batch"], "--output", paths["output"]]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err.startswith(f"conclave: {told.format(**paths)}")
    assert (tmp_path / "in.jsonl").read_text() == GOOD % "a"
