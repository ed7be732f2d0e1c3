"""One way to ask a mesh, the admin API: etcd only where it is named; a way that is gone names the first one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.cli.__main__ import run
from tests.admin_server import AdminServer

ANSWER = {"pod": "d/p", "state": "bound", "summary": "on n0", "node": "n0"}
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE", "CONCLAVE_CONTEXTS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "conclave" / "config.toml"


@pytest.mark.parametrize(
    "command", [("status",), ("policy", "list"), ("policy", "rollback"), ("explain", "d/p"), ("nodes",)]
)
def test_without_any_server_nobody_is_asked(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command]) == 2
    assert capsys.readouterr().err.startswith("conclave: no server: give --server URL")


@pytest.mark.parametrize("command", [("status",), ("policy", "rollback"), ("policy", "activate", "random")])
def test_where_nobody_leads_etcd_is_looked_into_though_a_server_is_set_up(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCLAVE_SERVER", "http://127.0.0.1:2")
    assert run([*command, "--etcd", NOBODY]) == 1
    assert f"--etcd: no answer from {NOBODY}" in capsys.readouterr().err
    assert run([*command, "--etcd", NOBODY, "--server", "http://a:1"]) == 2
    told = "--server: names a server, --etcd does not go with it; give one of them"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (("policy", "list"), "--etcd"),
        (("policy", "show"), "--etcd-prefix"),
        (("policy", "promote", "random"), "--etcd"),
        (("explain", "d/p"), "--etcd"),
        (("explain", "d/p"), "--url"),
        (("explain", "d/p"), "--tls-cert"),
    ],
)
def test_a_way_that_is_gone_is_one_line_that_names_the_first(
    command: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with AdminServer({}) as server:
        assert run([*command, flag, "x", "--server", server.url]) == 2
        assert server.asked == []
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{flag}: is no longer taken: a server is asked; give --server URL or --context NAME" in line


def test_explain_reads_a_cluster_only_where_its_kubeconfig_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with AdminServer({"GET /v1/pods/d/p/explain": ANSWER}) as server:
        assert run(["context", "add", "mine", "--server", server.url]) == 0
        capsys.readouterr()
        assert run(["explain", "d/p", "--context", "mine", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == ANSWER
        assert run(["explain", "d/p", "--context", "theirs"]) == 2
        assert "there is no context 'theirs'" in capsys.readouterr().err
        assert run(["explain", "d/p", "--kubeconfig", str(tmp_path / "none"), "--context", "theirs"]) == 2
        assert str(tmp_path / "none") in capsys.readouterr().err
        assert run(["explain", "d/p", "--kubeconfig", "x", "--server", server.url]) == 2
        assert "--server: names a server, --kubeconfig does not go with it" in capsys.readouterr().err
        assert len(server.asked) == 1


def test_a_file_of_contexts_that_is_named_and_not_there_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "gone.toml"))
    assert run(["nodes"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"conclave: CONCLAVE_CONTEXTS: {tmp_path / 'gone.toml'} is not there")
    with AdminServer({"GET /v1/nodes": {"items": []}}) as server:
        assert run(["nodes", "--server", server.url]) == 0  # what decides is not the file
        assert run(["context", "add", "mine", "--server", server.url]) == 0
        assert run(["nodes"]) == 0
