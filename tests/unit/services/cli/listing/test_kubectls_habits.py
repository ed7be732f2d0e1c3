"""kubectl's habits, the same for every list: -n -A -l --sort-by -o, one form of lists, --version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cli.__main__ import run
from services.cli.app import conclave
from services.cli.completion import kubectl_completions
from services.cli.listing.wanted import look_up, parse_path, rank
from services.cli.operate.nodes import NODES
from services.cli.server.options import KUBECTL
from shared.errors import ConfigError
from shared.version import CONCLAVE_VERSION
from tests.admin_server import AdminServer

MEMBERS = [
    {"service": "agent", "id": "a-10", "url": "http://a", "nodes": 2},
    {"service": "agent", "id": "a-9", "url": "http://b", "nodes": 30},
    {"service": "coordinator", "id": "c-0", "url": "http://c", "leading": True, "term": 7},
]
NODES_SHOWN = [
    {
        "name": name, "agent": "a", "schedulable": True, "drained": None, "taints": [], "pods": pods, "used": None,
        "allocatable": {"cpu_millis": 4000, "memory_bytes": 2**33, "pods": 110}, "labels": {"zone.io/name": zone},
        "requested": {"cpu_millis": cpu, "memory_bytes": 2**30},
    }
    for name, pods, cpu, zone in (("n2", 9, 500, "b"), ("n10", 100, 4000, "a"), ("n1", 20, 1000, "c"))
]  # fmt: skip
QUEUE = [
    {
        "namespace": ns, "name": name, "uid": f"u-{name}", "place": "unschedulable", "priority": priority,
        "attempts": 1, "waiting_s": 3.0, "retry_in_s": None, "plugins": ["NodeResourcesFit"], "nominated_node": "",
    }
    for ns, name, priority in (("a", "p1", 5), ("b", "p2", 0), ("a", "p3", 1))
]  # fmt: skip
COUNTS = {"active": 0, "backoff": 0, "unschedulable": 3, "in_flight": 0}
DECISIONS = [
    {"time": "t", "namespace": ns, "name": name, "uid": "u", "node": "n1", "policy": "p@1", "attempt": 1,
     "considered": [{"node": "n1", "score": score}]}
    for ns, name, score in (("a", "d1", 3), ("b", "d2", 1), ("a", "d3", 2))
]  # fmt: skip
UNITS = [
    {
        "key": f"podgroup:{ns}/{name}", "source": "podgroup", "namespace": ns, "name": name, "phase": "waiting",
        "queue": "vision", "place": "gated", "state": "", "priority": 0, "min_member": 8, "members": there, "bound": 0,
        "position": None, "reason": "Incomplete", "message": "", "since": "", "waiting_s": 3.0, "pods": [],
    }
    for ns, name, there in (("a", "train", 5), ("b", "eval", 2))
]  # fmt: skip
QUEUES = [
    {"name": name, "parent": parent, "depth": bool(parent), "resources": [], "pending_units": pending, "share": 0.25}
    for name, parent, pending in (("research", "", 3), ("vision", "research", 2))
]
ANSWERS: dict[str, Any] = {
    "GET /v1/members": {"items": MEMBERS, "continue": ""},
    "GET /v1/nodes": {"items": NODES_SHOWN, "continue": ""},
    "GET /v1/nodes/n1": NODES_SHOWN[2] | {"pods": [], "pod_count": 0},
    "GET /v1/queue": {"counts": COUNTS, "items": QUEUE, "continue": ""},
    "GET /v1/units": {"items": UNITS, "continue": ""},
    "GET /v1/queues": {"items": QUEUES, "continue": ""},
    "GET /v1/decisions": {"items": DECISIONS},
    "GET /v1/audit": {
        "items": [
            {"number": 5, "time": "t", "by": "ann", "route": "POST /v1/policies/promote", "result": "invalid_request"},
            {"number": 4, "time": "t", "by": "ann", "route": "POST /v1/policies/promote", "result": "ok"},
        ],
        "continue": "",
    },
    "GET /v1/policies": {"items": [{"name": "fgd", "version": 1, "sha256": "", "role": "", "percent": 0, "from": ""}]},
    "GET /v1/pending": {
        "pods": 2,
        "classes": 1,
        "gated": 1,
        "helps": [{"text": "add a node like n1", "lets_in": 2, "of": 2}],
        "items": [
            {
                "reason": "NodeResourcesFit",
                "namespace": "a",
                "priority": 0,
                "class": "c1",
                "pods": 2,
                "oldest_s": 3.0,
                "helps": [{"text": "add a node like n1", "lets_in": 2, "of": 2}],
            }
        ],
        "continue": "",
    },
    "GET /v1/settings": {"number": 3, "items": [{"name": "batch_units", "value": 64, "source": "start"}]},
    "GET /v1/settings/history": {"items": [{"number": 2, "values": {}}], "continue": ""},
}
LISTS = [
    (["members"], "Member", "member/a-10"),
    (["nodes"], "Node", "node/n2"),
    (["pending-pods"], "QueuedPod", "pod/p1"),
    (["units"], "Unit", "unit/train"),
    (["queue"], "Queue", "queue/research"),
    (["decisions"], "Decision", "pod/d1"),
    (["changes"], "Change", "change/5"),
    (["pending"], "PendingGroup", "pendinggroup/NodeResourcesFit/a/0/c1"),
    (["policy", "list"], "Policy", "policy/fgd@1"),
    (["settings"], "Setting", "setting/batch_units"),
    (["settings", "history"], "SettingsChange", "settingschange/2"),
]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    monkeypatch.delenv("CONCLAVE_SERVER", raising=False)


class Asked:
    """Runs commands against canned answers."""

    def __init__(self, capsys: pytest.CaptureFixture[str], server: AdminServer) -> None:
        self.capsys, self.server = capsys, server

    def lines(self, *arguments: str) -> list[str]:
        assert run([*arguments, "--server", self.server.url]) == 0, self.capsys.readouterr().err
        return self.capsys.readouterr().out.splitlines()

    def document(self, *arguments: str) -> Any:
        return json.loads("\n".join(self.lines(*arguments, "-o", "json")))

    def names(self, *arguments: str) -> list[str]:
        return [line.partition("/")[2] for line in self.lines(*arguments, "-o", "name")]

    def refused(self, *arguments: str) -> str:
        assert run([*arguments, "--server", self.server.url]) == 2
        (line,) = self.capsys.readouterr().err.splitlines()
        return line


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Any:
    with AdminServer(ANSWERS) as server:
        yield Asked(capsys, server)


@pytest.mark.parametrize(("command", "kind", "name"), LISTS, ids=[" ".join(case[0]) for case in LISTS])
def test_every_list_has_one_form_and_every_output(asked: Asked, command: list[str], kind: str, name: str) -> None:
    found = asked.document(*command)
    assert (found["kind"], found["apiVersion"], found["metadata"]) == (f"{kind}List", "conclave.io/v1", {})
    for item in found["items"]:
        assert (item["kind"], item["apiVersion"]) == (kind, "conclave.io/v1")
        assert item["metadata"]["name"]
    assert yaml.safe_load("\n".join(asked.lines(*command, "-o", "yaml"))) == found
    assert asked.lines(*command, "-o", "name")[:1] == ([name] if name else [])
    table, wide = asked.lines(*command), asked.lines(*command, "-o", "wide")
    assert len(table) == len(wide)
    assert len(asked.lines(*command, "--no-headers")) == len(found["items"]) or not found["items"]
    if found["items"]:
        assert asked.document(*command, "--sort-by", ".metadata.name")["items"]
    asked.lines(*command, "-n", "none-such")
    assert asked.lines(*command, "-A", "-n", "none-such") == table


def test_a_list_keeps_what_the_api_tells_beside_its_items(asked: Asked) -> None:
    assert asked.document("pending-pods")["counts"] == COUNTS
    assert asked.document("settings")["number"] == 3


def test_one_item_is_an_object_of_its_kind(asked: Asked) -> None:
    found = asked.document("nodes", "n1")
    assert (found["kind"], found["metadata"]["name"]) == ("Node", "n1")
    assert asked.lines("nodes", "n1", "-o", "name") == ["node/n1"]
    assert yaml.safe_load("\n".join(asked.lines("nodes", "n1", "-o", "yaml"))) == found


def test_sorting_is_by_column_or_by_path(asked: Asked) -> None:
    assert asked.names("nodes", "--sort-by", "NAME") == ["n1", "n2", "n10"]
    assert asked.names("nodes", "--sort-by", ".metadata.name") == ["n1", "n2", "n10"]
    assert asked.names("nodes", "--sort-by", "{.requested.cpu_millis}") == ["n2", "n1", "n10"]
    assert asked.names("nodes", "--sort-by=pods") == ["n2", "n1", "n10"]
    assert asked.names("nodes", "--sort-by", "cpu-requested") == ["n2", "n1", "n10"]
    assert asked.names("nodes", "--sort-by", "cpu") == ["n2", "n1", "n10"]
    assert asked.names("nodes", "--sort-by", r".metadata.labels.zone\.io/name") == ["n10", "n2", "n1"]
    assert asked.names("decisions", "--sort-by", ".considered[0].score") == ["d2", "d3", "d1"]
    assert asked.names("members", "--sort-by", "nodes") == ["c-0", "a-10", "a-9"]


def test_pending_says_what_would_help_above_the_groups(asked: Asked) -> None:
    lines = asked.lines("pending")
    assert lines[:2] == [
        "2 pods of 1 class wait, 1 more wait for their scheduling gates", "  lets in 2 of 2: add a node like n1",
    ]  # fmt: skip
    assert lines[-1].split()[:6] == ["NodeResourcesFit", "a", "0", "c1", "2", "3.0s"]


def test_a_part_of_what_waits_is_told_as_a_part(asked: Asked) -> None:
    """What helps all that wait says nothing of those who were asked for; each group has its own."""
    for part in (["-n", "a"], ["--reason", "NodeResourcesFit"], ["--class", "c1"], ["--priority", "0"]):
        lines = asked.lines("pending", *part)
        assert lines[:2] == ["2 of 3 waiting pods, in 1 group", ""], part


def test_nothing_in_a_namespace_is_not_nothing_at_all(asked: Asked) -> None:
    assert asked.lines("decisions", "-n", "none-such") == ["none in namespace none-such"]
    assert asked.lines("pending-pods", "-n", "none-such")[-1] == "none in namespace none-such"
    assert asked.lines("decisions", "-n", "none-such", "--no-headers") == []
    assert asked.lines("units", "-n", "none-such", "--no-headers") == []
    assert asked.document("decisions", "-n", "none-such")["items"] == []


def test_a_refused_change_does_not_look_like_one_that_was_made(asked: Asked) -> None:
    header, *rows = asked.lines("changes")
    assert [row[header.index("RESULT") :].split()[0] for row in rows] == ["invalid_request", "ok"]


def test_a_label_that_is_sorted_by_is_asked_for(asked: Asked) -> None:
    asked.lines("nodes", "--sort-by", r"{.metadata.labels.zone\.io/name}")
    assert asked.server.asked[-1].query["labels"] == ["zone.io/name"]
    asked.lines("nodes", "--sort-by", ".metadata.name")
    assert "labels" not in asked.server.asked[-1].query


def test_what_is_sorted_by_must_be_there(asked: Asked) -> None:
    assert "give NAME, AGENT" in asked.refused("nodes", "--sort-by", ".spec.none")
    for broken in ("", ".", "{.a", ".a[", "a..b", ".[*]"):
        if broken:
            assert "--sort-by" in asked.refused("nodes", "--sort-by", broken), broken


def test_paths_are_read_as_kubectl_reads_them() -> None:
    assert parse_path("{.a.b[1]['c.d']}", NODES) == ["a", "b", 1, "c.d"]
    assert parse_path(r"metadata.annotations.x\.io/y", NODES) == ["metadata", "annotations", "x.io/y"]
    assert look_up({"a": [{"b": 1}]}, ["a", -1, "b"]) == 1
    assert look_up({"a": [{"b": 1}]}, ["a", 4, "b"]) is None
    with pytest.raises(ConfigError, match="--sort-by"):
        parse_path("$", NODES)


def test_nothing_sorts_before_numbers_and_numbers_before_text() -> None:
    values = ["b10", None, 2, "b9", 1.5, True, {"a": 1}, ""]
    assert sorted(values, key=rank) == [None, "", True, 1.5, 2, "b9", "b10", {"a": 1}]


def test_a_namespace_is_the_pods(asked: Asked) -> None:
    assert asked.names("pending-pods", "-n", "a") == ["p1", "p3"]
    assert asked.server.asked[-1].query["namespace"] == ["a"]
    assert asked.names("pending-pods", "-A") == ["p1", "p2", "p3"]
    assert asked.names("decisions", "-n", "a", "--limit", "1") == ["d1"]
    assert asked.names("nodes", "-n", "a") == ["n2", "n10", "n1"]


def test_labels_are_selected_by_the_server_or_refused(asked: Asked) -> None:
    asked.lines("nodes", "-l", "a=b,!c")
    assert asked.server.asked[-1].query["selector"] == ["a=b,!c"]
    asked.lines("pending-pods", "-l", "a in (b,c)")
    assert asked.server.asked[-1].query["selector"] == ["a in (b,c)"]
    assert "keeps no labels of a decision" in asked.refused("decisions", "-l", "a=b")
    assert "-l: 'a in ('" in asked.refused("nodes", "-l", "a in (")


def test_an_empty_page_that_is_not_the_last_is_followed(asked: Asked) -> None:
    pages = [{"items": [], "continue": "x"}, {"items": QUEUE[:1], "continue": ""}]
    asked.server.answers = ANSWERS | {"GET /v1/queue": pages}
    assert asked.names("pending-pods") == ["p1"]


def test_the_version_is_told_on_top(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"conclave {CONCLAVE_VERSION}\n"


def test_outputs_and_pods_of_a_namespace_are_completed(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kubectl_completions(conclave, ["nodes", "-o", ""], KUBECTL)[:-1] == ["table", "wide", "json", "yaml", "name"]
    monkeypatch.setenv("CONCLAVE_SERVER", asked.server.url)
    assert kubectl_completions(conclave, ["explain", "-n", "a", ""], None)[:-1] == ["p1", "p3"]  # type: ignore[arg-type]
    assert kubectl_completions(conclave, ["explain", ""], None)[:-1] == ["a/p1", "a/p3", "b/p2"]
