"""Each way in which a server cannot be asked: one clear line with the remedy, and 1 (ask again) or 2 (refused)."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.server import client
from tests.admin_server import AdminServer
from tests.certificates import TestCa

TOKEN = "a-token-of-16-characters"
EMPTY = {"items": [], "continue": ""}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is set up on this machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE", "CONCLAVE_CONTEXTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN} viewer ann\n")
    return str(file)


def failed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int, words: tuple[str, ...]) -> None:
    assert run(list(arguments)) == code
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    for word in words:
        assert word in line, line


def error(status: int, code: str, message: str) -> dict[str, Any]:
    return {"GET /v1/nodes": (status, {"code": code, "message": message})}


def test_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    failed(capsys, "nodes", code=2, words=("no server", "--server URL", "--token-file", "conclave context add"))


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (error(401, "unauthenticated", "no credentials"), 2, ("no credentials", "--token-file")),
        (error(403, "forbidden", "viewer may not"), 2, ("viewer may not", "higher role")),
        (error(404, "node_unknown", "there is no node x"), 2, ("there is no node x", "conclave nodes")),
        (error(404, "route_unknown", "no route"), 2, ("admin address", "version")),
        (error(409, "conflict", "number is 4"), 2, ("number is 4", "look again")),
        (error(422, "invalid_value", "limit: 0..9"), 2, ("limit: 0..9",)),
        (error(503, "no_leader", "nobody leads"), 1, ("nobody leads", "ask again")),
        (error(503, "not_ready", "not synced"), 1, ("not synced", "ask again")),
        (error(500, "internal", "oops"), 1, ("500", "log")),
        ({"GET /v1/nodes": (502, b"<html>bad gateway</html>")}, 1, ("502", "no JSON")),
        ({"GET /v1/nodes": {"hello": 1}}, 1, ("no items", "version")),
        (error(403, "forbidden", "red \x1b[31mtext\nand more"), 2, ("red [31mtext and more",)),
    ],
)
def test_an_error_answer_is_one_line_with_the_remedy(
    capsys: pytest.CaptureFixture[str], answer: dict[str, Any], code: int, words: tuple[str, ...]
) -> None:
    with AdminServer(answer) as server:
        failed(capsys, "nodes", "--server", server.url, code=code, words=words)


def test_a_conflict_that_brings_its_remedy_gets_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer(error(409, "conflict", "nothing to roll back to; activate another")) as server:
        assert run(["nodes", "--server", server.url]) == 2
    assert capsys.readouterr().err.endswith("nothing to roll back to; activate another\n")


def test_an_empty_node_is_refused_before_anybody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({}) as server:
        failed(capsys, "drain", "n0", "", "--server", server.url, code=2, words=("NODE is empty", "conclave nodes"))
        assert server.asked == []


def test_each_refused_node_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({}) as server:
        assert run(["drain", "a\nb", "c", "--server", server.url]) == 2
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == ["a?b", "c"]


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        failed(capsys, "nodes", "--server", url, code=1, words=(url, "nobody listens", "--admin-listen"))


def test_the_first_server_that_answers_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({"GET /v1/units": EMPTY}) as server:
        assert run(["units", "--server", f"http://127.0.0.1:1,{server.url}"]) == 0
    assert capsys.readouterr().out == "there is no pod group, and no lone pod is on its way\n"


def test_the_token_is_sent_and_a_busy_server_is_asked_again(
    capsys: pytest.CaptureFixture[str], token_file: str
) -> None:
    busy = (429, {"code": "overloaded", "message": "too many"})
    with AdminServer({"GET /v1/units": [busy, EMPTY]}) as server:
        assert run(["units", "--server", server.url, "--token-file", token_file]) == 0
        assert [asked.headers["Authorization"] for asked in server.asked] == [f"Bearer {TOKEN}"] * 2
    capsys.readouterr()


def test_a_change_is_sent_once_however_busy_the_server_is(capsys: pytest.CaptureFixture[str]) -> None:
    with AdminServer({"POST /v1/scheduling/pause": (429, {"code": "overloaded", "message": "too many"})}) as server:
        failed(capsys, "pause", "--server", server.url, code=1, words=("too many", "ask again"))
        assert len(server.asked) == 1


def test_a_bad_token_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    failed(
        capsys, "nodes", "--server", "http://127.0.0.1:1", "--token-file", missing, code=2, words=(missing, "create")
    )


def test_an_answer_that_breaks_off_leaves_a_change_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def cut() -> None:
            taken, _ = listener.accept()
            taken.recv(65536)
            taken.close()

        cutter = threading.Thread(target=cut)
        cutter.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        failed(capsys, "pause", "--server", url, code=1, words=(url, "may have been done", "look before"))
        cutter.join()


def test_a_stream_that_never_begins_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes connections for a process that is stopped: only a deadline tells."""
    monkeypatch.setattr("services.cli.server.client.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        url = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        for command in (["dump", "--out", str(tmp_path / "dump.json")], ["decisions", "--watch"]):
            failed(capsys, *command, "--server", url, code=1, words=(url, "no answer within 0.2 s", "ask again"))
    assert not list(tmp_path.glob("dump*"))


def test_a_stream_that_falls_silent_is_given_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.cli.server.client.QUIET_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken: list[socket.socket] = []

        def begin() -> None:
            taken.append(listener.accept()[0])
            taken[0].sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")

        beginner = threading.Thread(target=begin)
        beginner.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        out = str(tmp_path / "dump.json")
        failed(capsys, "dump", "--out", out, "--server", url, code=1, words=(url, "breaks off", "ask again"))
        beginner.join()
        taken[0].close()
    assert not list(tmp_path.glob("dump*"))


@pytest.fixture
def authority(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """(a server's context, the file of the CA that signed it)"""
    made = TestCa()
    return made.contexts(tmp_path, "127.0.0.1")[0], str(made.write(tmp_path / "ca.pem"))


def test_tls_is_checked_against_the_ca_that_is_given(
    capsys: pytest.CaptureFixture[str], authority: tuple[ssl.SSLContext, str], tmp_path: Path
) -> None:
    made, ca = authority
    with AdminServer({"GET /v1/units": EMPTY}, tls=made) as server:
        assert run(["units", "--server", server.url, "--ca", ca]) == 0
        capsys.readouterr()
        failed(capsys, "units", "--server", server.url, code=2, words=("certificate", "--ca"))
        plain = server.url.replace("https", "http")
        failed(capsys, "units", "--server", plain, code=1, words=("https://",))
        bad = tmp_path / "bad.pem"
        bad.write_text("no certificate")
        failed(capsys, "units", "--server", server.url, "--ca", str(bad), code=2, words=("--ca", str(bad), "PEM"))
    with AdminServer({"GET /v1/units": EMPTY}) as server:
        url = server.url.replace("http", "https")
        failed(capsys, "units", "--server", url, "--ca", ca, code=2, words=("speaks no TLS", "http://"))


def test_a_page_after_the_other_is_asked_for_until_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [{"items": [{"name": f"n{at}"}], "continue": token} for at, token in enumerate(("t1", "t2", ""))]
    with AdminServer({"GET /v1/nodes": pages}) as server:
        assert run(["nodes", "--server", server.url, "-o", "json"]) == 0
        assert [asked.query.get("continue") for asked in server.asked] == [None, ["t1"], ["t2"]]
    assert [item["name"] for item in json.loads(capsys.readouterr().out)["items"]] == ["n0", "n1", "n2"]


@pytest.mark.parametrize("mended", [True, False])
def test_a_server_that_hangs_is_passed_over_also_for_a_change(
    token_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    """A coordinator that is stopped, or its machine frozen, takes connections all the same: nothing could be changed
    through its context while the other one led. The second case, without asking who is there, is what it was."""
    monkeypatch.setattr(client, "ALIVE_S", 0.2)
    monkeypatch.setattr(client, "TIMEOUT_S", 10.0 if mended else 1.0)
    if not mended:

        async def choose(*_: Any) -> None:
            """Take them as they come."""

        monkeypatch.setattr(client.AdminClient, "_choose", choose)
    paused = {"paused": True, "obeyed": True, "by": "ann", "reason": "", "since": ""}
    with socket.create_server(("127.0.0.1", 0)) as hangs, AdminServer({"POST /v1/scheduling/pause": paused}) as server:
        urls = f"http://127.0.0.1:{hangs.getsockname()[1]},{server.url}"
        assert run(["pause", "--server", urls, "--token-file", token_file]) == (0 if mended else 1)
        changes = [asked for asked in server.asked if asked.method == "POST"]
        assert len(changes) == (1 if mended else 0)
    said = capsys.readouterr()
    assert ("scheduling is paused" in said.out) if mended else ("no answer within" in said.err)
