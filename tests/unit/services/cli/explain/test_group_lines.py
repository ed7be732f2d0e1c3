"""``conclave explain podgroup/NAME``: which member fails where, and what a member's own explanation says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.explain.text import group_lines, lines_of
from tests.admin_server import AdminServer

ANSWER: dict[str, Any] = {
    "unit": "a/train", "phase": "waiting", "summary": "2 of at least 3 members fit now", "reason": "NodeResourcesFit",
    "message": "minCount (3) cannot be satisfied", "queue": "vision", "blocked": "queue vision: cpu 8 of maximum 8",
    "min_count": 3, "bound": 0, "pending": 9, "fits": 7, "reached": False, "reordered": True, "domain": "r7",
    "failing": [
        {"members": 2, "first": "w-7", "message": "0/3 nodes are available: 3 Insufficient cpu.",
         "helps": [{"kind": "add_node", "target": "n1", "text": "add a node like n1", "lets_in": 2, "of": 2}]},
    ],
    "members": [
        {"name": f"w-{n}", "uid": "u", "state": "unschedulable", "node": "" if n > 6 else "n1", "plugins": [],
         "message": "no" if n > 6 else ""}
        for n in range(9)
    ],
    "domains": [{"value": "r7", "members": 7}, {"value": "r8", "members": 2}],
    "preemption": {"helps": True, "summary": "would evict a/old", "victims": ["a/old"], "count": 1, "violations": 0,
                   "broken": ["podgroup:a/other"]},
}  # fmt: skip


def test_room_by_domain_and_whom_preemption_would_evict_are_told() -> None:
    lines = list(group_lines(ANSWER))
    assert "  room       members that each domain would take: r7 7, r8 2" in lines
    assert "  preemption would evict a/old; below their minimum then: podgroup:a/other" in lines
    assert not any("preemption" in line for line in group_lines(ANSWER | {"preemption": None}))


def test_a_group_is_explained_by_who_fails_and_what_would_help() -> None:
    lines = list(group_lines(ANSWER | {"domains": [], "preemption": None}))
    assert lines[:5] == [
        "a/train: waiting, 2 of at least 3 members fit now",
        "  why        NodeResourcesFit: minCount (3) cannot be satisfied",
        "  quota      queue vision: cpu 8 of maximum 8",
        "  domain     r7",
        "  order      it fits only in another order of its members than kube-scheduler's",
    ]
    assert lines[5:7] == [
        "  w-7 and 1 like it: 0/3 nodes are available: 3 Insufficient cpu.",
        "      would help: add a node like n1 (lets in 2 of 2)",
    ]
    assert lines[7] == "  w-0 unschedulable -> n1"
    assert lines[-1] == "  and 2 more members"


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
        assert "a pod group is asked of a mesh" in capsys.readouterr().err
