"""images/healthcheck.py says by its exit code whether a service answers, and why not in one line."""

from __future__ import annotations

import http.server
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
import yaml

from tests.manifests.rendering import ROOT

SCRIPT = ROOT / "images" / "healthcheck.py"


class Answering(http.server.BaseHTTPRequestHandler):
    """A service that is well at /healthz, and not at /readyz."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the interface's name
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def check(*words: str, **environ: str) -> tuple[int, str]:
    """Exit code and standard error, run as in a container: nothing but the standard library."""
    done = subprocess.run(
        [sys.executable, "-IS", str(SCRIPT), *words], capture_output=True, text=True, env={**os.environ, **environ},
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_who_answers_is_well_and_who_refuses_is_not(port: int) -> None:
    assert check(str(port)) == (0, "")
    assert check(str(port), "/readyz") == (1, f"127.0.0.1:{port}/readyz: HTTP/1.0 503 Service Unavailable\n")
    assert Answering.asked == ["/healthz", "/readyz"]


def test_the_port_is_the_listeners(port: int) -> None:
    assert check(CONCLAVE_LISTEN=f"0.0.0.0:{port}") == (0, "")


def test_a_listener_on_ipv6_alone_is_found() -> None:
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6

    with Server(("::1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert check(CONCLAVE_LISTEN=f"[::1]:{server.server_port}") == (0, "")
        finally:
            server.shutdown()
            thread.join()


def test_a_closed_port_is_not_well() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        code, said = check(str(taken.getsockname()[1]))
    assert code == 1
    assert re.fullmatch(r"127\.0\.0\.1:\d+: .*refused\n", said)


def test_a_listener_that_speaks_tls_is_asked_for_its_port_alone() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert check(str(silent.getsockname()[1]), CONCLAVE_TLS_CERT="/tls/tls.crt") == (0, "")


@pytest.mark.parametrize("words", [("twin",), ("1", "/healthz", "more")])
def test_what_it_does_not_understand_is_no_verdict(words: tuple[str, ...]) -> None:
    assert check(*words) == (2, "usage: healthcheck [PORT [PATH]]\n")


def test_compose_asks_as_the_images_do() -> None:
    text = (ROOT / "Dockerfile").read_text()
    stages = dict(re.findall(r"^FROM runtime AS (\w+)\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL))
    services = yaml.safe_load((ROOT / "compose/docker-compose.yaml").read_text())["services"]
    asked = set()
    for service in services.values():
        if "build" in service and "healthcheck" in service:
            target = service["build"]["target"]
            words = ", ".join(f'"{word}"' for word in service["healthcheck"]["test"][1:])
            assert f"CMD [{words}]" in stages[target].partition("HEALTHCHECK")[2], target
            asked.add(target)
    assert asked == stages.keys() - {"cli"}
