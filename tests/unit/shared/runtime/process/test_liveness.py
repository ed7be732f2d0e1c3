"""Liveness is told by a thread: at once while the loop is busy, and 503 once it has not turned for long."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest

from shared.errors import ConfigError
from shared.runtime.process.liveness import Liveness
from tests.patience import PATIENCE_S


def asked(port: int, path: str = "/livez") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(("age_s", "status"), [(0.1, 200), (29.0, 200), (31.0, 503)])
def test_a_busy_loop_is_alive_and_a_hung_one_is_not(age_s: float, status: int) -> None:
    with Liveness("127.0.0.1:0", lambda: age_s, dead_after_s=30.0) as liveness:
        found, text = asked(liveness.port)
    assert found == status
    assert ("31 s" in text) == (status == 503)


def test_it_answers_nothing_else_and_goes_on_after_callers_that_say_nothing() -> None:
    with Liveness("127.0.0.1:0", lambda: 0.0) as liveness:
        assert asked(liveness.port, "/metrics")[0] == 404
        with socket.create_connection(("127.0.0.1", liveness.port)):
            pass
        with socket.create_connection(("127.0.0.1", liveness.port)) as silent:
            assert asked(liveness.port)[0] == 200
            silent.close()
        port = liveness.port
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def test_without_an_address_nothing_listens_and_a_taken_one_is_named() -> None:
    with Liveness("", lambda: 0.0) as liveness:
        assert liveness.port == 0
    with Liveness("127.0.0.1:0", lambda: 0.0) as first, pytest.raises(ConfigError, match="live_listen: 127"):
        Liveness(f"127.0.0.1:{first.port}", lambda: 0.0)
