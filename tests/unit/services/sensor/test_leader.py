"""The sensor's calls: to whoever leads, over one connection, and one line about what goes wrong."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.cli.pki.certificates import wanted_of
from services.sensor.leader import LeaderCaller, seconds_of
from services.sensor.log import AGAIN_S, SensorLog
from shared.adapters.peers.certificates import Authority, issue, make_authority, pem_of
from shared.errors import PeerRejected, PeerUnknown

Answer = Callable[[bytes], tuple[int, bytes]]


class Coordinator(http.server.ThreadingHTTPServer):
    """Answers as it is told to; counts connections and requests."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.connections = 0
        self.asked: list[tuple[str, str]] = []
        self.date: str | None = None
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def get_request(self) -> Any:
        found = super().get_request()
        self.connections += 1
        return found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A handshake that failed is the caller's matter."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Coordinator

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        status, answer = self.server.answer(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.server.date or super().date_time_string(timestamp)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the interface's name
        pass


@contextmanager
def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Coordinator]:
    with Coordinator(answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def refusal(status: int, code: str) -> Answer:
    return lambda _: (status, msgspec.msgpack.encode({"code": code, "message": "for a reason"}))


def leads(body: bytes) -> tuple[int, bytes]:
    return 200, b"<" + body + b">"


def quiet() -> tuple[SensorLog, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    return SensorLog("n", write=lambda line: lines.append(json.loads(line))), lines


def test_whoever_leads_is_found_and_asked_over_one_connection() -> None:
    with serving(refusal(421, "not_leader")) as standby, serving(leads) as leader:
        one = LeaderCaller([standby.at, leader.at], quiet()[0])
        assert [one.call("/v1/readings", b"a"), one.call("/v1/readings", b"b")] == [b"<a>", b"<b>"]
        assert one.from_address == "127.0.0.1"
        assert (standby.connections, leader.connections, len(standby.asked)) == (1, 1, 1)
        # another one leads now
        standby.answer, leader.answer = leads, refusal(421, "not_leader")
        assert one.call("/v1/readings", b"c") == b"<c>"
        one.close()


def test_where_nobody_leads_that_is_said_and_a_silent_one_before_it() -> None:
    with serving(refusal(421, "not_leader")) as standby:
        one = LeaderCaller([standby.at], quiet()[0])
        with pytest.raises(PeerRejected) as refused:
            one.call("/v1/readings", b"")
        assert refused.value.code == "not_leader"
        one.close()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            one = LeaderCaller([standby.at, f"127.0.0.1:{taken.getsockname()[1]}"], quiet()[0])
            with pytest.raises(PeerRejected) as refused:
                one.call("/v1/readings", b"")
            assert refused.value.code == "peer_unreachable"
            one.close()


def test_a_refusal_of_the_leader_is_final() -> None:
    with serving(refusal(409, "superseded")) as leader, serving(leads) as other:
        one = LeaderCaller([leader.at, other.at], quiet()[0])
        with pytest.raises(PeerRejected, match="superseded for a reason") as refused:
            one.call("/v1/readings", b"")
        assert (refused.value.code, refused.value.status, other.asked) == ("superseded", 409, [])
        one.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_unknown_and_the_connection_is_given_up(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            made, _ = server.accept()
            with made:
                made.recv(65536)
                made.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        one = LeaderCaller([f"127.0.0.1:{server.getsockname()[1]}"], quiet()[0])
        with pytest.raises(PeerUnknown):
            one.call("/v1/readings", b"x")
        thread.join()
        assert not one.connected


def test_a_connection_that_the_other_end_closed_is_made_anew() -> None:
    with serving(leads) as leader:
        one = LeaderCaller([leader.at], quiet()[0])
        assert one.call("/v1/readings", b"a") == b"<a>"
        assert one._connection is not None
        one._connection.shutdown(socket.SHUT_RDWR)
        assert one.call("/v1/readings", b"b") == b"<b>"
        assert leader.connections == 2
        one.close()


def test_the_first_token_of_the_file_is_sent_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token\nsecond-token metrics\n")
    with serving(leads) as leader:
        one = LeaderCaller([leader.at], quiet()[0], token_file=file)
        one.call("/v1/readings", b"")
        file.write_text("another-token sensor\n")
        one.call("/v1/readings", b"")
        one.close()
    assert [token for _, token in leader.asked] == ["Bearer first-token", "Bearer another-token"]


class Pki:
    """A CA, and files of whom it certified."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = dt.datetime.now(dt.UTC)
        self.ca: Authority = make_authority("ca", days=5, now=self.now)
        folder.mkdir(exist_ok=True)
        (folder / "ca.crt").write_bytes(pem_of(self.ca.certificate))

    def files(self, kind: str, name: str = "") -> tuple[Path, Path, Path]:
        cert, key = issue(self.ca, wanted_of(kind, name, ()), days=3, now=self.now)
        place = self.folder / f"{kind}{name}"
        place.mkdir(exist_ok=True)
        (place / "tls.crt").write_bytes(cert)
        (place / "tls.key").write_bytes(key)
        return self.folder / "ca.crt", place / "tls.crt", place / "tls.key"

    def server(self, kind: str) -> ssl.SSLContext:
        ca, cert, key = self.files(kind)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(str(ca))
        made.load_cert_chain(str(cert), str(key))
        return made


def test_a_coordinator_is_known_by_its_role_whatever_its_address(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "a")
    mine = pki.files("sensor", "n")
    with serving(leads, pki.server("coordinator")) as leader:
        one = LeaderCaller([leader.at], quiet()[0], tls=mine)
        assert one.call("/v1/readings", b"a") == b"<a>"
        one.close()
    for server in (pki.server("agent"), Pki(tmp_path / "b").server("coordinator")):
        with serving(leads, server) as stranger:
            one = LeaderCaller([stranger.at], quiet()[0], tls=mine)
            with pytest.raises(PeerRejected) as refused:
                one.call("/v1/readings", b"a")
            assert refused.value.code == "peer_untrusted"
            assert stranger.asked == []


def test_a_server_that_does_not_take_our_certificate_hears_nothing(tmp_path: Path) -> None:
    theirs, ours = Pki(tmp_path / "a"), Pki(tmp_path / "b")
    ca, _, _ = theirs.files("sensor")
    _, cert, key = ours.files("sensor")
    with serving(leads, theirs.server("coordinator")) as leader:
        one = LeaderCaller([leader.at], quiet()[0], tls=(ca, cert, key))
        with pytest.raises((PeerRejected, PeerUnknown)) as refused:
            one.call("/v1/readings", b"a")
        # its alert, or, where the reset that follows overtakes it, no answer
        assert refused.value.code in {"peer_untrusted", "peer_unknown"}
        assert leader.asked == []


def test_new_certificates_are_followed_and_half_written_ones_are_not(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "a")
    mine = pki.files("sensor", "n")
    log, lines = quiet()
    with serving(leads, pki.server("coordinator")) as leader:
        one = LeaderCaller([leader.at], log, tls=mine)
        before = one._context
        mine[1].write_text("half")
        assert one.call("/v1/readings", b"a") == b"<a>"
        assert one._context is before
        assert [line["event"] for line in lines] == ["credentials_not_followed"]
        one.close()
        pki.files("sensor", "n")
        assert one.call("/v1/readings", b"b") == b"<b>"
        assert one._context is not before
        one.close()


def test_a_clock_that_is_an_hour_off_is_one_line_and_changes_nothing() -> None:
    log, lines = quiet()
    with serving(leads) as leader:
        leader.date = format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), usegmt=True)
        one = LeaderCaller([leader.at], log)
        assert [one.call("/v1/readings", b"a") for _ in range(3)] == [b"<a>"] * 3
        one.close()
    (line,) = lines
    assert line["event"] == "clock_differs"
    assert 3590 <= line["seconds"] <= 3610


@pytest.mark.parametrize("days", [0, 1, 59, 60, 366, 11_016, 20_000, 30_000])
def test_dates_of_http_are_read_as_the_standard_library_writes_them(days: int) -> None:
    told = dt.datetime(1970, 1, 1, 12, 34, 56, tzinfo=dt.UTC) + dt.timedelta(days=days)
    assert seconds_of(format_datetime(told, usegmt=True)) == told.timestamp()


@pytest.mark.parametrize("text", ["", "yesterday", "Sat, 28 Foo 2026 21:57:50 GMT", "1 2 3 4 5 6 7 8"])
def test_what_is_no_date_says_nothing(text: str) -> None:
    assert seconds_of(text) is None


def test_a_line_is_told_once_in_a_while_and_at_once_after_it_was_well_again() -> None:
    now, lines = [0.0], list[dict[str, Any]]()
    log = SensorLog(
        "n", "info", write=lambda line: lines.append(json.loads(line)), wall=lambda: 1e9, clock=lambda: now[0]
    )
    for now[0] in (0.0, 5.0, AGAIN_S - 1):
        log.tell("warning", "readings_refused", kind="not_leader", error="x" * 5000)
    log.tell("warning", "readings_refused", kind="superseded")
    log.tell("debug", "too_little")
    assert [line.get("kind", line["event"]) for line in lines] == ["readings_refused"] * 2
    assert len(lines[0]["error"]) == 1024
    assert lines[0]["time"] == "2001-09-09T01:46:40.000000Z"
    assert lines[0].keys() >= {"service", "id", "event", "level", "time"}
    log.over("readings_refused")
    log.tell("warning", "readings_refused", kind="superseded")
    now[0] = 3 * AGAIN_S
    log.tell("warning", "readings_refused", kind="superseded")
    assert len(lines) == 4


def test_the_log_writes_the_time_of_now() -> None:
    log, lines = quiet()
    log.tell("info", "now")
    assert lines[0]["time"][:4] == time.strftime("%Y", time.gmtime())
