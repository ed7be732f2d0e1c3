"""A mesh inside a cluster, reached through kubectl, here a script that stands in for it: a real one needs a kubelet."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.__main__ import run
from services.cli.app import conclave
from services.cli.completion import kubectl_completions
from services.cli.server.options import KUBECTL
from tests.admin_server import AdminServer
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[5]
TOKEN = "an-admin-token-of-the-cluster"
ANSWERS = {"GET /v1/units": {"items": [], "continue": ""}, "POST /v1/nodes/n0/drain": {"name": "n0", "drained": None}}

SCRIPT = """#!/bin/sh
printf '%s\\n' "$*" >> "$FAKE/asked"
case "$*" in
  *"--context nobody"*) echo 'error: context "nobody" does not exist' >&2; exit 1 ;;
  *"-n elsewhere port-forward"*) echo 'Error from server (NotFound): services "conclave-admin" not found' >&2; exit 1 ;;
  *"-n slow port-forward"*) trap 'touch "$FAKE/signalled"' TERM; echo 'error: no such port' >&2; exec >&- 2>&-
                            sleep 0.3; exit 1 ;;
  *"-n secretive get secret"*) echo 'Error from server (Forbidden): secrets is forbidden' >&2; exit 1 ;;
  *"-n empty get secret"*) exit 0 ;;
  *"get secret"*) cat "$FAKE/secret" ;;
  *port-forward*) echo $$ >> "$FAKE/pids"
                  echo "Forwarding from 127.0.0.1:$(cat "$FAKE/port") -> 8701"; exec sleep 600 ;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "kubectl"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    (tmp_path / "secret").write_text(base64.b64encode(TOKEN.encode()).decode() + "\n\n\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "contexts.toml"))
    monkeypatch.delenv("CONCLAVE_SERVER", raising=False)
    return tmp_path


def asked(fake: Path) -> list[str]:
    return (fake / "asked").read_text().splitlines()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_kube_context_is_forwarded_for_one_command_with_the_clusters_token(fake: Path) -> None:
    with AdminServer(ANSWERS) as server:
        (fake / "port").write_text(str(server.port))
        assert run(["units", "--kube-context", "prod", "--mesh-namespace", "sched"]) == 0
        assert server.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    forward, secret = asked(fake)
    assert forward == "--context prod -n sched port-forward --address 127.0.0.1 service/conclave-admin :8701"
    assert secret.startswith("--context prod -n sched get secret conclave-admin-token -o jsonpath=")
    assert all(gone(int(pid)) for pid in (fake / "pids").read_text().split())


def test_as_plugin_the_context_is_kubectls(fake: Path) -> None:
    with AdminServer(ANSWERS) as server:
        (fake / "port").write_text(str(server.port))
        arguments = ["drain", "n0", "--context", "prod", "--mesh-namespace", "sched"]
        assert run(arguments, name="kubectl conclave", obj=KUBECTL) == 0
        assert run(["units"], name="kubectl conclave", obj=KUBECTL) == 0
    assert asked(fake)[0].startswith("--context prod -n sched port-forward")
    assert asked(fake)[2].startswith("-n conclave-system port-forward")


def test_kubectl_is_ended_also_when_the_server_refuses(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({}) as server:
        (fake / "port").write_text(str(server.port))
        assert run(["units", "--kube-context", "prod"]) == 2
    assert all(gone(int(pid)) for pid in (fake / "pids").read_text().split())
    assert "route" in capsys.readouterr().err


def test_a_stored_kube_context_and_a_token_file_of_ones_own(fake: Path) -> None:
    mine = fake / "mine"
    mine.write_text("my-own-token-of-a-viewer viewer\n")
    where = ("--kube-context", "p", "--mesh-namespace", "ns")
    assert run(["context", "add", "prod", *where, "--token-file", str(mine)]) == 0
    with AdminServer(ANSWERS) as server:
        (fake / "port").write_text(str(server.port))
        assert run(["units"]) == 0
        assert server.asked[0].headers["Authorization"] == "Bearer my-own-token-of-a-viewer"
    (forward,) = asked(fake)
    assert forward.startswith("--context p -n ns port-forward")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kube-context", "nobody"], ("context", "does not exist", "get-contexts")),
        (["--kube-context", "p", "--mesh-namespace", "elsewhere"], ("not found", "namespace elsewhere", "--mesh")),
        (["--kube-context", "p", "--mesh-namespace", "secretive"], ("forbidden", "--token-file")),
        (
            ["--kube-context", "p", "--mesh-namespace", "empty"],
            ("empty/conclave-admin-token", "--token-file"),
        ),
    ],
)
def test_what_kubectl_refuses_is_told_in_its_words_with_a_remedy(
    fake: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    (fake / "port").write_text("1")
    assert run(["units", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in words:
        assert word in line, line


def test_a_kubectl_that_has_told_why_is_let_end_by_itself(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Signalled while it ends, it may be reaped before asyncio looks: that is a second line, about a child process."""
    assert run(["units", "--kube-context", "p", "--mesh-namespace", "slow"]) == 2
    assert "no such port" in capsys.readouterr().err
    assert not (fake / "signalled").exists()


def test_without_kubectl_the_remedy_is_named(
    fake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(fake / "nothing"))
    assert run(["units", "--kube-context", "p"]) == 2
    assert "needs kubectl" in capsys.readouterr().err


def test_ctrl_c_ends_kubectl_too(fake: Path) -> None:
    """The server is a port that takes connections and says nothing, so the command hangs until it is interrupted."""
    import signal
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        (fake / "port").write_text(str(silent.getsockname()[1]))
        command = [sys.executable, "-m", "services.cli", "units", "--kube-context", "p"]
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        taken, _ = silent.accept()
        taken.recv(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        taken.close()
    assert all(gone(int(pid)) for pid in (fake / "pids").read_text().split())


def test_kubectls_completion_gets_one_candidate_per_line_and_no_files() -> None:
    lines = kubectl_completions(conclave, ["set"], KUBECTL)
    assert lines[0].startswith("settings\t")
    assert lines[-1] == ":4"


def test_kubectls_completion_asks_the_cluster_for_names(fake: Path) -> None:
    nodes = {"items": [{"name": "n0"}, {"name": "n1"}, {"name": "other"}], "continue": ""}
    with AdminServer({"GET /v1/nodes": nodes}) as server:
        (fake / "port").write_text(str(server.port))
        assert kubectl_completions(conclave, ["drain", "--context", "prod", "n"], KUBECTL) == ["n0", "n1", ":4"]
    assert asked(fake)[0].startswith("--context prod ")
