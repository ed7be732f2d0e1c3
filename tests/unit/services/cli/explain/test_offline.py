"""``conclave explain --batch``: only id and input are read, and what cannot be read is named by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run

NODE = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}}
POD = {"metadata": {"name": "p", "namespace": "d"}, "spec": {"containers": [{"name": "c"}]}}
QUESTION: dict[str, Any] = {"id": "q", "input": {"nodes": [NODE], "pod": POD}}


def batch(tmp_path: Path, *lines: str) -> tuple[int, Path]:
    questions, output = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    questions.write_text("".join(f"{line}\n" for line in lines))
    return run(["explain", "--batch", str(questions), "--output", str(output)]), output


def test_each_question_gets_one_line_in_order(tmp_path: Path) -> None:
    more = json.dumps(
        QUESTION | {"id": "r", "expect": {"feasible": 3}, "input": {**QUESTION["input"], "extra": [None]}}
    )
    code, output = batch(tmp_path, json.dumps(QUESTION), "", more)
    assert code == 0
    first, second = (json.loads(line) for line in output.read_text().splitlines())
    assert first == {
        "id": "q",
        "feasible": ["n"],
        "infeasible": {},
        "scores": {"n": {"ImageLocality": 0, "NodeResourcesFit": 85, "TaintToleration": 300, "total": 385}},
        "best": ["n"],
        "preEnqueue": None,
        "preemption": None,
        "preemptionReason": "",
    }
    assert second == first | {"id": "r"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2"),
        ('{"id": "x"}', "line 2: Object missing required field `input`"),
        (
            '{"id": "x", "input": {"nodes": 3, "pod": {}}}',
            "line 2: Expected `array | null`, got `int` - at `$.input.nodes`",
        ),
        (json.dumps({"id": "x", "input": {"pod": {"spec": {"overhead": {"cpu": "much"}}}}}), "spec.overhead[cpu]"),
        (json.dumps({"id": "x", "input": {"pod": POD, "pods": [{"spec": {"overhead": {"cpu": "-1"}}}]}}), "negative"),
        (
            json.dumps(
                {"id": "x", "input": {"pod": POD, "persistentVolumes": [{"spec": {"capacity": {"storage": "big"}}}]}}
            ),
            "spec.capacity[storage]",
        ),
    ],
    ids=["no JSON", "no input", "wrong type", "bad pod", "bad other pod", "bad volume"],
)
def test_a_line_that_cannot_be_used_is_named_and_nothing_is_written(
    line: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = batch(tmp_path, json.dumps(QUESTION), line)
    complaint = capsys.readouterr().err
    assert code == 2
    assert "line 2" in complaint
    assert says in complaint
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "cases.jsonl"]


def test_files_that_cannot_be_opened_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--batch", str(tmp_path / "none")]) == 2
    assert "none: No such file or directory" in capsys.readouterr().err
    (tmp_path / "cases.jsonl").write_text("")
    nowhere = tmp_path / "no" / "out"
    assert run(["explain", "--batch", str(tmp_path / "cases.jsonl"), "--output", str(nowhere)]) == 2
    assert "out: No such file or directory" in capsys.readouterr().err
