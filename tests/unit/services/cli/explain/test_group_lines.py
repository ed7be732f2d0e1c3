"""``conclave explain podgroup/NAME``: which member fails where; what a member's own explanation says of its group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.explain.text import group_lines, lines_of
from tests.admin_server import AdminServer

ANSWER: dict[str, Any] = {
    "unit": "a/train", "phase": "waiting", "summary": "7 of 9 waiting members fit together", "queue": "vision",
    "reason": "NodeResourcesFit", "message": "minCount (8) cannot be satisfied", "blocked": "queue vision: cpu is used",
    "now": {
        "pending": 9,
        "failed": [
            {"pods": [f"a/w-{n}" for n in range(7)], "count": 7, "plugins": ["NodeResourcesFit"],
             "why": "0/3 nodes are available: 3 Insufficient cpu.", "change": "free 2 cpu on n1",
             "nearest": [{"node": "n1", "lacks": {"cpu": "2", "memory": "1Gi"}}]},
        ],
        "topology": "rack", "domains": [{"value": "r7", "members": 7}, {"value": "r1", "members": 2}],
        "preemption": {"helps": True, "summary": "evict a/old", "broken": ["a/other"]},
        "change": "for each of 2 member(s) more: free 2 cpu on n1",
    },
}  # fmt: skip


def test_a_group_is_explained_by_who_fails_and_what_would_help() -> None:
    assert list(group_lines(ANSWER)) == [
        "a/train: waiting, 7 of 9 waiting members fit together",
        "  why        NodeResourcesFit: minCount (8) cannot be satisfied",
        "  quota      queue vision: cpu is used",
        "  a/w-0, a/w-1, a/w-2, a/w-3, a/w-4 and 2 more: 0/3 nodes are available: 3 Insufficient cpu.",
        "      n1 lacks 2 cpu, 1Gi memory",
        "      would help: free 2 cpu on n1",
        "  members that each rack takes: r7 7, r1 2",
        "  preemption would evict a/old",
        "      breaks a/other",
        "  would help the group: for each of 2 member(s) more: free 2 cpu on n1",
    ]
    complete = {**ANSWER, "now": ANSWER["now"] | {"pending": 0}}
    assert len(list(group_lines(complete))) == 3
    bare = {**ANSWER, "now": None, "message": "", "blocked": ""}
    assert list(group_lines(bare)) == ["a/train: waiting, 7 of 9 waiting members fit together"]


def test_a_member_names_its_groups_state() -> None:
    group = {
        "unit": "a/train", "phase": "waiting", "members": 2, "bound": 0, "min_count": 3, "queue": "",
        "reason": "Incomplete", "message": "2 of at least 3 members exist",
    }  # fmt: skip
    answer = {"pod": "a/w-0", "state": "pending", "summary": "it waits", "group": group}
    said = "member of pod group a/train: waiting, 0 of 2 bound, at least 3 or none; Incomplete: 2 of at least 3"
    assert said in list(lines_of(answer))[1]
    running = {**answer, "group": {**group, "phase": "running", "message": ""}}
    assert list(lines_of(running))[1].endswith("at least 3 or none")


@pytest.mark.parametrize("name", ["podgroup/train", "pg/train", "unit/train"])
def test_a_group_is_asked_for_as_kubectl_names_it(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    with AdminServer({"GET /v1/units/a/train/explain": ANSWER}) as server:
        assert run(["explain", name, "-n", "a", "--server", server.url]) == 0
        assert capsys.readouterr().out.startswith("a/train: waiting")
        assert run(["explain", name, "-n", "a", "--story", "--server", server.url]) == 2
        assert "a pod group has no story; leave" in capsys.readouterr().err
