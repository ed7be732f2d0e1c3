"""Commands that can ask a server or look into etcd: what is given decides, and giving both is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from services.cli.__main__ import run
from services.cli.etcd.options import etcd_options
from services.cli.server.choice import chosen_server
from services.cli.server.options import server_options
from services.cli.server.target import Direct, Target
from shared.errors import ConfigError
from tests.admin_server import AdminServer

ANSWER = {"pod": "d/p", "state": "bound", "summary": "on n0", "node": "n0"}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "contexts.toml"))
    for name in ("CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "contexts.toml"


def chosen(*arguments: str) -> Target | None:
    found: list[Target | None] = []

    @click.command()
    @server_options
    @etcd_options
    @click.pass_context
    def probe(here: click.Context, /, **_: Any) -> None:
        found.append(chosen_server(here))

    probe.main(list(arguments), standalone_mode=False)
    return found[0]


def test_without_any_server_etcd_is_meant() -> None:
    assert chosen() is None


def test_a_server_that_is_set_up_is_asked_unless_etcd_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCLAVE_SERVER", "http://env:1")
    asked = chosen()
    assert isinstance(asked, Direct)
    assert asked.urls == ("http://env:1",)
    assert chosen("--etcd", "http://127.0.0.1:2379") is None
    assert chosen("--etcd-prefix", "/mine/") is None


def test_a_server_and_etcd_on_one_line_are_refused() -> None:
    with pytest.raises(ConfigError, match="--server: names a server, --etcd does not go with it"):
        chosen("--server", "http://a:1", "--etcd", "http://b:1")


def test_explain_asks_a_context_of_ours_and_else_one_of_the_kubeconfig(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with AdminServer({"GET /v1/pods/d/p/explain": ANSWER}) as server:
        assert run(["context", "add", "mine", "--server", server.url]) == 0
        capsys.readouterr()
        assert run(["explain", "d/p", "--context", "mine", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == ANSWER
        assert run(["explain", "d/p", "--context", "theirs"]) == 2
        assert str(tmp_path / "none") in capsys.readouterr().err
        assert len(server.asked) == 1


def test_explain_with_the_leaders_url_asks_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({}) as server:
        assert run(["context", "add", "mine", "--server", server.url]) == 0
        capsys.readouterr()
        assert run(["explain", "d/p", "--url", "http://127.0.0.1:1"]) == 2
        assert "http://127.0.0.1:1" in capsys.readouterr().err
        assert run(["explain", "d/p", "--url", "http://a:1", "--server", server.url]) == 2
        assert "--server: names a server, --url does not go with it" in capsys.readouterr().err
        assert server.asked == []
