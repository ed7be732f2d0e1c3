"""What pause, resume, drain and settings say once the server answered: also that the leader did not confirm it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from tests.admin_server import AdminServer

AT = "2026-11-22T02:00:00.000Z"
BY_ANN = {"by": "ann", "reason": "disk", "since": AT}
SETTING = {"name": "batch_units", "value": 7, "default": 64, "source": "runtime", "type": "integer", "help": ""}
LATE: list[tuple[tuple[str, ...], str, dict[str, Any], str]] = [
    (("pause",), "POST /v1/scheduling/pause", {"paused": True, **BY_ANN}, "'conclave status'"),
    (("resume",), "POST /v1/scheduling/resume", {"paused": False}, "'conclave status'"),
    (("drain", "n1"), "POST /v1/nodes/n1/drain", {"name": "n1", "drained": BY_ANN}, "'conclave nodes'"),
    (("resume", "n1"), "POST /v1/nodes/n1/resume", {"name": "n1", "drained": None}, "'conclave nodes'"),
    (
        ("settings", "set", "batch_units=7"),
        "PATCH /v1/settings",
        {"number": 3, "items": [SETTING]},
        "'conclave settings -o json'",
    ),
    (
        ("settings", "unset", "batch_units"),
        "PATCH /v1/settings",
        {"number": 4, "items": [SETTING]},
        "'conclave settings -o json'",
    ),
]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is set up on this machine."""
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    for name in ("CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def told(
    capsys: pytest.CaptureFixture[str], answers: dict[str, Any], *arguments: str, code: int = 0
) -> tuple[str, list[str]]:
    with AdminServer({"GET /v1/settings": {"items": [SETTING]}, **answers}) as server:
        assert run([*arguments, "--server", server.url]) == code
    said = capsys.readouterr()
    return said.out, said.err.splitlines()


@pytest.mark.parametrize(("arguments", "route", "answer", "look"), LATE, ids=[" ".join(case[0]) for case in LATE])
def test_a_change_that_the_leader_did_not_confirm_is_one_line_with_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], route: str, answer: dict[str, Any], look: str
) -> None:
    out, errors = told(capsys, {route: answer | {"obeyed": False}}, *arguments)
    assert len(out.splitlines()) in (1, 2)
    (line,) = errors
    assert line.startswith(f"conclave {' '.join(arguments[:2]) if arguments[0] == 'settings' else arguments[0]}: ")
    for words in ("written", "did not confirm it in time", look):
        assert words in line
    assert told(capsys, {route: answer | {"obeyed": True}}, *arguments) == (out, [])


@pytest.mark.parametrize(("arguments", "route", "answer", "look"), LATE, ids=[" ".join(case[0]) for case in LATE])
def test_scripts_read_it_in_the_answer_instead(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], route: str, answer: dict[str, Any], look: str
) -> None:
    del look
    out, errors = told(capsys, {route: answer | {"obeyed": False}}, *arguments, "-o", "json")
    assert errors == []
    found = json.loads(out)
    assert (found if "obeyed" in found else found["items"][0])["obeyed"] is False


def test_of_several_nodes_those_that_are_late_are_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {
        f"POST /v1/nodes/{name}/drain": {"name": name, "drained": BY_ANN, "obeyed": obeyed}
        for name, obeyed in (("n1", False), ("n2", True), ("n3", False))
    }
    out, errors = told(capsys, answers, "drain", "n1", "n2", "n3")
    assert out.splitlines() == [f"{name}: drained by ann since {AT}: disk" for name in ("n1", "n2", "n3")]
    assert len(errors) == 1
    assert errors[0].startswith("conclave drain: n1, n3: written, ")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schedulable": True}, "takes pods"),
        ({"schedulable": False}, "no longer drained; unschedulable in Kubernetes"),
        ({"schedulable": False, "gone": True}, "forgotten: no node of that name is left"),
    ],
    ids=["open", "cordoned", "gone"],
)
def test_resuming_says_what_became_of_the_node(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], words: str
) -> None:
    answer = {"name": "n1", "drained": None, "obeyed": True, **fields}
    out, errors = told(capsys, {"POST /v1/nodes/n1/resume": answer}, "resume", "n1")
    assert out.startswith(f"n1: {words}")
    assert errors == []
