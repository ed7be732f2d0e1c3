"""``top`` and ``--watch`` on a terminal and elsewhere: what is drawn, how a lost server is shown, how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from tests.admin_server import AdminServer
from tests.patience import PATIENCE_S

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"

ROOT = Path(__file__).parents[5]
OVERVIEW = {"time": "2026-11-22T02:00:00.000Z", "leader": {"id": "c-0", "term": 12}}
DOCUMENTS: dict[str, Any] = {
    "GET /v1/overview": OVERVIEW,
    "GET /v1/nodes/map": {"names": ["n0"], "cpu": [0.5], "memory": [0.5], "flags": [0]},
    "GET /v1/decisions": {"items": []},
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "none.toml"))
    monkeypatch.delenv("CONCLAVE_SERVER", raising=False)


def test_top_redraws_in_place_and_ctrl_c_leaves_the_terminal_as_it_was() -> None:
    with AdminServer(DOCUMENTS) as server:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "services.cli", "top", "--interval", "0.2", "--server", server.url]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        environ.pop("NO_COLOR", None)
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True
        )
        os.close(theirs)
        seen = ""
        while seen.count("\x1b[H") < 2:
            seen += os.read(ours, 65536).decode()
        process.send_signal(signal.SIGINT)
        while not seen.endswith(LEAVE):
            seen += os.read(ours, 65536).decode()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        process.stderr.close()
        os.close(ours)
    assert seen.startswith(ENTER)
    assert "leader      c-0, term 12" in seen
    assert "\x1b[32mon\x1b[0m" in seen


def test_a_lost_leader_is_shown_above_what_was_known_and_looked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    lost = (503, {"code": "no_leader", "message": "nobody leads"})
    documents = DOCUMENTS | {"GET /v1/overview": [OVERVIEW, lost, OVERVIEW]}
    with AdminServer(documents) as server:
        assert run(["top", "--interval", "0.2", "--count", "2", "--server", server.url]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("conclave top", "http://"))]
    assert [title.split()[0] for title in titles] == ["conclave", f"{server.url}:", "conclave", "conclave"]
    assert "nobody leads" in titles[1]


def test_top_as_json_is_one_document_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer(DOCUMENTS) as server:
        assert run(["top", "--interval", "0.2", "--count", "2", "-o", "json", "--server", server.url]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [OVERVIEW, OVERVIEW]


def test_without_a_terminal_top_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer(DOCUMENTS) as server:
        assert run(["top", "--server", server.url]) == 0
        assert run(["top", "-o", "json", "--server", server.url]) == 0
    out = capsys.readouterr().out
    assert out.count("conclave top ") == 1
    assert json.loads(out.splitlines()[-1]) == OVERVIEW


def test_keys_lead_into_a_node_and_out_of_top() -> None:
    """On a terminal of its own: nodes, the second one, its pods, back, and q; then the terminal echoes as before."""
    node = {"name": "n1", "agent": "a", "pods": [], "pod_count": 0, "allocatable": {}, "requested": {}}
    nodes = {"items": [{**node, "name": name, "pods": 0} for name in ("n0", "n1")], "continue": ""}
    with AdminServer(DOCUMENTS | {"GET /v1/nodes": nodes, "GET /v1/nodes/n1": node}) as server:
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        command = [sys.executable, "-m", "services.cli", "top", "--server", server.url]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        seen = ""
        for awaited, keys in (
            ("leader      c-0", b"2"),
            ("n1    a", b"\x1b[B\r"),
            ("n1: Ready", b"\x1b"),
            ("n0    a", b"q"),
        ):
            while awaited not in seen:
                seen += os.read(ours, 65536).decode()
            seen = ""
            os.write(ours, keys)
        assert process.wait(PATIENCE_S) == 0
        after = termios.tcgetattr(theirs)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        os.close(ours)
        os.close(theirs)
    assert after == before


def test_a_server_that_is_not_there_ends_top_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "--server", "http://127.0.0.1:1"]) == 1
    assert "nobody listens there" in capsys.readouterr().err
